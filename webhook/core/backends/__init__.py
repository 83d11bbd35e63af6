"""One request and one back end: what the request becomes, and what resources on a container stand for.

Belongs here: the verbs of a rule's values, in both directions, and the charge of a request. Does not belong here: the
form of rules (`webhook.core.rules`), the choice between back ends, and the rest of the pod (`webhook.core.plan`).

    translate   a request in the words of a back end
    amounts     one value of a rule: unit, rounding, limits; from a request to a number and back
    partitions  the hardware partition that has what a share asks for
    read_back   from the resources on a container to a request
    cards       which card a node has, by its labels
    models      card models by the names that people, nodes and drivers give them
    charge      what a request counts as: devices, memory, compute
"""
