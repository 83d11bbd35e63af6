"""One request and one back end: what the request becomes, and what resources on a container stand for.

Belongs here: the verbs of a rule's values, in both directions, and the charge of a request. Does not belong here: the
form of rules (`webhook.core.rules`), the choice between back ends, and the rest of the pod (`webhook.core.plan`).
"""
