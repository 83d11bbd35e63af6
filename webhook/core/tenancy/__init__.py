"""Tenants: who may ask for what, what a pod counts, and the totals that hold whoever asks at the same time.

Belongs here: policies and exemptions as values, which of them holds for a namespace, what a pod counts, judging it,
and the ledger as pure state with the two things that may happen to it, a reservation and a settlement.
Must not: reading YAML (`webhook.core.schema`), the Kubernetes API, clocks (times come in as arguments).
"""
