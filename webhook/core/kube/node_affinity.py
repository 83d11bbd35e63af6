"""Node affinity: `key In values`, ANDed into every term a pod has, or refused if the pod excludes those nodes.

Terms of `nodeSelectorTerms` are ORed, so a requirement in one of them binds nothing; and a term without any
requirement matches no node, so adding one to it would let nodes in (Kubernetes API, NodeSelectorTerm).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.core.kube.fields import Path, at, field_path
from webhook.core.kube.patch import Append, Edit, Put
from webhook.core.kube.pod import Pod
from webhook.core.violations import Violation

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LISTED: Final = 12
"""How many values a message lists."""

TERMS: Final[Path] = ("spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")


@dataclass(frozen=True, slots=True)
class Requirement:
    """Nodes whose label `key` has one of `values`; without values, nodes that lack the label.

    `rule` is the rule that requires it, `container` the container that it is for.
    """

    key: str
    values: tuple[str, ...]
    rule: str
    container: str = ""

    def __str__(self) -> str:
        """The nodes in words: `with card=T4 or A10`, `without the label card`."""
        return f"with {self.key}={_one_of(self.values)}" if self.values else f"without the label {self.key}"

    def expression(self) -> dict[str, Any]:
        """The requirement as Kubernetes writes it."""
        if not self.values:
            return {"key": self.key, "operator": "DoesNotExist"}
        return {"key": self.key, "operator": "In", "values": list(self.values)}


def selects(pod: Pod) -> bool:
    """Whether the pod selects its nodes at all."""
    return bool(pod.spec.get("nodeSelector") or pod.spec.get("affinity"))


Bounds = Mapping[str, frozenset[str]]
"""Node labels, each with all values that it may have; without values the label is absent."""


def bounds(pod: Pod) -> Bounds:
    """What the pod's own selection says of every node on which it may run; `NotIn` and its like say too little.

    A term that contradicts itself has no nodes. An update can only add expressions to a gated pod, and these never
    widen the bounds.
    """
    every = [_bounds(term) for term in terms(pod) if binds_something(term)]
    each = [found for found, possible in every if possible] or [found for found, _ in every]
    common = [key for key in each[0] if all(key in one for one in each)] if each else []
    known = {key: frozenset().union(*(one[key] for one in each)) for key in common if _alike(key, each)}
    for key, value in (pod.spec.get("nodeSelector") or {}).items():
        _narrow(known, key, frozenset({str(value)}))
    return known


def keys(pod: Pod) -> Collection[str]:
    """The node labels by which a pod is bound, in all of its terms or in some."""
    return dict.fromkeys([*bounds(pod), *(key for term in terms(pod) for key in _bounds(term)[0])])


def _bounds(term: Mapping[str, Any]) -> tuple[Bounds, bool]:
    """The bounds of a term, and whether any node can be within them."""
    found: dict[str, frozenset[str]] = {}
    possible = True
    for expression in term.get("matchExpressions") or ():
        if expression.get("operator") in {"In", "DoesNotExist"}:
            values = frozenset(map(str, expression.get("values") or ()))
            possible = _narrow(found, str(expression.get("key")), values) and possible
    return found, possible


def _narrow(found: dict[str, frozenset[str]], key: str, values: frozenset[str]) -> bool:
    """Narrow the bounds of one label, unless that contradicts them; then False."""
    there = found.setdefault(key, values)
    both = there & values
    found[key] = both or there
    return bool(both) or there == values


def _alike(key: str, each: Sequence[Bounds]) -> bool:
    """Whether the label is absent in all of them, or in none."""
    return len({bool(one[key]) for one in each}) == 1


def within(known: Bounds, requirement: Requirement) -> bool:
    """Whether all nodes within these bounds meet a requirement."""
    values = known.get(requirement.key)
    return values is not None and bool(values) == bool(requirement.values) and values.issubset(requirement.values)


def require(pod: Pod, requirements: Iterable[Requirement]) -> Iterator[Edit | Violation]:
    """The edits that bind the pod to nodes meeting every requirement; a violation for each that it rules out."""
    missing: list[Requirement] = []
    together: dict[str, Requirement] = {}
    for requirement in requirements:
        yield from _join(requirement, together)
    for requirement in together.values():
        selected = (pod.spec.get("nodeSelector") or {}).get(requirement.key)
        if selected is not None:
            if selected not in requirement.values:
                path: Path = ("spec", "nodeSelector", requirement.key)
                yield _excluded(requirement, path, f"nodeSelector wants {requirement.key}={selected}")
        elif conflict := _conflict(pod, requirement):
            yield _excluded(requirement, (*TERMS, conflict[0]), conflict[1])
        else:
            missing.append(requirement)
    yield from _into_terms(pod, missing)


def _join(requirement: Requirement, together: dict[str, Requirement]) -> Iterator[Violation]:
    """Add a requirement to those of other containers: all containers of a pod share one node."""
    other = together.setdefault(requirement.key, requirement)
    both = tuple(value for value in other.values if value in requirement.values)
    if both or not (other.values or requirement.values):
        together[requirement.key] = replace(other, values=both)
        return
    yield Violation(
        code="GPU502",
        path=field_path(TERMS),
        message=f'the containers "{other.container}" and "{requirement.container}" need different nodes: '
        f"{requirement.key} {_one_of(other.values)}, and {_one_of(requirement.values)}",
        fix="ask for one model in the whole pod, or use two pods",
        rule=requirement.rule,
    )


def terms(pod: Pod) -> Sequence[Mapping[str, Any]]:
    """The terms of the pod's required node affinity, of which one has to match."""
    return at(pod.raw, *TERMS) or ()


def placed(pod: Pod, edits: Iterable[Edit]) -> Pod:
    """The pod after edits of `require`; the original stays as it is."""
    after = [*terms(pod)]
    for edit in edits:
        if isinstance(edit, Append):
            index = int(edit.path[-2])
            present = after[index].get("matchExpressions") or ()
            after[index] = {**after[index], "matchExpressions": [*present, edit.value]}
        elif isinstance(edit, Put):
            after = edit.value
    spec = {**pod.spec, "affinity": _with_terms(pod, after)}
    return replace(pod, raw={**pod.raw, "spec": spec}, spec=spec)


def _with_terms(pod: Pod, after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = dict(pod.spec.get("affinity") or {})
    node = dict(found.get("nodeAffinity") or {})
    required = {**(node.get(_REQUIRED) or {}), "nodeSelectorTerms": after}
    return {**found, "nodeAffinity": {**node, _REQUIRED: required}}


def without(pod: Pod, keys: Collection[str]) -> dict[str, Any]:
    """The pod's affinity without the required expressions on these node labels, and without empty holders."""
    left = _left(terms(pod), keys)
    found: dict[str, Any] = dict(pod.spec.get("affinity") or {})
    node = dict(found.pop("nodeAffinity", None) or {})
    required = dict(node.pop(_REQUIRED, None) or {})
    required.pop("nodeSelectorTerms", None)
    if left:
        node[_REQUIRED] = {**required, "nodeSelectorTerms": left}
    return {**found, "nodeAffinity": node} if node else found


def _left(present: Sequence[Mapping[str, Any]], keys: Collection[str]) -> list[Mapping[str, Any]]:
    """What is left of the terms. One that matched no node stays as it is, but not if it would be left alone.

    All stay as they are if only some had nothing but these keys: without one of them the others would allow less.
    """
    bound = [term for term in present if binds_something(term)]
    freed = [term for term in bound if not _rest(term, keys)]
    if freed:
        return [] if len(freed) == len(bound) else [*present]
    return [_rest(term, keys) if term in bound else term for term in present]


def _rest(term: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    expressions = [one for one in term.get("matchExpressions") or () if one.get("key") not in keys]
    rest = {key: value for key, value in term.items() if key != "matchExpressions"}
    return {**rest, "matchExpressions": expressions} if expressions else rest


def _into_terms(pod: Pod, missing: Sequence[Requirement]) -> Iterator[Edit]:
    present = terms(pod)
    if not present and missing:
        expressions = [requirement.expression() for requirement in missing]
        yield Put(TERMS, [{"matchExpressions": expressions}], missing[0].rule)
    for index, term in enumerate(present):
        for requirement in missing:
            if binds_something(term) and not _meets(_expressions(pod, requirement.key).get(index, ()), requirement):
                path: Path = (*TERMS, index, "matchExpressions")
                yield Append(path, requirement.expression(), requirement.rule)


def binds_something(term: Mapping[str, Any]) -> bool:
    """Whether a term has requirements: one without any matches no node."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _one_of(values: Sequence[str]) -> str:
    return " or ".join(values) or "absent"


Expressions = Sequence[Mapping[str, Any]]
"""The match expressions of one term on one node label."""


def _expressions(pod: Pod, key: str) -> Mapping[int, Expressions]:
    """The expressions on a node label, by the index of their term; found once for all keys."""
    known: dict[Any, dict[int, list[Mapping[str, Any]]]] | None = pod.cache.get(_expressions)
    if known is None:
        known = pod.cache[_expressions] = {}
        for index, term in enumerate(terms(pod)):
            for expression in term.get("matchExpressions") or ():
                known.setdefault(expression.get("key"), {}).setdefault(index, []).append(expression)
    return known.get(key, {})


def _meets(present: Expressions, requirement: Requirement) -> bool:
    """Whether a term already has the requirement, or a narrower one."""
    if not requirement.values:
        return any(expression.get("operator") == "DoesNotExist" for expression in present)
    return any(
        expression.get("operator") == "In" and set(expression.get("values") or ()) <= set(requirement.values)
        for expression in present
    )


def _conflict(pod: Pod, requirement: Requirement) -> tuple[int, str] | None:
    """The first term and its reason, if every term excludes all required nodes."""
    binding = [index for index, term in enumerate(terms(pod)) if binds_something(term)]
    present = _expressions(pod, requirement.key)
    if not binding or any(index not in present for index in binding):
        return None
    reasons = (_exclusion(present[index], requirement) for index in binding)
    first = next(reasons)
    return (binding[0], first) if first and all(reasons) else None


def _exclusion(present: Expressions, requirement: Requirement) -> str | None:
    """Why a term excludes all required nodes; None if it does not."""
    if not requirement.values:
        return _presence(present, requirement)
    left = set(requirement.values)
    for expression in present:
        values, operator = set(expression.get("values") or ()), expression.get("operator")
        if operator == "In":
            left &= values
        elif operator == "NotIn":
            left -= values
        elif operator == "DoesNotExist":
            left.clear()
        if not left:
            return f"node affinity wants {requirement.key} {operator}{_listed(values)}"
    return None


def _listed(values: Collection[str]) -> str:
    shown = [*sorted(values)[:LISTED], *(["..."] if len(values) > LISTED else [])]
    return f" [{', '.join(shown)}]" if values else ""


def _presence(present: Expressions, requirement: Requirement) -> str | None:
    """The expression of a term that requires a label which must be absent."""
    for expression in present:
        if expression.get("operator") not in {"NotIn", "DoesNotExist"}:
            return f"node affinity wants {requirement.key} {expression.get('operator')}"
    return None


def _excluded(requirement: Requirement, path: Path, said: str) -> Violation:
    message = f"the pod's {said}, and the GPU it asks for is on nodes {requirement}"
    fix = f"remove {requirement.key} from the pod's node selection"
    return Violation(code="GPU502", path=field_path(path), message=message, fix=fix, rule=requirement.rule)
