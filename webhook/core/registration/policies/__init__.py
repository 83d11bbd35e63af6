"""Policies in CEL that the API server evaluates itself, so that they hold while nobody answers for the webhook.

Belongs here: what of our refusals needs no count, as ValidatingAdmissionPolicies by the documents of the rules; the
MutatingAdmissionPolicy and the ResourceQuotas beside them. Does not belong here: which requests come to the webhook
(`conditions`, a level above).

    validating       what is refused
    mutating         what containers without a GPU get, so that no image gives them one
    resource_quotas  bounds for tenants with one namespace
    objects          a policy and its binding, as objects
    tenants          which TenantPolicy holds in a namespace
    ceilings         more whole devices than a container or a pod may have
    guards           labels of namespaces, and ledgers
    untranslated     shorthand that became no device
    bypasses         the protected names of a pod
"""
