"""The webhook on a real control plane: kube-apiserver, etcd and kube-controller-manager, without nodes.

`binaries` finds or builds the programs, `processes` starts them so that none outlives its owner, `plane` makes
a cluster of them, `client` talks to it, `webhook` starts our server and registers it as the manifests do.
`conftest` makes fixtures of these; `python -m tests.cluster` leaves them running for a person to try.
"""
