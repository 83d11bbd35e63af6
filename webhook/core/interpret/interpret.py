"""What each container of a pod asks for, in neutral form, from every place where it may be written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core import request
from webhook.core.backends import cards, translate
from webhook.core.forms.document import Nearest
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.claims import CLAIM, Claim, Reference, claim_of_pod, named
from webhook.core.interpret.extended_resources import ExtendedResources
from webhook.core.interpret.locations import Entry
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.fields import mapping, objects
from webhook.core.kube.pod import EPHEMERAL, SECTIONS, Container, Pod
from webhook.core.kube.quantity import QuantityError, show, shown
from webhook.core.request import ASKING, EXAMPLES, PREFIX, FieldValue, GpuRequest, build
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

# What one container asks for: its own shorthand, that of the pod, and its resources, joined.


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """What one container asks for: in shorthand (`request`), and in resources of back ends (`extended`).

    `persist` is shorthand from its resources; these are removed, so it is kept as annotations. `fraction` is the back
    end's own resource with a share in it, if there is one (`0.5` of a count). `overrides`: the container's own
    shorthand replaces some for the whole pod.
    """

    container: Container
    request: GpuRequest | None
    extended: ExtendedResources
    stated: Mapping[str, FieldValue]
    persist: Mapping[str, FieldValue]
    fraction: str | None = None
    annotations: frozenset[str] = frozenset()
    overrides: bool = False
    warnings: Sequence[str] = ()

    @property
    def anything(self) -> bool:
        """Whether the container gets a GPU at all."""
        return self.request is not None or bool(self.extended.amounts)


def ask(
    container: Container,
    pod_wide: Mapping[str, FieldValue],
    annotated: Mapping[str, FieldValue],
    slot_values: Mapping[str, str],
    annotations: frozenset[str],
    rulebook: Rulebook,
) -> ContainerRequest:
    """What a container asks for: its resources, and the keys for it (`annotated`) and for the whole pod (`pod_wide`).

    `slot_values` are amounts for it in a back end's own annotations and labels, `annotations` are those that rules
    depend on. Raises Refusal with all its violations.
    """
    extended = extended_resources.read(container, rulebook, slot_values)
    own, wrong = locations.resources(container)
    said = dict(annotated)
    wrong += [violation for key, entry in own.items() for violation in locations.merge(said, key, entry)]
    stated = {**pod_wide, **said}
    wrong += [*extended.violations, *_beside_none(said, stated)]
    wrong += _join_fraction(container, extended, stated, rulebook)
    request = build(stated, annotations)
    wrong += _inconsistent(container, request, extended, stated)
    if container.kind == EPHEMERAL and (own or extended.amounts or extended.fractions):
        wrong = [_ephemeral(container)]
    if wrong:
        raise Refusal(*wrong)
    overridden = list(locations.overridden(pod_wide, said))
    refused = request is None and "gpu" in own and not pod_wide.keys().isdisjoint(ASKING)
    return ContainerRequest(
        container=container,
        request=request,
        extended=extended,
        stated=stated,
        persist={**own, "gpu": stated["gpu"]} if extended.fractions else own,
        fraction=next(iter(extended.fractions), None),
        annotations=annotations,
        overrides=bool(overridden) or refused,
        warnings=[*overridden, *extended.warnings],
    )


def _join_fraction(
    container: Container, known: ExtendedResources, stated: dict[str, FieldValue], rulebook: Rulebook
) -> Iterator[Violation]:
    """A fraction of a count (`0.5` of a card) is a share: it joins the shorthand in `stated`."""
    for name, amount in known.fractions.items():
        resource = rulebook.resources[name]
        if not resource.owners:
            yield extended_resources.not_whole(container, resource, amount)
            continue
        try:
            devices = request.devices_from(1, amount)
        except QuantityError as error:
            fix = f"{error.fix.replace('ask for ', 'write gpu: ')} instead of {name}"
            yield extended_resources.not_whole(container, resource, amount, fix)
            continue
        said = FieldValue(devices, extended_resources.where(container, name), show(amount))
        present = stated.setdefault("gpu", said)
        if present.value != said.value or (present is not said and len(known.fractions) > 1):
            yield disagree(present, said)


def _beside_none(said: Mapping[str, FieldValue], stated: Mapping[str, FieldValue]) -> Iterator[Violation]:
    """The container's own amounts beside a `gpu` that is none; one that only the whole pod is given is replaced."""
    if "gpu" in stated and stated["gpu"].value is None:
        yield from (together("gpu", key, stated) for key in ASKING[1:] if key in said)


def _inconsistent(
    container: Container, request: GpuRequest | None, known: ExtendedResources, stated: Mapping[str, FieldValue]
) -> Iterator[Violation]:
    """Keys that exclude each other: `none` with a resource, a share with a profile, a share that is exclusive."""
    if request is None and "gpu" in stated:
        for name, amount in known.amounts.items():
            yield disagree(stated["gpu"], FieldValue(amount, extended_resources.where(container, name), str(amount)))
    if request is None:
        return
    sized = request.share or request.memory or request.cores
    if request.profile is not None and sized:
        yield together("gpu-profile", _amount(stated), stated)
    if request.claim is not None and (sized or request.profile is not None):
        yield together("gpu-claim", "gpu-profile" if request.profile else _amount(stated), stated)
    if request.sharing == "exclusive" and request.devices == "part":
        yield together("gpu-sharing", _amount(stated), stated)
    if request.tflops is not None and "gpu-cores" in stated:
        yield together("gpu-cores", "gpu-tflops", stated)


def _amount(stated: Mapping[str, FieldValue]) -> str:
    return next(key for key in ("gpu-tflops", "gpu-cores", "gpu-memory", "gpu") if key in stated)


def together(key: str, other: str, stated: Mapping[str, FieldValue]) -> Violation:
    """The violation (GPU202) for two keys that exclude each other."""
    message = f"{key} and {other} cannot hold together: {stated[other]}, and {stated[key]}"
    return Violation(code="GPU202", path=stated[key].path, message=message, fix=f"keep {key} or {other}")


def disagree(asked: FieldValue, given: FieldValue) -> Violation:
    """The violation (GPU203) for shorthand and a resource that differ, both named."""
    message = f"the shorthand and the container's resources disagree: {asked}, and {given}"
    fix = f"remove {given.path}; the shorthand writes what it needs"
    return Violation(code="GPU203", path=given.path, message=message, fix=fix)


def _ephemeral(container: Container) -> Violation:
    message = f'the ephemeral container "{container.name}" asks for a GPU, and Kubernetes gives it no resources'
    fix = "remove them, and ask in a container or an init container"
    return Violation(code="GPU204", path=path_of((*container.path, "resources")), message=message, fix=fix)


# What each container of a pod asks for, in neutral form, from every place where it may be written.

_NUMBER: Final = re.compile(r"[-+.]?[0-9]")
"""The beginning of a value that is meant as a number."""

MOST: Final = 50
"""How many violations are collected: a hostile pod may have a hundred thousand."""

WORDS: Final = 8
"""How many times the nearest word is looked for in one review."""

LISTED: Final = 12
"""How many names a message lists."""


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


def interpret(pod: Pod, rulebook: Rulebook) -> Interpretation:
    """The requests of all containers of a pod, with all violations and warnings."""
    result = Interpretation()
    general = _pod_wide(pod, rulebook, result)
    annotated = _per_container(pod, rulebook, result)
    claims = _claims(pod, rulebook, result)
    result.claims = bool(claims) or any(CLAIM in said for said in (general, *annotated.values()))
    target = _target(pod, general, result)
    qualifiers = {key: entry for key, entry in general.items() if key in request.QUALIFIERS}
    slot_values = extended_resources.slot_values(pod, rulebook)
    annotations = read_annotations(pod, rulebook)
    for container in pod.containers:
        able = container.kind != EPHEMERAL
        said = annotated.pop(container.name, {}) if able else {}
        named = claims.pop(container.name, []) if able else []
        pod_wide: Mapping[str, FieldValue] = general if container.name == target else qualifiers
        try:
            claim = claim_of_pod(container.name, named, pod_wide, said, pod, rulebook)
            pod_wide, said = _claimed(claim, pod_wide, said)
            asked = ask(container, pod_wide, said, slot_values.get(container.name, {}), annotations, rulebook)
        except Refusal as refusal:
            result.violations += refusal.violations
        else:
            result.asked.append(_kept(asked, claim))
            result.warnings += result.asked[-1].warnings
    missed = [(name, said) for name, left in annotated.items() for said in left.values()]
    missed += [(name, reference.said) for name, left in claims.items() for reference in left[:1]]
    there = {container.name for container in pod.containers}
    missed += [
        (name, extended_resources.address(pod, name, rulebook.resources[next(iter(numbers))]))
        for name, numbers in slot_values.items()
        if name not in there
    ]
    result.violations += [_no_such_container(pod, name, said) for name, said in missed[:MOST]]
    result.warnings += _ineffective(pod, general, rulebook, result)
    return result


def _claims(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, list[Reference]]:
    """The claims that annotations name, by container; invalid ones become violations."""
    found: dict[str, list[Reference]] = {}
    for container, reference in named(pod, rulebook):
        if isinstance(reference, Violation):
            result.violations.append(reference)
        else:
            found.setdefault(container, []).append(reference)
    return found


def _claimed(
    claim: Claim | None, pod_wide: Mapping[str, FieldValue], said: dict[str, FieldValue]
) -> tuple[Mapping[str, FieldValue], dict[str, FieldValue]]:
    """The keys for the whole pod and for a container, with those of its claim added; raises Refusal."""
    if claim is None:
        return pod_wide, said
    said = dict(said)
    wrong = [violation for key, entry in claim.words.items() for violation in locations.merge(said, key, entry)]
    if wrong:
        raise Refusal(*wrong)
    if not claim.by_word:
        return pod_wide, said
    said.pop(CLAIM, None)
    return {key: entry for key, entry in pod_wide.items() if key != CLAIM}, said


def _kept(asked: ContainerRequest, claim: Claim | None) -> ContainerRequest:
    """A container's request, with the keys of its claim to keep as annotations."""
    if claim is None:
        return asked
    persist = {**asked.persist, **claim.words, **claim.keep}
    return replace(asked, persist=persist, warnings=[*claim.warnings, *asked.warnings])


def read_annotations(pod: Pod, rulebook: Rulebook) -> frozenset[str]:
    """The annotations of the pod that a rule depends on, as `key` and as `key=value`."""
    there = [(key, wanted) for key, wanted in rulebook.annotations.items() if key in pod.annotations]
    return frozenset(each for key, wanted in there for each in wanted & {key, f"{key}={pod.annotations[key]}"})


def _ineffective(
    pod: Pod, general: Mapping[str, FieldValue], rulebook: Rulebook, result: Interpretation
) -> Iterator[str]:
    """Warnings for keys that nothing reads, and for those that have no effect."""
    yield from locations.hints_of_keys(pod, rulebook, result.nearest)
    if any(asked.anything for asked in result.asked):
        return
    if general and not result.violations and "gpu" not in general:
        first = next(iter(general.values()))
        yield f'{first}, and nothing asks for a GPU; write gpu: "1" for one'


def asks_nothing(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether nothing in the pod concerns GPUs. This is true of most pods, and quick to tell."""
    if metadata_concerns_gpus(pod.labels, pod.annotations, rulebook):
        return False
    return not _amounts_concern_gpus(pod, rulebook)


def metadata_concerns_gpus(labels: Mapping[str, Any], annotations: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether a label or an annotation concerns GPUs.

    As `shorthand.is_key` says, with one search in all keys: every pod is asked this.
    """
    if not labels.keys().isdisjoint(request.KEYS.keys()) or PREFIX in "\n".join(labels):
        return True
    said = "\n".join(annotations)
    if "gpu" in annotations or PREFIX in said:
        return True
    if any(prefix in said for source in rulebook.sources for prefix in source.prefixes):
        return True
    if not any(rulebook.slots.values()):
        return False
    if not rulebook.all_slots["annotation"].keys().isdisjoint(annotations):
        return True
    return any(slot.head in said for slot in rulebook.per_container)


def _amounts_concern_gpus(pod: Pod, rulebook: Rulebook) -> bool:
    sections = (section for container in pod.containers for section in (container.limits, container.requests))
    return amounts_concern_gpus(sections, rulebook)


def amounts_concern_gpus(sections: Iterable[Mapping[str, Any]], rulebook: Rulebook) -> bool:
    """Whether limits or requests of containers concern GPUs."""
    known = rulebook.resources.keys()
    for section in sections:
        names = section.keys()
        if names and not (names.isdisjoint(known) and names.isdisjoint(locations.RESOURCES)):
            return True
    return False


def amounts(raw: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The limits and requests of all containers of a pod of any size and shape, those that are not empty."""
    found: list[Mapping[str, Any]] = []
    for containers in map(mapping(raw, "spec").get, SECTIONS):
        there = [one["resources"] for one in objects(containers) if "resources" in one]
        parts = [each.get(part) for each in there if isinstance(each, dict) for part in ("limits", "requests")]
        found += [part for part in parts if part and isinstance(part, dict)]
    return found


def _pod_wide(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, FieldValue]:
    stated: dict[str, FieldValue] = {}
    for found in locations.pod_wide(pod, result.nearest):
        if len(result.violations) > MOST:
            break
        if isinstance(found, Entry) and found.tolerant and _somebody_elses(found, pod, rulebook):
            _unknown_value(found, rulebook, result)
        else:
            _add(found, stated, rulebook, result)
    none = stated.get("gpu")
    if none is not None and none.value is None:
        result.violations += [together("gpu", key, stated) for key in ASKING[1:] if key in stated]
    return stated


def _add(found: Entry | Violation, into: dict[str, FieldValue], rulebook: Rulebook, result: Interpretation) -> None:
    entry = locations.parse(found) if isinstance(found, Entry) else found
    if isinstance(entry, Violation):
        result.violations.append(entry)
    elif isinstance(found, Entry):
        known, unknown = _catalogued(found.key, entry, rulebook, result.nearest)
        result.violations += unknown or locations.merge(into, found.key, known)


def _catalogued(
    key: str, said: FieldValue, rulebook: Rulebook, nearest: Nearest
) -> tuple[FieldValue, list[Violation]]:
    """The value with models named as in the catalogue, and a violation (GPU303) for each unknown name."""
    if key == "gpu-profile" and said.value not in rulebook.profiles:
        return said, [_no_profile(said, rulebook, nearest)]
    if key != "gpu-model":
        return said, []
    known = {name: cards.read_model(name, rulebook) for name in said.value}
    unknown = [_no_model(name, said, rulebook, nearest) for name, cards in known.items() if not cards]
    meant = dict.fromkeys(card.model for cards in known.values() for card in cards)
    return FieldValue(tuple(meant), said.path, said.text), unknown


def _no_model(name: str, said: FieldValue, rulebook: Rulebook, nearest: Nearest) -> Violation:
    here = cards.models_here(rulebook)
    near = nearest.word(name, here)
    hint = f' (did you mean "{near}"?)' if near else ""
    message = f'no catalogue knows the GPU model "{shown(name)}"{hint}'
    fix = f"ask for one of: {cards.suggested_models(here, near)}" if here else "remove it"
    return Violation(code="GPU303", path=said.path, message=message, fix=fix)


def _no_profile(said: FieldValue, rulebook: Rulebook, nearest: Nearest) -> Violation:
    """A profile that no catalogue has; the fix names those of back ends that serve profiles."""
    serving = [one for one in rulebook.enabled if any(mode.when.devices == "profile" for mode in one.modes)]
    known = [(one.profiles, translate.find_card(GpuRequest(), rulebook, one)) for one in serving]
    able = (profiles & card.profiles.keys() if card else profiles for profiles, card in known)
    here = sorted({name.replace("+", ".") for profiles in able for name in profiles})
    near = nearest.word(said.value, here)
    hint = f' (did you mean "{near}"?)' if near else ""
    message = f'no catalogue knows the GPU profile "{shown(said.value)}"{hint}'
    fix = (
        f"ask for one of: {cards.suggested_models(here, near)}" if here else 'ask for gpu: "1" instead of gpu-profile'
    )
    return Violation(code="GPU303", path=said.path, message=message, fix=fix)


def _somebody_elses(finding: Entry, pod: Pod, rulebook: Rulebook) -> bool:
    """Whether a value belongs to another use of the label, such as `true` or `a100` from before this webhook.

    An unknown model or back end does, too, if the pod's labels ask for no GPU; an unknown sharing, if nothing does.
    """
    if finding.key == "gpu-model" and "gpu" not in pod.labels:
        return not all(cards.read_model(name, rulebook) for name in finding.text.split(","))
    if finding.key == "gpu-backend" and "gpu" not in pod.labels:
        return finding.text not in rulebook.backends
    if finding.key in request.CHOICES:
        return not _asks(pod, rulebook)
    amount = finding.text == "none" or (finding.key == "gpu" and finding.text.lower() in request.AMOUNTS)
    if amount or _NUMBER.match(finding.text):
        return False
    try:
        request.KEYS[finding.key](finding.text)
    except QuantityError:
        return True
    return False


def _asks(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether any place in the pod may ask for a GPU."""
    said = not pod.labels.keys().isdisjoint(ASKING) or any(
        request.is_key("annotation", key) for key in pod.annotations
    )
    return said or _amounts_concern_gpus(pod, rulebook)


def _unknown_value(finding: Entry, rulebook: Rulebook, result: Interpretation) -> None:
    path = path_of(finding.path)
    message = f'"{shown(finding.text)}" is not a value of {finding.key} that means anything here'
    if rulebook.cluster.unknown_value == "refuse":
        fix = f"write a value of the shorthand, as {EXAMPLES[finding.key]}, or remove it"
        result.violations.append(Violation(code="GPU201", path=path, message=message, fix=fix))
        return
    model = f", or gpu-model: {finding.text} for a model" if cards.read_model(finding.text, rulebook) else ""
    nothing = ", and asks for no GPU" if finding.key == "gpu" else ""
    wish = f"{EXAMPLES[finding.key]} for one{model}" if finding.key == "gpu" else f"it as {EXAMPLES[finding.key]}"
    result.warnings.append(f"{path}: {message}; it is left alone{nothing}. Write {wish}")


def _per_container(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, dict[str, FieldValue]]:
    stated: dict[str, dict[str, FieldValue]] = {}
    for container, found in locations.per_container(pod, result.nearest):
        if len(result.violations) > MOST:
            break
        _add(found, stated.setdefault(container, {}), rulebook, result)
    return stated


def _target(pod: Pod, general: Mapping[str, FieldValue], result: Interpretation) -> str | None:
    """The container that pod-wide amounts are for: the named one, kubectl's default, or the first with a warning."""
    if general.keys().isdisjoint(ASKING):
        return None
    if named := general.get("gpu-container"):
        if not any(c.name == named.value and c.kind != EPHEMERAL for c in pod.containers):
            result.violations.append(_no_such_container(pod, str(named.value), named))
        return str(named.value)
    regular = [container.name for container in pod.containers if container.kind == "container"]
    default = pod.annotations.get(locations.DEFAULT_CONTAINER)
    result.chosen = str(default) if default in regular else next(iter(regular), None)
    if len(regular) > 1 and default not in regular:
        key = locations.CONTAINER
        result.warnings.append(f'the GPU goes to the first container, "{result.chosen}"; name another with {key}')
    return result.chosen


def _no_such_container(pod: Pod, missing: str, stated: FieldValue) -> Violation:
    """A key or a value names a container that is `missing`; the fix names others in the same place."""
    names = [container.name for container in pod.containers if container.kind != EPHEMERAL]
    message = f"{stated}, and the pod has no such container that can have a GPU"
    verb, key = "name", stated.path.removeprefix("metadata.annotations").strip('["].')
    if stated.text != missing and missing in key:
        verb, names = "rename it to", [key.replace(missing, name) for name in names]
    fix = f"{verb} one of: {', '.join(names[:LISTED])}{', ...' if len(names) > LISTED else ''}"
    return Violation(code="GPU204", path=stated.path, message=message, fix=fix)
