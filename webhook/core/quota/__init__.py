"""The exact total of each tenant: pure state and transitions. Knows no pod, only amounts, names and UIDs.

Belongs here: the ledger, and why its total holds for any number of replicas and settlers. Does not belong here: what
a pod counts (`webhook.core.policy.holdings`), and how a ledger is read and written (`webhook.cluster`).

    tally       amounts of devices and memory, and their arithmetic
    ledger      one tenant's ledger: reserve, settle
    suspects    whose reservations came to nothing again and again
    escrow      what a replica has set aside to admit from
    view        the pods of a cluster as a settler has seen them
    settlement  what a settler may write, and when
    stored      a ledger as the status of a TenantUsage
"""
