"""`gpu-webhook watch`: writes what the rules read of a cluster into a file, for the admission server beside it.

Belongs here: what is kept of nodes and claims, and when the file is replaced. Does not belong here: how the file is
read (`webhook.files.surroundings`), and what nodes mean (`webhook.core.inventory`).
"""
