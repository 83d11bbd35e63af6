"""The plan of a pod with its tenant's policy applied: defaults, labels, annotations, nodes.

A default becomes an annotation of the pod, as if the pod's author had written it. There /validate and the settler
read it later, so a change of the policy meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from webhook.core.interpret import locations
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.interpret.interpret import Interpretation, interpret
from webhook.core.kube.patch import Edit, Put
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import show_size
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.plan.plan import Plan
from webhook.core.policy import allowed, placement
from webhook.core.policy.membership import member
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Defaults, TenantPolicy


def plan_for_tenant(seen: Pod, rulebook: Rulebook) -> Plan:
    """The plan for a pod with its tenant's policy applied."""
    if not rulebook.tenancy.policies:
        return plan.make(seen, rulebook)
    policy = member(seen.namespace, rulebook.tenancy).policy
    if policy is None or policy.action == "dryrun":
        return plan.make(seen, rulebook)
    found = interpret(seen, rulebook)
    if not any(asked.anything for asked in found.asked):
        return plan.make(seen, rulebook, interpretation=found)
    confined, made, wrong = placement.confined(seen, policy)
    planned = _with_defaults(confined, found, policy, rulebook, same=confined is seen)
    planned.edits[:0] = made
    if policy.action == "deny":
        planned.violations += wrong  # else /validate warns
    return planned


def _with_defaults(seen: Pod, found: Interpretation, policy: TenantPolicy, rulebook: Rulebook, *, same: bool) -> Plan:
    """The plan with the policy's defaults, or without them if they would make the pod fail.

    `found` is the interpretation of the pod before the policy's labels and annotations were set; `same`: none were.
    """
    said = {asked.container.name: dict(_defaults(asked, policy.defaults)) for asked in found.asked if asked.anything}
    words = [
        Put(("metadata", "annotations", locations.annotation(key, name)), text, policy.defaults.rule)
        for name, by_key in said.items()
        for key, text in by_key.items()
    ]
    if words:
        planned = _plan(placement.with_metadata(seen, words), policy, rulebook)
        if not planned.violations:
            planned.edits[:0] = words
            planned.warnings += _warnings(said, policy)
            return planned
    return _plan(seen, policy, rulebook, found if same else None)


def _warnings(said: Mapping[str, Mapping[str, str]], policy: TenantPolicy) -> Iterator[str]:
    for name, by_key in said.items():
        if by_key:
            added = ", ".join(f"{key}: {text}" for key, text in by_key.items())
            yield f'the policy "{policy.name}" gives the container "{name}" {added}; say otherwise for another'


def _defaults(asked: ContainerRequest, defaults: Defaults) -> Iterator[tuple[str, str]]:
    """The keys that a container does not set, with the policy's defaults that fit its request."""
    request, said = asked.request, asked.stated
    if defaults.model is not None and "gpu-model" not in said:
        yield "gpu-model", defaults.model
    bare = request is not None and request.devices == "whole" and request.count == 1
    exclusive = "gpu-sharing" in said and said["gpu-sharing"].value == "exclusive"
    part = request is not None and request.devices == "part"
    if defaults.memory is not None and bare and not exclusive:
        part = True
        yield "gpu-memory", show_size(defaults.memory)
    kind = "partitioned" if request is not None and request.devices == "profile" else None
    fits = defaults.sharing == kind if kind else (defaults.sharing == "exclusive") != part
    if defaults.sharing is not None and "gpu-sharing" not in said and request is not None and fits:
        yield "gpu-sharing", defaults.sharing


def _plan(seen: Pod, policy: TenantPolicy, rulebook: Rulebook, found: Interpretation | None = None) -> Plan:
    """The plan. If the policy has a say in the choice, an annotation keeps the back end of each container.

    A quota alone has none: it only excludes back ends with claims, and resources tell the rest.
    """
    preferred = policy.defaults.backend
    planned = plan.make(seen, rulebook, preferred, partial(_lets, policy, rulebook), found)
    if preferred is not None or policy.allowed is not None or policy.forbidden is not None:
        for served in planned.served:
            if "gpu-backend" not in served.asked.stated:
                planned.edits.append(_kept(served, policy))
    return planned


def _kept(served: Assignment, policy: TenantPolicy) -> Edit:
    key = locations.annotation("gpu-backend", served.asked.container.name)
    return Put(("metadata", "annotations", key), served.backend.name, policy.defaults.rule or policy.rule)


def _lets(policy: TenantPolicy, rulebook: Rulebook, served: Assignment) -> bool:
    """Whether the policy allows a candidate. With a quota none with claims, as these cannot be counted."""
    if served.mode.claims and policy.quota is not None and policy.quota.action != "dryrun":
        return False
    return (policy.allowed is None and policy.forbidden is None) or allowed.lets(policy, served, rulebook)
