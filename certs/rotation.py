"""What to do next about the CA and the serving certificate: pure functions of what is stored, and of the time.

One Secret says which certificates API servers shall trust: the signer's, whose key is there too, and those of former
signers that may still be served. Everything else follows it, in four kinds of writes. Nothing has to be remembered
between two of them: a crash after any write leaves a state from which `plan` goes on.

    start    a new CA signs from now on; the one before stays trusted
    publish  the CA bundle of a webhook configuration becomes the signer and all who are trusted
    serve    a new leaf of the signer is written for the replicas, after every API server has accepted this leaf
    forget   former signers are no longer trusted, after every replica was seen to serve a leaf of the signer

So a CA is in every bundle before a leaf of it is served, and until no replica serves one any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from certs import issue
from certs.issue import Pair

LAST_CALL: Final = 0.9
"""The part of a leaf's lifetime after which a new one is served even where no API server can be seen to accept it:
the old one will surely be refused soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How long certificates live, and how long an old and a new CA are both trusted at least."""

    authority: timedelta = timedelta(days=5 * 365)
    leaf: timedelta = timedelta(days=30)
    overlap: timedelta = timedelta(hours=1)
    """Before a new CA's leaf is served, and again before the old CA is forgotten.

    It covers who cannot be seen: an API server behind the address of another, a replica that just starts on a node
    whose kubelet has yet to hear of the new Secret (kubelets take up to 90 s)."""

    renew_at: float = issue.RENEW_AT
    """The part of a lifetime after which a certificate is renewed."""


class Authorities(NamedTuple):
    """The Secret of CAs: who signs, and the certificates of former signers."""

    signer: Pair | None
    trusted: Sequence[bytes] = ()

    @property
    def certificates(self) -> Sequence[bytes]:
        """What API servers shall trust."""
        return (*([self.signer.certificate] if self.signer else ()), *self.trusted)


class State(NamedTuple):
    """What is stored, read in this order, so that the Secret of CAs knows every bundle and leaf that was read.

    Because of that order, and as each write is refused if its object has changed since, two rotators do no harm.
    """

    bundles: Mapping[str, frozenset[bytes]]
    """By configuration: the different bundles of our webhooks in it. A configuration that is missing is not here."""

    serving: Pair | None
    """The Secret that replicas mount."""

    found: Sequence[bytes]
    """Valid certificates in the bundles and beside the leaf: they are lost nowhere if the Secret of CAs is."""

    authorities: Authorities


@dataclass(frozen=True, slots=True)
class Start:
    """Write the Secret of CAs: a new signer, `trusted` besides."""

    why: str
    trusted: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the Secret of CAs: the same signer, and `trusted`, which has the CA of the leaf that is being served."""

    why: str
    trusted: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the bundle into our webhooks of a configuration."""

    why: str
    configuration: str
    bundle: bytes


@dataclass(frozen=True, slots=True)
class Serve:
    """Write the Secret of replicas: a new leaf, which every API server has accepted.

    `anyway`: the present leaf is not good, or will not be for long, so that waiting long protects nothing.
    """

    why: str
    signer: Pair
    anyway: bool


@dataclass(frozen=True, slots=True)
class Forget:
    """Write the Secret of CAs: the same signer, and nobody trusted besides, as every replica serves a leaf of it."""

    why: str
    signer: bytes


Action = Start | Keep | Publish | Serve | Forget


def plan(state: State, names: Iterable[str], terms: Terms, at: datetime) -> Iterator[Action]:
    """What is to be done, in the order in which to try it; nothing if all is well."""
    signer, trusted = state.authorities
    bad = "there is none" if signer is None else issue.check_authority(signer, at)
    if signer is None or bad is not None:
        yield Start(f"the CA cannot sign: {bad}", _valid((*state.authorities.certificates, *state.found), at))
        return
    if issue.elapsed(signer.certificate, at) > (max(LAST_CALL, terms.renew_at) if trusted else terms.renew_at):
        ending = f"{issue.expires(signer.certificate):%Y-%m-%d}"
        yield Start(f"the CA is due: it expires on {ending}", state.authorities.certificates)
        return
    serving = _serving(state, names, at)
    if serving.anchor is not None and serving.anchor not in state.authorities.certificates:
        yield Keep("a leaf of a CA that was not known is being served", (*trusted, serving.anchor))
        return
    yield from _publish(state)
    yield from _serve(state, signer, serving, terms, at)


def _valid(certificates: Iterable[bytes], at: datetime) -> Sequence[bytes]:
    return tuple(dict.fromkeys(each for pem in certificates for each in issue.split(pem, at)))


class _Serving(NamedTuple):
    """What is wrong with the leaf that replicas mount, and which certificate vouches for it."""

    bad: str | None
    anchor: bytes | None


def _serving(state: State, names: Iterable[str], at: datetime) -> _Serving:
    if state.serving is None:
        return _Serving("there is none", None)
    bad = issue.check(state.serving, at, names)
    if bad is not None:
        return _Serving(bad, None)
    anchor = issue.anchor(state.serving.certificate, (*state.authorities.certificates, *state.found))
    return _Serving("nobody knows its CA" if anchor is None else None, anchor)


def _publish(state: State) -> Iterator[Publish]:
    wanted = b"".join(state.authorities.certificates)
    for configuration, bundles in state.bundles.items():
        if bundles - {wanted}:
            yield Publish("its CA bundle is not what it should be", configuration, wanted)


def _serve(state: State, signer: Pair, serving: _Serving, terms: Terms, at: datetime) -> Iterator[Action]:
    """A new leaf if it is time, else an end of the old CA if it is time."""
    if serving.bad is not None or state.serving is None:
        yield Serve(f"the serving certificate is not good: {serving.bad}", signer, anyway=True)
        return
    elapsed, age = issue.elapsed(state.serving.certificate, at), at - issue.issued(state.serving.certificate)
    if serving.anchor != signer.certificate:
        if at - issue.issued(signer.certificate) >= terms.overlap or elapsed > LAST_CALL:
            yield Serve("the serving certificate is one of the old CA", signer, anyway=elapsed > LAST_CALL)
    elif elapsed > terms.renew_at:
        ending = f"{issue.expires(state.serving.certificate):%Y-%m-%d}"
        yield Serve(f"the serving certificate is due: it expires on {ending}", signer, anyway=elapsed > LAST_CALL)
    elif state.authorities.trusted and age >= terms.overlap:
        yield Forget("the old CA has had its overlap", signer.certificate)


def step(authorities: Authorities, action: Start | Keep | Forget, terms: Terms, at: datetime) -> Authorities:
    """The Secret of CAs after an action."""
    match action:
        case Start(trusted=trusted):
            return Authorities(issue.authority(at, terms.authority), trusted)
        case Keep(trusted=trusted):
            return Authorities(authorities.signer, trusted)
        case Forget():
            return Authorities(authorities.signer)
