"""The webhook on a real control plane: kube-apiserver, etcd and kube-controller-manager; with nodes, where pods go.

`binaries` finds or builds the programs, `processes` starts them so that none outlives its owner, `plane` makes
a cluster of them, `client` talks to it, `webhook` starts our server and registers it as the manifests do.
`nodes` adds kube-scheduler, KWOK and nodes that exist on paper; `rules` enables every shipped back end, `pools` reads
who must land where from `scheduling/`, `devices` writes what is allocated by claim.
`conftest` makes fixtures of these; `python -m tests.cluster` leaves them running for a person to try.
"""
