"""Mistakes that teams make, each with the whole answer to it.

`mistakes.yaml` has what somebody writes and, where anybody can tell, what is meant by it; `answers.yaml` what is
answered. `python -m tests.mistakes` writes the latter anew, to be read as a difference.
"""
