"""What to do next about the CAs and the serving certificate: pure functions of what is stored, and of the time.

One Secret holds two CAs with their keys: the signer, which signs leaves, and its successor, which will. It also holds
the certificates of former signers. API servers trust all of them: every CA bundle is these certificates, newest
first. So a successor is in the bundles for 20 months before it signs its first leaf.

Nothing has to be remembered between two writes: a crash after any of them leaves a state from which `plan` goes on.

    start    there are a new signer and a new successor; all certificates that were trusted stay so
    prepare  there is a new successor, as there was none
    promote  the successor is the signer, and there is a new successor; the former signer stays trusted
    forget   the certificate of a former signer goes, as every leaf of it has expired
    publish  the CA bundle of a webhook configuration becomes the certificates of the Secret
    serve    a new leaf of the signer is written for the replicas

Three rules keep every review from being refused, whatever is late:

    A leaf of another CA than the present leaf's is served only when every bundle has held that CA, unchanged, for
    `Terms.overlap`. The API server notes when a bundle was last changed, by its own clock and in the same write.
    If the present leaf is bad, or nearly expired, it is served after GRACE; at once if no bundle trusts any CA.

    A former signer is forgotten when its successor's successor is as old as a leaf can become. A successor is made
    when its predecessor begins to sign, so every leaf of the former signer is older than that.

    If the present leaf is of a CA that the Secret does not hold, the Secret is an old copy, restored from a backup.
    A new signer starts, and everything in the bundles stays trusted: the CAs of the copy were perhaps forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, NamedTuple

from certs import issue
from certs.issue import Pair

LAST_CALL: Final = 0.9
"""The part of a leaf's lifetime after which a new one is served after GRACE: the old one will surely be refused."""

GRACE: Final = timedelta(seconds=60)
"""API servers follow the webhook configurations within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long certificates live, and how long a CA is in the bundles before a leaf of it is served."""

    authority: timedelta = timedelta(days=5 * 365)
    leaf: timedelta = timedelta(days=30)
    overlap: timedelta = timedelta(days=1)
    """It matters where the successor is lost as well. A leaf has ten days left when it is renewed."""

    renew_at: float = issue.RENEW_AT
    """The part of its lifetime after which a leaf is renewed, and a CA is replaced. As a CA is the successor for half
    of that, and then the signer for half of that, a successor is promoted at the half of it."""


class Authorities(NamedTuple):
    """The Secret of CAs."""

    signer: Pair | None
    successor: Pair | None = None
    trusted: Sequence[bytes] = ()
    """Certificates of former signers, newest first."""

    @property
    def certificates(self) -> Sequence[bytes]:
        """What API servers shall trust, newest first."""
        return (*(pair.certificate for pair in (self.successor, self.signer) if pair), *self.trusted)


class State(NamedTuple):
    """What is stored, read in this order, so that the Secret of CAs knows every bundle and leaf that was read.

    Because of that order, and as each write is refused if its object has changed since, two rotators do no harm.
    """

    bundles: Mapping[str, frozenset[bytes]]
    """By configuration: the different bundles of our webhooks in it. A configuration that is missing is not here."""

    changed: datetime
    """When one of these bundles was last changed, by anybody; by the clock of the API server that stored it."""

    serving: Pair | None
    """The Secret that replicas mount."""

    beside: bytes
    """The bundle in that Secret: it is not lost if the Secret of CAs is."""

    authorities: Authorities


@dataclass(frozen=True, slots=True)
class Replace:
    """Write the Secret of CAs. A signer or a successor that is None is made."""

    name: str
    why: str
    signer: Pair | None
    successor: Pair | None
    trusted: Sequence[bytes]

    def pairs(self, lifetime: timedelta, at: datetime) -> Mapping[str, Pair]:
        """The CAs in the Secret, by the names of their values."""
        present = {"ca": self.signer, "next": self.successor}
        return {name: pair or issue.authority(at, lifetime) for name, pair in present.items()}


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the bundle into our webhooks of a configuration."""

    name: ClassVar = "publish"
    why: str
    configuration: str
    bundle: bytes


@dataclass(frozen=True, slots=True)
class Serve:
    """Write the Secret of replicas: a new leaf, and the bundle."""

    name: ClassVar = "serve"
    why: str
    signer: Pair


Action = Replace | Publish | Serve


def plan(state: State, names: Iterable[str], terms: Terms, at: datetime) -> Iterator[Action]:
    """What is to be done now, in this order; nothing if all is well."""
    signer, successor, trusted = state.authorities
    certificates = state.authorities.certificates
    bundles = [bundle for configuration in state.bundles.values() for bundle in configuration]
    published = [certificate for bundle in bundles for certificate in issue.split(bundle, at)]
    remembered = [certificate for pem in (*certificates, state.beside) for certificate in issue.split(pem, at)]
    remembered = [*dict.fromkeys((*remembered, *published))]

    bad, anchor = "there is none", None
    if state.serving is not None:
        bad = issue.check(state.serving, at, names) or ""
        anchor = None if bad else issue.anchor(state.serving.certificate, (*certificates, *remembered))
        bad = bad or ("" if anchor else "nobody knows its CA")

    unable = "there is none" if signer is None else issue.check_authority(signer, at)
    unfit = "there is none" if successor is None else issue.check_authority(successor, at)
    if signer is None or (unable and unfit):
        yield Replace("start", f"the CA cannot sign: {unable}", None, None, remembered)
        return
    if anchor is not None and anchor not in certificates:
        yield Replace("start", "a leaf of a CA that was not known is being served", None, None, remembered)
        return
    # A bad leaf is replaced first, by the present signer if it can: the bundles have held that one for longer.
    if not bad and (successor is None or unfit):
        yield Replace("prepare", f"the CA has no good successor: {unfit}", signer, None, trusted)
        return
    due = successor is not None and issue.elapsed(successor.certificate, at) > terms.renew_at / 2
    if unable or (not bad and (due or issue.elapsed(signer.certificate, at) > terms.renew_at)):
        former = [certificate for pem in (signer.certificate, *trusted) for certificate in issue.split(pem, at)]
        why = f"the CA cannot sign: {unable}"
        if not unable:
            why = f"the CA is due: it expires on {issue.expires(signer.certificate):%Y-%m-%d}"
        yield Replace("promote", why, successor, None, former)
        return

    why, wait = "", terms.overlap
    if state.serving is None or bad:
        why, wait = f"the serving certificate is not good: {bad}", min(GRACE, terms.overlap)
    elif anchor != signer.certificate:
        why = "the serving certificate is one of the old CA"
        if issue.elapsed(state.serving.certificate, at) > LAST_CALL:
            wait = min(GRACE, terms.overlap)
    elif issue.elapsed(state.serving.certificate, at) > terms.renew_at:
        why = f"the serving certificate is due: it expires on {issue.expires(state.serving.certificate):%Y-%m-%d}"
    trusting = bool(bundles) and all(signer.certificate in bundle for bundle in bundles)
    unchanged = abs(at - state.changed)  # a change in the future was long ago: the clock was set back
    if why and ((trusting and unchanged >= wait) or anchor == signer.certificate or (bad and not published)):
        yield Serve(why, signer)

    wanted = b"".join(certificates)
    for configuration, present in state.bundles.items():
        if present - {wanted}:
            yield Publish("its CA bundle is not what it should be", configuration, wanted)

    recent = [
        former
        for place, former in enumerate(trusted)  # the CA that is two places newer was made when this one was replaced
        if former == anchor or at - issue.issued(certificates[place]) < terms.leaf
    ]
    if not why and len(recent) < len(trusted):
        yield Replace("forget", "every leaf of a former CA has expired", signer, successor, recent)
