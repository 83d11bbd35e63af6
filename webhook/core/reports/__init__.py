"""The decisions and what they rest on, told to people.

Belongs here: values that answer a question of a pod's author, a rule's author or an operator, and their JSON forms.
Does not belong here: how they are shown (`webhook.views`, `webhook.console`). A review uses three things of this
room: the server learns its surroundings from an `inventory`, `workloads` answers /templates, and `applied` /policies.

    explain    what would become of a pod, why, and which rule each edit comes from
    api_server  what the API server refuses of a pod by itself
    missing    the inputs of an answer that nobody gave, and what each may change
    pod_templates  the pods that an object would make, as the Workload of its kind says
    forecast   whether it would be within the quota of its tenant
    convert    a pod of one system, rewritten for another
    differences  what it gets otherwise there
    examples   the examples of a rule, executed
    doubts     what loads, and probably does not mean what its author meant
    losses     requests that cannot be recovered from a pod's resources
    inventory  what the nodes offer; uses capacity
    capacity   what one node offers of one back end
    demand     what the pods ask, and which application each belongs to
    planned    what pods would ask that manifests make
    workloads  the answer of POST /templates: what becomes of the pods of a workload, as warnings to its author
    applied    the answer of POST /policies: what the author of a policy should know; so say check, explain
    policy_terms  what a policy says that contradicts itself, or that its cluster does not have
    policy_reach  whom it is for, which policies it ties with, and which namespaces lose their GPUs by it
    exemption_advice  an exemption that has ended, is misspelt, or lifts nothing
    overview   both together: the global view of a cluster
    survey     the Cluster document that fits a cluster; uses signs and settings
    settings   the values of back ends' parameters that a cluster shows
    signs      by what a back end is seen in a cluster, and what of it is missing
    checkup    one check of an installation: what was found, and the fix
    registered  the webhook configurations of a cluster beside those rendered, and beside others'
    replicas   the replicas: certificates, clocks, and the rules that they apply
    trials     pods that are tried at each API server by a dry run
    release    what this version of Kubernetes lacks
    standing   policies, ledgers, and GPU pods that would be refused today
    tenants    what each tenant holds of what it may, and what is wrong
"""
