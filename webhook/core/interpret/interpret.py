"""What each container of a pod asks for, in neutral form, from every place where it may be written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.backends import models, translate
from webhook.core.forms.document import Nearest
from webhook.core.interpret import claim_objects, extended_resources, hints, locations
from webhook.core.interpret.claim_objects import Claim, Reference
from webhook.core.interpret.container_request import ContainerRequest, ask, together
from webhook.core.interpret.locations import Entry
from webhook.core.kube.paths import field as path_of
from webhook.core.kube.paths import mapping, objects
from webhook.core.kube.pod import EPHEMERAL, SECTIONS, Pod
from webhook.core.kube.quantity import QuantityError, shown
from webhook.core.request import shorthand
from webhook.core.request.request import ASKING, PREFIX, FieldValue, GpuRequest
from webhook.core.request.shorthand import EXAMPLES
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

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
    result.claims = bool(claims) or any(claim_objects.CLAIM in said for said in (general, *annotated.values()))
    target = _target(pod, general, result)
    qualifiers = {key: entry for key, entry in general.items() if key in shorthand.QUALIFIERS}
    slot_values = extended_resources.slot_values(pod, rulebook)
    annotations = read_annotations(pod, rulebook)
    for container in pod.containers:
        able = container.kind != EPHEMERAL
        said = annotated.pop(container.name, {}) if able else {}
        named = claims.pop(container.name, []) if able else []
        pod_wide: Mapping[str, FieldValue] = general if container.name == target else qualifiers
        try:
            claim = claim_objects.claim(container.name, named, pod_wide, said, pod, rulebook)
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
    for container, reference in claim_objects.named(pod, rulebook):
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
    said.pop(claim_objects.CLAIM, None)
    return {key: entry for key, entry in pod_wide.items() if key != claim_objects.CLAIM}, said


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
    yield from hints.of_keys(pod, rulebook, result.nearest)
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
    if not labels.keys().isdisjoint(shorthand.KEYS.keys()) or PREFIX in "\n".join(labels):
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
    known = {name: models.read(name, rulebook) for name in said.value}
    unknown = [_no_model(name, said, rulebook, nearest) for name, cards in known.items() if not cards]
    meant = dict.fromkeys(card.model for cards in known.values() for card in cards)
    return FieldValue(tuple(meant), said.path, said.text), unknown


def _no_model(name: str, said: FieldValue, rulebook: Rulebook, nearest: Nearest) -> Violation:
    here = models.here(rulebook)
    near = nearest.word(name, here)
    hint = f' (did you mean "{near}"?)' if near else ""
    message = f'no catalogue knows the GPU model "{shown(name)}"{hint}'
    fix = f"ask for one of: {models.suggested(here, near)}" if here else "remove it"
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
    fix = f"ask for one of: {models.suggested(here, near)}" if here else 'ask for gpu: "1" instead of gpu-profile'
    return Violation(code="GPU303", path=said.path, message=message, fix=fix)


def _somebody_elses(finding: Entry, pod: Pod, rulebook: Rulebook) -> bool:
    """Whether a value belongs to another use of the label, such as `true` or `a100` from before this webhook.

    An unknown model or back end does, too, if the pod's labels ask for no GPU; an unknown sharing, if nothing does.
    """
    if finding.key == "gpu-model" and "gpu" not in pod.labels:
        return not all(models.read(name, rulebook) for name in finding.text.split(","))
    if finding.key == "gpu-backend" and "gpu" not in pod.labels:
        return finding.text not in rulebook.backends
    if finding.key in shorthand.CHOICES:
        return not _asks(pod, rulebook)
    amount = finding.text == "none" or (finding.key == "gpu" and finding.text.lower() in shorthand.AMOUNTS)
    if amount or _NUMBER.match(finding.text):
        return False
    try:
        shorthand.KEYS[finding.key](finding.text)
    except QuantityError:
        return True
    return False


def _asks(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether any place in the pod may ask for a GPU."""
    said = not pod.labels.keys().isdisjoint(ASKING) or any(
        shorthand.is_key("annotation", key) for key in pod.annotations
    )
    return said or _amounts_concern_gpus(pod, rulebook)


def _unknown_value(finding: Entry, rulebook: Rulebook, result: Interpretation) -> None:
    path = path_of(finding.path)
    message = f'"{shown(finding.text)}" is not a value of {finding.key} that means anything here'
    if rulebook.cluster.unknown_value == "refuse":
        fix = f"write a value of the shorthand, as {EXAMPLES[finding.key]}, or remove it"
        result.violations.append(Violation(code="GPU201", path=path, message=message, fix=fix))
        return
    model = f", or gpu-model: {finding.text} for a model" if models.read(finding.text, rulebook) else ""
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
