"""Claims: a container asks by the name of an object, whose content becomes the container's request.

The object is read once. Its content is kept as annotations for the container, so later readers of the pod need no
claim, and a change of the claim changes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from webhook.core import request
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError
from webhook.core.forms.document import Problem, failing_examples
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.fields import at, field_path
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import QuantityError, show, show_size, shown
from webhook.core.request import ASKING, Devices, FieldValue
from webhook.core.rules.claims import ClaimExample, ClaimSource
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

Object = Mapping[str, Any]

CLAIM: Final = "gpu-claim"


class Reference(NamedTuple):
    """A claim that the pod names for a container, with the path of its name; `prefix` begins the annotation's key."""

    source: ClaimSource
    wording: FieldValue
    prefix: str = ""


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
            if not key.startswith(source.prefixes):
                continue
            path = ("metadata", "annotations", key)
            prefix = next(filter(key.startswith, source.prefixes))
            reference: Reference | Violation
            if isinstance(text, str):
                try:
                    reference = Reference(source, FieldValue(request.claim(text), field_path(path), text), prefix)
                except QuantityError as error:
                    reference = locations.misread(path, source.claims.kind, error)
            else:
                reference = locations.no_string(text, path)
            yield key.removeprefix(prefix), reference


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
    read = None if own.keys().isdisjoint({*ASKING} - {CLAIM}) else pod.annotations.get(locations.claimed(container))
    by_word = False
    if word is not None:
        # The source that has a claim of this name; none if the name is probably that of a claim template.
        watched = [source for source in rulebook.sources if source.claims.name in rulebook.surroundings.objects]
        subject = pod.namespace, word.value
        having = (source for source in watched if subject in rulebook.surroundings.objects[source.claims.name])
        source = next(having, None)
        if source is None and not any(mode.claims for backend in rulebook.enabled for mode in backend.modes):
            source = next(iter(watched), None)
        by_word = source is not None or word.value == read
        references = [*references, *([Reference(source, word)] if source else ())]
    if not references:
        return Claim(by_word=by_word) if by_word else None
    first = references[0]
    for other in references[1:]:
        if other.wording.value != first.wording.value:
            raise Refusal(locations.contradiction("claim", first.wording, other.wording))
    if first.wording.value == read:
        return Claim(by_word=by_word)
    is_chosen = "gpu-backend" in own or "gpu-backend" in general
    return replace(_read_claim(first, pod, rulebook, is_chosen=is_chosen), by_word=by_word)


def _read_claim(reference: Reference, pod: Pod, rulebook: Rulebook, *, is_chosen: bool) -> Claim:
    """The content of a claim; `is_chosen`: the pod names its back end."""
    source, wording = reference.source, reference.wording
    kind, name = source.claims, wording.value

    def unusable(message: str, fix: str) -> Refusal:
        return Refusal(Violation(code="GPU206", path=wording.path, message=message, fix=fix, rule=source.rule))

    def missing(message: str, fix: str) -> Refusal:
        return Refusal(Violation(code="GPU205", path=wording.path, message=message, fix=fix))

    objects = rulebook.surroundings.objects.get(kind.name)
    if objects is None:
        message = f'nothing here knows any {kind.kind}, so nobody can tell what "{name}" asks for'
        run = f"have gpu-webhook watch run beside the server and {kind.name} installed, or give explain the claim"
        raise unusable(message, f'ask for gpu: "0.3" instead of the claim, or {run}')
    raw = objects.get((pod.namespace, name))
    if raw is None:
        message = f'the namespace {pod.namespace} has no {kind.kind} "{name}", or it is not seen yet'
        raise missing(message, "create it, and the client retries automatically")
    title = f'the {kind.kind} "{pod.namespace}/{name}"'
    try:
        texts = meaning(source, raw)
        words = {key: request.KEYS[key](text) for key, text in texts.items()}
    except (CannotExpressError, QuantityError) as reason:
        raise unusable(f"{title} cannot be understood: {reason.message}", f"{reason.fix}, in the claim") from None

    # The back end of a claim by its class; a warning if nothing tells.
    warnings: list[str] = []
    class_name = None if is_chosen or source.classes is None else _text(raw, source.classed)
    if source.classes is not None and class_name is not None:
        class_kind = source.classes.kind
        classes = rulebook.surroundings.objects.get(source.classes.name)
        if classes is None:
            warnings.append(f"nothing here knows any {class_kind}, so the cluster chooses who serves {title}")
        elif ("", class_name) not in classes:
            message = f'{title} is of the {class_kind} "{class_name}", which does not exist, or is not seen yet'
            raise missing(message, "create it, and the client retries automatically; or name another in the claim")
        else:
            provisioner = _text(classes["", class_name], source.provisioned) or "(none)"
            backend = rulebook.cluster.provisioners.get(provisioner)
            if backend is not None:
                texts["gpu-backend"] = words["gpu-backend"] = backend
            else:
                served = f'the provisioner {shown(provisioner)} of the {class_kind} "{class_name}"'
                unknown = "is nobody's by the Cluster document (provisioners:)"
                warnings.append(f"{served} {unknown}, so the cluster chooses who serves {title}")
    shown_as = f"{name} ({kind.kind}: {' '.join(f'{key}={text}' for key, text in texts.items())})"
    return Claim(
        words={key: FieldValue(value, wording.path, shown_as) for key, value in words.items()},
        keep={locations.CLAIMED: wording},
        warnings=warnings,
    )


def _text(raw: Object, fields: Sequence[tuple[str, ...]]) -> str | None:
    """The text of the first field that has one."""
    return next((text for path in fields if isinstance(text := at(raw, *path), str) and text), None)


# The content of a claim


def meaning(source: ClaimSource, raw: Object) -> dict[str, str]:
    """What a claim asks for, in shorthand; raises CannotExpressError."""
    # The resources of a claim as those of a container, by the names that the rule reads.
    resources = source.words.resources
    sections: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for section, amounts in sections.items():
        stated = at(raw, *source.resources, section) or {}
        if not isinstance(stated, Mapping):
            where = ".".join((*source.resources, section))
            raise CannotExpressError("GPU206", f"{where} is not an object", f"write {where} as an object")
        for other, value in stated.items():
            name = source.aliases.get(other, other)
            if name not in resources:
                fix = f"ask for one of {', '.join(resources)}"
                raise CannotExpressError("GPU206", f"the rule knows nothing of {shown(other)}", fix)
            if name in amounts:
                raise CannotExpressError("GPU206", f"{name} stands there under two names", f"remove {other}")
            amounts[name] = value
    container = Container(path=source.resources[:-1], kind="claim", name="", env=(), raw={}, **sections)
    native = extended_resources.read(container, source.words, {})
    not_whole = (
        extended_resources.not_whole(container, resources[name], amount) for name, amount in native.fractions.items()
    )
    for wrong in (*native.violations, *not_whole):
        raise CannotExpressError("GPU206", wrong.message, wrong.fix)
    if not native.amounts:
        raise CannotExpressError("GPU206", "it asks for nothing", f"ask for {next(iter(resources))}")
    [reader] = source.words.enabled
    request = read_back.understand(native.amounts, reader)[0]
    share = request.memory_share or request.share
    words = {"gpu": str(Devices(request.count, share))}
    if request.memory is not None:
        words["gpu-memory"] = show_size(request.memory)
    if request.cores not in {None, 100 * (share or 0)}:
        words["gpu-cores"] = show(request.cores or 0)
    return words


def failing(source: ClaimSource) -> Iterator[Problem]:
    """A problem for each example that fails."""

    def wrong(example: ClaimExample) -> str | None:
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
        text = " ".join(f"{key}={text}" for key, text in shorthand.items())
        if example.refused is not None:
            return f"is not refused; it asks for {text}"
        return None if shorthand == example.asks else f"asks for {text}"

    return failing_examples(source.examples, wrong)


# The objects


def indexed(objects: Iterable[Object], namespace: str = "") -> Mapping[tuple[str, str], Object]:
    """Objects of one kind by namespace and name; those without a namespace are in `namespace`."""
    claims: dict[tuple[str, str], Object] = {}
    for raw in objects:
        metadata = raw.get("metadata")
        if isinstance(metadata, Mapping):
            claims[str(metadata.get("namespace") or namespace), str(metadata.get("name"))] = raw
    return claims


def given(documents: Iterable[Object], rulebook: Rulebook) -> Rulebook:
    """The rulebook with the claims and classes among the documents, or lists of them, that `explain` was given."""
    kinds = {(kind.group, kind.kind): kind.name for source in rulebook.sources for kind in source.kinds}
    claims = {source.claims.name for source in rulebook.sources}
    by_kind: dict[str, list[Object]] = {}
    waiting = list(documents)
    while waiting:
        raw = waiting.pop(0)
        items = raw.get("items")
        if str(raw.get("kind")).endswith("List") and isinstance(items, list):
            waiting[:0] = [item for item in items if isinstance(item, Mapping)]
        elif name := kinds.get((str(raw.get("apiVersion")).rpartition("/")[0], str(raw.get("kind")))):
            by_kind.setdefault(name, []).append(raw)
    objects = {name: indexed(raw, "default" if name in claims else "") for name, raw in by_kind.items()}
    around = {**rulebook.surroundings.objects, **objects}
    return replace(rulebook, surroundings=replace(rulebook.surroundings, objects=around))
