"""The admission server: a pod says `gpu: "0.3"`, the cluster's own GPU system gets what it needs.

Belongs here: the shell around `webhook.core` (HTTP, files, command line, pages). Does not belong here: a
decision (that is `webhook.core`), a vendor (that is a YAML document in `rules/`), the certificate (that is
`certs/`, a program of its own).
"""
