"""The plan of a pod with its tenant's policy applied: defaults, labels, annotations, nodes.

A default becomes an annotation of the pod, as if the pod's author had written it. There /validate and the settler
read it later, so a change of the policy meanwhile changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core.interpret import interpret, locations
from webhook.core.kube.fields import Append, Edit, Path, Put, field_path
from webhook.core.kube.pod import TERMS, Pod, Requirement, binds_something, node_terms, placed, require_nodes
from webhook.core.kube.quantity import show_size, shown, text_of
from webhook.core.plan import choose, plan
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
    who, rule = f'the policy "{policy.name}"', policy.rule
    put: list[Put] = []
    wrong: list[Violation] = []
    for section in ("labels", "annotations"):
        present: Mapping[str, Any] = getattr(pod, section)
        for key, value in getattr(policy, section).items():
            path: Path = ("metadata", section, key)
            if key not in present:
                put.append(Put(path, value, rule))
            elif present[key] != value:
                where, there = field_path(path), shown(text_of(present[key]))
                message = f'{where} is "{there}", and {who} sets it to "{value}"'
                fix = f"leave {key} out; the policy writes it"
                wrong.append(Violation(code="GPU110", path=where, message=message, fix=fix, rule=rule))
    edits: list[Edit] = [*put]
    pod = with_metadata(pod, put) if put else pod

    # Each match expression is added to every term of the pod's node affinity.
    for expression in policy.affinity:
        key = str(expression["key"])
        step: list[Edit] = []
        if expression["operator"] in _REQUIRED:
            requirement = Requirement(key, tuple(map(str, expression.get("values") or ())), rule)
            for edit in require_nodes(pod, [requirement]):
                if not isinstance(edit, Violation):
                    step.append(edit)
                    continue
                message = f"{who} keeps the pods of its tenant on nodes {requirement}, which this one excludes"
                fix = f"leave {key} out of the pod's node selection; the policy writes it"
                wrong.append(Violation(code="GPU110", path=edit.path, message=message, fix=fix, rule=rule))
        else:
            terms = node_terms(pod)
            wanted = {name: value for name, value in expression.items() if value}
            if not terms:
                step.append(Put(TERMS, [{"matchExpressions": [wanted]}], rule))
            for index, term in enumerate(terms):
                if binds_something(term) and wanted not in (term.get("matchExpressions") or ()):
                    step.append(Append((*TERMS, index, "matchExpressions"), wanted, rule))
        pod = placed(pod, step) if step else pod
        edits += step
    return pod, edits, wrong


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
            path=field_path(edit.path),
            message=f'the policy "{policy.name}" puts {what} on the pods of its tenant, and this one lacks it: '
            "the mutating webhook did not know the policy yet, or another one took it away",
            fix=LATER_FIX,
            rule=policy.rule,
        )


def plan_for_tenant(pod: Pod, rulebook: Rulebook) -> plan.Plan:
    """The plan for a pod with its tenant's policy applied, without defaults if they would make the pod fail."""
    if not rulebook.tenancy.policies:
        return plan.make(pod, rulebook)
    policy = member(pod.namespace, rulebook.tenancy).policy
    if policy is None or policy.action == "dryrun":
        return plan.make(pod, rulebook)
    interpretation = interpret.interpret(pod, rulebook)
    asking = [demand for demand in interpretation.asked if demand.anything]
    if not asking:  # a pod that runs without the GPU that it may have meant is of no use
        interpretation = interpret.interpret(pod, rulebook, strict=policy.action == "deny")
        return plan.make(pod, rulebook, interpretation=interpretation)
    confined, made, wrong = confine(pod, policy)

    words: list[Put] = []
    warnings: list[str] = []
    for demand in asking:
        name, given = demand.container.name, dict(_defaults(demand, policy.defaults))
        for key, text in given.items():
            path = ("metadata", "annotations", locations.annotation(key, name))
            words.append(Put(path, text, policy.defaults.rule))
        if given:
            added = ", ".join(f"{key}: {text}" for key, text in given.items())
            warnings.append(
                f'the policy "{policy.name}" gives the container "{name}" {added}; say otherwise for another'
            )
    planned = _plan(with_metadata(confined, words), policy, rulebook) if words else None
    if planned is None or planned.violations:
        planned = _plan(confined, policy, rulebook, interpretation if confined is pod else None)
    else:
        planned.edits[:0] = words
        planned.warnings += warnings
    planned.edits[:0] = made
    if policy.action == "deny":
        planned.violations += wrong  # else /validate warns
    return planned


def _defaults(demand: interpret.ContainerRequest, defaults: Defaults) -> Iterator[tuple[str, str]]:
    """The keys that a container does not set, with the policy's defaults that fit its request."""
    request, stated = demand.request, demand.stated
    if defaults.model is not None and "gpu-model" not in stated:
        yield "gpu-model", defaults.model
    if request is None:
        return
    devices = request.devices
    exclusive = "gpu-sharing" in stated and stated["gpu-sharing"].value == "exclusive"
    if defaults.memory is not None and devices == "whole" and request.count == 1 and not exclusive:
        devices = "part"
        yield "gpu-memory", show_size(defaults.memory)
    fits = (defaults.sharing == "exclusive") != (devices == "part")
    if devices == "profile":
        fits = defaults.sharing == "partitioned"
    if defaults.sharing is not None and "gpu-sharing" not in stated and fits:
        yield "gpu-sharing", defaults.sharing


def _plan(
    pod: Pod, policy: TenantPolicy, rulebook: Rulebook, interpretation: interpret.Interpretation | None = None
) -> plan.Plan:
    """The plan. If the policy has a say in the choice, an annotation keeps the back end of each container.

    A quota alone has none: it only excludes back ends with claims, which cannot be counted, and resources tell the
    rest.
    """
    preferred, listed = policy.defaults.backend, policy.allowed is not None or policy.forbidden is not None
    counted = policy.quota is not None and policy.quota.action != "dryrun"

    def lets(candidate: choose.Assignment) -> bool:
        if candidate.mode.claims and counted:
            return False
        return not listed or limits.allows(policy, candidate, rulebook)

    planned = plan.make(pod, rulebook, preferred, lets, interpretation)
    rule = policy.defaults.rule or policy.rule
    for served in planned.assignments if preferred is not None or listed else ():
        if "gpu-backend" not in served.demand.stated:
            key = locations.annotation("gpu-backend", served.demand.container.name)
            planned.edits.append(Put(("metadata", "annotations", key), served.backend.name, rule))
    return planned
