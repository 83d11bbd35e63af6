"""The certificate program: issues the CA and the serving certificate, and renews both without a refused review.

A program of its own with an account of its own, so that the processes which answer admission hold no signing code
and no right to write Secrets, and the CA's key is in none of their pods: `webhook` and `certs` import nothing of each
other. They meet in a Secret (`gpu-webhook-tls`), which replicas mount, or in a directory of `make run`.

What it keeps, in a cluster (`rotate`), besides the rules of our webhooks (`activation`):

    Secret gpu-webhook-ca       the CA that signs, with its key; certificates of former CAs that are still trusted.
                                To have a new CA at once, delete this Secret
    caBundle of our webhooks    all certificates of that Secret
    Secret gpu-webhook-tls      the leaf and its key; the bundle again as ca.crt, to recover from if the rest is lost

A CA lives for 5 years and a leaf for 30 days, and each is renewed at two thirds of that. The order of a renewal:

    1. start    a new CA is written into the Secret of CAs; the old certificate stays trusted, the old key is gone
    2. publish  the bundles of both configurations become new and old CA
    3. serve    after an overlap of an hour the new leaf is shown to every API server, by address. When each of them
                has accepted it in a call to this program, it is written for the replicas
    4. forget   after another hour, when every replica was seen to serve a leaf of the new CA, the old certificate is
                taken out of the Secret of CAs, and then (publish) out of the bundles

A leaf alone is renewed by the third step. Every write is a compare-and-swap, and each turn begins with reading
everything, so a crash, a second copy, a deleted Secret, a wiped bundle or a clock that jumped are all the same: the
next turn, at most 15 s later, finds a state and knows what is next. The time is that of the API server.

Why a call to this program proves it: API servers follow webhook configurations on their own, seconds apart, and none
says what it knows. Both configurations therefore hold a webhook of this program beside those of the replicas
(`probe.gpu-webhook.io`). A configuration is one object, so an API server that accepts a leaf of the new CA there has
the new bundle for the replicas as well. A configuration of its own for the probe would depend on the order in which
API servers see changes of two objects. The dry run is of a Lease and not of a pod: this program may write Leases in
its namespace in any case, and an account that may create pods there may read every Secret in it.

With cert-manager, or with certificates of your own, they write gpu-webhook-tls and the bundles, and this program has
one duty left (`activate`): the manifests ship the webhooks of pods without rules, so that nobody is refused before a
replica answers. It copies the rules when every API server was seen to get an answer from one, and in an upgrade those
that ask for more when no old replica is left.

    issue      keys and certificates, and whether they are good: pure
    rotation   what to do next: pure
    stored     our values in Secrets and configurations
    copies     configurations as they were seen last, to create one again that was deleted
    api        the Kubernetes API, compare-and-swap, the time of the API server
    problem    what keeps an action from being done
    endpoints  the addresses of a Service, and what is served there
    servers    every API server, asked by a dry run
    probe      whether every API server accepts a leaf
    ping       whether every API server gets an answer from a replica
    witness    all of that, of one installation
    activation which rules webhooks lack: pure
    rollout    whether replicas of a former version are left: pure
    turns      one turn after the other, and what came of it
    rotator    the duty of rotation
    activator  the duty of activation
    leader     a Lease, so that one of several copies works
    page       metrics and health
    program    the commands `rotate` and `activate`
"""
