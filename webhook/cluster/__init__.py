"""The Kubernetes API: what the server, the settler, the watcher and the commands read and write there.

Belongs here: connections, lists, watches, compare-and-swaps, and our objects as the API server stores them. Does not
belong here: what an object means for a pod or a tenant (`webhook.core`), and what a program does with it (`server`,
`settler`, `watcher`). All modules import `kubernetes.aio`, which costs 0.5 s and 55 MiB: the server loads them only
for `serve --cluster`. `ledgers` tells how a reservation gets into a ledger.
"""
