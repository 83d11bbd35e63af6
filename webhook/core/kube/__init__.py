"""Kubernetes: how its objects are built and written, without anything of GPUs.

Belongs here: pods, field paths, patches, quantities, times, node affinity, CEL. Does not belong here: the shorthand
(`webhook.core.request`), and what a rule or a policy says.

    paths          where a field is, for people and for JSON Patch
    pod            a read-only view of a pod and its containers of every kind
    patch          edits, each with its rule, and the JSON Patch that they become
    quantity       amounts as people and Kubernetes write them, exact
    time           times as Kubernetes writes them
    node_affinity  requirements on nodes, added to every term of a pod
    cel            strings and lists of CEL, and alternatives
"""
