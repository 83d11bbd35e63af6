"""The pods that an object would make, and how many there are at a time, as the `Workload` of its kind says."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import LONGEST_WORD, Problem, closest, did_you_mean, failing_examples
from webhook.core.forms.document import kind as kind_of
from webhook.core.kube import fields
from webhook.core.kube.fields import Path
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import live
from webhook.core.kube.quantity import shown
from webhook.core.request import is_key
from webhook.core.rules.objects import ANY, EACH, Factor, PodPlace, Workload, WorkloadExample, Workloads, find, text
from webhook.core.rules.verbs import METADATA
from webhook.core.violations import Refusal, Violation

Object = Mapping[str, Any]

UNREADABLE: Final = "GPU005"
OVER: Final = "the pod is over: it holds nothing of a quota any more"
SHOWN: Final = 3
"""How many misplaced keys a hint names."""

MOST: Final = 2**31 - 1
"""The largest number that Kubernetes takes for replicas."""


class Template(NamedTuple):
    """A pod that an object makes: where it stands, the pod, how many there are, and what that number leaves out.

    `metadata` is where its labels and annotations stand. `assembled`: its containers are put together of fields.
    """

    path: Path
    pod: Object
    number: int
    note: str
    metadata: Path
    assembled: bool = False


class Named(NamedTuple):
    """An object by its kind and name, empty if it has none; `placed`: it says its namespace itself."""

    kind: str = ""
    name: str = ""
    placed: bool = False


NOBODY: Final = Named()


class Found(NamedTuple):
    """A pod of an object with a title and namespace; or, with a violation, why nothing can be said of the object.

    `hints` are about shorthand that the pod does not get. `strange`: no kind of that group is like it.
    """

    title: str
    pod: Object
    namespace: str
    number: int
    named: Named
    note: str = ""
    hints: Sequence[str] = ()
    wrong: Violation | None = None
    strange: bool = False
    assembled: bool = False


def pods(document: Any, workloads: Workloads, kind: str = "", api_version: str = "") -> Iterator[Found]:
    """The pods of a document; nothing for an object of a kind without pods.

    What cannot be read, or is of an unknown kind, is one that is `wrong`.
    """
    if not isinstance(document, Mapping):
        return
    kind = str(document.get("kind") or kind)
    api_version = str(document.get("apiVersion") or api_version)
    if kind == "AdmissionReview":
        for inner in pods(fields.at(document, "request", "object"), workloads, "Pod"):
            # The object need not have its namespace yet.
            namespace = fields.at(document, "request", "namespace")
            named = inner.named._replace(placed=bool(namespace) or inner.named.placed)
            yield inner._replace(namespace=str(namespace or inner.namespace), named=named)
        return
    if kind.endswith("List") and isinstance(document.get("items"), list):
        of = "" if kind == "List" else api_version
        for item in document["items"]:
            yield from pods(item, workloads, kind.removesuffix("List"), of)
        return

    workload = find(workloads, api_version, kind)
    name = fields.at(document, "metadata", "name") or fields.at(document, "metadata", "generateName")
    title = f"{kind or 'an object without a kind'} {name or '(no name)'}"
    namespace = fields.at(document, "metadata", "namespace")
    named = Named(kind, str(name or ""), bool(namespace))
    bare = Found(title, document, str(namespace or "default"), 1, named)
    if workload is None:
        group, _, version = api_version.rpartition("/")
        versions = workloads.get((group, kind))
        of_kind = [of or "v1" for of, other in workloads if other == kind]
        message = f"no rule says whether a {kind or '(no kind)'} of {api_version or '(no apiVersion)'} holds pods"
        fix = "write a Workload document for it, which may say that there are none (rules/BACKENDS.md)"
        near = closest(kind, {other for of, other in workloads if of == group} - {ANY}, 0.8)
        if versions is not None:
            message += f"; {versions.rule} knows {', '.join(versions.objects.versions)}, not {version}"
        elif of_kind:
            message += f"; the kind is known of {' and '.join(of_kind)}"
        elif near:
            message, fix = message + did_you_mean(near), f"write kind: {near}"
        path = "kind" if versions is None else "apiVersion"
        strange = not (versions or near)
        yield bare._replace(wrong=Violation(code="GPU004", path=path, message=message, fix=fix), strange=strange)
        return
    try:
        made = templates(document, workload)
    except Refusal as refusal:
        yield from (bare._replace(wrong=violation) for violation in refusal.violations)
        return
    if workload.pods and not made:
        roots = [*dict.fromkeys(text(place.roots[0]) for place in workload.pods)]
        message = f"no pod stands at {' or '.join(roots)}"
        fix = "write one there; if the object names another one that has the pods, ask about that"
        yield bare._replace(wrong=Violation(code=UNREADABLE, path=roots[0], message=message, fix=fix))
    if kind == "Pod" and not live(document):
        made = [template._replace(number=0, note=OVER) for template in made]
    for template in made:
        whose = title if len(made) == 1 or not template.path else f"{title} {path_of(template.path)}"
        number = f" ({template.number} pods)" if template.number != 1 and template.note != OVER else ""
        hints = [*misplaced(document, template)]
        yield bare._replace(
            title=whose + number,
            pod=template.pod,
            number=template.number,
            note=template.note,
            hints=hints,
            assembled=template.assembled,
        )


def templates(document: Object, workload: Workload) -> Sequence[Template]:
    """The pods of an object, in the order of its document; raises Refusal for a field that cannot be read.

    Of several roots of a place the first that is there counts, for each element of lists by itself.
    """
    templates: dict[Path, Template] = {}
    for place in workload.pods:
        elements: set[Path] = set()
        for root in place.roots:
            for path, value in _walk(document, root):
                element = tuple(step for step, name in zip(path, root, strict=True) if name in {EACH, ANY})
                pod = None if element in elements else _pod(document, place, path, value)
                if pod is None:
                    continue
                elements.add(element)
                number = place.makes * prod(_number(document, factor, path) for factor in place.times)
                own = place.template or not place.metadata
                metadata = (*path, "metadata") if own else _bound(place.metadata[0], path)
                same = templates.setdefault(
                    path, Template(path, pod, 0, place.note, metadata, bool(place.containers))
                )
                templates[path] = same._replace(number=same.number + number)
    return list(templates.values())


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
    for step, name in zip(path, root, strict=False):
        if step not in {EACH, ANY, name}:
            break
        same.append(name)
    return (*same, *path[len(same) :])


def _is(wanted: type[Any], value: Any, path: Path) -> None:
    if not isinstance(value, wanted):
        words = "a list" if wanted is list else "a mapping"
        raise _unreadable(path, words, value, f"write {words}")


def _unreadable(path: Path, wanted: str, value: Any, fix: str) -> Refusal:
    shown_value = kind_of(value) + (f' "{value[:LONGEST_WORD]}"' if isinstance(value, str) else "")
    field = path_of(path) or "the object"
    message = f"{field} has to be {wanted}, not {shown_value}"
    return Refusal(Violation(code=UNREADABLE, path=field, message=message, fix=fix))


def _pod(document: Object, place: PodPlace, path: Path, value: Any) -> Object | None:
    """The pod that stands at a path, or is put together of the fields beside it; None without any container."""
    _is(dict, value, path)
    pod: dict[str, Any] = dict(value) if place.template else {"spec": value}
    for roots, is_metadata in ((place.metadata, True), (place.defaults, False)):
        for root in roots:
            for beside, shared in _beside(document, root, path):
                _is(dict, shared, beside)
                if not is_metadata:
                    pod["spec"] = {**shared, **fields.mapping(pod, "spec")}
                    continue
                # Metadata with the labels and annotations of further metadata, where its own has none of the key.
                own = fields.mapping(pod, "metadata")
                merged = {
                    key: {**fields.mapping(shared, key), **fields.mapping(own, key)}
                    for key in ("labels", "annotations")
                }
                pod["metadata"] = {**own, **{key: entries for key, entries in merged.items() if entries}}
    if not place.containers:
        return pod
    containers: list[Object] = []
    for root in place.containers:
        for beside, raw in _beside(document, root, path):
            _is(dict, raw, beside)
            container = {"name": "", **raw}
            container["name"] = container["name"] or place.unnamed
            resources = fields.at(raw, *place.resources)
            if resources is not None:
                container["resources"] = resources
            device = place.device
            name = device and fields.at(raw, *device.quantity) and (fields.at(raw, *device.name) or device.default)
            if device and name:
                limits = {str(name): fields.at(raw, *device.quantity)}
                container["resources"] = {"limits": {**fields.mapping(container, "resources", "limits"), **limits}}
            containers.append(container)
    pod["spec"] = {**fields.mapping(pod, "spec"), "containers": containers}
    return pod if containers else None


def _number(document: Object, factor: Factor, path: Path) -> int:
    """How often a factor multiplies the pods at a path."""

    def whole(path: Path, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _unreadable(path, "a whole number", value, "write a number without quotes")
        if not 0 <= value <= MOST:
            field = path_of(path)
            message = f"{field} has to be from 0 to {MOST}, not {value}"
            raise Refusal(Violation(code=UNREADABLE, path=field, message=message, fix="write such a number"))
        return value

    number = factor.absent
    for place, value in (number for field in factor.fields for number in _beside(document, field, path)):
        if factor.among:  # whether the element that the number is of lists the name of the pods
            last = max(index for index, step in enumerate(place) if isinstance(step, int))
            listed = [names for _, names in _walk(document, (*place[: last + 1], *factor.among.names))]
            named = [name for _, name in _beside(document, factor.among.name, path)]
            if not any(isinstance(names, list) and name in names for name in named for names in listed):
                continue
        number = whole(place, value)
        break
    divisors = [whole(*divisor) for divisor in (_beside(document, factor.over, path) if factor.over else ())]
    limits = [whole(*limit) for limit in (_beside(document, factor.most, path) if factor.most else ())]
    for divisor in divisors:
        number = max(number // max(divisor, 1), 1)
    return min([max(number - factor.less, 0), *limits])


def misplaced(workload: Object, template: Template) -> Iterator[str]:
    """Hints about shorthand in the labels and annotations of what makes pods, at any level, where it means nothing.

    Not if the template has it, too: Kubernetes gives a Job without labels those of its template.
    """
    levels = [(*template.path[:level], "metadata") for level in range(len(template.path))]
    for path, (section, kind) in product(filter(template.metadata.__ne__, levels), METADATA):
        present = fields.mapping(template.pod, "metadata", section)
        stated = fields.mapping(workload, *path, section)
        keys = [key for key in stated if is_key(kind, key) and key not in present]
        names = " and ".join(path_of((*path, section, shown(key))) for key in keys[:SHOWN])
        are, them = ("is", "it") if len(keys) == 1 else ("are", "them")
        if keys:
            where = path_of((*template.metadata, section))
            yield f"{names} {are} of the workload, and its pods do not get {them}. Write {them} in {where}"


def failing(workload: Workload) -> Iterator[Problem]:
    """A problem for each example of a document that fails."""

    def mistake(example: WorkloadExample) -> str | None:
        try:
            by_path = {path_of(template.path): template for template in templates(example.object, workload)}
        except Refusal as refusal:
            message = refusal.violations[0].message
            return None if example.refused and example.refused in message else f"cannot be read: {message}"
        numbers = {path: template.number for path, template in by_path.items()}
        if numbers != (example.pods or {}):
            return f"makes {numbers or 'no pods'}"
        for path, wanted in example.limits.items():
            limits: dict[str, Any] | None = None
            if path in by_path:
                containers = fields.objects(fields.at(by_path[path].pod, "spec", "containers"))
                parts = [fields.mapping(container, "resources", "limits") for container in containers]
                limits = {key: value for part in parts for key, value in part.items()}
            if limits != wanted:
                return f"has at {path} the limits {limits}"
        return None

    return failing_examples(workload.examples, mistake)
