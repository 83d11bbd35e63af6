"""What holds for every test."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts a job in the background lets it ignore SIGINT, and every program it starts inherits that:
    # the tests that interrupt a program, as Ctrl-C does, would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
