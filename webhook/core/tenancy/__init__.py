"""Tenants: who may ask for what, what a pod counts, and the totals that hold whoever asks at the same time.

Belongs here: policies and exemptions as values, which of them holds for a namespace, what a pod counts, judging it,
and the ledger as pure state with what may happen to it: reservations, advances, settlements.
Must not: reading YAML (`webhook.core.schema`), the Kubernetes API, clocks (times come in as arguments).

As a pod meets them:

    tally, policy, membership       what is counted; policies as values; which of them holds for a namespace
    steer, confine                  /mutate: what a policy makes of a pod, its defaults, marks and nodes
    counting                        what a pod holds, read from its resources
    judge                           /validate: what is wrong with it, by kinds, ceilings and totals, as breaches
    ledger, stored                  the totals, with what is reserved; the same as the object in a cluster
    advance                         what one replica may admit before it writes into the ledger for whom
    verdict, refusal                what becomes of the pod once the ledger has answered, and what its author is told
    view, settlement                the pods as a watcher has seen them; what he may write into the ledgers for that
    observing, prospect             observe mode; whether pods would be within the quota
    overview, conditions            what people see of tenants, and of a policy in its own status
"""
