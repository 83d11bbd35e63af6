"""Claims: a container asks by the name of an object, whose content becomes the container's request.

The object is read once. Its content is kept as annotations for the container, so later readers of the pod need no
claim, and a change of the claim changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.core import request
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError
from webhook.core.forms.document import Problem, failing_examples
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.fields import at
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import QuantityError, show, show_size, shown
from webhook.core.request import ASKING, Devices, FieldValue
from webhook.core.rules.claim_source import ClaimExample
from webhook.core.rules.rulebook import ClaimSource, Rulebook
from webhook.core.violations import Refusal, Violation

Object = Mapping[str, Any]
Objects = Mapping[tuple[str, str], Object]
"""Objects of one kind, by namespace and name."""

CLAIM: Final = "gpu-claim"


class Reference(NamedTuple):
    """A claim that the pod names for a container, with the path of its name."""

    source: ClaimSource
    said: FieldValue


@dataclass(frozen=True, slots=True)
class Claim:
    """What a claim asks for one container; without `words` if the pod has their annotations already.

    `keep` are further annotations. `by_word`: it is named by `gpu-claim`, which then names no claim template.
    """

    words: Mapping[str, FieldValue] = field(default_factory=dict)
    keep: Mapping[str, FieldValue] = field(default_factory=dict)
    by_word: bool = False
    warnings: Sequence[str] = ()


def named(pod: Pod, rulebook: Rulebook) -> Iterator[tuple[str, Reference | Violation]]:
    """The claims that annotations name, each with the container it is for."""
    for source in rulebook.sources:
        for key, text in pod.annotations.items():
            for prefix in source.prefixes if key.startswith(source.prefixes) else ():
                if key.startswith(prefix):
                    yield key.removeprefix(prefix), _reference(source, key, text)


def _reference(source: ClaimSource, key: str, text: Any) -> Reference | Violation:
    path = ("metadata", "annotations", key)
    if not isinstance(text, str):
        return locations.no_string(text, path)
    try:
        return Reference(source, FieldValue(request.claim(text), path_of(path), text))
    except QuantityError as error:
        return locations.misread(path, source.claims.kind, error)


def claim_of_pod(
    container: str,
    references: Sequence[Reference],
    general: Mapping[str, FieldValue],
    own: Mapping[str, FieldValue],
    pod: Pod,
    rulebook: Rulebook,
) -> Claim | None:
    """The claim that a container names, by annotation or with `gpu-claim`; None if it names none.

    `general` are keys for the whole pod, `own` those for the container alone. Raises Refusal.
    """
    word = own.get(CLAIM) or general.get(CLAIM)
    if word is None and not references:
        return None
    read = None if own.keys().isdisjoint({*ASKING} - {CLAIM}) else pod.annotations.get(locations.claimed(container))
    by_word = False
    if word is not None:
        source = _source(word.value, pod, rulebook)
        by_word = source is not None or word.value == read
        references = [*references, *([Reference(source, word)] if source else ())]
    for other in references[1:]:
        if other.said.value != references[0].said.value:
            raise Refusal(locations.contradiction("claim", references[0].said, other.said))
    if not references or references[0].said.value == read:
        return Claim(by_word=by_word) if references or by_word else None
    chosen = "gpu-backend" in own or "gpu-backend" in general
    return replace(_read_claim(references[0], pod, rulebook, chosen=chosen), by_word=by_word)


def _source(name: str, pod: Pod, rulebook: Rulebook) -> ClaimSource | None:
    """The source that has a claim of this name; None if the name is probably that of a claim template."""
    watched = [source for source in rulebook.sources if source.claims.name in rulebook.surroundings.objects]
    for source in watched:
        if (pod.namespace, name) in rulebook.surroundings.objects[source.claims.name]:
            return source
    if not watched or any(mode.claims for backend in rulebook.enabled for mode in backend.modes):
        return None
    return watched[0]


def _read_claim(reference: Reference, pod: Pod, rulebook: Rulebook, *, chosen: bool) -> Claim:
    """The content of a claim; `chosen`: the pod names its back end."""
    source, wording = reference
    raw = _object(reference, pod, rulebook)
    title = f'the {source.claims.kind} "{pod.namespace}/{wording.value}"'
    try:
        texts = meaning(source, raw)
        words = {key: request.KEYS[key](text) for key, text in texts.items()}
    except (CannotExpressError, QuantityError) as reason:
        message, fix = f"{title} cannot be understood: {reason.message}", f"{reason.fix}, in the claim"
        raise Refusal(_unusable(reference, message, fix)) from None
    warnings: list[str] = []
    backend = None if chosen else _backend(title, raw, reference, rulebook, warnings)
    if backend is not None:
        texts["gpu-backend"] = words["gpu-backend"] = backend
    shown_as = f"{wording.value} ({source.claims.kind}: {' '.join(f'{key}={text}' for key, text in texts.items())})"
    return Claim(
        words={key: FieldValue(value, wording.path, shown_as) for key, value in words.items()},
        keep={locations.CLAIMED: wording},
        warnings=warnings,
    )


def _object(reference: Reference, pod: Pod, rulebook: Rulebook) -> Object:
    kind, text = reference.source.claims, reference.said
    there = rulebook.surroundings.objects.get(kind.name)
    if there is None:
        message = f'nothing here knows any {kind.kind}, so nobody can tell what "{text.value}" asks for'
        run = f"have gpu-webhook watch run beside the server and {kind.name} installed, or give explain the claim"
        raise Refusal(_unusable(reference, message, f'ask for gpu: "0.3" instead of the claim, or {run}'))
    if (pod.namespace, text.value) not in there:
        message = f'the namespace {pod.namespace} has no {kind.kind} "{text.value}", or it is not seen yet'
        fix = "create it, and the client retries automatically"
        raise Refusal(Violation(code="GPU205", path=text.path, message=message, fix=fix))
    return there[pod.namespace, text.value]


def _unusable(reference: Reference, message: str, fix: str) -> Violation:
    return Violation(code="GPU206", path=reference.said.path, message=message, fix=fix, rule=reference.source.rule)


def _backend(title: str, raw: Object, reference: Reference, rulebook: Rulebook, warnings: list[str]) -> str | None:
    """The back end of a claim by its class; None with a warning if nothing tells."""
    source = reference.source
    name = _text(raw, source.classed)
    if source.classes is None or name is None:
        return None
    kind = source.classes.kind
    there = rulebook.surroundings.objects.get(source.classes.name)
    if there is None:
        warnings.append(f"nothing here knows any {kind}, so the cluster chooses who serves {title}")
        return None
    if ("", name) not in there:
        message = f'{title} is of the {kind} "{name}", which does not exist, or is not seen yet'
        fix = "create it, and the client retries automatically; or name another in the claim"
        raise Refusal(Violation(code="GPU205", path=reference.said.path, message=message, fix=fix))
    provisioner = _text(there["", name], source.provisioned) or "(none)"
    backend = rulebook.cluster.provisioners.get(provisioner)
    if backend is None:
        warnings.append(
            f'the provisioner {shown(provisioner)} of the {kind} "{name}" is nobody\'s by the Cluster document '
            f"(provisioners:), so the cluster chooses who serves {title}"
        )
    return backend


def _text(raw: Object, fields: Sequence[tuple[str, ...]]) -> str | None:
    """The text of the first field that has one."""
    texts = (at(raw, *path) for path in fields)
    return next((text for text in texts if isinstance(text, str) and text), None)


# The content of a claim


def meaning(source: ClaimSource, raw: Object) -> dict[str, str]:
    """What a claim asks for, in shorthand; raises CannotExpressError."""
    # The resources of a claim as those of a container, by the names that the rule reads.
    sections = {section: _resources(source, raw, section) for section in ("limits", "requests")}
    stands = Container(path=source.resources[:-1], kind="claim", name="", env=(), raw={}, **sections)
    stated = extended_resources.read(stands, source.words, {})
    resources = source.words.resources
    wrong = [
        *stated.violations,
        *(extended_resources.not_whole(stands, resources[name], amount) for name, amount in stated.fractions.items()),
    ]
    if wrong:
        raise CannotExpressError("GPU206", wrong[0].message, wrong[0].fix)
    if not stated.amounts:
        raise CannotExpressError("GPU206", "it asks for nothing", f"ask for {next(iter(resources))}")
    [reader] = source.words.enabled
    request = read_back.understand(stated.amounts, reader)[0]
    share = request.memory_share or request.share
    words = {
        "gpu": str(Devices(request.count, share)),
        "gpu-memory": None if request.memory is None else show_size(request.memory),
        "gpu-cores": None if request.cores in {None, 100 * (share or 0)} else show(request.cores or 0),
    }
    return {key: text for key, text in words.items() if text is not None}


def _resources(source: ClaimSource, raw: Object, section: str) -> dict[str, Any]:
    there = at(raw, *source.resources, section) or {}
    if not isinstance(there, Mapping):
        where = ".".join((*source.resources, section))
        raise CannotExpressError("GPU206", f"{where} is not an object", f"write {where} as an object")
    resources: dict[str, Any] = {}
    for other, value in there.items():
        name = source.aliases.get(other, other)
        if name not in source.words.resources:
            names = ", ".join(source.words.resources)
            raise CannotExpressError("GPU206", f"the rule knows nothing of {shown(other)}", f"ask for one of {names}")
        if name in resources:
            raise CannotExpressError("GPU206", f"{name} stands there under two names", f"remove {other}")
        resources[name] = value
    return resources


def failing(source: ClaimSource) -> Iterator[Problem]:
    """A problem for each example that fails."""
    return failing_examples(source.examples, partial(_wrong, source))


def _wrong(source: ClaimSource, example: ClaimExample) -> str | None:
    raw: Object = {"requests": example.resources}
    for step in reversed(source.resources):
        raw = {step: raw}
    try:
        shorthand = meaning(source, raw)
    except CannotExpressError as reason:
        if example.refused is None:
            return f"is refused: {reason.message}"
        is_expected = example.refused in reason.message
        return None if is_expected else f'is refused, but not with "{example.refused}": {reason.message}'
    meaning_text = " ".join(f"{key}={text}" for key, text in shorthand.items())
    if example.refused is not None:
        return f"is not refused; it asks for {meaning_text}"
    return None if shorthand == example.asks else f"asks for {meaning_text}"


# The objects


def indexed(objects: Iterable[Object], namespace: str = "") -> Objects:
    """Objects of one kind by namespace and name; those without a namespace are in `namespace`."""
    claims: dict[tuple[str, str], Object] = {}
    for raw in objects:
        metadata = raw.get("metadata")
        if isinstance(metadata, Mapping):
            claims[str(metadata.get("namespace") or namespace), str(metadata.get("name"))] = raw
    return claims


def given(documents: Iterable[Object], rulebook: Rulebook) -> Rulebook:
    """The rulebook with the claims and classes among the documents that `explain` was given."""
    there: dict[str, list[Object]] = {}
    kinds = {(kind.group, kind.kind): kind for source in rulebook.sources for kind in source.kinds}
    for raw in _each(documents):
        kind = kinds.get((str(raw.get("apiVersion")).rpartition("/")[0], str(raw.get("kind"))))
        if kind is not None:
            there.setdefault(kind.name, []).append(raw)
    claims = {source.claims.name for source in rulebook.sources}
    objects = {name: indexed(raw, "default" if name in claims else "") for name, raw in there.items()}
    around = {**rulebook.surroundings.objects, **objects}
    return replace(rulebook, surroundings=replace(rulebook.surroundings, objects=around))


def _each(documents: Iterable[Object]) -> Iterator[Object]:
    """The objects of documents, and of lists of them."""
    for raw in documents:
        items = raw.get("items")
        if str(raw.get("kind")).endswith("List") and isinstance(items, list):
            yield from _each(item for item in items if isinstance(item, Mapping))
        else:
            yield raw
