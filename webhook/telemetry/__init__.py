"""What programs tell of themselves: log lines and metrics.

Belongs here: the form of a line and of the page that Prometheus reads. Does not belong here: what is worth counting
or logging, which each program decides.
"""
