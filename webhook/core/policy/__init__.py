"""What a tenant may have: defaults before the translation, judgement after it, and the words of a refusal.

Belongs here: everything that a TenantPolicy or an Exemption decides about one pod. Does not belong here: the form of
these documents (`webhook.core.rules`), and the sum over all pods of a tenant (`webhook.core.quota`).
"""
