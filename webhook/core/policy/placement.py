"""What a policy puts on every pod of a tenant that gets a GPU: labels, annotations, and the nodes it may run on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.core.kube import node_affinity
from webhook.core.kube.node_affinity import TERMS, Requirement
from webhook.core.kube.patch import Append, Edit, Put
from webhook.core.kube.paths import Path
from webhook.core.kube.paths import field as path_of
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import shown, text_of
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.violations import LATER_FIX, Violation

_REQUIRED: Final = {"In", "DoesNotExist"}
"""Operators for which a contradiction is refused; else the pod would wait for a node for ever."""


def confined(seen: Pod, policy: TenantPolicy) -> tuple[Pod, list[Edit], list[Violation]]:
    """The pod with the policy's labels, annotations and nodes; the edits for that; and the contradictions."""
    found = list(_metadata(seen, policy))
    wrong = [one for one in found if isinstance(one, Violation)]
    put = [one for one in found if isinstance(one, Put)]
    made: list[Edit] = [*put]
    seen = with_metadata(seen, put) if put else seen
    for expression in policy.affinity:
        step = list(_expression(seen, expression, policy))
        wrong += [one for one in step if isinstance(one, Violation)]
        new = [one for one in step if not isinstance(one, Violation)]
        seen = node_affinity.placed(seen, new) if new else seen
        made += new
    return seen, made, wrong


def with_metadata(seen: Pod, put: Iterable[Put]) -> Pod:
    """The pod with more labels and annotations; the original stays as it is."""
    labels, annotations = dict(seen.labels), dict(seen.annotations)
    for one in put:
        (labels if one.path[1] == "labels" else annotations)[str(one.path[2])] = one.value
    metadata = {**(seen.raw.get("metadata") or {}), "labels": labels, "annotations": annotations}
    return replace(seen, raw={**seen.raw, "metadata": metadata}, labels=labels, annotations=annotations)


def check(seen: Pod, policy: TenantPolicy) -> Iterator[Violation]:
    """A violation for each contradiction of the policy, and for each of its edits that a stored pod would lack."""
    _, made, wrong = confined(seen, policy)
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


def _metadata(seen: Pod, policy: TenantPolicy) -> Iterator[Put | Violation]:
    for section, wanted, present in (
        ("labels", policy.labels, seen.labels),
        ("annotations", policy.annotations, seen.annotations),
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


def _elsewhere(found: Violation, key: str, values: Sequence[str], policy: TenantPolicy) -> Violation:
    nodes = Requirement(key, tuple(values), policy.rule)
    message = f'the policy "{policy.name}" keeps the pods of its tenant on nodes {nodes}, which this one excludes'
    fix = f"leave {key} out of the pod's node selection; the policy writes it"
    return Violation(code="GPU110", path=found.path, message=message, fix=fix, rule=policy.rule)


def _expression(seen: Pod, expression: Mapping[str, Any], policy: TenantPolicy) -> Iterator[Edit | Violation]:
    """The edits that add one match expression to every term of the pod's node affinity."""
    key, operator = str(expression["key"]), str(expression["operator"])
    if operator in _REQUIRED:
        values = tuple(map(str, expression.get("values") or ()))
        for found in node_affinity.require(seen, [Requirement(key, values, policy.rule)]):
            yield _elsewhere(found, key, values, policy) if isinstance(found, Violation) else found
        return
    terms = node_affinity.terms(seen)
    wanted = {name: value for name, value in expression.items() if value}
    if not terms:
        yield Put(TERMS, [{"matchExpressions": [wanted]}], policy.rule)
    for index, term in enumerate(terms):
        if node_affinity.binds_something(term) and wanted not in (term.get("matchExpressions") or ()):
            yield Append((*TERMS, index, "matchExpressions"), wanted, policy.rule)
