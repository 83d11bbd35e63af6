"""Attacks on the server: what one client, or a few, can send to take it away from everybody else.

`monsters` has pods that are as large in one dimension as an API server takes them, for every dimension that the
webhook walks. The tests of the budget use them, too.

`fuzzing` mutates good inputs by the hundred thousand, and `corpus/` keeps those that ever failed.

`sockets` opens thousands of them, each left at one point of its life, and calls meanwhile as API servers do.
"""
