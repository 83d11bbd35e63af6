"""The commands of `gpu-webhook`, grouped by what they are for; `webhook.cli` puts them together.

Belongs here: for each command what it takes, and how it is run and printed. Does not belong here: what it does, which
is in the modules around. They are imported when a command is run, so that each starts with what it needs only.
"""
