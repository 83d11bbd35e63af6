"""A read-only view of a pod: its containers of every kind, each with its field path, and the nodes it may run on.

One list has the containers of every kind, so no reader can forget a kind. The pod itself stays the mapping that was
received.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from webhook.core.kube.fields import Append, Edit, Path, Put, at, field_path
from webhook.core.kube.quantity import listed
from webhook.core.violations import Refusal, Violation

T = TypeVar("T")

INIT: Final = "init container"
SIDECAR: Final = "sidecar"
EPHEMERAL: Final = "ephemeral container"

_LISTS: Final = (("initContainers", INIT), ("containers", "container"), ("ephemeralContainers", EPHEMERAL))
SECTIONS: Final = tuple(section for section, _ in _LISTS)
"""The lists of containers in a pod's spec."""

CORE: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources of Kubernetes itself, beside those that begin with `hugepages-`."""

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TERMS: Final[Path] = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")

_REQUIREMENT: Final = {"key": str, "operator": str, "values": [str]}
_TERM: Final = {"matchExpressions": [_REQUIREMENT], "matchFields": [_REQUIREMENT]}
_SPEC: Final = {
    "nodeSelector": {},
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
    "resourceClaims": [{}],
    **dict.fromkeys(("schedulerName", "runtimeClassName"), str),
    "terminationGracePeriodSeconds": int,
    "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [_TERM]}}},
}
_METADATA: Final[Mapping[str, Any]] = {"labels": {}, "annotations": {}}
_CONTAINER: Final = {"resources": {"limits": {}, "requests": {}}, "env": [{}]}
"""The shapes of fields: a type, a list of one shape, or a mapping in which some keys have shapes."""

_SHAPES: Final[Mapping[type, str]] = {str: "a string", int: "a whole number", list: "a list", dict: "an object"}


@dataclass(frozen=True, slots=True)
class Container:
    """One container. `kind`: `container`, `init container`, `sidecar` or `ephemeral container`; `raw`: the object."""

    path: Path
    kind: str
    name: str
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    env: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Pod:
    """What the webhook reads of a pod. `raw` is the object, `namespace` where it is or will be created."""

    raw: Mapping[str, Any]
    spec: Mapping[str, Any]
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    containers: Sequence[Container]
    namespace: str = ""
    cache: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was derived from it, so that it is derived once; another pod made by `replace` begins anew."""


def read(raw: Mapping[str, Any], namespace: str = "") -> Pod:
    """View `raw` as a pod; raises Refusal (GPU001) naming the first field that has another shape.

    A pod that is not stored yet may lack its namespace; `namespace` is that of the review.
    """
    # The fields that place a pod are read later, and only if it gets a GPU.
    _check(raw, {"metadata": {}, "spec": _SPEC}, ())
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    _check(metadata, _METADATA, ("metadata",))
    containers: list[Container] = []
    for section, kind in _LISTS:
        if not spec.get(section):
            continue
        _check(spec, {section: [{}]}, ("spec",))
        for index, container in enumerate(spec[section]):
            path = ("spec", section, index)
            _check(container, _CONTAINER, path)
            resources = container.get("resources") or {}
            sidecar = kind == INIT and container.get("restartPolicy") == "Always"
            containers.append(
                Container(
                    path=path,
                    kind=SIDECAR if sidecar else kind,
                    name=str(container.get("name", "")),
                    limits=resources.get("limits") or {},
                    requests=resources.get("requests") or {},
                    env=container.get("env") or (),
                    raw=container,
                )
            )
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return Pod(raw, spec, labels, annotations, containers, namespace or str(metadata.get("namespace") or "default"))


def _check(value: Any, shape: Any, path: Path) -> None:
    """Raise Refusal for a value that has not the shape, or for the first in it; None is no value."""
    kind: Any = shape if isinstance(shape, type) else type(shape)
    if not isinstance(value, kind):
        where, wanted = field_path(path), _SHAPES[kind]
        message, fix = f"{where} is not {wanted}", f"write {where} as {wanted}"
        raise Refusal(Violation(code="GPU001", path=where, message=message, fix=fix))
    if kind is list:
        for index, element in enumerate(value):
            if shape[0] or not isinstance(element, dict):
                _check(element, shape[0], (*path, index))
    elif kind is dict:
        for key, inner in shape.items():
            if key in value and value[key] is not None:
                _check(value[key], inner, (*path, key))


def live(raw: Mapping[str, Any]) -> bool:
    """Whether a stored pod has not ended; one that is being deleted is live until it is gone."""
    return at(raw, "status", "phase") not in {"Succeeded", "Failed"}


def effective(
    amounts: Iterable[tuple[Container, T]], plus: Callable[[T, T], T], larger: Callable[[T, T], T], nothing: T
) -> T:
    """What the containers of a pod take together, as Kubernetes counts.

    Containers and sidecars add up. Each plain init container runs before the containers, beside the sidecars that
    were started before it (Kubernetes, component-helpers/resource, PodRequests).
    """
    most = staying = nothing
    for container, amount in amounts:
        if container.kind == INIT:
            most = larger(most, plus(staying, amount))
        else:
            staying = plus(staying, amount)
    return larger(most, staying)


# Node affinity. Terms of `nodeSelectorTerms` are ORed, so a requirement in one of them binds nothing; and a term
# without any requirement matches no node, so adding one to it would let nodes in (Kubernetes API, NodeSelectorTerm).

Bounds = Mapping[str, frozenset[str]]
"""Node labels, each with all values that it may have; without values the label is absent."""

Expressions = Sequence[Mapping[str, Any]]
"""The match expressions of one term on one node label."""


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
        return f"with {self.key}={' or '.join(self.values)}" if self.values else f"without the label {self.key}"

    def expression(self) -> dict[str, Any]:
        """The requirement as Kubernetes writes it."""
        how = {"operator": "In", "values": [*self.values]} if self.values else {"operator": "DoesNotExist"}
        return {"key": self.key, **how}

    def holds_by(self, expression: Mapping[str, Any]) -> bool:
        """Whether a match expression on its label says as much, or is narrower."""
        if not self.values:
            return bool(expression.get("operator") == "DoesNotExist")
        return expression.get("operator") == "In" and set(expression.get("values") or ()) <= set(self.values)

    def holds_within(self, bounds: Bounds) -> bool:
        """Whether all nodes within these bounds meet it."""
        values = bounds.get(self.key)
        return values is not None and bool(values) == bool(self.values) and values.issubset(self.values)


def selects_nodes(pod: Pod) -> bool:
    """Whether the pod selects its nodes at all."""
    return bool(pod.spec.get("nodeSelector") or pod.spec.get("affinity"))


def node_terms(pod: Pod) -> Sequence[Mapping[str, Any]]:
    """The terms of the pod's required node affinity, of which one has to match."""
    return at(pod.raw, *TERMS) or ()


def binds_something(term: Mapping[str, Any]) -> bool:
    """Whether a term has requirements: one without any matches no node."""
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def node_bounds(pod: Pod) -> Bounds:
    """What the pod's own selection says of every node on which it may run; `NotIn` and its like say too little.

    A term that contradicts itself has no nodes. An update can only add expressions to a gated pod, and these never
    widen the bounds.
    """
    every = [_bounds(term) for term in node_terms(pod) if binds_something(term)]
    first, *others = [bounds for bounds, possible in every if possible] or [bounds for bounds, _ in every] or [{}]
    common = {
        key: values.union(*(bounds[key] for bounds in others))
        for key, values in first.items()
        if all(key in bounds and bool(bounds[key]) == bool(values) for bounds in others)
    }
    for key, value in (pod.spec.get("nodeSelector") or {}).items():
        _narrow(common, key, frozenset({str(value)}))
    return common


def bound_labels(pod: Pod) -> Collection[str]:
    """The node labels by which a pod is bound, in all of its terms or in some."""
    return dict.fromkeys([*node_bounds(pod), *(key for term in node_terms(pod) for key in _bounds(term)[0])])


def _bounds(term: Mapping[str, Any]) -> tuple[Bounds, bool]:
    """The bounds of a term, and whether any node can be within them."""
    bounds: dict[str, frozenset[str]] = {}
    possible = True
    for expression in term.get("matchExpressions") or ():
        if expression.get("operator") in {"In", "DoesNotExist"}:
            values = frozenset(map(str, expression.get("values") or ()))
            possible = _narrow(bounds, str(expression.get("key")), values) and possible
    return bounds, possible


def _narrow(bounds: dict[str, frozenset[str]], key: str, values: frozenset[str]) -> bool:
    """Narrow the bounds of one label, unless that contradicts them; then False."""
    there = bounds.setdefault(key, values)
    both = there & values
    bounds[key] = both or there
    return bool(both) or there == values


def require_nodes(pod: Pod, requirements: Iterable[Requirement]) -> Iterator[Edit | Violation]:
    """The edits that bind the pod to nodes meeting every requirement; a violation for each that it rules out."""
    together: dict[str, Requirement] = {}
    for requirement in requirements:  # those of several containers together: all containers of a pod share one node
        key, other = requirement.key, together.setdefault(requirement.key, requirement)
        both = tuple(value for value in other.values if value in requirement.values)
        if both or not (other.values or requirement.values):
            together[key] = replace(other, values=both)
            continue
        wanted = [" or ".join(values) or "absent" for values in (other.values, requirement.values)]
        yield Violation(
            code="GPU502",
            path=field_path(TERMS),
            message=f'the containers "{other.container}" and "{requirement.container}" need different nodes: '
            f"{key} {wanted[0]}, and {wanted[1]}",
            fix="ask for one model in the whole pod, or use two pods",
            rule=requirement.rule,
        )

    missing: list[Requirement] = []
    for requirement in together.values():
        key = requirement.key
        conflict: tuple[Path, str] | None = None
        selected = (pod.spec.get("nodeSelector") or {}).get(key)
        if selected is None:
            binding = [index for index, term in enumerate(node_terms(pod)) if binds_something(term)]
            present = _expressions(pod, key)
            reasons = [_exclusion(present.get(index, ()), requirement) for index in binding]
            if reasons and reasons[0] and all(reasons):
                conflict = (*TERMS, binding[0]), reasons[0]
            else:
                missing.append(requirement)
        elif selected not in requirement.values:
            conflict = ("spec", "nodeSelector", key), f"nodeSelector wants {key}={selected}"
        if conflict:
            yield Violation(
                code="GPU502",
                path=field_path(conflict[0]),
                message=f"the pod's {conflict[1]}, and the GPU it asks for is on nodes {requirement}",
                fix=f"remove {key} from the pod's node selection",
                rule=requirement.rule,
            )

    if missing and not node_terms(pod):
        expressions = [requirement.expression() for requirement in missing]
        yield Put(TERMS, [{"matchExpressions": expressions}], missing[0].rule)
    for index, term in enumerate(node_terms(pod)):
        for requirement in missing if binds_something(term) else ():
            if not any(map(requirement.holds_by, _expressions(pod, requirement.key).get(index, ()))):
                yield Append((*TERMS, index, "matchExpressions"), requirement.expression(), requirement.rule)


def _expressions(pod: Pod, key: str) -> Mapping[int, Expressions]:
    """The expressions on a node label, by the index of their term; sorted once for all keys."""
    expressions: dict[Any, dict[int, list[Mapping[str, Any]]]] | None = pod.cache.get(_expressions)
    if expressions is None:
        expressions = pod.cache[_expressions] = {}
        for index, term in enumerate(node_terms(pod)):
            for expression in term.get("matchExpressions") or ():
                expressions.setdefault(expression.get("key"), {}).setdefault(index, []).append(expression)
    return expressions.get(key, {})


def _exclusion(present: Expressions, requirement: Requirement) -> str | None:
    """Why a term excludes all required nodes; None if it does not."""
    left = set(requirement.values)
    for expression in present:
        values, operator = set(expression.get("values") or ()), expression.get("operator")
        if operator == "In":
            left &= values
        elif operator == "NotIn":
            left -= values
        elif operator == "DoesNotExist":
            left.clear()
        excludes = not left if requirement.values else operator not in {"NotIn", "DoesNotExist"}
        if excludes:
            of_these = f" [{listed(sorted(values))}]" if values and requirement.values else ""
            return f"node affinity wants {requirement.key} {operator}{of_these}"
    return None


def placed(pod: Pod, edits: Iterable[Edit]) -> Pod:
    """The pod after edits of `require_nodes`; the original stays as it is."""
    terms = [*node_terms(pod)]
    for edit in edits:
        if isinstance(edit, Append):
            index = int(edit.path[-2])
            present = terms[index].get("matchExpressions") or ()
            terms[index] = {**terms[index], "matchExpressions": [*present, edit.value]}
        elif isinstance(edit, Put):
            terms = edit.value
    spec = {**pod.spec, "affinity": _affinity(pod, terms)}
    return replace(pod, raw={**pod.raw, "spec": spec}, spec=spec)


def affinity_without(pod: Pod, keys: Collection[str]) -> dict[str, Any]:
    """The pod's affinity without the required expressions on these node labels, and without empty holders.

    A term that matches no node stays as it is, but not if it would be left alone. All stay as they are if only some
    had nothing but these keys: without one of them the others would allow less.
    """
    terms: list[Mapping[str, Any]] = []
    rests: list[Mapping[str, Any]] = []
    for term in node_terms(pod):
        if not binds_something(term):
            terms.append(term)
            continue
        expressions = [raw for raw in term.get("matchExpressions") or () if raw.get("key") not in keys]
        rest = {key: value for key, value in term.items() if key != "matchExpressions"}
        rests.append({**rest, "matchExpressions": expressions} if expressions else rest)
        terms.append(rests[-1])
    if not all(rests):
        terms = [*node_terms(pod)] if any(rests) else []
    return _affinity(pod, terms)


def _affinity(pod: Pod, terms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pod's affinity with these required terms instead of its own, without empty holders."""
    affinity: dict[str, Any] = dict(pod.spec.get("affinity") or {})
    node = dict(affinity.pop("nodeAffinity", None) or {})
    required = node.pop(REQUIRED, None) or {}
    if terms:
        node[REQUIRED] = {**required, "nodeSelectorTerms": terms}
    return {**affinity, "nodeAffinity": node} if node else affinity
