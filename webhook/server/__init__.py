"""The admission server: one HTTP request in, one answer out.

Belongs here: the process, its connections and deadlines, TLS, and what HTTP says. Does not belong here: a decision
about a pod (`webhook.core`), and the Kubernetes API (`webhook.cluster`), whose client only `quotas` loads.

    serve                 starts the server: certificate, rules, gunicorn
    settings              every setting, with the reason for its default
    worker                the process that serves: event loop, changed files, drain
    door                  accepts connections, and says which may stay
    shares                who gives way if connections want more than there is
    connection            one TLS connection, with a deadline for every wait
    chunks                a body in chunks
    lane                  what each request is answered
    memo                  decisions, remembered by projection
    offline_reservations  reservations without a cluster; the interface that those in a cluster have, too
    quotas                keeps a lane in step with the policies and ledgers of a cluster
    tls                   the serving certificate as a TLS context
"""
