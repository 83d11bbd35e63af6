"""The plan of a pod with its tenant's policy applied: defaults, labels, annotations, nodes.

A default becomes an annotation of the pod, as if the pod's author had written it. There /validate and the settler
read it later, so a change of the policy meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from webhook.core.interpret import locations
from webhook.core.interpret.interpret import ContainerRequest, Interpretation, interpret
from webhook.core.kube.fields import Append, Edit, Path, Put
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import TERMS, Pod, Requirement, binds_something, node_terms, placed, require_nodes
from webhook.core.kube.quantity import show_size, shown, text_of
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.plan.plan import Plan
from webhook.core.policy import limits
from webhook.core.policy.membership import member
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Defaults, TenantPolicy
from webhook.core.violations import LATER_FIX, Violation

# What a policy puts on every pod of a tenant that gets a GPU: labels, annotations, and the nodes it may run on.

_REQUIRED: Final = {"In", "DoesNotExist"}
"""Operators for which a contradiction is refused; else the pod would wait for a node for ever."""


def confine(pod: Pod, policy: TenantPolicy) -> tuple[Pod, list[Edit], list[Violation]]:
    """The pod with the policy's labels, annotations and nodes; the edits for that; and the contradictions."""
    edits = list(_metadata(pod, policy))
    wrong = [edit for edit in edits if isinstance(edit, Violation)]
    put = [edit for edit in edits if isinstance(edit, Put)]
    made: list[Edit] = [*put]
    pod = with_metadata(pod, put) if put else pod
    for expression in policy.affinity:
        step = list(_expression(pod, expression, policy))
        wrong += [edit for edit in step if isinstance(edit, Violation)]
        new = [edit for edit in step if not isinstance(edit, Violation)]
        pod = placed(pod, new) if new else pod
        made += new
    return pod, made, wrong


def with_metadata(pod: Pod, put: Iterable[Put]) -> Pod:
    """The pod with more labels and annotations; the original stays as it is."""
    labels, annotations = dict(pod.labels), dict(pod.annotations)
    for edit in put:
        (labels if edit.path[1] == "labels" else annotations)[str(edit.path[2])] = edit.value
    metadata = {**(pod.raw.get("metadata") or {}), "labels": labels, "annotations": annotations}
    return replace(pod, raw={**pod.raw, "metadata": metadata}, labels=labels, annotations=annotations)


def check_placement(pod: Pod, policy: TenantPolicy) -> Iterator[Violation]:
    """A violation for each contradiction of the policy, and for each of its edits that a stored pod would lack."""
    _, made, wrong = confine(pod, policy)
    yield from wrong
    for edit in made if policy.action != "dryrun" else ():
        what = "node affinity" if "affinity" in edit.path else edit.path[-1]
        yield Violation(
            code="GPU112",
            path=path_of(edit.path),
            message=f'the policy "{policy.name}" puts {what} on the pods of its tenant, and this one lacks it: '
            "the mutating webhook did not know the policy yet, or another one took it away",
            fix=LATER_FIX,
            rule=policy.rule,
        )


def _metadata(pod: Pod, policy: TenantPolicy) -> Iterator[Put | Violation]:
    for section, wanted, present in (
        ("labels", policy.labels, pod.labels),
        ("annotations", policy.annotations, pod.annotations),
    ):
        for key, value in wanted.items():
            path: Path = ("metadata", section, key)
            if key not in present:
                yield Put(path, value, policy.rule)
            elif present[key] != value:
                yield _contradicted(path, text_of(present[key]), value, policy)


def _contradicted(path: Path, there: str, wanted: str, policy: TenantPolicy) -> Violation:
    message = f'{path_of(path)} is "{shown(there)}", and the policy "{policy.name}" sets it to "{wanted}"'
    fix = f"leave {path[-1]} out; the policy writes it"
    return Violation(code="GPU110", path=path_of(path), message=message, fix=fix, rule=policy.rule)


def _elsewhere(violation: Violation, key: str, values: Sequence[str], policy: TenantPolicy) -> Violation:
    nodes = Requirement(key, tuple(values), policy.rule)
    message = f'the policy "{policy.name}" keeps the pods of its tenant on nodes {nodes}, which this one excludes'
    fix = f"leave {key} out of the pod's node selection; the policy writes it"
    return Violation(code="GPU110", path=violation.path, message=message, fix=fix, rule=policy.rule)


def _expression(pod: Pod, expression: Mapping[str, Any], policy: TenantPolicy) -> Iterator[Edit | Violation]:
    """The edits that add one match expression to every term of the pod's node affinity."""
    key, operator = str(expression["key"]), str(expression["operator"])
    if operator in _REQUIRED:
        values = tuple(map(str, expression.get("values") or ()))
        for edits in require_nodes(pod, [Requirement(key, values, policy.rule)]):
            yield _elsewhere(edits, key, values, policy) if isinstance(edits, Violation) else edits
        return
    terms = node_terms(pod)
    wanted = {name: value for name, value in expression.items() if value}
    if not terms:
        yield Put(TERMS, [{"matchExpressions": [wanted]}], policy.rule)
    for index, term in enumerate(terms):
        if binds_something(term) and wanted not in (term.get("matchExpressions") or ()):
            yield Append((*TERMS, index, "matchExpressions"), wanted, policy.rule)


# The plan of a pod with its tenant's policy applied: defaults, labels, annotations, nodes.


def plan_for_tenant(pod: Pod, rulebook: Rulebook) -> Plan:
    """The plan for a pod with its tenant's policy applied."""
    if not rulebook.tenancy.policies:
        return plan.make(pod, rulebook)
    policy = member(pod.namespace, rulebook.tenancy).policy
    if policy is None or policy.action == "dryrun":
        return plan.make(pod, rulebook)
    interpretation = interpret(pod, rulebook)
    if not any(request.anything for request in interpretation.asked):
        return plan.make(pod, rulebook, interpretation=interpretation)
    confined, made, wrong = confine(pod, policy)
    planned = _with_defaults(confined, interpretation, policy, rulebook, same=confined is pod)
    planned.edits[:0] = made
    if policy.action == "deny":
        planned.violations += wrong  # else /validate warns
    return planned


def _with_defaults(
    pod: Pod, interpretation: Interpretation, policy: TenantPolicy, rulebook: Rulebook, *, same: bool
) -> Plan:
    """The plan with the policy's defaults, or without them if they would make the pod fail.

    `interpretation` is that of the pod before the policy's labels and annotations were set; `same`: none were.
    """
    given = {
        request.container.name: dict(_defaults(request, policy.defaults))
        for request in interpretation.asked
        if request.anything
    }
    words = [
        Put(("metadata", "annotations", locations.annotation(key, name)), text, policy.defaults.rule)
        for name, by_key in given.items()
        for key, text in by_key.items()
    ]
    if words:
        planned = _plan(with_metadata(pod, words), policy, rulebook)
        if not planned.violations:
            planned.edits[:0] = words
            planned.warnings += _warnings(given, policy)
            return planned
    return _plan(pod, policy, rulebook, interpretation if same else None)


def _warnings(given: Mapping[str, Mapping[str, str]], policy: TenantPolicy) -> Iterator[str]:
    for name, by_key in given.items():
        if by_key:
            added = ", ".join(f"{key}: {text}" for key, text in by_key.items())
            yield f'the policy "{policy.name}" gives the container "{name}" {added}; say otherwise for another'


def _defaults(container_request: ContainerRequest, defaults: Defaults) -> Iterator[tuple[str, str]]:
    """The keys that a container does not set, with the policy's defaults that fit its request."""
    request, words = container_request.request, container_request.stated
    if defaults.model is not None and "gpu-model" not in words:
        yield "gpu-model", defaults.model
    bare = request is not None and request.devices == "whole" and request.count == 1
    exclusive = "gpu-sharing" in words and words["gpu-sharing"].value == "exclusive"
    part = request is not None and request.devices == "part"
    if defaults.memory is not None and bare and not exclusive:
        part = True
        yield "gpu-memory", show_size(defaults.memory)
    kind = "partitioned" if request is not None and request.devices == "profile" else None
    fits = defaults.sharing == kind if kind else (defaults.sharing == "exclusive") != part
    if defaults.sharing is not None and "gpu-sharing" not in words and request is not None and fits:
        yield "gpu-sharing", defaults.sharing


def _plan(pod: Pod, policy: TenantPolicy, rulebook: Rulebook, interpretation: Interpretation | None = None) -> Plan:
    """The plan. If the policy has a say in the choice, an annotation keeps the back end of each container.

    A quota alone has none: it only excludes back ends with claims, and resources tell the rest.
    """
    preferred = policy.defaults.backend
    planned = plan.make(pod, rulebook, preferred, partial(_lets, policy, rulebook), interpretation)
    if preferred is not None or policy.allowed is not None or policy.forbidden is not None:
        for served in planned.assignments:
            if "gpu-backend" not in served.demand.stated:
                planned.edits.append(_kept(served, policy))
    return planned


def _kept(served: Assignment, policy: TenantPolicy) -> Edit:
    key = locations.annotation("gpu-backend", served.demand.container.name)
    return Put(("metadata", "annotations", key), served.backend.name, policy.defaults.rule or policy.rule)


def _lets(policy: TenantPolicy, rulebook: Rulebook, served: Assignment) -> bool:
    """Whether the policy allows a candidate. With a quota none with claims, as these cannot be counted."""
    if served.mode.claims and policy.quota is not None and policy.quota.action != "dryrun":
        return False
    return (policy.allowed is None and policy.forbidden is None) or limits.allows(policy, served, rulebook)
