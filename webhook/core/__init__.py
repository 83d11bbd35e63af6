"""Everything between the bytes of an admission review and the bytes of its answer, as functions of values.

Belongs here: understanding a request, choosing a back end, translating, judging, counting. Does not belong here: I/O,
the clock, randomness, logging, flask, kubernetes, YAML, or the name of any vendor. import-linter holds that, and the
order of the rooms, which `webhook/README.md` shows.
"""
