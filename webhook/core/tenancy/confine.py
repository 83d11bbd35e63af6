"""What a policy puts on every pod of a tenant that gets a GPU: labels, annotations, and the nodes it may run on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core import affinity, edits, pod
from webhook.core.affinity import TERMS, Requirement
from webhook.core.edits import Append, Edit, Put
from webhook.core.fields import Path
from webhook.core.fields import field as path_of
from webhook.core.pod import Pod
from webhook.core.quantity import shown, text_of
from webhook.core.tenancy.policy import TenantPolicy
from webhook.core.violations import LATER_FIX, Violation

_REQUIRED: Final = {"In", "DoesNotExist"}
"""Operators whose contradictions can be told, and are refused instead of waiting for a node for ever."""


def confined(seen: Pod, policy: TenantPolicy) -> tuple[Pod, list[Edit], list[Violation]]:
    """The pod with all of it, the edits that it takes, and where the pod contradicts."""
    made: list[Edit] = []
    wrong: list[Violation] = []
    for found in _marks(seen, policy):
        (wrong if isinstance(found, Violation) else made).append(found)  # type: ignore[arg-type]
    seen = _with(seen, made)
    for expression in policy.affinity:
        step = list(_expression(seen, expression, policy))
        wrong += [one for one in step if isinstance(one, Violation)]
        new = [one for one in step if not isinstance(one, Violation)]
        seen = _with(seen, new)
        made += new
    return seen, made, wrong


def _with(seen: Pod, made: list[Edit]) -> Pod:
    return pod.read(edits.apply(made, seen.raw), seen.namespace) if made else seen


def check(seen: Pod, policy: TenantPolicy) -> Iterator[Violation]:
    """What contradicts it, and what of it is not there, on a pod as it would be stored."""
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


def _marks(seen: Pod, policy: TenantPolicy) -> Iterator[Edit | Violation]:
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
    return Violation(
        code="GPU110",
        path=path_of(path),
        message=f'{path_of(path)} is "{shown(there)}", and the policy "{policy.name}" sets it to "{wanted}"',
        fix=f"leave {path[-1]} out; the policy writes it",
        rule=policy.rule,
    )


def _elsewhere(found: Violation, key: str, values: Sequence[str], policy: TenantPolicy) -> Violation:
    nodes = f"nodes with {key}={' or '.join(values)}" if values else f"nodes without the label {key}"
    return Violation(
        code="GPU110",
        path=found.path,
        message=f'the policy "{policy.name}" keeps the pods of its tenant on {nodes}, which this one excludes',
        fix=f"leave {key} out of the pod's node selection; the policy writes it",
        rule=policy.rule,
    )


def _expression(seen: Pod, expression: Mapping[str, Any], policy: TenantPolicy) -> Iterator[Edit | Violation]:
    """One match expression in every term of the pod's node affinity."""
    key, operator = str(expression["key"]), str(expression["operator"])
    if operator in _REQUIRED:
        values = tuple(map(str, expression.get("values") or ()))
        for found in affinity.require(seen, [Requirement(key, values, policy.rule)]):
            yield _elsewhere(found, key, values, policy) if isinstance(found, Violation) else found
        return
    terms = affinity.terms(seen)
    wanted = {name: value for name, value in expression.items() if value}
    if not terms:
        yield Put(TERMS, [{"matchExpressions": [wanted]}], policy.rule)
    for index, term in enumerate(terms):
        if affinity.binds_something(term) and wanted not in (term.get("matchExpressions") or ()):
            yield Append((*TERMS, index, "matchExpressions"), wanted, policy.rule)
