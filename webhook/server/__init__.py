"""The admission server: one HTTP request in, one answer out.

Belongs here: the process, its connections and deadlines, TLS, and what HTTP says. Does not belong here: a decision
about a pod (`webhook.core`), and the Kubernetes API (`webhook.cluster`), whose client only `attachment` loads.
"""
