"""The exact total of each tenant: pure state and transitions. Knows no pod, only amounts, names and UIDs.

Belongs here: the ledger, and why its total holds for any number of replicas and settlers. Does not belong here: what
a pod counts (`webhook.core.policy.usage`), and how a ledger is read and written (`webhook.cluster`).
"""
