"""From a pod to requests: what each container asks for, with the field path of every word.

Belongs here: the places where a request may be written, which of them wins, and what contradicts. Does not belong
here: which back end serves a request (`webhook.core.plan`).

    locations           the places of the shorthand (labels, annotations, resources), and which of them wins
    hints               labels and annotations that begin with `gpu` and that nothing reads
    extended_resources  the back ends' own resources on a container
    claim_objects       requests by reference to an ElasticGPUClaim or its like
    container_request   what one container asks for, all places joined
    interpret           all containers of a pod
"""
