"""The admission server as a process: real sockets, real TLS, gunicorn and the enabled shipped rules."""
