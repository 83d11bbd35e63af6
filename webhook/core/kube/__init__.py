"""Kubernetes: how its objects are built and written, without anything of GPUs.

Belongs here: pods, field paths, patches, quantities, times, node affinity. Does not belong here: the shorthand
(`webhook.core.request`), and what a rule or a policy says.
"""
