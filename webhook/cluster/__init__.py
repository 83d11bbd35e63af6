"""The Kubernetes API: what the server, the settler, the watcher and the commands read and write there.

Belongs here: connections, lists, watches, compare-and-swaps, and our objects as the API server stores them. Does not
belong here: what an object means for a pod or a tenant (`webhook.core`), and what a program does with it (`server`,
`settler`, `watcher`). All but `current` import `kubernetes.aio`, which costs 0.5 s and 55 MiB: the server loads them
only for `serve --cluster`.

    client         one asynchronous client: single objects, pages, watches, compare-and-swap; its errors
    session        a connection for one piece of work (a command), or until SIGTERM (a program)
    current        what commands and the console show, read once
    follower       a list and then every change, retried for ever; a collection kept in step by it
    policies       TenantPolicies, Exemptions and namespaces as they are now, and how long they may be used
    policy_status  the conditions of TenantPolicies, written back
    ledgers        the ledger of each tenant, the status of its TenantUsage
    reservations   a replica's reservations in those ledgers
    examination    what `gpu-webhook doctor` reads of a cluster and tries there
    replica_pages  a replica as it is seen by connecting to it
    events         an Event for the owner of pods that a quota refuses

`webhook/README.md` follows one reservation from the review to the ledger.
"""
