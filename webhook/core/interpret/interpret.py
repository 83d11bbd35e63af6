"""What each container of a pod asks for, in neutral form, from every place where it may be written."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from webhook.core import request
from webhook.core.backends import cards, translate
from webhook.core.forms.document import Nearest, did_you_mean
from webhook.core.interpret import claims, extended_resources, locations
from webhook.core.interpret.claims import CLAIM, Claim, Reference
from webhook.core.interpret.locations import Entry
from webhook.core.kube.fields import field_path, mapping, objects
from webhook.core.kube.pod import EPHEMERAL, SECTIONS, Bounds, Container, Pod
from webhook.core.kube.quantity import QuantityError, listed, show, shown
from webhook.core.request import ASKING, EXAMPLES, PREFIX, FieldValue, GpuRequest, build
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import Slot
from webhook.core.violations import AS_WRITTEN, NOTHING, Alternative, Readings, Refusal, Violation, joined

_NUMBER: Final = re.compile(r"[-+.]?[0-9]")
"""The beginning of a value that is meant as a number."""

MOST: Final = 50
"""How many violations are collected: a hostile pod may have a hundred thousand."""

NEGATIONS: Final = frozenset({"false", "no", "n", "off", "disabled", "without", "null", "nil"})
"""Values that ask for no GPU, in other words than `none`."""

WORDS: Final = 8
"""How many times the nearest word is looked for in one review."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container asks for: in shorthand (`request`), and in resources of back ends (`extended`).

    `persist` is shorthand from its resources; these are removed, so it is kept as annotations. `fraction` is the back
    end's own resource with a share in it, if there is one (`0.5` of a count). `overrides`: the container's own
    shorthand replaces some for the whole pod. `nodes` are the bounds of its node selection, for resources alone.
    """

    container: Container
    request: GpuRequest | None
    extended: extended_resources.ExtendedResources
    stated: Mapping[str, FieldValue]
    persist: Mapping[str, FieldValue]
    fraction: str | None = None
    annotations: frozenset[str] = frozenset()
    overrides: bool = False
    nodes: Bounds = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @property
    def anything(self) -> bool:
        """Whether the container gets a GPU at all."""
        return self.request is not None or bool(self.extended.amounts)

    @property
    def models(self) -> tuple[str, ...]:
        """The card models that the container asks for, also beside resources of back ends."""
        stated = self.stated.get("gpu-model")
        return stated.value if stated else ()


@dataclass(slots=True)
class Interpretation:
    """What a pod asks.

    `chosen` is the container that pod-wide shorthand is for, if the pod names none. `claims`: the pod names claims,
    so its requests depend on other objects. `nearest` finds the words for its hints.
    """

    asked: list[ContainerRequest] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    chosen: str | None = None
    claims: bool = False
    nearest: Nearest = field(default_factory=lambda: Nearest(WORDS), compare=False, repr=False)


def interpret(
    pod: Pod, rulebook: Rulebook, *, strict: bool = False, instead: Readings = AS_WRITTEN
) -> Interpretation:
    """The requests of all containers of a pod, with violations and warnings.

    `strict` refuses words as amounts; `instead` is what is read in place of what stands at some field paths.
    """
    result = Interpretation(nearest=Nearest(0 if instead else WORDS))
    general: dict[str, FieldValue] = {}
    for entry in _read(locations.pod_wide(pod, result.nearest), instead):
        if len(result.violations) > MOST:
            break
        if not (isinstance(entry, Entry) and entry.tolerant and _is_another_use(entry, pod, rulebook)):
            _add(entry, general, rulebook, result)
            continue
        meant = "".join(request.devices_meant(entry.text)[:1]) if entry.key == "gpu" else ""
        path, example = field_path(entry.path), request.pasteable("gpu", meant) if meant else EXAMPLES[entry.key]
        message = f'"{shown(entry.text)}" is not a value of {entry.key} that means anything here'
        refused = strict and entry.key in ASKING and entry.text.lower() not in NEGATIONS
        if refused or rulebook.cluster.unknown_value == "refuse":
            model = f" and gpu-model: {entry.text}" if cards.read_model(entry.text, rulebook) else ""
            fix = f"write a value of the shorthand, as {example}{model}, or remove it"
            value = meant or EXAMPLES[entry.key].partition(": ")[2].strip('"').replace("NAME", "name")
            ways = [[Alternative(fix, {path: (entry.key, value)})]]
            result.violations.append(Violation(code="GPU201", path=path, message=message, fix=fix, alternatives=ways))
            continue
        hint = f"it is left alone. Write it as {example}"
        if entry.key == "gpu":
            model = f", or gpu-model: {entry.text} for a model" if cards.read_model(entry.text, rulebook) else ""
            hint = f"it is left alone, and asks for no GPU. Write {example}{'' if meant else ' for one'}{model}"
        result.warnings.append(f"{path}: {message}; {hint}")
    result.violations += _beside_none(general, general)
    annotated: dict[str, dict[str, FieldValue]] = {}
    references: dict[str, list[Reference]] = {}
    slot_values: dict[str, dict[str, str]] = {}
    if pod.annotations:
        for name, entry in locations.per_container(pod, result.nearest):
            if len(result.violations) > MOST:
                break
            for read in _read((entry,), instead):
                _add(read, annotated.setdefault(name, {}), rulebook, result)
        for name, reference in claims.named(pod, rulebook) if rulebook.sources else ():
            if isinstance(reference, Violation):
                result.violations.append(reference)
            else:
                references.setdefault(name, []).append(reference)
    if any(rulebook.slots.values()):
        slot_values = extended_resources.slot_values(pod, rulebook)
    annotations = read_annotations(pod, rulebook) if rulebook.annotations and pod.annotations else frozenset()
    result.claims = bool(references) or CLAIM in general or any(CLAIM in words for words in annotated.values())
    target = _target(pod, general, result)
    qualifiers = {key: value for key, value in general.items() if key in request.QUALIFIERS}

    for container in pod.containers:
        able = container.kind != EPHEMERAL
        words = annotated.pop(container.name, {}) if able else {}
        named = references.pop(container.name, []) if able else []
        pod_wide: Mapping[str, FieldValue] = general if container.name == target else qualifiers
        claim: Claim | None = None
        try:
            if named or CLAIM in words or CLAIM in pod_wide:
                claim = claims.claim_of_pod(container.name, named, pod_wide, words, pod, rulebook)
            if claim is not None:
                words = dict(words)
                if wrong := locations.merge(words, claim.words):
                    raise Refusal(*wrong)  # noqa: TRY301 - as those of `ask`
                if claim.by_word:
                    words.pop(CLAIM, None)
                    pod_wide = {key: value for key, value in pod_wide.items() if key != CLAIM}
            numbers = slot_values.get(container.name, {})
            demand = ask(container, pod_wide, words, numbers, annotations, rulebook, instead)
        except Refusal as refusal:
            result.violations += refusal.violations
            continue
        if claim is not None:
            persist = {**demand.persist, **claim.words, **claim.keep}
            demand = replace(demand, persist=persist, warnings=[*claim.warnings, *demand.warnings])
        result.asked.append(demand)
        result.warnings += demand.warnings

    if annotated or references or slot_values:
        missed: list[tuple[FieldValue, Callable[[str], str] | None]] = []
        for words in annotated.values():
            missed += [(value, partial(locations.annotation, key)) for key, value in words.items()]
        missed += [(left[0].wording, left[0].prefix.__add__) for left in references.values()]
        names = {container.name for container in pod.containers}
        for name, numbers in slot_values.items():
            if name not in names:
                resource = rulebook.resources[next(iter(numbers))]
                slot = resource.name
                key_for = slot.named if isinstance(slot, Slot) and slot.per_container else None
                missed.append((extended_resources.address(pod, name, resource), key_for))
        result.violations += [_no_such_container(pod, *value) for value in missed[:MOST]]
    result.warnings += locations.hints_of_keys(pod, rulebook, result.nearest)
    idle = general and not result.violations and "gpu" not in general
    if idle and not any(demand.anything for demand in result.asked):
        result.warnings.append(f'{next(iter(general.values()))}, and nothing asks for a GPU; write gpu: "1" for one')
    return result


def _read(entries: Iterable[Entry | Violation], instead: Readings) -> Iterator[Entry | Violation]:
    """The entries, with what is read instead of some of them."""
    for entry in entries:
        if isinstance(entry, Violation) or not instead or (path := field_path(entry.path)) not in instead:
            yield entry
        elif instead[path] != NOTHING:
            yield Entry(*instead[path], entry.path)


def read_annotations(pod: Pod, rulebook: Rulebook) -> frozenset[str]:
    """The annotations of the pod that a rule depends on, as `key` and as `key=value`."""
    marks: set[str] = set()
    for key, wanted in rulebook.annotations.items():
        if key in pod.annotations:
            marks |= wanted & {key, f"{key}={pod.annotations[key]}"}
    return frozenset(marks)


def _target(pod: Pod, general: Mapping[str, FieldValue], result: Interpretation) -> str | None:
    """The container that pod-wide amounts are for: the named one, kubectl's default, or the first with a warning."""
    if general.keys().isdisjoint(ASKING):
        return None
    if named := general.get("gpu-container"):
        if not any(c.name == named.value and c.kind != EPHEMERAL for c in pod.containers):
            result.violations.append(_no_such_container(pod, named))
        return str(named.value)
    regular = [container.name for container in pod.containers if container.kind == "container"]
    default = pod.annotations.get(locations.DEFAULT_CONTAINER)
    result.chosen = str(default) if default in regular else next(iter(regular), None)
    if len(regular) > 1 and default not in regular:
        key = locations.CONTAINER
        result.warnings.append(f'the GPU goes to the first container, "{result.chosen}"; name another with {key}')
    return result.chosen


def _no_such_container(pod: Pod, stated: FieldValue, key_for: Callable[[str], str] | None = None) -> Violation:
    """A value names a container that is not there, or its key, which `key_for` makes for a container."""
    names = [container.name for container in pod.containers if container.kind != EPHEMERAL]
    message = f"{stated}, and the pod has no such container that can have a GPU"
    verb = "rename it to" if key_for else "name"
    names = [*map(key_for, names)] if key_for else names
    return Violation(code="GPU204", path=stated.path, message=message, fix=f"{verb} one of: {listed(names)}")


# The values of keys.


def _add(outcome: Entry | Violation, into: dict[str, FieldValue], rulebook: Rulebook, result: Interpretation) -> None:
    """Add the value of a key, or what is wrong with it: also a model or a profile that no catalogue has."""
    value = locations.parse(outcome) if isinstance(outcome, Entry) else outcome
    if isinstance(value, Violation) or not isinstance(outcome, Entry):
        result.violations += [value] if isinstance(value, Violation) else []
        return
    key = outcome.key
    wrong: list[Violation] = []
    if key == "gpu-profile" and value.value not in rulebook.profiles:
        # The fix names those of back ends that serve profiles.
        served: set[str] = set()
        models = into["gpu-model"].value if "gpu-model" in into else ()
        for backend in rulebook.enabled:
            if any(mode.when.devices == "profile" for mode in backend.modes):
                card = translate.find_card(models, rulebook, backend)
                served |= backend.profiles & card.profiles.keys() if card else backend.profiles
        profiles = sorted({name.replace("+", ".") for name in served})
        word = result.nearest.word(value.value, profiles)
        near = [*dict.fromkeys([word, *profiles])] if word else []
        word = word or result.nearest.word(value.value, rulebook.profiles)
        other = Alternative('ask for gpu: "1" instead of gpu-profile', {value.path: ("gpu", "1")})
        wrong = [_uncatalogued("profile", value.value, near or profiles, other, value, did_you_mean(word))]
    elif key == "gpu-model":
        by_name = {name: cards.read_model(name, rulebook) for name in value.value}
        for name in [name for name, same in by_name.items() if not same]:
            like, here = cards.nearest_models(name, rulebook, result.nearest), cards.models_of_nodes(rulebook)
            other = Alternative("remove it for a card of any model", {value.path: NOTHING})
            wrong.append(
                _uncatalogued("model", name, like or here, other, value, did_you_mean(like[0] if like else ""))
            )
        models = dict.fromkeys(card.model for same in by_name.values() for card in same)  # as in the catalogue
        value = value._replace(value=tuple(models))
    result.violations += wrong or locations.merge(into, {key: value})


def _uncatalogued(
    kind: str, name: str, names: Sequence[str], other: Alternative, field_value: FieldValue, hint: str
) -> Violation:
    """The violation (GPU303) for a model or a profile: the fix names others, or `other` if there are none."""
    message = f'no catalogue knows the GPU {kind} "{shown(name)}"{hint}'
    path, key = field_value.path, f"gpu-{kind}"
    others = [Alternative(f"write {name}", {path: (key, name)}) for name in names[: translate.TRIED]]
    fix = joined(alternative.text for alternative in others or (other,))
    return Violation(code="GPU303", path=path, message=message, fix=fix, alternatives=[others, [other]])


def _is_another_use(entry: Entry, pod: Pod, rulebook: Rulebook) -> bool:
    """Whether a value belongs to another use of the label, such as `true` or `a100` from before this webhook.

    An unknown model or back end does, too, if the pod's labels ask for no GPU; an unknown sharing, if nothing does.
    """
    key, text = entry.key, entry.text
    if key == "gpu-model" and "gpu" not in pod.labels:
        return not all(cards.read_model(name, rulebook) for name in text.split(","))
    if key == "gpu-backend" and "gpu" not in pod.labels:
        return text not in rulebook.backends
    if key in request.CHOICES:
        in_annotations = any(request.is_key("annotation", name) for name in pod.annotations)
        if in_annotations or not pod.labels.keys().isdisjoint(ASKING) or _amounts_concern_gpus(pod, rulebook):
            return False
    elif text == "none" or (key == "gpu" and text.lower() in request.AMOUNTS) or _NUMBER.match(text):
        return False
    try:
        request.KEYS[key](text)
    except QuantityError:
        return True
    return False


# What one container asks for: its own shorthand, that of the pod, and its resources, joined.


def ask(
    container: Container,
    pod_wide: Mapping[str, FieldValue],
    annotated: Mapping[str, FieldValue],
    slot_values: Mapping[str, str],
    annotations: frozenset[str],
    rulebook: Rulebook,
    instead: Readings,
) -> ContainerRequest:
    """What a container asks for: its resources, and the keys for it (`annotated`) and for the whole pod (`pod_wide`).

    `slot_values` are amounts for it in a back end's own annotations and labels, `annotations` are those that rules
    depend on. Raises Refusal with all its violations.
    """
    extended = extended_resources.read(container, rulebook, slot_values, instead)
    own, wrong = locations.resources(container, instead)
    words = {**annotated, **extended.words}
    if own:
        wrong += locations.merge(words, own)
    stated = {**pod_wide, **words}
    wrong += extended.violations
    if words:
        wrong += _beside_none(words, stated)
    for name, fraction in extended.fractions.items():
        # A fraction of a count (`0.5` of a card) is a share: it joins the shorthand.
        resource = rulebook.resources[name]
        if not resource.owners or fraction > 1:
            wrong.append(extended_resources.not_whole(container, resource, fraction))
            continue
        share = FieldValue(
            request.devices_from(1, fraction), extended_resources.where(container, name), show(fraction)
        )
        present = stated.setdefault("gpu", share)
        if present.value != share.value or (present is not share and len(extended.fractions) > 1):
            wrong.append(disagree(present, share))
    gpu_request = build(stated, annotations)
    if gpu_request is not None:
        wrong += _inconsistent(gpu_request)
    elif "gpu" in stated:
        for name, amount in extended.amounts.items():
            path = extended_resources.where(container, name)
            wrong.append(disagree(stated["gpu"], FieldValue(amount, path, str(amount))))
    if container.kind == EPHEMERAL and (own or extended.amounts or extended.fractions):
        message = f'the ephemeral container "{container.name}" asks for a GPU, and Kubernetes gives it no resources'
        fix = "remove them, and ask in a container or an init container"
        path = field_path((*container.path, "resources"))
        wrong = [Violation(code="GPU204", path=path, message=message, fix=fix)]
    if wrong:
        raise Refusal(*wrong)
    overridden: list[str] = []
    for key in sorted(pod_wide.keys() & words.keys()) if words else ():
        general = pod_wide[key]
        if general.value != words[key].value:
            overridden.append(f'{words[key]} and wins over {general.path}, which says "{general.text}"')
    refused = gpu_request is None and "gpu" in own and not pod_wide.keys().isdisjoint(ASKING)
    return ContainerRequest(
        container=container,
        request=gpu_request,
        extended=extended,
        stated=stated,
        persist={**own, "gpu": stated["gpu"]} if extended.fractions else own,
        fraction=next(iter(extended.fractions), None),
        annotations=annotations,
        overrides=bool(overridden) or refused,
        warnings=[*overridden, *extended.warnings],
    )


def _beside_none(words: Mapping[str, FieldValue], stated: Mapping[str, FieldValue]) -> Sequence[Violation]:
    """Own amounts beside a `gpu` that is none; for a container, one that only the whole pod is given is replaced."""
    if "gpu" not in stated or stated["gpu"].value is not None:
        return ()
    both = [together(("gpu",), (key,), stated) for key in ASKING[1:] if key in words]
    return [replace(violation, alternatives=()) for violation in both]  # no GPU may be what is meant


def _inconsistent(asked: GpuRequest) -> Iterator[Violation]:
    """Keys that exclude each other: a share with a profile, a share that is exclusive."""
    stated = asked.stated
    sizes = [key for key in ("gpu-tflops", "gpu-cores", "gpu-memory", "gpu") if key in stated]
    if asked.share is None and "gpu" in sizes:
        sizes.remove("gpu")
    sized = asked.share or asked.memory or asked.cores
    if asked.profile is not None and sized:
        yield together(("gpu-profile",), sizes, stated)
    if asked.claim is not None and (sized or asked.profile is not None):
        yield together(("gpu-claim",), [*(["gpu-profile"] if asked.profile else []), *sizes], stated)
    if asked.sharing == "exclusive" and asked.devices == "part":
        first, *others = [stated[key].path for key in ASKING if key in stated]
        whole = {first: ("gpu", str(asked.count)), **dict.fromkeys(others, NOTHING)}
        wish = request.ask_for({"gpu": str(asked.count)}, asked)
        yield together(("gpu-sharing",), sizes, stated, Alternative(wish, whole))
    if asked.tflops is not None and "gpu-cores" in stated:
        yield together(("gpu-cores",), ("gpu-tflops",), stated)


def together(
    keys: Sequence[str],
    others: Sequence[str],
    stated: Mapping[str, FieldValue],
    instead: Alternative | None = None,
) -> Violation:
    """The violation (GPU202) for keys that exclude each other; something may be done `instead` of keeping any."""
    key, other = keys[0], others[0]
    message = f"{key} and {other} cannot hold together: {stated[other]}, and {stated[key]}"
    ways = [
        Alternative(
            f"remove {' and '.join(stated[name].key for name in names)}",
            {stated[name].path: NOTHING for name in names},
        )
        for names in (others, keys)
    ]
    ways = [ways[1], instead] if instead else ways
    return locations.exclusive("GPU202", stated[key].path, message, ways)


def disagree(field_value: FieldValue, given: FieldValue) -> Violation:
    """The violation (GPU203) for shorthand and a resource that differ, both named."""
    message = f"the shorthand and the container's resources disagree: {field_value}, and {given}"
    removal = Alternative(f"remove {given.path}; the shorthand writes what it needs", {given.path: NOTHING})
    return locations.exclusive("GPU203", given.path, message, [removal])


# Whether a pod concerns GPUs at all: this is quick to tell, and every pod is asked it.


def asks_nothing(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether nothing in the pod concerns GPUs. This is true of most pods."""
    return not (metadata_concerns_gpus(pod.labels, pod.annotations, rulebook) or _amounts_concern_gpus(pod, rulebook))


def metadata_concerns_gpus(labels: Mapping[str, Any], annotations: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether a label or an annotation concerns GPUs: as `request.is_key` says, with one search in all keys."""
    if not labels.keys().isdisjoint(request.KEYS.keys()) or PREFIX in "\n".join(labels):
        return True
    text = "\n".join(annotations)
    if "gpu" in annotations or PREFIX in text:
        return True
    if any(prefix in text for source in rulebook.sources for prefix in source.prefixes):
        return True
    if not any(rulebook.slots.values()):
        return False
    if not rulebook.all_slots["annotation"].keys().isdisjoint(annotations):
        return True
    return any(slot.head in text for slot in rulebook.per_container)


def _amounts_concern_gpus(pod: Pod, rulebook: Rulebook) -> bool:
    sections = (section for container in pod.containers for section in (container.limits, container.requests))
    return amounts_concern_gpus(sections, rulebook)


def amounts_concern_gpus(sections: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> bool:
    """Whether limits or requests of containers concern GPUs."""
    resources = rulebook.resources.keys()
    for section in sections:
        names = section.keys()
        if names and not (names.isdisjoint(resources) and names.isdisjoint(locations.RESOURCES)):
            return True
    return False


def amounts(raw: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The limits and requests of all containers of a pod of any size and shape, those that are not empty."""
    sections: list[Mapping[str, Any]] = []
    for containers in map(mapping(raw, "spec").get, SECTIONS):
        there = [container["resources"] for container in objects(containers) if "resources" in container]
        parts = [part.get(section) for part in there if isinstance(part, dict) for section in ("limits", "requests")]
        sections += [part for part in parts if part and isinstance(part, dict)]
    return sections
