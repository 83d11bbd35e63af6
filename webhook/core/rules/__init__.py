"""The rule language: each kind of document as a frozen value with its form, and all of them together.

Belongs here: what a rule, a catalogue, a policy or a cluster may say, what it becomes, and which names it may use.
Does not belong here: what is done with it, which the rooms above know (`backends`, `plan`, `policy`), running the
examples of rules (`reports`), and files (`webhook.files`). In reading order:

    vocabulary        the closed sets of words, and units
    catalog           DeviceCatalog: card models
    verbs, outputs    values that a rule computes or writes
    modes, backend    Backend: its modes, and what every pod gets
    claim_source      ClaimSource: objects that pods name
    workload          Workload: where objects keep the templates of their pods
    built_in_workloads  the same of Kubernetes' own kinds
    protection, protected_names  Protection: what of a pod gives devices beside its requests
    names             names that stand for what other documents define
    cluster           Cluster: which back ends there are
    tenant_policy     TenantPolicy
    exemption         Exemption
    expand            a back end beside the catalogues: its cards and all of its modes
    rulebook, index   everything a review is judged by, indexed
    tenancy           the policies and exemptions that are in force
    schema            every kind of document, and the JSON Schema of them
    load              documents in, a rulebook out
    cluster_policies  policies and exemptions as objects of a cluster, each of which may be broken by itself
"""
