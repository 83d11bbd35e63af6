"""From requests to edits: the back end of each container, and everything that it needs of the pod.

Belongs here: the choice, the edits, and the reading of a pod that was translated before. Does not belong here: how
one back end translates (`webhook.core.backends`), and what a tenant may have (`webhook.core.policy`).

    plan              the plan of a pod: edits, warnings, violations
    choose            which back end serves a container
    reach             on whose nodes a pod may run
    inject            runtime class, scheduler, env, tolerations, node affinity, labels, annotations
    text              the text that rules write there
    constraints       what that text says of a pod's devices, read in reverse
    resource_claims   devices by a claim template (DRA)
    pod_requirements  what a back end requires of a pod, or forbids
    allocation        what the resources on a container mean
    shortfall         what a stored pod gives less than it asks
    remove            a pod without what a back end needed
"""
