"""`gpu-webhook settle`: counts what the pods of every tenant hold, and writes it into the tenant's ledger.

Belongs here: when a tenant is settled, and by which reads and writes. Does not belong here: what may be written, and
why it is safe with several settlers (`webhook.core.quota.settlement`), and how the API is spoken (`webhook.cluster`).

There is no Lease. Two settlers do no harm, as the compare-and-swap and the view of each ledger stop the one that has
seen less; a Lease would only save the second one's work. `kubernetes.aio.leaderelection` (37.0.2, measured) is unfit
for that: it cannot create a Lease (its own client refuses its `pretty=True`); it waits five minutes for each answer,
so the leader of an API server that hangs leads on past its deadline; and it ends with an exception at the first
refused connection, while what it started runs on.
"""
