"""The certificate program: issues the CAs and the serving certificate, and renews both without a refused review.

A program of its own with an account of its own, so that the processes which answer admission hold no signing code
and no right to write Secrets, and the keys of the CAs are in none of their pods: `webhook` and `certs` import nothing
of each other. They meet in a Secret (`gpu-webhook-tls`), which replicas mount, or in a directory of `make run`.

What it keeps, in a cluster (`rotate`), besides the rules of our webhooks (`activation`):

    Secret gpu-webhook-ca       the CA that signs and its successor, with their keys; certificates of former CAs that
                                are still trusted. To have new CAs, delete this Secret
    caBundle of our webhooks    all certificates of that Secret
    Secret gpu-webhook-tls      the leaf and its key; the bundle again as ca.crt, to recover from if the rest is lost

A leaf lives for 30 days and is renewed at two thirds of that. A CA lives for 5 years: it is the successor for 20
months, signs for 20 months, and then stays trusted until all leaves of it have expired. So a CA is in the bundle of
every API server long before a leaf of it is served. `rotation` tells what is done where the time is shorter: in a
first installation, after a lost Secret, with an old copy of one, and after an upgrade from a version that had one CA.

Every write is a compare-and-swap, and each turn begins with reading everything, so a crash, a second copy, a deleted
Secret, a wiped bundle or a clock that jumped are all the same: the next turn, at most 15 s later, finds a state and
knows what is next. The time is that of the API server.

With cert-manager, or with certificates of your own, they write gpu-webhook-tls and the bundles, and this program only
copies rules (`activate`).
"""
