"""What `gpu-webhook doctor` reads of an installation and tries there: it writes nothing, each create is a dry run."""

import asyncio
import base64
import binascii
import contextlib
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from http import HTTPStatus
from itertools import chain
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from webhook.cli import survey
from webhook.cli.snapshot import NOT_OVER, TENANTS, Snapshot
from webhook.cli.table import several
from webhook.cluster.client import Answer, Api, ApiError, ForbiddenError, MissingError, Object
from webhook.cluster.policies import ADMISSION_POLICIES, BINDINGS, REGISTRATION, RUNTIME_CLASSES
from webhook.core import review
from webhook.core.decision import POLICY
from webhook.core.forms.labels import Expression
from webhook.core.kube import fields
from webhook.core.kube.pod import CORE
from webhook.core.mutate import mutate
from webhook.core.policy import membership, updates
from webhook.core.registration import configurations
from webhook.core.rules import cluster
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy
from webhook.core.validate import validate
from webhook.files import rule_files, surroundings

Result = Literal["ok", "warn", "fail"]
Verdict = tuple[Result, str] | tuple[Result, str, str]
"""What a check finds; without a fix of its own it has that of the check."""


class Address(NamedTuple):
    """An IP address or a name, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Replica(NamedTuple):
    """One replica of the admission server, seen by connecting to it."""

    address: str
    unreachable: str = ""  # why it cannot be connected from here
    untrusted: str = ""  # why a bundle does not verify its certificate, dates aside; with the webhooks that have it
    untimely: str = ""  # why the certificate or one of its CAs is not valid now, by the clock of this machine
    valid: tuple[float, float] | None = None  # the certificate, from when until when, in seconds since 1970
    not_ready: str = ""  # what /readyz says, if it is not ready
    digest: str = ""  # of the rules that it applies; "" if it says none
    silent: float = 0.0  # for how many seconds its watcher has heard nothing of nodes
    ahead: float | None = None  # by how many seconds its clock is ahead of ours; None if it does not say


Purpose = Literal["translated", "refused", "bystander"]


class Tried(NamedTuple):
    """A pod to try; `labels` are its request, `code` that of its refusal."""

    purpose: Purpose
    labels: Mapping[str, str]
    code: str = ""


class ApiServer(NamedTuple):
    """One API server, and its responses by the purpose of the pod."""

    address: str
    unreachable: str = ""  # why it cannot be asked from here
    responses: Mapping[Purpose, Answer] = MappingProxyType({})
    was_called: bool | None = None  # whether a replica was asked about the bystander; None where nobody can tell


@dataclass(slots=True, kw_only=True)
class Installation:
    """What is known of an installation: what the options say, then what the readings below fill in."""

    rulebook: Rulebook  # the rules that should be in force
    source: str = ""  # where they are from
    namespace: str = cluster.OWN  # where the admission server runs
    try_in: str = "default"  # the namespace of the pods that are tried
    endpoints: Sequence[Address] = ()  # the addresses of the replicas; none: those of the Service
    wanted: Sequence[Object] = ()  # our webhook configurations as the rules make them
    now: float = field(default_factory=time)

    unloadable: str = ""  # why these rules do not load; the rulebook is then an empty one
    deployments: Mapping[str, Object] = field(default_factory=dict)  # those of `namespace`, by name
    lacking: list[str] = field(default_factory=list)  # what the accounts of our programs may not do, and have to
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of all namespaces, by name
    live: dict[str, Object | None] = field(default_factory=dict)  # those of the cluster by kind; None: missing
    server: str = ""  # the name that API servers expect of replicas
    replicas: Sequence[Replica] = ()
    untried: str = ""  # why no pod is tried; else the API servers have been asked
    api_servers: Sequence[ApiServer] = ()
    clocks: dict[str, float] = field(default_factory=dict)  # whose clock is ahead of ours by how many seconds
    mutating: Sequence[Object] = ()  # all mutating webhook configurations
    version: Object = field(default_factory=dict)  # the answer of /version
    groups: frozenset[str] = frozenset()  # the API groups that are served
    tenants: Sequence[Snapshot] = ()  # twice, some seconds apart; none without the custom resources
    handlers: Mapping[str, str] = field(default_factory=dict)
    net: Mapping[tuple[str, str], Object] = field(default_factory=dict)  # admission policies by kind and name
    undefined: str = ""  # which custom resource is missing
    uncounted: list[str] = field(default_factory=list)  # stored pods, `namespace/name`, that are still reservations
    pods: int = 0  # how many are not over
    refused: Sequence[str] = ()  # which of them would be refused today: `namespace/name: why`
    unlisted: dict[str, str] = field(default_factory=dict)  # see `survey.unlisted`
    wrote: set[str] = field(default_factory=set)  # the programs that wrote into pods what only the platform writes

    @property
    def pairs(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        """Each of our webhooks that exists, as it should be and as it is; without the order of lists."""

        def sort(value: Any) -> Any:
            if isinstance(value, list):
                return sorted(map(sort, value), key=str)
            return {key: sort(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value

        return [
            (sort(hook), sort(stored))
            for configuration in self.wanted
            for name, hook in hooks(configuration).items()
            if (stored := hooks(self.live.get(configuration["kind"])).get(name))
        ]

    @property
    def callers(self) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """The webhooks that call replicas, by name, each with its clientConfig."""
        stored = [webhook for configuration in self.live.values() for webhook in hooks(configuration).items()]
        called = [(name, fields.mapping(hook, "clientConfig")) for name, hook in stored]
        own = configurations.NAME
        return [(name, to) for name, to in called if "url" in to or fields.at(to, "service", "name") == own]

    @property
    def bundles(self) -> Mapping[str, Sequence[str]]:
        """The caBundles of the webhooks that call replicas, as PEM, each with their names; "": they have none."""
        names: dict[str, list[str]] = {}
        for name, called in self.callers:
            try:
                pem = base64.b64decode(called.get("caBundle") or "").decode()
            except (binascii.Error, UnicodeDecodeError):
                pem = "unreadable"
            names.setdefault(pem, []).append(name)
        return names


def hooks(configuration: Object | None) -> Mapping[str, Mapping[str, Any]]:
    """The webhooks of a configuration, by name."""
    return {str(hook["name"]): hook for hook in (configuration or {}).get("webhooks") or ()}


def requirements(selector: Object) -> Iterator[Expression]:
    """Each requirement of a label selector, whichever way it is written."""
    for key, text in (selector.get("matchLabels") or {}).items():
        yield Expression(key=key, operator="In", values=(text,))
    for line in selector.get("matchExpressions") or ():
        yield Expression(key=line["key"], operator=line["operator"], values=tuple(sorted(line.get("values") or ())))


async def mounted(api: Api, namespace: str) -> Rulebook:
    """The rules in the ConfigMaps that the admission server mounts."""
    fix = "to examine it without its ConfigMaps, give the rules that should be in force: --rules DIR"
    try:
        deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{configurations.NAME}")
        volumes = fields.objects(fields.at(deployment, "spec", "template", "spec", "volumes"))
        sources = chain(*(volume["projected"]["sources"] for volume in volumes if volume["name"] == "rules"))
        names = [source["configMap"]["name"] for source in sources]
        return _loaded([await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}") for name in names])
    except (MissingError, ForbiddenError) as error:
        elsewhere = "; is it installed in this cluster? Elsewhere: --namespace NAME"
        raise ApiError(f"{error}{elsewhere if isinstance(error, MissingError) else ''}; {fix}") from None


def _loaded(mounted: Iterable[Object]) -> Rulebook:
    with tempfile.TemporaryDirectory() as folder:
        for file, text in chain(*((stored.get("data") or {}).items() for stored in mounted)):
            Path(folder, Path(file).name).write_text(text)
        return rule_files.load(Path(folder), only_enabled=True)


# Our programs, what they may do, what is registered in the cluster, and what that is.

_ALL_POLICIES: Final = {"ValidatingAdmissionPolicy": ADMISSION_POLICIES, "ValidatingAdmissionPolicyBinding": BINDINGS}
_RIGHTS: Final = (
    ("", "list nodes"),
    ("", "list tenantpolicies.gpu-webhook.io"),
    ("", "update tenantusages.gpu-webhook.io/status"),
    ("-settler", "list pods"),
    ("-settler", "update tenantpolicies.gpu-webhook.io/status"),
    ("-settler", "update tenantusages.gpu-webhook.io/status"),
    ("-settler", "update validatingadmissionpolicies.admissionregistration.k8s.io gpu-webhook-devices"),
    ("-certs", "patch mutatingwebhookconfigurations.admissionregistration.k8s.io gpu-webhook"),
)
"""Of the account of each program what it cannot do without, one of each of its roles."""


async def read_programs(installation: Installation, api: Api) -> None:
    """The Deployments of our programs, and what their accounts may not do."""
    deployments = await api.list(f"/apis/apps/v1/namespaces/{installation.namespace}/deployments")
    installation.deployments = {deployment["metadata"]["name"]: deployment for deployment in deployments}

    for program, right in _RIGHTS:
        account = f"{configurations.NAME}{program}"
        verb, resource, *name = right.split()
        resource, _, subresource = resource.partition("/")
        resource, _, group = resource.partition(".")
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        user = f"{membership.ACCOUNT}{installation.namespace}:{account}"
        spec = {"user": user, "resourceAttributes": {**attributes, "name": "".join(name)}}
        reviewed = await api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec})
        if not reviewed["status"]["allowed"]:
            installation.lacking.append(f"{account} may not {right}")


async def read_configurations(installation: Installation, api: Api) -> None:
    """Our webhook configurations, and the labels of namespaces, by which they are called."""
    namespaces = await api.list("/api/v1/namespaces")
    installation.labels = {raw["metadata"]["name"]: fields.mapping(raw, "metadata", "labels") for raw in namespaces}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        installation.live[kind] = await api.find(f"{REGISTRATION}/{kind.lower()}s/{configurations.NAME}")


async def read_webhooks(installation: Installation, api: Api) -> None:
    """All mutating webhook configurations."""
    installation.mutating = await api.list(f"{REGISTRATION}/mutatingwebhookconfigurations")


async def read_version(installation: Installation, api: Api) -> None:
    """What the API server is, and what it serves."""
    installation.groups = frozenset(group["name"] for group in (await api.get("/apis"))["groups"])
    installation.version = await api.get("/version")


# Pods that are tried at each API server.

TRIES: Final = 3
"""How often a pod without a GPU is tried while replicas answer reviews of other pods."""

_REQUESTS: Final[Mapping[Purpose, Sequence[Mapping[str, str]]]] = {
    "translated": ({"gpu": "1"}, {"gpu": "0.5"}, {"gpu-memory": "1Gi"}, {"gpu-profile": "1g.5gb"}),
    "refused": ({"gpu": "1.5"}, {"gpu": "-1"}, {"gpu": "1", "gpu-memory": "-1Gi"}),
}
"""The labels of pods to try; of each kind the first that the rules answer so."""

_AMOUNTS: Final = {"cpu": "10m", "memory": "16Mi"}


def trial_pod(labels: Mapping[str, str]) -> dict[str, Any]:
    """A pod such as any namespace takes it, with a request in its labels."""
    main = {
        "name": "main",
        "image": "registry.invalid/never-pulled:dry-run",
        "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [main],
    }
    metadata = {"generateName": "gpu-webhook-doctor-", "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


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


MUTATE: Final = "mutate.gpu-webhook.io"


def asks_about(configuration: Object, labels: Mapping[str, str]) -> bool:
    """Whether the mutating webhook is asked about pods in a namespace with these labels."""
    hook = hooks(configuration).get(MUTATE)
    selector = [*requirements(hook.get("namespaceSelector") or {})] if hook else []
    return hook is not None and membership.selects(Namespaces(selector=selector), "", labels)


async def read_admission(installation: Installation, api: Api) -> None:
    """What each API server answers to the pods; where none can be reached by its address, whichever answers here."""
    namespace = installation.try_in
    if installation.rulebook.cluster.exempts(namespace):
        installation.untried = f"pods in {namespace} are left alone, by the Cluster document"
        return
    labels = installation.labels.get(namespace)
    mutating = installation.live.get("MutatingWebhookConfiguration")
    if labels is None:
        installation.untried = f"there is no namespace {namespace}"
    elif mutating and not asks_about(mutating, labels):
        installation.untried = f"the namespaceSelector of {MUTATE} leaves {namespace} out"
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


def is_forbidden(answer: Answer) -> bool:
    """Whether the account may not create pods at all, so that no webhook was asked."""
    return answer.status == HTTPStatus.UNAUTHORIZED or 'cannot create resource "pods"' in answer.message


async def _tried(installation: Installation, name: str, api: Api) -> ApiServer:
    """One API server's responses to the pods of `trials`."""

    async def respond(labels: Mapping[str, str]) -> Answer:
        path, began = f"/api/v1/namespaces/{installation.try_in}/pods?dryRun=All", time()
        answer = await api.answer("POST", path, trial_pod(labels))
        if answer.at is not None:
            installation.clocks[name] = answer.at - (began + time()) / 2
        if is_forbidden(answer):
            raise ApiError(answer.message)
        return answer

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


_OURS: Final = re.compile(r'admission webhook "[a-z]+\.gpu-webhook\.io" denied')
UNCALLED: Final = re.compile(r'failed calling webhook "[a-z]+\.gpu-webhook\.io"')
_CODE: Final = re.compile(r"\[(GPU[0-9]{3})\]")


def trouble(tried: Tried, server: ApiServer, *, observing: bool) -> Verdict | None:
    """What is wrong with an API server's response to a pod, if anything is."""
    purpose, response = tried.purpose, server.responses[tried.purpose]
    request = ", ".join(f"{key}: {label}" for key, label in tried.labels.items())
    pod = f"{server.address}: the pod with {'no GPU' if purpose == 'bystander' else request}"
    elsewhere = "try them where they are admitted: --try-in NAMESPACE"
    message, is_refused = response.message, response.status >= HTTPStatus.BAD_REQUEST
    if is_refused and UNCALLED.search(message):
        return "fail", f"{pod}: {message}"
    if observing and purpose != "bystander":  # pods are warned of, and neither changed nor refused
        if any("would b" in warning for warning in response.warnings):
            return None
        return "fail", f"{pod}: nobody was warned of what would become of it"
    if is_refused:
        codes = _CODE.findall(str(response.body.get("message")))
        if not _OURS.search(message):
            return "warn", f"{pod} was refused by others: {message}", elsewhere
        if purpose == "bystander":
            return "fail", f"{pod} was refused by us: {message}", elsewhere
        if purpose == "refused":
            if tried.code in codes or f"[{POLICY}" in message:
                return None
            return "fail", f"{pod} was not refused with {tried.code}: {message}", "see `rules`"
        if any(code.startswith("GPU6") for code in codes):  # those of the final check
            return "fail", f"{pod} came to /validate untranslated: {message}"
        if all(code.startswith(POLICY) for code in codes):
            return None
        return "warn", f"{pod} was refused: {message}", elsewhere
    # It would be created. A device is a limit that pods of ours do not have otherwise, or a claim.
    spec = fields.mapping(response.body, "spec")
    containers = fields.objects(spec.get("containers"))
    limits = {name for container in containers for name in fields.mapping(container, "resources", "limits")}
    has_device = bool(spec.get("resourceClaims") or limits - {*CORE})
    if purpose == "refused":
        return "fail", f"{pod} was admitted, and should have been refused with {tried.code}"
    if purpose == "translated":
        undone = f"{pod} came back without a device: nobody translated it, or somebody undid that"
        return None if has_device else ("fail", undone)
    if has_device:
        return "fail", f"{pod} came back with a device"
    if server.was_called:
        fix = "see `configurations`: matchConditions keep such pods from us; on a busy cluster, try again"
        return "warn", f"{pod}: a replica was asked about a pod each time one without a GPU was tried", fix
    if server.was_called is None:
        return "warn", f"{pod}: whether it was sent to us cannot be told from here", "see `replicas`"
    return None


# Policies, ledgers, what the API server refuses by itself, and pods that exist.

SETTLE_SECONDS: Final = 3.0
"""Between two readings of the ledgers."""


async def surrounded(rulebook: Rulebook, api: Api) -> Rulebook:
    """The rulebook with the nodes of the cluster, and the claims that pods may name."""
    objects = {"nodes": await api.list("/api/v1/nodes")}
    for kind in (kind for source in rulebook.sources for kind in source.kinds):
        for version in kind.versions:
            with contextlib.suppress(MissingError):
                objects[kind.name] = await api.list(f"/apis/{kind.group}/{version}/{kind.plural}")
                break
    return surroundings.concluded(rulebook, objects)


async def read_tenants(installation: Installation, api: Api) -> None:
    """What stands in the cluster, and which of its pods would be refused with what is around them."""

    async def read() -> Snapshot:
        return Snapshot(TENANTS, {kind: await api.list(path) for kind, [path] in TENANTS.items()})

    rulebook = installation.rulebook
    reserved_pods: set[str] = set()
    try:
        first = await read()
        await asyncio.sleep(SETTLE_SECONDS if first.of("TenantPolicy") else 0)
        installation.tenants = first, await read()
        rulebook = replace(rulebook, tenancy=installation.tenants[-1].tenancy(rulebook)[0])
        pending = [uids for counted in first.ledgers()[0].values() for uids in counted.pending.values()]
        reserved_pods = {*chain(*pending)}
    except MissingError as error:
        installation.undefined = str(error)
    around = await surrounded(rulebook, api)
    refused: list[str] = []
    reserved = updates.reserved(rulebook)
    async for page in api.pages("/api/v1/pods", NOT_OVER):
        installation.pods += len(page["items"])
        for metadata in (pod["metadata"] for pod in page["items"] if pod["metadata"]["uid"] in reserved_pods):
            installation.uncounted.append(f"{metadata['namespace']}/{metadata['name']}")
        refused += judged(page["items"], around, time())
        parts = [{**pod, "kind": "Pod", "spec": {"template": {"spec": pod["spec"]}}} for pod in page["items"]]
        installation.unlisted |= survey.unlisted(parts, rulebook)
        for entry in chain.from_iterable(pod["metadata"].get("managedFields") or () for pod in page["items"]):
            written = fields.mapping(entry, "fieldsV1", "f:metadata", "f:annotations")
            if any(fnmatchcase(key.removeprefix("f:"), glob) for key in written for glob in reserved):
                installation.wrote.add(str(entry.get("manager")))
    installation.refused = refused


async def read_net(installation: Installation, api: Api) -> None:
    """Admission policies, their bindings, and RuntimeClasses, by which the settler fills them in."""
    classes = await api.list(RUNTIME_CLASSES)
    installation.handlers = {runtime_class["metadata"]["name"]: runtime_class["handler"] for runtime_class in classes}
    lists = {kind: await api.list(path) for kind, path in _ALL_POLICIES.items()}
    installation.net = {(kind, raw["metadata"]["name"]): raw for kind, raws in lists.items() for raw in raws}


def judged(pods: Iterable[Object], rulebook: Rulebook, at: float) -> Iterator[str]:
    """The pods of these that /validate would refuse if they were created now; no quota is asked."""
    for pod in pods:
        metadata = fields.mapping(pod, "metadata")
        namespace = str(metadata.get("namespace", ""))
        decision = validate(review.creating(pod, str(metadata.get("uid", "")), namespace, at), rulebook)
        if not decision.allowed:
            yield f"{namespace}/{metadata.get('name')}: {review.warning_text(decision.violations[0])}"


# Replicas of the admission server, seen by connecting to them: certificates, and the pages that they serve.

SECONDS: Final = 5.0
"""For one handshake or page."""

_NO_CHECK_TIME: Final = 0x200000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME
_OUT_OF_TIME: Final = {9, 10}  # its X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


async def read_replicas(installation: Installation, api: Api) -> None:
    """Where the replicas are, by which name API servers ask for them, and what they serve."""
    urls = [urlsplit(called["url"]) for _, called in installation.callers if "url" in called]
    installation.server = f"{configurations.NAME}.{installation.namespace}.svc"
    if urls:
        installation.server = urls[0].hostname or ""
    if urls and not installation.endpoints:
        installation.endpoints = [Address(installation.server, urls[0].port or 443)]
    elif not installation.endpoints:
        installation.endpoints = await _endpoints(api, installation.namespace, configurations.NAME)
    installation.replicas = await asyncio.gather(
        *(_look(address, installation) for address in installation.endpoints)
    )


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


async def _look(address: Address, installation: Installation) -> Replica:
    """What a replica serves, by the name that API servers ask for and the bundles that they have."""
    try:
        served = (await _handshake(address, "", "")).getpeercert(binary_form=True)
        itself = ssl.DER_cert_to_PEM_cert(served)  # only who trusts a certificate can read its dates
        certificate = (await _handshake(address, "", itself, _NO_CHECK_TIME)).getpeercert()
        begins, ends = (ssl.cert_time_to_seconds(certificate[date]) for date in ("notBefore", "notAfter"))
        untrusted, untimely = await _distrust(address, installation)
        status, ready, ahead = await _page(address, "/readyz")
        metrics = (await _page(address, "/metrics"))[1]
    except (ClientError, OSError, TimeoutError, ValueError) as error:
        why = str(error) or "no answer in time"
        own_words = isinstance(error, ClientError | ssl.SSLError | socket.gaierror)  # its errno is not the system's
        if isinstance(error, OSError) and error.errno and not own_words:
            why = os.strerror(error.errno).lower()  # of a failed connection asyncio says only that it failed
        return Replica(address=str(address), unreachable=why)
    silent = re.search("^gpu_webhook_surroundings_age_seconds ([0-9]+)$", metrics, re.MULTILINE)
    digest = re.search(r'^gpu_webhook_rulebook\{digest="([0-9a-f]+)"\} 1$', metrics, re.MULTILINE)
    return Replica(
        address=str(address),
        untrusted=untrusted,
        untimely=untimely,
        valid=(begins, ends),
        not_ready="" if status == HTTPStatus.OK else ready.strip() or f"/readyz answered {status}",
        digest=digest[1] if digest else "",
        silent=float(silent[1]) if silent else 0.0,
        ahead=ahead,
    )


async def _distrust(address: Address, installation: Installation) -> tuple[str, str]:
    """Why its certificate is not trusted, or why not at this time; raises OSError if it cannot be connected."""
    for pem, webhooks in installation.bundles.items():
        whose = f"by the caBundle of {several(webhooks, ', ')}"
        try:
            if pem:
                await _handshake(address, installation.server, pem)
        except ssl.SSLCertVerificationError as error:  # OpenSSL looks at dates last
            told = f"{error.verify_message}, {whose}"
            return ("", told) if error.verify_code in _OUT_OF_TIME else (told, "")
        except ssl.SSLError:
            return f"there is no certificate to verify it {whose}", ""
    return "", ""


async def _handshake(address: Address, server: str, pem: str, flags: int = 0) -> Any:
    """The TLS connection, closed; it trusts each certificate of a bundle, as API servers do, of a CA or not.

    Without a bundle it trusts anything. Raises SSLCertVerificationError if it does not trust what is served.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(server)
    if pem:
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN | flags
        context.load_verify_locations(cadata=pem)
    else:
        context.verify_mode = ssl.CERT_NONE
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


async def _reviews(addresses: Sequence[Address]) -> int | None:
    """How many reviews these replicas have answered together; None if one does not say."""
    try:
        pages = await asyncio.gather(*(_page(address, "/metrics") for address in addresses))
    except (ClientError, OSError, TimeoutError, ValueError):
        return None
    counter = re.compile(r"^gpu_webhook_reviews_total(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)
    return sum(int(float(count)) for _, metrics, _ in pages for count in counter.findall(metrics))
