"""What the API server is told to ask us about, and what it refuses alone.

Belongs here: which requests come to us, as rules and match conditions in CEL, and which namespaces are left out;
policies in CEL that refuse a part of what we refuse.
Does not belong here: certificates, which `certs` puts into the live objects, and where the server listens.

    conditions      match conditions, a superset of what a review may change or refuse
    configurations  the two objects

    admission_policies  what is refused without us
    policy_objects      a policy and its binding, as objects
    tenants             which TenantPolicy holds in a namespace
    ceilings            more whole devices than a container or a pod may have
    guarded             labels of namespaces, and ledgers
    untranslated        shorthand that became no device
    protected           the protected names of a pod
    neutral             what containers without a GPU get, so that no image gives them one
    resource_quotas     bounds for tenants with one namespace
    cel                 strings and lists of CEL
"""
