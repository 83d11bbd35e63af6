"""The pods that an object would make, and how many there are at a time, as the `Workload` of its kind says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import LONGEST_WORD, Problem, failing_examples, nearest
from webhook.core.forms.document import kind as kind_of
from webhook.core.kube import fields
from webhook.core.kube.fields import Path
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import live
from webhook.core.kube.quantity import shown
from webhook.core.request import is_key
from webhook.core.rules.verbs import METADATA
from webhook.core.rules.workload import (
    ANY,
    EACH,
    Among,
    Factor,
    PodPlace,
    Workload,
    WorkloadExample,
    Workloads,
    find,
    text,
)
from webhook.core.violations import Refusal, Violation

Object = Mapping[str, Any]

UNKNOWN: Final = "GPU004"
UNREADABLE: Final = "GPU005"
OVER: Final = "the pod is over: it holds nothing of a quota any more"
SHOWN: Final = 3
"""How many misplaced keys a hint names."""

MOST: Final = 2**31 - 1
"""The largest number that Kubernetes takes for replicas."""


class Template(NamedTuple):
    """A pod that an object makes: where it stands, the pod, how many there are, and what that number leaves out.

    `metadata` is where its labels and annotations stand.
    """

    path: Path
    pod: Object
    number: int
    note: str
    metadata: Path


class Named(NamedTuple):
    """An object by its kind and name, empty if it has none; `placed`: it says its namespace itself."""

    kind: str = ""
    name: str = ""
    placed: bool = False


NOBODY: Final = Named()


class Found(NamedTuple):
    """A pod of an object with a title and namespace; or, with a violation, why nothing can be said of the object.

    `hints` are about shorthand that the pod does not get.
    """

    title: str
    pod: Object
    namespace: str
    number: int
    named: Named
    note: str = ""
    hints: Sequence[str] = ()
    wrong: Violation | None = None


def pods(document: Any, workloads: Workloads, kind: str = "", api_version: str = "") -> Iterator[Found]:
    """The pods of a document; nothing for an object of a kind without pods.

    What cannot be read, or is of an unknown kind, is one that is `wrong`.
    """
    if not isinstance(document, Mapping):
        return
    kind, api_version = (
        str(document.get(key) or said) for key, said in (("kind", kind), ("apiVersion", api_version))
    )
    if kind == "AdmissionReview":
        for found in pods(fields.at(document, "request", "object"), workloads, "Pod"):
            # The object need not have its namespace yet.
            said = fields.at(document, "request", "namespace")
            named = found.named._replace(placed=bool(said) or found.named.placed)
            yield found._replace(namespace=str(said or found.namespace), named=named)
    elif kind.endswith("List") and isinstance(document.get("items"), list):
        of = "" if kind == "List" else api_version
        for item in document["items"]:
            yield from pods(item, workloads, kind.removesuffix("List"), of)
    else:
        yield from _of_object(document, kind, find(workloads, api_version, kind), api_version, workloads)


def _of_object(
    document: Object, kind: str, workload: Workload | None, api_version: str, workloads: Workloads
) -> Iterator[Found]:
    name = fields.at(document, "metadata", "name") or fields.at(document, "metadata", "generateName")
    title = f"{kind or 'an object without a kind'} {name or '(no name)'}"
    namespace = fields.at(document, "metadata", "namespace")
    named = Named(kind, str(name or ""), bool(namespace))
    bare = Found(title, document, str(namespace or "default"), 1, named)
    if workload is None:
        yield bare._replace(wrong=_unknown(kind, api_version, workloads))
        return
    try:
        found = templates(document, workload)
        if workload.pods and not found:
            raise _missing(workload)
    except Refusal as refusal:
        yield from (bare._replace(wrong=violation) for violation in refusal.violations)
        return
    if kind == "Pod" and not live(document):
        found = [each._replace(number=0, note=OVER) for each in found]
    for each in found:
        whose = title if len(found) == 1 or not each.path else f"{title} {path_of(each.path)}"
        number = f" ({each.number} pods)" if each.number != 1 and each.note != OVER else ""
        hints = [*misplaced(document, each)]
        yield bare._replace(title=whose + number, pod=each.pod, number=each.number, note=each.note, hints=hints)


def _unknown(kind: str, api_version: str, workloads: Workloads) -> Violation:
    group, _, version = api_version.rpartition("/")
    known = workloads.get((group, kind))
    message = f"no rule says whether a {kind or '(no kind)'} of {api_version or '(no apiVersion)'} holds pods"
    if known is not None:
        message += f"; {known.rule} knows {', '.join(known.objects.versions)}, not {version}"
    elif not any(name == kind for _, name in workloads):
        message += nearest(kind, {name for _, name in workloads} - {ANY}, 0.8)
    else:
        message += f"; the kind is known of {' and '.join(of or 'v1' for of, name in workloads if name == kind)}"
    fix = "write a Workload document for it, which may say that there are none (rules/README.md)"
    return Violation(code=UNKNOWN, path="kind" if known is None else "apiVersion", message=message, fix=fix)


def templates(document: Object, workload: Workload) -> Sequence[Template]:
    """The pods of an object, in the order of its document; raises Refusal for a field that cannot be read."""
    found: dict[Path, Template] = {}
    for each in (each for made in workload.pods for each in _made(document, made)):
        same = found.get(each.path)
        found[each.path] = each._replace(number=same.number + each.number, note=same.note) if same else each
    return list(found.values())


def _missing(workload: Workload) -> Refusal:
    roots = dict.fromkeys(text(made.roots[0]) for made in workload.pods)
    message = f"no pod stands at {' or '.join(roots)}"
    fix = "write one there; if the object names another one that has the pods, ask about that"
    return Refusal(Violation(code=UNREADABLE, path=next(iter(roots)), message=message, fix=fix))


def _made(document: Object, made: PodPlace) -> Iterator[Template]:
    """The pods of one place; of several roots the first that is there counts, for each element of lists by itself."""
    seen: set[Path] = set()
    for root in made.roots:
        for path, value in _walk(document, root):
            element = tuple(step for step, said in zip(path, root, strict=True) if said in {EACH, ANY})
            pod = None if element in seen else _pod(document, made, path, value)
            if pod is not None:
                seen.add(element)
                number = made.makes * prod(_number(document, factor, path) for factor in made.times)
                yield Template(path, pod, number, made.note, _metadata(made, path))


def _metadata(made: PodPlace, path: Path) -> Path:
    return (*path, "metadata") if made.template or not made.metadata else _bound(made.metadata[0], path)


def _walk(value: Any, rest: Path, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What stands at a path of a document, with the field path of each; nothing where there is none."""
    if value is None:
        return
    if not rest:
        yield path, value
        return
    if rest[0] == EACH or isinstance(rest[0], int):
        _is(list, value, path)
        for index in range(len(value)) if rest[0] == EACH else (rest[0],):
            yield from _walk(value[index], rest[1:], (*path, index))
        return
    _is(dict, value, path)
    for key in value if rest[0] == ANY else (rest[0],):
        yield from _walk(value.get(key), rest[1:], (*path, key))


def _beside(document: Object, path: Path, root: Path) -> Iterator[tuple[Path, Any]]:
    """What stands at a path, of the lists of a pod's root in the same element as the pod."""
    return _walk(document, _bound(path, root))


def _bound(path: Path, root: Path) -> Path:
    """The path, with the elements of the root as far as both lead the same way."""
    same: list[str | int] = []
    for step, said in zip(path, root, strict=False):
        if step not in {EACH, ANY, said}:
            break
        same.append(said)
    return (*same, *path[len(same) :])


def _is(wanted: type[Any], value: Any, path: Path) -> None:
    if not isinstance(value, wanted):
        words = "a list" if wanted is list else "a mapping"
        raise _unreadable(path, f"has to be {words}, not {_shown(value)}", f"write {words}")


def _shown(value: Any) -> str:
    said = f' "{value[:LONGEST_WORD]}"' if isinstance(value, str) else ""
    return kind_of(value) + said


def _unreadable(path: Path, message: str, fix: str) -> Refusal:
    field = path_of(path) or "the object"
    return Refusal(Violation(code=UNREADABLE, path=field, message=f"{field} {message}", fix=fix))


def _pod(document: Object, made: PodPlace, path: Path, value: Any) -> Object | None:
    """The pod that stands at a path, or is put together of the fields beside it; None without any container."""
    _is(dict, value, path)
    pod: dict[str, Any] = dict(value) if made.template else {"spec": value}
    for metadata in _objects_beside(document, made.metadata, path):
        pod["metadata"] = _labelled(fields.mapping(pod, "metadata"), metadata)
    for shared in _objects_beside(document, made.defaults, path):
        pod["spec"] = {**shared, **fields.mapping(pod, "spec")}
    if not made.containers:
        return pod
    stand = [found for containers in made.containers for found in _beside(document, containers, path)]
    pod["spec"] = {**fields.mapping(pod, "spec"), "containers": [_container(made, *found) for found in stand]}
    return pod if stand else None


def _objects_beside(document: Object, roots: Iterable[Path], path: Path) -> Iterator[Object]:
    for root in roots:
        for place, value in _beside(document, root, path):
            _is(dict, value, place)
            yield value


def _labelled(own: Object, further: Object) -> Object:
    """Metadata with the labels and annotations of further metadata, where its own has none of the key."""
    said = {key: {**fields.mapping(further, key), **fields.mapping(own, key)} for key in ("labels", "annotations")}
    return {**own, **{key: entries for key, entries in said.items() if entries}}


def _container(made: PodPlace, path: Path, value: Any) -> Object:
    """A container as a pod has it."""
    _is(dict, value, path)
    container = {"name": made.unnamed, **value}
    resources = fields.at(value, *made.resources)
    if resources is not None:
        container["resources"] = resources
    if made.device and (name := fields.at(value, *made.device.name)):
        limits = {str(name): fields.at(value, *made.device.quantity)}
        container["resources"] = {"limits": {**fields.mapping(container, "resources", "limits"), **limits}}
    return container


def _number(document: Object, factor: Factor, path: Path) -> int:
    found = (found for field in factor.fields for found in _beside(document, field, path))
    if factor.among:
        found = (each for each in found if _is_among(document, factor.among, path, each[0]))
    number = next((_whole(*each) for each in found), factor.absent)
    divisors = [_whole(*each) for each in (_beside(document, factor.over, path) if factor.over else ())]
    limits = [_whole(*each) for each in (_beside(document, factor.most, path) if factor.most else ())]
    for divisor in divisors:
        number = max(number // max(divisor, 1), 1)
    return min([max(number - factor.less, 0), *limits])


def _is_among(document: Object, among: Among, path: Path, number: Path) -> bool:
    """Whether the element that a number is of lists the name of the pods at a path."""
    last = max(index for index, step in enumerate(number) if isinstance(step, int))
    listed = [value for _, value in _walk(document, (*number[: last + 1], *among.names))]
    named = [name for _, name in _beside(document, among.name, path)]
    return any(isinstance(names, list) and name in names for name in named for names in listed)


def _whole(path: Path, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _unreadable(path, f"has to be a whole number, not {_shown(value)}", "write a number without quotes")
    if not 0 <= value <= MOST:
        raise _unreadable(path, f"has to be from 0 to {MOST}, not {value}", "write such a number")
    return value


def misplaced(workload: Object, template: Template) -> Iterator[str]:
    """Hints about shorthand in the labels and annotations of what makes pods, where it means nothing.

    Not if the template has it, too: Kubernetes gives a Job without labels those of its template.
    """
    for section, kind in METADATA:
        present = fields.mapping(template.pod, "metadata", section)
        keys = [
            key for key in fields.mapping(workload, "metadata", section) if is_key(kind, key) and key not in present
        ]
        said = " and ".join(path_of(("metadata", section, shown(key))) for key in keys[:SHOWN])
        are, them = ("is", "it") if len(keys) == 1 else ("are", "them")
        if keys:
            where = path_of((*template.metadata, section))
            yield f"{said} {are} of the workload, and its pods do not get {them}. Write {them} in {where}"


# The examples of a document


def failing(workload: Workload) -> Iterator[Problem]:
    """A problem for each example that fails."""
    return failing_examples(workload.examples, partial(_wrong, workload))


def _wrong(workload: Workload, example: WorkloadExample) -> str | None:
    try:
        found = {path_of(each.path): each for each in templates(example.object, workload)}
    except Refusal as refusal:
        said = refusal.violations[0].message
        return None if example.refused and example.refused in said else f"cannot be read: {said}"
    numbers = {path: each.number for path, each in found.items()}
    if numbers != (example.pods or {}):
        return f"makes {numbers or 'no pods'}"
    for path, wanted in example.limits.items():
        limits = _limits(found[path].pod) if path in found else None
        if limits != wanted:
            return f"has at {path} the limits {limits}"
    return None


def _limits(pod: Object) -> Object:
    containers = fields.objects(fields.at(pod, "spec", "containers"))
    return {key: value for each in containers for key, value in fields.mapping(each, "resources", "limits").items()}
