"""What `gpu-webhook doctor` reads of a cluster and tries there: nothing is written, and every create is a dry run."""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from time import time
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from webhook.cli import checkup, doctor, replicas, snapshot
from webhook.cli.checkup import Check
from webhook.cli.doctor import Reading, Server, Tried
from webhook.cli.replicas import Address, Bundle, Seen
from webhook.cluster.client import GROUP, Answer, Api, ApiError, ForbiddenError, MissingError, Object
from webhook.core.kube import fields
from webhook.core.policy import membership
from webhook.core.registration import configurations
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files, surroundings

REGISTERED: Final = "/apis/admissionregistration.k8s.io/v1"
PLURALS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}
MUTATE: Final = "mutate.gpu-webhook.io"
NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"
SETTLE_SECONDS: Final = 3.0
"""Between two readings of the ledgers."""

TRIES: Final = 3
"""How often a pod without a GPU is tried while replicas answer reviews of other pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked for.

    rules      the directory of the rules that should be in force; None: the ConfigMaps that the server mounts
    namespace  where the admission server runs
    try_in     the namespace of the pods that are tried
    endpoints  the replicas, if not those of the Service
    """

    rules: Path | None
    namespace: str
    try_in: str
    endpoints: Sequence[tuple[str, int]] = ()


_GIVEN: Final = "to examine it without its ConfigMaps, give the rules that should be in force: --rules DIR"


async def examine(asked: Asked, api: Api) -> Sequence[Check]:
    """All checks, in the order in which they are told; raises ApiError, RuleFilesError and NotExemptError."""
    if asked.rules is not None:
        rulebook, source = rule_files.load_cached(asked.rules), str(asked.rules)
    else:
        rulebook, source = await _mounted(api, asked.namespace), f"the ConfigMaps in {asked.namespace}"
    return [check async for check in Examination(api, asked, rulebook, source).checks()]


async def _mounted(api: Api, namespace: str) -> Rulebook:
    """The rules in the ConfigMaps that the admission server mounts."""
    try:
        files = await _mounted_files(api, namespace)
    except MissingError as error:
        raise ApiError(f"{error}; is it installed in this cluster? Elsewhere: --namespace NAME; {_GIVEN}") from None
    except ForbiddenError as error:
        raise ApiError(f"{error}; {_GIVEN}") from None
    return _loaded(files)


def _loaded(files: Mapping[str, str]) -> Rulebook:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, Path(name).name).write_text(text)
        return rule_files.load(Path(folder))


async def _mounted_files(api: Api, namespace: str) -> Mapping[str, str]:
    deployment = await api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{configurations.NAME}")
    volumes = fields.objects(fields.at(deployment, "spec", "template", "spec", "volumes"))
    sources = [
        fields.objects(fields.at(volume, "projected", "sources")) for volume in volumes if volume["name"] == "rules"
    ]
    names = [str(fields.at(source, "configMap", "name")) for source in chain.from_iterable(sources)]
    found = [await api.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}") for name in names]
    return {name: text for each in found for name, text in (each.get("data") or {}).items()}


class Examination:
    """All checks of one cluster by a rulebook; `source` says where that is from."""

    def __init__(self, api: Api, asked: Asked, rulebook: Rulebook, source: str) -> None:
        self._api, self._asked, self._rulebook, self._source = api, asked, rulebook, source
        self._wanted = configurations.both(rulebook, asked.namespace)
        self._live: dict[str, Object | None] = {}
        self._seen: Sequence[Seen] = ()
        self._addresses: Sequence[Address] = ()
        self._ahead: dict[str, float] = {}
        self._certified = True

    async def checks(self) -> AsyncIterator[Check]:
        """Make them one after the other."""
        for names, make in (
            (("configurations", "active", "failure-policy", "namespaces"), self._configurations),
            (("replicas", "certificate", "expiry"), self._replicas),
            (("admission",), self._admission),
            (("clocks",), self._clocks),
            (("rules",), self._rules),
            (("order",), self._order),
            (("kubernetes",), self._kubernetes),
            (("policies", "ledgers", "pods"), self._standing),
        ):
            for check in await _attempt(names, make):
                yield check

    async def _configurations(self) -> Sequence[Check]:
        for kind, plural in PLURALS.items():
            self._live[kind] = await self._api.find(f"{REGISTERED}/{plural}/{configurations.NAME}")
        return doctor.check_registered(self._wanted, self._live)

    async def _replicas(self) -> Sequence[Check]:
        server, self._addresses = await self._where()
        bundles = list(_bundles(self._live))
        self._seen = await asyncio.gather(*(replicas.look(each, server, bundles) for each in self._addresses))
        found = [each.replica for each in self._seen]
        secret = f"the Secret {self._asked.namespace}/gpu-webhook-tls"
        checks = [
            replicas.present(found, f"{self._asked.namespace}/{configurations.NAME}"),
            replicas.certificate(bundles, found, server, secret),
            replicas.expiry(found, time()),
        ]
        self._certified = all(check.result != "fail" for check in checks[1:])
        return checks

    async def _where(self) -> tuple[str, Sequence[Address]]:
        """The name that API servers expect of replicas, and the addresses of these."""
        server = f"{configurations.NAME}.{self._asked.namespace}.svc"
        url = next((urlsplit(url) for url in _urls(self._live)), None)
        if url is not None:
            server = url.hostname or ""
        if self._asked.endpoints:
            return server, [Address(*each) for each in self._asked.endpoints]
        if url is not None:
            return server, [Address(server, url.port or 443)]
        return server, await self._endpoints(self._asked.namespace, configurations.NAME)

    async def _endpoints(self, namespace: str, service: str) -> Sequence[Address]:
        """The addresses of a Service that are ready."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        found = await self._api.list(path)
        slices = [
            each for each in found if fields.at(each, "metadata", "labels", "kubernetes.io/service-name") == service
        ]
        return sorted({address for each in slices for address in _addresses(each)})

    async def _admission(self) -> Sequence[Check]:
        place = self._asked.try_in
        why = await self._why_nobody_asks_about(place)
        if why:
            return [Check("admission", "warn", f"not tried: {why}", "name another namespace: --try-in NAMESPACE")]
        tried = doctor.trial_pods(self._rulebook)
        servers = await self._api_servers(tried)
        observing = self._rulebook.tenancy.observing
        return [doctor.check_trials(tried, servers, observing=observing, certified=self._certified)]

    async def _why_nobody_asks_about(self, namespace: str) -> str:
        """Why pods of a namespace are left alone; empty if they are not."""
        if self._rulebook.cluster.exempts(namespace):
            return f"pods in {namespace} are left alone, by the Cluster document"
        found = await self._api.list("/api/v1/namespaces", f"metadata.name={namespace}")
        if not found:
            return f"there is no namespace {namespace}"
        configuration = self._live.get("MutatingWebhookConfiguration")
        if configuration and not doctor.asks_about(
            configuration, MUTATE, fields.mapping(found[0], "metadata", "labels")
        ):
            return f"the namespaceSelector of {MUTATE} leaves {namespace} out"
        return ""

    async def _api_servers(self, tried: Sequence[Tried]) -> Sequence[Server]:
        """Try the pods at each API server; where none can be reached by its address, at whichever answers here."""
        addresses = await self._endpoints("default", "kubernetes")
        found = [await self._try(tried, str(each), self._api.of(*each)) for each in addresses]
        if all(each.unreachable for each in found):
            found.append(await self._try(tried, "the API server of this connection", self._api, keep=True))
        return found

    async def _try(self, tried: Sequence[Tried], name: str, api: Api, *, keep: bool = False) -> Server:
        try:
            answers = {one.purpose: await self._answer(api, name, one) for one in tried}
            called = await self._was_called(api, name, next(one for one in tried if one.purpose == "bystander"))
            return Server(address=name, answers=answers, was_called=called)
        except ApiError as error:
            return Server(address=name, unreachable=str(error))
        finally:
            if not keep:
                await api.close()

    async def _answer(self, api: Api, name: str, one: Tried) -> doctor.Answer:
        path = f"/api/v1/namespaces/{self._asked.try_in}/pods?dryRun=All"
        began = time()
        found = await api.answer("POST", path, one.pod)
        if found.at is not None:
            self._ahead[name] = found.at - (began + time()) / 2
        answer = doctor.Answer(status=found.status, said=_decoded(found), warnings=found.warnings)
        if answer.is_forbidden:
            raise ApiError(answer.message)
        return answer

    async def _was_called(self, api: Api, name: str, bystander: Tried) -> bool | None:
        """Whether a replica is asked about it, by how many reviews they have answered before and after."""
        if any(each.replica.unreachable for each in self._seen) or not self._seen:
            return None
        for _ in range(TRIES):
            before = await replicas.reviews(self._addresses)
            await self._answer(api, name, bystander)
            after = await replicas.reviews(self._addresses)
            if before is None or after is None:
                return None
            if before == after:
                return False
        return True

    async def _clocks(self) -> Sequence[Check]:
        seen = {each.replica.address: each.ahead for each in self._seen if each.ahead is not None}
        return [replicas.clocks({**self._ahead, **seen})]

    async def _rules(self) -> Sequence[Check]:
        found = [each.replica for each in self._seen]
        return [replicas.rules(found, self._rulebook.digest, self._source)]

    async def _order(self) -> Sequence[Check]:
        live = await self._api.list(f"{REGISTERED}/{PLURALS['MutatingWebhookConfiguration']}")
        words = {backend.name.partition("-")[0] for backend in self._rulebook.enabled}
        return [doctor.others(live, configurations.NAME, words)]

    async def _kubernetes(self) -> Sequence[Check]:
        groups = {each["name"] for each in (await self._api.get("/apis"))["groups"]}
        return [doctor.check_release(await self._api.get("/version"), groups, self._rulebook)]

    async def _standing(self) -> Sequence[Check]:
        try:
            first, _ = await self._tenants()
            await asyncio.sleep(SETTLE_SECONDS if first.policies else 0)
            second, objects = await self._tenants()
        except MissingError:
            text = "the custom resources are not installed: only policies of the rule files are in force"
            found = [Check(name, "warn", text, "apply manifests/base/crds") for name in ("policies", "ledgers")]
            return [*found, await self._pods(self._rulebook)]
        rulebook = self._rulebook
        tenancy, problems = objects.tenancy(rulebook)
        ties = membership.ties(tenancy, rulebook.cluster.system_namespaces)
        return [
            doctor.policies(objects.policies, problems, ties),
            doctor.ledgers(first, second, tenancy, objects.ledgers()[1]),
            await self._pods(replace(rulebook, tenancy=tenancy)),
        ]

    async def _tenants(self) -> tuple[Reading, snapshot.TenantObjects]:
        objects = snapshot.TenantObjects(
            policies=await self._api.list(f"{GROUP}/tenantpolicies"),
            exemptions=await self._api.list(f"{GROUP}/exemptions"),
            usages=await self._api.list(f"{GROUP}/tenantusages"),
            namespaces=await self._api.list("/api/v1/namespaces"),
        )
        return Reading(objects.policies, objects.ledgers()[0]), objects

    async def _pods(self, rulebook: Rulebook) -> Check:
        around = await self._surrounded(rulebook)
        refused: list[doctor.Refused] = []
        seen = 0
        async for page in self._api.pages("/api/v1/pods", NOT_OVER):
            seen += len(page["items"])
            refused += doctor.refused(page["items"], around, time())
        return doctor.pods(refused, seen)

    async def _surrounded(self, rulebook: Rulebook) -> Rulebook:
        """The rules with what the watcher would tell the replicas of nodes and claims."""
        objects = {"nodes": await self._api.list("/api/v1/nodes")}
        for kind in (kind for source in rulebook.sources for kind in source.kinds):
            for version in kind.versions:
                try:
                    objects[kind.name] = await self._api.list(f"/apis/{kind.group}/{version}/{kind.plural}")
                except MissingError:
                    continue
                break
        return surroundings.concluded(rulebook, objects)


async def _attempt(names: Sequence[str], make: Callable[[], Awaitable[Sequence[Check]]]) -> Sequence[Check]:
    try:
        return await make()
    except ApiError as error:
        return [checkup.unexamined(name, str(error)) for name in names]


def _hooks(live: Mapping[str, Object | None]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The webhooks that call replicas, by name, with where they do."""
    for configuration in filter(None, live.values()):
        for hook in configuration.get("webhooks") or ():
            where = fields.mapping(hook, "clientConfig")
            if "url" in where or fields.at(where, "service", "name") == configurations.NAME:
                yield hook["name"], where


def _urls(live: Mapping[str, Object | None]) -> Iterator[str]:
    return (where["url"] for _, where in _hooks(live) if "url" in where)


def _bundles(live: Mapping[str, Object | None]) -> Iterator[Bundle]:
    hooks: dict[str, list[str]] = {}
    for name, where in _hooks(live):
        hooks.setdefault(where.get("caBundle") or "", []).append(name)
    for encoded, names in hooks.items():
        try:
            pem = base64.b64decode(encoded).decode()
        except (binascii.Error, UnicodeDecodeError):
            pem = "unreadable"
        yield Bundle(hooks=tuple(names), pem=pem)


def _addresses(endpoint_slice: Object) -> Iterator[Address]:
    ports = [each for each in fields.objects(endpoint_slice.get("ports")) if each.get("port")]
    chosen = next((each for each in ports if each.get("name") == "https"), ports[0] if ports else None)
    for endpoint in fields.objects(endpoint_slice.get("endpoints")) if chosen else ():
        if fields.at(endpoint, "conditions", "ready") is not False:
            yield from (Address(host, chosen["port"]) for host in endpoint["addresses"])  # type: ignore[index]


def _decoded(answer: Answer) -> Mapping[str, Any]:
    """The object or Status of an answer."""
    try:
        found = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"message": answer.body[:200].decode(errors="replace")}
