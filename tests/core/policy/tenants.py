"""A tenant in few words, and what becomes of a pod in one of its namespaces, from its author's YAML to the ledger."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import jsonpatch

from tests import builders
from tests.cases.served import as_served
from webhook.core.decision import Decision
from webhook.core.forms.labels import Expression
from webhook.core.kube import pod
from webhook.core.mutate import mutate
from webhook.core.policy.usage import PodUsage, holdings, pod_usage
from webhook.core.rules.rulebook import Rulebook, with_only
from webhook.core.rules.tenant_policy import (
    Ceiling,
    Defaults,
    Exemption,
    Kinds,
    Namespaces,
    Quota,
    Tenancy,
    TenantPolicy,
)
from webhook.core.validate import validate

RULES = builders.rulebook(builders.shipped_files())
NOW = 1_790_000_000.0
DAY = 86_400.0


def policy(name: str = "vision", **fields: Any) -> TenantPolicy:
    """A policy for the namespaces `vision-*`."""
    whole: dict[str, Any] = {
        "namespaces": Namespaces(names=("vision-*",)),
        "rule": f"{name} (tenants.yaml:1)",
    } | fields
    return TenantPolicy(name=name, **whole)


def quota(action: Any = "deny", **hard: str | int) -> Quota:
    """A quota: `devices=4, memory=...` in all."""
    return Quota(
        hard={key: Fraction(value) for key, value in hard.items()}, action=action, rule="vision (tenants.yaml:41)"
    )


def ceiling(rule: str = "vision (tenants.yaml:9)", **fields: Any) -> Ceiling:
    """The most that something may ask for: `devices=..., memory=..., cores=...`."""
    return Ceiling(rule=rule, **fields)


def exemption(*lifts: str, **fields: Any) -> Exemption:
    """An exemption for everybody in the namespaces of `policy`, which goes on for a month."""
    whole: dict[str, Any] = {
        "name": "night",
        "rule": "night (tenants.yaml:60)",
        "namespaces": ("vision-*",),
        "owner": "ada",
        "reason": "a deadline",
        "expires": NOW + 30 * DAY,
    }
    return Exemption(lifts=frozenset(lifts), **whole | fields)


def rules(*policies: TenantPolicy, rulebook: Rulebook = RULES, **tenancy: Any) -> Rulebook:
    """The shipped rules, with these policies in force."""
    return replace(rulebook, tenancy=Tenancy(policies=policies, **tenancy))


def card_pools() -> dict[str, str]:
    """The files of a site whose T4s are shared by two and A100s by ten, and L4s by ten where no label tells it."""
    pools = {
        "T4": (2, "inject: {nodeAffinity: {pool: t4}}"),
        "A100-80GB": (10, "inject: {nodeAffinity: {pool: a100}}"),
    }
    texts = [
        f"""apiVersion: gpu-webhook.io/v1alpha1
kind: Backend
metadata: {{name: turns-on-{model.lower()}}}
spec:
  extends: nvidia-time-slicing
  description: turns on one card
  models: [{model}]
  parameters: {{replicas: {{default: {replicas}}}, strategy: {{default: ""}}}}
  {pool}
  examples: [{{ask: {{gpu: "0.1"}}, limits: {{nvidia.com/gpu: 1}}}}]
"""
        for model, (replicas, pool) in {**pools, "L4": (10, "")}.items()
    ]
    enabled = "turns-on-l4, turns-on-t4, turns-on-a100-80gb, nvidia-time-slicing"
    return {"site.yaml": "---\n".join(texts), "cluster.yaml": builders.cluster(f"backends: [{enabled}]")}


def held(raw: Mapping[str, Any], rulebook: Rulebook) -> PodUsage:
    """What a stored pod counts, read anew each time."""
    return pod_usage(holdings(pod.read(raw), rulebook))


TENANT = policy(
    labels={"queue": "vision"},
    annotations={"cost": "42"},
    affinity=[
        {"key": "zone", "operator": "In", "values": ["a"]},
        {"key": "pool", "operator": "NotIn", "values": ["b"]},
    ],
    quota=quota(devices=1000),
    container=ceiling(devices=Fraction(9)),
    allowed=Kinds(sharing=frozenset({"exclusive", "fractional"}), rule="vision (tenants.yaml:9)"),
    defaults=Defaults(memory=4 << 30, rule="vision (tenants.yaml:20)"),
)
"""A policy with everything: labels, nodes, defaults, kinds, ceilings and a quota."""

EVERYTHING = rules(TENANT)


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a pod: what each webhook says, and how it would be stored."""

    mutated: Decision
    stored: Mapping[str, Any]
    validated: Decision

    @property
    def said(self) -> str:
        """Why it is refused, as its author reads it."""
        return "\n".join(map(str, [*self.mutated.violations, *self.validated.violations]))

    @property
    def codes(self) -> list[str]:
        """The codes of all that is wrong."""
        return [violation.code for violation in [*self.mutated.violations, *self.validated.violations]]


def _text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _text(entry) for key, entry in value.items()}
    return value if value is None or isinstance(value, str | int | float) else str(value)


def seen(found: Fate) -> Mapping[str, Callable[[], Any]]:
    """All that a table can look at, by its words there."""
    decision = found.validated if found.mutated.allowed else found.mutated
    reserved = decision.reservation
    spec, metadata = found.stored["spec"], found.stored["metadata"]
    return {
        "allowed": lambda: decision.allowed,
        "code": lambda: int(decision.code),
        "codes": lambda: found.codes,
        "paths": lambda: [violation.path for violation in decision.violations],
        "messages": lambda: [violation.message for violation in decision.violations],
        "fixes": lambda: [violation.fix for violation in decision.violations],
        "rules": lambda: [violation.rule for violation in decision.violations],
        "said": lambda: found.said,
        "found": lambda: [*map(str, decision.findings)],
        "findings": lambda: [f"{finding.code} {finding.action}" for finding in decision.findings],
        "finding": lambda: [[*finding] for finding in decision.findings],
        "warnings": lambda: [*decision.warnings],
        "audit": lambda: dict(decision.audit),
        "warned": lambda: [warning.partition("]")[0].lstrip("[") for warning in decision.warnings],
        "reservation": lambda: reserved and _text({**asdict(reserved), "ask": reserved.ask._asdict()}),
        "amount": lambda: reserved and _text(reserved.ask.amount),
        "enforced": lambda: reserved and [reserved.action, reserved.ask.enforced],
        "backends": lambda: dict(found.mutated.backends),
        "patch": lambda: [*found.mutated.patch],
        "mutated": lambda: found.mutated.allowed,
        "told": lambda: [*found.mutated.warnings],
        "labels": lambda: metadata["labels"],
        "annotations": lambda: metadata["annotations"],
        "limits": lambda: spec["containers"][0]["resources"]["limits"],
        "nodes": lambda: spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ],
    }


def fate(pod: Mapping[str, Any], rulebook: Rulebook, namespace: str = "vision-dev", **request: Any) -> Fate:
    """What becomes of a pod that is created there."""
    fields: dict[str, Any] = {"at": NOW, "user": "bob"} | request
    asked = builders.creating(as_served(pod), namespace)._replace(**fields)
    mutated = mutate(asked, rulebook)
    if not mutated.allowed:
        return Fate(mutated, pod, Decision(allowed=True))
    stored = as_served(jsonpatch.apply_patch(asked.pod, mutated.patch))
    stored["metadata"] |= {"uid": "u-1", "namespace": namespace}
    return Fate(mutated, stored, validate(asked._replace(pod=stored), rulebook))


def whole(count: int = 1, **limits: Any) -> dict[str, Any]:
    """A pod that asks for whole devices in the words of a device plugin, past the shorthand."""
    return builders.pod(builders.container(limits={"nvidia.com/gpu": str(count), **limits}))


def shorthand(**words: str) -> dict[str, Any]:
    """A pod whose labels ask: `gpu="1", memory="8Gi"`."""
    return builders.pod(labels={key if key == "gpu" else f"gpu-{key}": value for key, value in words.items()})


def labelled(key: str, *values: str) -> Expression:
    """The namespaces whose label has one of the values."""
    return Expression(key=key, operator="In", values=values)


def _amounts(fields: Mapping[str, Any]) -> dict[str, Any]:
    read: Mapping[str, Callable[[Any], Any]] = {"memory": builders.size, "devices": Fraction, "cores": Fraction}
    return {key: read.get(key.partition("/")[0], lambda text: text)(value) for key, value in fields.items()}


def _kinds(fields: Mapping[str, Any]) -> Kinds:
    sets: dict[str, Any] = {key: value if key == "action" else frozenset(value) for key, value in fields.items()}
    return Kinds(rule="vision (tenants.yaml:20)", **sets)


def _policy(fields: Mapping[str, Any]) -> TenantPolicy:
    read: Mapping[str, Callable[[Any], Any]] = {
        "container": lambda limits: ceiling(**_amounts(limits)),
        "pod": lambda limits: ceiling(**_amounts(limits)),
        "quota": lambda limits: quota(**_amounts(limits)),
        "allowed": _kinds,
        "forbidden": _kinds,
        "defaults": lambda given: Defaults(**_amounts(given), rule="vision (tenants.yaml:30)"),
        "namespaces": lambda names: Namespaces(selector=[labelled(*names)]),
    }
    return policy(**{key: read.get(key, lambda value: value)(value) for key, value in fields.items()})


def _exemption(fields: Mapping[str, Any]) -> Exemption:
    """What it lifts, and for whom; `left` are the seconds until it ends."""
    others = {key: value for key, value in fields.items() if key not in {"lifts", "left"}}
    ends = {"expires": NOW + fields["left"]} if "left" in fields else {}
    return exemption(*fields["lifts"], **others, **ends)


def rulebook_of(given: Mapping[str, Any]) -> Rulebook:
    """The shipped rules, or one back end alone, with these fields of the cluster and these policies."""
    shipped = with_only(given["only"], RULES) if "only" in given else RULES
    known = replace(shipped, cluster=replace(shipped.cluster, **given.get("cluster", {})))
    policies = given.get("policies", [given["policy"]] if "policy" in given else [])
    exemptions = [exemption(*given["lifted"])] if "lifted" in given else map(_exemption, given.get("exemptions", []))
    return rules(*map(_policy, policies), rulebook=known, exemptions=[*exemptions], **given.get("tenancy", {}))
