"""What `gpu-webhook doctor` reads of an installation and tries there: it writes nothing, each create is a dry run."""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import contextlib
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from webhook.cli.snapshot import NOT_OVER, TENANTS, Snapshot
from webhook.cluster.client import Api, ApiError, ForbiddenError, MissingError, Object
from webhook.core import review
from webhook.core.forms.labels import Expression
from webhook.core.kube import fields
from webhook.core.mutate import mutate
from webhook.core.policy import membership
from webhook.core.registration import configurations
from webhook.core.rules import cluster
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy
from webhook.core.validate import validate
from webhook.files import rule_files, surroundings


class Address(NamedTuple):
    """An IP address or a name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Bundle(NamedTuple):
    """A caBundle as PEM, and the webhooks that have it; "": they have none."""

    webhooks: tuple[str, ...]
    pem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of the admission server.

    unreachable  why it cannot be connected from here
    untrusted    why its certificate is not verified by a bundle, its dates aside; with the webhooks that have it
    untimely     why the certificate or one of its CAs is not valid at this time, by the clock of this machine
    valid        from when and until when the certificate is valid, in seconds since 1970; None if it is not trusted
    not_ready    what /readyz says, if it is not ready
    digest       of the rules that it applies; "" if it says none
    ahead        by how many seconds its clock is ahead of ours; None if it does not say
    """

    address: str
    unreachable: str = ""
    untrusted: str = ""
    untimely: str = ""
    valid: tuple[float, float] | None = None
    not_ready: str = ""
    digest: str = ""
    ahead: float | None = None


Purpose = Literal["translated", "refused", "bystander"]


class Tried(NamedTuple):
    """A pod to try; `labels` are its request, `code` that of its refusal."""

    purpose: Purpose
    labels: Mapping[str, str]
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What an API server answers to a pod that is tried: the pod if it would be created, else a Status."""

    status: int
    body: Mapping[str, Any]
    warnings: Sequence[str] = ()

    @property
    def is_created(self) -> bool:
        """Whether the pod would be stored."""
        return self.status < HTTPStatus.BAD_REQUEST

    @property
    def is_forbidden(self) -> bool:
        """Whether the account may not create pods at all, so that no webhook was asked."""
        return self.status == HTTPStatus.UNAUTHORIZED or 'cannot create resource "pods"' in self.message

    @property
    def message(self) -> str:
        """The first line of a refusal."""
        return str(self.body.get("message", "")).partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """One API server, and its responses by the purpose of the pod. `unreachable`: why it cannot be asked from here.

    `was_called` for the bystander: whether a replica was asked about it; None where that cannot be told.
    """

    address: str
    unreachable: str = ""
    responses: Mapping[Purpose, Response] = field(default_factory=dict)
    was_called: bool | None = None


@dataclass(slots=True, kw_only=True)
class Installation:
    """What is known of an installation. The readings below fill in what follows `endpoints`.

    rulebook, source   the rules that should be in force, and where they are from
    namespace          where the admission server runs
    try_in             the namespace of the pods that are tried
    endpoints          the addresses of the replicas; none: those of the Service
    server             the name that API servers expect of replicas
    wanted, live       our webhook configurations as the rules make them; those of the cluster by kind, None: missing
    untried            why no pod is tried; else `api_servers` have been asked
    clocks             whose clock is ahead of ours by how many seconds
    mutating           all mutating webhook configurations
    version, groups    the answer of /version, and the API groups that are served
    tenants            their objects, twice, some seconds apart; none without the custom resources
    pods, refused      how many pods are not over, and which would be refused today: `namespace/name: why`
    """

    rulebook: Rulebook
    source: str = ""
    namespace: str = cluster.OWN
    try_in: str = "default"
    endpoints: Sequence[Address] = ()
    server: str = ""
    wanted: Sequence[Object] = ()
    live: Mapping[str, Object | None] = field(default_factory=dict)
    replicas: Sequence[Replica] = ()
    untried: str = ""
    api_servers: Sequence[ApiServer] = ()
    clocks: dict[str, float] = field(default_factory=dict)
    now: float = field(default_factory=time)
    mutating: Sequence[Object] = ()
    version: Object = field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    tenants: Sequence[Snapshot] = ()
    pods: int = 0
    refused: Sequence[str] = ()

    @property
    def pairs(self) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Each of our webhooks that exists, as it should be and as it is."""
        for configuration in self.wanted:
            stored = hooks(self.live.get(configuration["kind"]))
            yield from ((hook, stored[name]) for name, hook in hooks(configuration).items() if name in stored)

    @property
    def callers(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The webhooks that call replicas, by name, each with its clientConfig."""
        stored = [webhook for configuration in self.live.values() for webhook in hooks(configuration).items()]
        called = [(name, fields.mapping(hook, "clientConfig")) for name, hook in stored]
        own = configurations.NAME
        return [(name, to) for name, to in called if "url" in to or fields.at(to, "service", "name") == own]

    @property
    def bundles(self) -> Sequence[Bundle]:
        """The caBundles of the webhooks that call replicas."""
        names: dict[str, list[str]] = {}
        for name, called in self.callers:
            try:
                pem = base64.b64decode(called.get("caBundle") or "").decode()
            except (binascii.Error, UnicodeDecodeError):
                pem = "unreadable"
            names.setdefault(pem, []).append(name)
        return [Bundle(tuple(webhooks), pem) for pem, webhooks in names.items()]


Read = Callable[[Installation, Api], Awaitable[None]]
"""Fills in a part of what is known; raises ApiError."""


def hooks(configuration: Object | None) -> Mapping[str, Mapping[str, Any]]:
    """The webhooks of a configuration, by name."""
    return {str(hook["name"]): hook for hook in (configuration or {}).get("webhooks") or ()}


def requirements(selector: Object) -> Iterator[Expression]:
    """Each requirement of a label selector, whichever way it is written."""
    for key, text in (selector.get("matchLabels") or {}).items():
        yield Expression(key=key, operator="In", values=(text,))
    for line in selector.get("matchExpressions") or ():
        yield Expression(key=line["key"], operator=line["operator"], values=tuple(sorted(line.get("values") or ())))


# The rules that should be in force.


async def begin(given: argparse.Namespace, api: Api) -> Installation:
    """What the options say of an installation; raises ApiError, RuleFilesError, NotExemptError and UsageError."""
    if given.rules is not None:
        rulebook, source = rule_files.load_cached(given.rules), str(given.rules)
    else:
        rulebook, source = await _mounted(api, given.namespace), f"the ConfigMaps in {given.namespace}"
    return Installation(
        rulebook=rulebook,
        source=source,
        wanted=configurations.both(rulebook, given.namespace),
        namespace=given.namespace,
        try_in=given.try_in,
        endpoints=given.endpoint,
    )


async def _mounted(api: Api, namespace: str) -> Rulebook:
    """The rules in the ConfigMaps that the admission server mounts."""
    fix = "to examine it without its ConfigMaps, give the rules that should be in force: --rules DIR"
    try:
        deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{configurations.NAME}")
        volumes = fields.objects(fields.at(deployment, "spec", "template", "spec", "volumes"))
        sources = [volume["projected"]["sources"] for volume in volumes if volume["name"] == "rules"]
        names = [source["configMap"]["name"] for source in chain.from_iterable(sources)]
        mounted = [await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}") for name in names]
    except MissingError as error:
        raise ApiError(f"{error}; is it installed in this cluster? Elsewhere: --namespace NAME; {fix}") from None
    except ForbiddenError as error:
        raise ApiError(f"{error}; {fix}") from None
    return _loaded({file: text for stored in mounted for file, text in (stored.get("data") or {}).items()})


def _loaded(files: Mapping[str, str]) -> Rulebook:
    with tempfile.TemporaryDirectory() as folder:
        for file, text in files.items():
            Path(folder, Path(file).name).write_text(text)
        return rule_files.load(Path(folder))


# The pods that are tried.

_REQUESTS: Final[Mapping[Purpose, Sequence[Mapping[str, str]]]] = {
    "translated": ({"gpu": "1"}, {"gpu": "0.5"}, {"gpu-memory": "1Gi"}, {"gpu-profile": "1g.5gb"}),
    "refused": ({"gpu": "1.5"}, {"gpu": "-1"}, {"gpu": "1", "gpu-memory": "-1Gi"}),
}
"""The labels of pods to try; of each kind the first that the rules answer so."""

_AMOUNTS: Final = {"cpu": "10m", "memory": "16Mi"}
_SPEC: Final[Mapping[str, Any]] = {
    "automountServiceAccountToken": False,
    "restartPolicy": "Never",
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.invalid/never-pulled:dry-run",
            "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}
"""A pod such as any namespace takes it."""


def trial_pod(labels: Mapping[str, str]) -> dict[str, Any]:
    """A pod with a request in its labels."""
    metadata = {"generateName": "gpu-webhook-doctor-", "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _SPEC}


def trials(rulebook: Rulebook) -> Sequence[Tried]:
    """The pods to try: one that these rules translate, one that they refuse, and one without a GPU."""
    alone = replace(rulebook, tenancy=Tenancy())
    tried: dict[str, Tried] = {}
    for purpose, requests in _REQUESTS.items():
        for labels in requests:
            decision = mutate(review.creating(trial_pod(labels), uid="doctor", namespace="default"), alone)
            code = "" if decision.allowed else decision.violations[0].code
            if decision.patch if purpose == "translated" else code:
                tried.setdefault(purpose, Tried(purpose, labels, code))
    return [*tried.values(), Tried("bystander", {"app": "doctor"})]


REGISTERED: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
SETTLE_SECONDS: Final = 3.0
"""Between two readings of the ledgers."""

TRIES: Final = 3
"""How often a pod without a GPU is tried while replicas answer reviews of other pods."""


async def read_configurations(installation: Installation, api: Api) -> None:
    """Our webhook configurations."""
    installation.live = {
        kind: await api.find(f"{REGISTERED}/{plural}/{configurations.NAME}") for kind, plural in PLURALS.items()
    }


async def read_replicas(installation: Installation, api: Api) -> None:
    """Where the replicas are, by which name API servers ask for them, and what they serve."""
    urls = [urlsplit(called["url"]) for _, called in installation.callers if "url" in called]
    host, port = (urls[0].hostname or "", urls[0].port or 443) if urls else ("", 443)
    installation.server = host if urls else f"{configurations.NAME}.{installation.namespace}.svc"
    if not installation.endpoints:
        service = installation.namespace, configurations.NAME
        installation.endpoints = [Address(host, port)] if urls else await _endpoints(api, *service)
    bundles = installation.bundles
    looks = (_look(address, installation.server, bundles) for address in installation.endpoints)
    installation.replicas = await asyncio.gather(*looks)


async def _endpoints(api: Api, namespace: str, service: str) -> Sequence[Address]:
    """The addresses of a Service that are ready."""
    addresses = set()
    for piece in await api.list(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"):
        if fields.at(piece, "metadata", "labels", "kubernetes.io/service-name") != service:
            continue
        ports = [port for port in fields.objects(piece.get("ports")) if port.get("port")]
        ports.sort(key=lambda port: port.get("name") != "https")
        for endpoint in fields.objects(piece.get("endpoints")) if ports else ():
            if fields.at(endpoint, "conditions", "ready") is not False:
                addresses |= {Address(host, ports[0]["port"]) for host in endpoint["addresses"]}
    return sorted(addresses)


async def read_admission(installation: Installation, api: Api) -> None:
    """What each API server answers to the pods; where none can be reached by its address, whichever answers here."""
    installation.untried = await _why_untried(installation, api)
    if installation.untried:
        return
    servers = []
    for address in await _endpoints(api, "default", "kubernetes"):
        direct = api.of(*address)
        try:
            servers.append(await _tried(installation, str(address), direct))
        finally:
            await direct.close()
    if all(server.unreachable for server in servers):
        servers.append(await _tried(installation, "the API server of this connection", api))
    installation.api_servers = servers


async def _why_untried(installation: Installation, api: Api) -> str:
    """Why pods of the namespace are left alone; empty if they are not."""
    namespace, hook = installation.try_in, "mutate.gpu-webhook.io"
    if installation.rulebook.cluster.exempts(namespace):
        return f"pods in {namespace} are left alone, by the Cluster document"
    stored = await api.list("/api/v1/namespaces", f"metadata.name={namespace}")
    if not stored:
        return f"there is no namespace {namespace}"
    configuration = installation.live.get("MutatingWebhookConfiguration")
    if configuration and not asks_about(configuration, hook, fields.mapping(stored[0], "metadata", "labels")):
        return f"the namespaceSelector of {hook} leaves {namespace} out"
    return ""


def asks_about(configuration: Object, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the webhook of that name asks about pods in a namespace with these labels."""
    hook = hooks(configuration).get(name)
    selector = [*requirements(hook.get("namespaceSelector") or {})] if hook else []
    return hook is not None and membership.selects(Namespaces(selector=selector), "", labels)


async def _tried(installation: Installation, name: str, api: Api) -> ApiServer:
    """One API server's responses to the pods of `trials`."""

    async def respond(labels: Mapping[str, str]) -> Response:
        began = time()
        answer = await api.answer(
            "POST", f"/api/v1/namespaces/{installation.try_in}/pods?dryRun=All", trial_pod(labels)
        )
        if answer.at is not None:
            installation.clocks[name] = answer.at - (began + time()) / 2
        try:
            body = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            body = None
        if not isinstance(body, dict):
            body = {"message": answer.body[:200].decode(errors="replace")}
        response = Response(status=answer.status, body=body, warnings=answer.warnings)
        if response.is_forbidden:
            raise ApiError(response.message)
        return response

    tried = trials(installation.rulebook)
    try:
        responses = {pod.purpose: await respond(pod.labels) for pod in tried}
        # Whether a replica is asked about the bystander, by how many reviews they have answered before and after.
        was_called: bool | None = None
        if installation.replicas and not any(replica.unreachable for replica in installation.replicas):
            for _ in range(TRIES):
                before = await _reviews(installation.endpoints)
                await respond(tried[-1].labels)
                after = await _reviews(installation.endpoints)
                was_called = None if before is None or after is None else before != after
                if not was_called:
                    break
    except ApiError as error:
        return ApiServer(address=name, unreachable=str(error))
    return ApiServer(address=name, responses=responses, was_called=was_called)


async def read_webhooks(installation: Installation, api: Api) -> None:
    """All mutating webhook configurations."""
    installation.mutating = await api.list(f"{REGISTERED}/{PLURALS['MutatingWebhookConfiguration']}")


async def read_version(installation: Installation, api: Api) -> None:
    """What the API server is, and what it serves."""
    installation.groups = frozenset(group["name"] for group in (await api.get("/apis"))["groups"])
    installation.version = await api.get("/version")


async def read_tenants(installation: Installation, api: Api) -> None:
    """What stands in the cluster, and which of its pods would be refused with what is around them."""
    rulebook = installation.rulebook
    try:
        first = await _tenants(api)
        await asyncio.sleep(SETTLE_SECONDS if first.of("TenantPolicy") else 0)
        installation.tenants = first, await _tenants(api)
        rulebook = replace(rulebook, tenancy=installation.tenants[-1].tenancy(rulebook)[0])
    except MissingError:
        installation.tenants = ()
    objects = {"nodes": await api.list("/api/v1/nodes")}
    for kind in (kind for source in rulebook.sources for kind in source.kinds):
        for version in kind.versions:
            try:
                objects[kind.name] = await api.list(f"/apis/{kind.group}/{version}/{kind.plural}")
            except MissingError:
                continue
            break
    around = surroundings.concluded(rulebook, objects)
    refused: list[str] = []
    async for page in api.pages("/api/v1/pods", NOT_OVER):
        installation.pods += len(page["items"])
        refused += judged(page["items"], around, time())
    installation.refused = refused


async def _tenants(api: Api) -> Snapshot:
    return Snapshot(TENANTS, {kind: await api.list(path) for kind, [path] in TENANTS.items()})


def judged(pods: Iterable[Object], rulebook: Rulebook, at: float) -> Iterator[str]:
    """The pods of these that /validate would refuse if they were created now; no quota is asked."""
    for pod in pods:
        metadata = fields.mapping(pod, "metadata")
        namespace = str(metadata.get("namespace", ""))
        decision = validate(review.creating(pod, str(metadata.get("uid", "")), namespace, at), rulebook)
        if not decision.allowed:
            yield f"{namespace}/{metadata.get('name')}: {review.line(decision.violations[0])}"


# A replica of the admission server, seen by connecting to it: its certificate, and the pages that it serves.

SECONDS: Final = 5.0
"""For one handshake or page."""

_NO_CHECK_TIME: Final = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: dates are looked at apart, and are not told of what is not verified."""


async def _look(address: Address, server: str, bundles: Sequence[Bundle]) -> Replica:
    """What a replica serves, by the name that API servers ask for and the bundles that they have."""
    try:
        # From when and until when its certificate is valid.
        anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
        served = (await _handshake(address, "", anything)).getpeercert(binary_form=True)
        itself = _trusting(ssl.DER_cert_to_PEM_cert(served), _NO_CHECK_TIME)
        itself.check_hostname = False
        certificate = (await _handshake(address, "", itself)).getpeercert()
        valid = ssl.cert_time_to_seconds(certificate["notBefore"]), ssl.cert_time_to_seconds(certificate["notAfter"])
        untrusted, untimely = await _distrust(address, server, bundles)
        status, ready, ahead = await _page(address, "/readyz")
        metrics = (await _page(address, "/metrics"))[1]
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        why = str(error) or "no answer in time"
        own_words = isinstance(error, ClientError | ssl.SSLError | socket.gaierror)  # its errno is not the system's
        if isinstance(error, OSError) and error.errno and not own_words:
            why = os.strerror(error.errno).lower()  # of a failed connection asyncio says only that it failed
        return Replica(address=str(address), unreachable=why)
    digest = re.search(r'^gpu_webhook_rulebook\{digest="([0-9a-f]+)"\} 1$', metrics, re.MULTILINE)
    return Replica(
        address=str(address),
        untrusted=untrusted,
        untimely=untimely,
        valid=valid,
        not_ready="" if status == HTTPStatus.OK else ready.strip() or f"/readyz answered {status}",
        digest=digest[1] if digest else "",
        ahead=ahead,
    )


async def _reviews(addresses: Sequence[Address]) -> int | None:
    """How many reviews these replicas have answered together; None if one does not say."""
    try:
        pages = await asyncio.gather(*(_page(address, "/metrics") for address in addresses))
    except (ClientError, OSError, TimeoutError, ValueError):
        return None
    counter = re.compile(r"^gpu_webhook_reviews_total(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)
    return sum(int(float(count)) for _, metrics, _ in pages for count in counter.findall(metrics))


async def _distrust(address: Address, server: str, bundles: Sequence[Bundle]) -> tuple[str, str]:
    """Why its certificate is not trusted, and why not at this time; raises OSError if it cannot be connected."""
    for bundle in (bundle for bundle in bundles if bundle.pem):
        whose = f"by the caBundle of {', '.join(bundle.webhooks)}"
        try:
            await _handshake(address, server, _trusting(bundle.pem, _NO_CHECK_TIME))
        except ssl.SSLCertVerificationError as error:
            return f"{error.verify_message}, {whose}", ""
        except ssl.SSLError:
            return f"there is no certificate to verify it {whose}", ""
        try:
            await _handshake(address, server, _trusting(bundle.pem))
        except ssl.SSLCertVerificationError as error:
            return "", f"{error.verify_message}, {whose}"
    return "", ""


def _trusting(pem: str, flags: ssl.VerifyFlags = ssl.VerifyFlags.VERIFY_DEFAULT) -> ssl.SSLContext:
    """The context of a client that trusts each certificate of a bundle, as API servers do, of a CA or not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | flags
    context.load_verify_locations(cadata=pem)
    return context


async def _handshake(address: Address, server: str, context: ssl.SSLContext) -> Any:
    """The TLS connection, closed; raises SSLCertVerificationError if the context does not trust the certificate."""
    async with asyncio.timeout(SECONDS):
        _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=server or address.host)
    writer.close()
    with contextlib.suppress(OSError):  # it has nothing more to say to us
        await writer.wait_closed()
    return writer.get_extra_info("ssl_object")


async def _page(address: Address, path: str) -> tuple[int, str, float | None]:
    """The status and text of a page, whatever the certificate, and by how much the clock there is ahead."""
    began = time()
    async with (
        ClientSession(connector=TCPConnector(ssl=False), timeout=ClientTimeout(SECONDS)) as session,
        session.get(f"https://{address}{path}") as answer,
    ):
        text = await answer.text()
    date = answer.headers.get("Date")
    ahead = None if date is None else parsedate_to_datetime(date).timestamp() - (began + time()) / 2
    return answer.status, text, ahead
