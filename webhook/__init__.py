"""The admission server: a pod says `gpu: "0.3"`, the cluster's own GPU system gets what it needs.

Belongs here: the shell around `webhook.core` (HTTP, files, command line, pages). Does not belong here: a
decision (that is `webhook.core`), a vendor (that is a YAML document in `rules/`), the certificate (that is
`certs/`, a program of its own).

The way of one pod through the shell, with what stands beside it in a cluster:

    server                          which paths there are, and the function of `core.admit` that judges on each
    worker, connection, lane        the process that serves, one HTTP connection, and what each request is answered
    recent                          asks the judge, and remembers what it said about pods that are alike
    reservations, desk              then, if a quota counts the pod, who says whether it fits: offline; in a cluster,
                                    with one write for all that wait
    stores, tenantusages            where ledgers are; the objects they are written into
    attached, policywatch           keeps a lane in step with the policies of the cluster; events for who is refused
    settler, workqueue, lag         counts pods into the ledgers, as `core.tenancy.settlement` says it may
    api, follower                   the Kubernetes API for both of them
    watcher, cluster                what nodes there are, for the choice of back ends, by a process of its own
    cli, commands, console          what people type and see
"""
