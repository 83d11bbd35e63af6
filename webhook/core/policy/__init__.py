"""What a tenant may have: defaults before the translation, judgement after it, and the words of a refusal.

Belongs here: everything that a TenantPolicy or an Exemption decides about one pod. Does not belong here: the form of
these documents (`webhook.core.rules`), and the sum over all pods of a tenant (`webhook.core.quota`).

    membership  the policy of a namespace
    defaults    the plan of a pod with its policy's defaults
    placement   labels, annotations and nodes that a policy sets
    holdings    what each container holds, and what a pod counts
    judge       everything that the policy says of a pod, with enforcement actions and exemptions
    allowed     back ends, vendors, models, sharing and profiles: allowed, forbidden
    ceilings    the most for one container and one pod
    totals      the pod's part in a quota: its reservation, or why it cannot be counted
    unknown_devices   resources that look like GPUs and that no rule knows
    device_access   what of a pod reaches devices that it does not ask for
    disabled_back_ends   annotations and labels that ask for GPUs of back ends that are not enabled
    refusal     the answer where a quota refuses, with what would fit
    immutable   what an update must not change
    restated    what an update states again, and is put back
    observe     observe mode: the decision as warnings
    status      the conditions of a TenantPolicy
"""
