"""From requests to edits: the back end of each container, and everything that it needs of the pod.

Belongs here: the choice, the edits, and the reading of a pod that was translated before. Does not belong here: how
one back end translates (`webhook.core.backends`), and what a tenant may have (`webhook.core.policy`).
"""
