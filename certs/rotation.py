"""The duty of rotation: what to do next about the CAs and the serving certificate, and doing it.

Every CA bundle is the certificates of the Secret of CAs, newest first. What is next says `plan`, a pure function of
what is stored and of the time:

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
    when its predecessor begins to sign, so every leaf of the former signer is older than that. After a start none is
    forgotten before the new signer is as old as a leaf can become.

    If the present leaf is of a CA that the Secret does not hold, the Secret is an old copy, restored from a backup.
    A new signer starts, and everything in the bundles stays trusted: the CAs of the copy were perhaps forgotten.

A webhook configuration that somebody deleted is created again as it was last seen: without it pods are admitted
unseen, and nobody notices. Who uninstalls deletes this program as well, which then ends before the time is over. Who
wants to be without a configuration for a while stops this program first.
"""

import base64
import binascii
import contextlib
import copy
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, NamedTuple

from certs import activation, issue
from certs.api import OURS, Api, ApiError, Object, Site, additions
from certs.issue import Pair
from certs.turns import Problem, Status

LAST_CALL: Final = 0.9
"""The part of a leaf's lifetime after which a new one is served after GRACE: the old one will surely be refused."""

GRACE: Final = timedelta(seconds=60)
"""API servers follow the webhook configurations within seconds."""

GONE: Final = timedelta(seconds=30)
"""How long a configuration is missing before it is created again; `kubectl delete -k` ends this program sooner."""

log = logging.getLogger(__name__)


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
    """The Secret of CAs; `trusted`: certificates of former signers, newest first."""

    signer: Pair | None
    successor: Pair | None = None
    trusted: Sequence[bytes] = ()

    @property
    def certificates(self) -> Sequence[bytes]:
        """What API servers shall trust, newest first."""
        return (*(pair.certificate for pair in (self.successor, self.signer) if pair), *self.trusted)


class State(NamedTuple):
    """What is stored, read in this order, so that the Secret of CAs knows every bundle and leaf that was read.

    Because of that order, and as each write is refused if its object has changed since, two rotators do no harm.

    bundles  by configuration: the different bundles of our webhooks in it; one that is missing is not here
    changed  when one of them was last changed, by anybody; by the clock of the API server that stored it
    serving  the Secret that replicas mount
    beside   the bundle in that Secret: it is not lost if the Secret of CAs is
    """

    bundles: Mapping[str, frozenset[bytes]]
    changed: datetime
    serving: Pair | None
    beside: bytes
    authorities: Authorities


@dataclass(frozen=True, slots=True)
class Replace:
    """Write the Secret of CAs. A signer or a successor that is None is made."""

    name: str
    why: str
    signer: Pair | None
    successor: Pair | None
    trusted: Sequence[bytes]


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

    # Who was trusted at a start, which makes signer and successor together, is in no order.
    made_together = successor is not None and issue.issued(signer.certificate) == issue.issued(successor.certificate)
    started = made_together and at - issue.issued(signer.certificate) < terms.leaf
    recent = [
        former
        for place, former in enumerate(trusted)  # the CA that is two places newer was made when this one was replaced
        if started or former == anchor or at - issue.issued(certificates[place]) < terms.leaf
    ]
    if not why and len(recent) < len(trusted):
        yield Replace("forget", "every leaf of a former CA has expired", signer, successor, recent)


# What is stored is read leniently and written whole. What cannot be read counts as missing: an operator may have
# deleted it, or have written anything into it.


def _decoded(values: Mapping[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(values.get(key) or "")
    except binascii.Error:
        return b""


def pair(secret: Object | None, certificate: str = "tls.crt", key: str = "tls.key") -> Pair | None:
    """A certificate and its key in a Secret, if both are there."""
    data = (secret or {}).get("data") or {}
    values = Pair(_decoded(data, certificate), _decoded(data, key))
    return values if all(values) else None


def authorities(secret: Object | None) -> Authorities:
    """What the Secret of CAs says. Each of its values may be lost without the others, and old versions have fewer."""
    trusted = issue.split(_decoded((secret or {}).get("data") or {}, "trusted.crt"))
    return Authorities(pair(secret, "ca.crt", "ca.key"), pair(secret, "next.crt", "next.key"), trusted)


def bundles(configuration: Object) -> Iterator[tuple[int, bytes]]:
    """The place and the CA bundle of each of our webhooks in a configuration."""
    for place, hook in enumerate(configuration.get("webhooks") or ()):
        if hook["name"].endswith(OURS):
            yield place, _decoded(hook["clientConfig"], "caBundle")


def bundle_changes(configuration: Object) -> list[datetime]:
    """When CA bundles in a configuration were last changed, as the API server notes of every writer's fields.

    The time of creation counts only where nothing else is noted: the clock may have been set back since.
    """
    metadata = configuration["metadata"]
    written = [fields["time"] for fields in metadata.get("managedFields") or () if "f:caBundle" in str(fields)]
    return [datetime.fromisoformat(time) for time in written or (metadata["creationTimestamp"],)]


class Rotator:
    """Keeps the CAs, the bundles and the serving certificate of one installation."""

    def __init__(self, api: Api, site: Site, terms: Terms, status: Status) -> None:
        self._api, self._site, self._terms, self._status = api, site, terms, status
        self._last: dict[str, Object] = {}
        self._missing_since: dict[str, datetime] = {}

    async def turn(self) -> Sequence[Problem]:
        """Do what is next, each write a compare-and-swap; raises ApiError if the cluster cannot be read."""
        read = {kind: await self._api.find(path) for kind, path in self._site.configurations.items()}
        configurations = {kind: configuration for kind, configuration in read.items() if configuration is not None}
        serving = await self._api.find(self._site.serving)
        secret = await self._api.find(self._site.authorities)  # the last: `State` says why
        now = self._api.now
        changes = [time for configuration in configurations.values() for time in bundle_changes(configuration)]
        state = State(
            bundles={
                kind: frozenset(bundle for _, bundle in bundles(configuration))
                for kind, configuration in configurations.items()
            },
            # The last one is that nearest to now: one in the future was long ago, before the clock was set back.
            changed=min(changes, key=lambda time: abs(now - time), default=now),
            serving=pair(serving),
            beside=_decoded((serving or {}).get("data") or {}, "ca.crt"),
            authorities=authorities(secret),
        )
        bundle = b"".join(state.authorities.certificates)
        self._status.expiry = {
            name: issue.expires(present.certificate)
            for name, present in {"authority": state.authorities.signer, "leaf": state.serving}.items()
            if present and issue.split(present.certificate)
        }
        problems = await self._recreate(configurations, bundle, now)
        for action in plan(state, self._site.names, self._terms, now):
            match action:
                case Publish(configuration=kind):
                    configuration, encoded = configurations[kind], base64.b64encode(action.bundle).decode()
                    others = [place for place, published in bundles(configuration) if published != action.bundle]
                    values = {f"/webhooks/{place}/clientConfig/caBundle": encoded for place in others}
                    write = self._api.patch(self._site.configurations[kind], additions(configuration, values))
                case Serve(signer=signer):
                    leaf = issue.leaf(signer, self._site.names, now, self._terms.leaf)
                    data = {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": bundle}
                    write = self._put(self._site.serving, "kubernetes.io/tls", data, serving)
                case Replace():
                    data = {"trusted.crt": b"".join(action.trusted)}
                    for name, present in {"ca": action.signer, "next": action.successor}.items():
                        made = present or issue.authority(now, self._terms.authority)
                        data |= {f"{name}.crt": made.certificate, f"{name}.key": made.key}
                    write = self._put(self._site.authorities, "Opaque", data, secret)
            problems += await self._status.attempt(action.name, action.why, write)
        return problems

    async def _put(self, path: str, kind: str, data: Mapping[str, bytes], present: Object | None) -> None:
        """Write a Secret.

        Keys that are not ours stay: a Secret that cert-manager left is of a kind that demands two of its own.
        """
        labels = {"app.kubernetes.io/name": self._site.program}
        secret = present or {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": path.rpartition("/")[2], "namespace": self._site.namespace, "labels": labels},
            "type": kind,
        }
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        await self._api.put(path, {**secret, "data": {**(secret.get("data") or {}), **encoded}}, present)

    async def _recreate(self, present: Mapping[str, Object], bundle: bytes, now: datetime) -> list[Problem]:
        """Create each configuration again that has been missing for a while; returns what there is to say of it.

        It is created as it was last seen, but inactive.
        """
        self._last |= present
        missing = self._site.configurations.keys() - present.keys()
        self._missing_since = {kind: min(now, self._missing_since.get(kind, now)) for kind in missing}
        problems = []
        for kind in sorted(missing):
            name = f"{kind} webhook configuration {self._site.configuration}"
            text = f"there is no {name}: pods are admitted unseen."
            if kind not in self._last:
                text += " This program has not seen it and cannot create it: apply the manifests"
            elif now - self._missing_since[kind] < GONE:
                text += f" It will be created again; who wants to be without it stops {self._site.program} first"
            else:
                last, path = self._last[kind], self._site.configurations[kind]
                configuration: Object = copy.deepcopy(last)
                for place, _ in bundles(last):
                    configuration["webhooks"][place]["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
                with contextlib.suppress(activation.UnreadableError):  # the activator gives the rules in its order
                    configuration = activation.deactivated(configuration)
                of_one_life = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
                metadata = {key: value for key, value in last["metadata"].items() if key not in of_one_life}
                try:
                    created = await self._api.put(path, {**configuration, "metadata": metadata}, None)
                    # Its fields get their former managers. Otherwise they would all be this program's: the next
                    # server-side apply would be a conflict, and a webhook that a later version no longer has would
                    # stay.
                    since = created["metadata"]["creationTimestamp"]
                    managers = [{**fields, "time": since} for fields in last["metadata"].get("managedFields", ())]
                    await self._api.patch(path, additions(created, {"/metadata/managedFields": managers}))
                except ApiError as error:
                    self._status.actions["recreate", "failed"] += 1
                    text += f" It cannot be created again: {error}"
                else:
                    self._status.actions["recreate", "done"] += 1
                    log.warning("recreate: the %s webhook configuration was deleted, and is there again", kind)
                    text = f"the {name} was deleted"
            problems.append(Problem("configuration", kind, text))
        return problems
