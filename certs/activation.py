"""When the API server asks us about pods: not before replicas answer.

The manifests ship the webhooks of pods without `rules`, and an API server calls a webhook without rules for nothing.
So nobody is refused between the first `kubectl apply` and the first ready replica. The rules stand beside them, in an
annotation of the configuration, and are copied when every API server was seen to get an answer.

They are copied again when the annotation changes, or when somebody takes them out. Nothing takes them out because
replicas are away: a pod that asks for a GPU then waits, and is not created uncounted. Rules that bring replicas more
than those of an active configuration are copied when no replica of a former version is left, which may not know it.

How an API server is seen to get an answer: both configurations have a webhook `ping.gpu-webhook.io`. It goes to the
replicas, by the path that pods go to, for Leases of our namespace with a label that only this program writes. A dry
run of such a Lease is sent to every address of the Service `kubernetes`. A replica admits it with a warning, which
the API server hands on to us: so it has reached a replica that has its rules. A Lease, because nothing reads it. This
program may not create pods, which could mount every Secret of the namespace.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Final

from certs.api import OURS, Address, Api, ApiError, Object, Site, additions
from certs.turns import Problem, Status

WANTED: Final = "gpu-webhook.io/rules"
"""The annotation: a JSON object with the rules of each webhook, by its name."""

ANSWERS: Final[Mapping[str, str]] = {
    "mutating": "gpu-webhook answers /mutate",
    "validating": "gpu-webhook answers /validate",
}
"""By configuration: the warning of a replica (webhook/core/decision.py:pinged)."""

SLICES: Final = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"

TRY_SECONDS: Final = 2.0
"""For the tries at one API server: it hears of a configuration late."""

PAUSE_SECONDS: Final = 0.1

Rules = Mapping[int, Sequence[Any]]
"""The rules of webhooks, by place in their configuration."""


class UnreadableError(ValueError):
    """The annotation is not what this program can copy; the message says why."""


def _stored(rules: Sequence[Any] | None) -> Sequence[Any]:
    """Rules as an API server stores them: of every scope if they name none."""
    return [{**rule, "scope": rule.get("scope") or "*"} if isinstance(rule, dict) else rule for rule in rules or ()]


def _wanted(configuration: Object) -> Mapping[str, Sequence[Any]]:
    text = (configuration["metadata"].get("annotations") or {}).get(WANTED, "{}")
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"its annotation {WANTED} is not JSON: {error}") from None
    if not isinstance(wanted, dict) or not all(isinstance(rules, list) for rules in wanted.values()):
        raise UnreadableError(f"its annotation {WANTED} is not an object with a list for each webhook")
    return {name: rules for name, rules in wanted.items() if name.endswith(OURS)}


def inactive(configuration: Object) -> Rules:
    """The rules that webhooks should have and do not have; raises UnreadableError."""
    wanted = _wanted(configuration)
    return {
        place: wanted[hook["name"]]
        for place, hook in enumerate(configuration.get("webhooks") or ())
        if hook["name"] in wanted and _stored(hook.get("rules")) != _stored(wanted[hook["name"]])
    }


def widens(configuration: Object, rules: Rules) -> bool:
    """Whether these rules bring replicas requests that the configuration, which is active, does not bring now."""

    def within(rule: Any, present: Any) -> bool:
        if not isinstance(rule, dict) or rule.keys() != present.keys():
            return False
        return all(
            value == present[key] or (isinstance(value, list) and all(part in [*present[key]] for part in value))
            for key, value in rule.items()
        )

    hooks, ours = configuration["webhooks"], _wanted(configuration)
    return any(hook.get("rules") for hook in hooks if hook["name"] in ours) and any(
        not any(within(rule, present) for present in _stored(hooks[place].get("rules")))
        for place, wanted in rules.items()
        for rule in _stored(wanted)
    )


def deactivated(configuration: Object) -> Object:
    """The configuration without those rules; raises UnreadableError."""
    wanted = _wanted(configuration)
    hooks = [
        {key: value for key, value in hook.items() if key != "rules" or hook["name"] not in wanted}
        for hook in configuration.get("webhooks") or ()
    ]
    return {**configuration, "webhooks": hooks}


def unfinished(deployment: Object | None, now: datetime) -> str:
    """What is not done of a rollout, in words; nothing if no old replica is left, or there is no such Deployment.

    A replica that leaves is not counted any more, and API servers use their connections to it until it has ended.
    """
    if deployment is None:
        return ""
    spec, status = deployment["spec"], deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "its controller has not seen the change yet"
    replicas, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if updated < replicas:
        return f"{updated} of {replicas} replicas are of the new version"
    grace = timedelta(seconds=spec["template"]["spec"]["terminationGracePeriodSeconds"])
    for condition in status.get("conditions") or ():
        if condition["type"] == "Progressing" and now < datetime.fromisoformat(condition["lastUpdateTime"]) + grace:
            return f"the last old replica has {grace.seconds} s to end"
    return ""


def addresses(endpoint_slice: Object) -> Sequence[Address]:
    """The addresses of one EndpointSlice, at the port of HTTPS."""
    return [
        Address(host, port["port"])
        for port in endpoint_slice.get("ports") or ()
        if port.get("name") == "https" and port.get("port")
        for endpoint in endpoint_slice.get("endpoints") or ()
        for host in endpoint["addresses"]
    ]


class Activator:
    """Keeps the rules of our webhooks as the annotation of their configuration says."""

    def __init__(self, api: Api, site: Site, status: Status) -> None:
        self._api, self._site, self._status = api, site, status

    async def turn(self) -> Sequence[Problem]:
        """Activate what is not active, if every API server reaches a replica; raises ApiError if it cannot be read.

        Validating comes after mutating, as it refuses a pod that was not mutated. In an upgrade, rules that ask for
        more wait for the end of the last old replica.
        """
        for kind, path in self._site.configurations.items():
            configuration = await self._api.find(path)
            name = f"{kind} webhook configuration {self._site.configuration}"
            if configuration is None:
                text = f"there is no {name}: pods are admitted unseen; apply the manifests"
                return [Problem("configuration", kind, text)]
            try:
                rules = inactive(configuration)
            except UnreadableError as error:
                return [Problem("configuration", kind, f"the {name}: {error}; apply the manifests")]
            if not rules:
                continue
            hooks = ", ".join(configuration["webhooks"][place]["name"] for place in rules)
            if widens(configuration, rules):
                rest = unfinished(await self._api.find(self._site.deployment), self._api.now)
                if rest:
                    wait = f"the former rules stay until no old replica of {self._site.service} is left: {rest}"
                    return [Problem("rollout", kind, f"{hooks}: {wait}")]
            waiting = [*await self.unanswered("ping", kind)]
            if kind == "validating":
                waiting += await self.unanswered("active", "mutating")
            if waiting:
                return waiting
            operations = additions(configuration, {f"/webhooks/{place}/rules": rules[place] for place in rules})
            why = f"replicas answer, so pods are brought to {hooks}"
            return await self._status.attempt("activate", why, self._api.patch(path, operations))
        return []

    async def unanswered(self, webhook: str, configuration: str) -> Sequence[Problem]:
        """Which API servers get no answer from a replica by a webhook, and why; raises ApiError.

        `ping` is in both configurations. `active` is in the mutating one only, and has no rules before that is
        active: an API server that calls it brings pods to /mutate, too.
        """
        slices, _ = await self._api.send("GET", f"{SLICES}?labelSelector=kubernetes.io/service-name%3Dkubernetes")
        servers = sorted({address for endpoints in slices["items"] for address in addresses(endpoints)})
        if not servers:
            return [Problem("inactive", "", "the Service kubernetes has no addresses: no API server can be asked")]
        labels = {f"gpu-webhook.io/{webhook}": configuration}
        metadata = {"generateName": "gpu-webhook-certs-", "namespace": self._site.namespace, "labels": labels}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._site.namespace}/leases?dryRun=All"
        called = f"{webhook}.gpu-webhook.io of our {configuration} configuration"

        async def ask(server: Address) -> str:
            there, until = self._api.of(*server), monotonic() + TRY_SECONDS
            try:
                while True:
                    try:
                        _, warnings = await there.send("POST", path, lease)
                        if any(ANSWERS[configuration] in warning for warning in warnings):
                            return ""
                        why = f"has not called {called}: our webhooks stay inactive"
                    except ApiError as error:
                        why = f"gets no answer from a replica, so our webhooks stay inactive: {error}"
                    if monotonic() >= until:
                        return why
                    await asyncio.sleep(PAUSE_SECONDS)
            finally:
                await there.close()

        answers = zip(servers, await asyncio.gather(*map(ask, servers)), strict=True)
        return [Problem("inactive", str(server), f"the API server {server} {why}") for server, why in answers if why]
