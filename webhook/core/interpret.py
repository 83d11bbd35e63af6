"""What each container of a pod asks for, from everywhere it may be said, in neutral form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.core import native, places, shorthand, sources
from webhook.core.asked import EPHEMERAL, Asked, ask, together
from webhook.core.document import nearest
from webhook.core.fields import field as path_of
from webhook.core.places import Finding
from webhook.core.pod import Pod
from webhook.core.quantity import QuantityError, shown
from webhook.core.request import ASKING, PREFIX, Stated
from webhook.core.rulebook import Rulebook
from webhook.core.shorthand import EXAMPLES
from webhook.core.sources import Claim, Reference
from webhook.core.violations import Refusal, Violation

_NUMBER: Final = re.compile(r"[-+.]?[0-9]")
"""How a value begins whose author surely meant a number."""

MOST: Final = 50
"""How many violations are looked for: nobody reads more, and a hostile pod has a hundred thousand."""

MOST_CONTAINERS: Final = 256
"""Of a pod that asks for a GPU. Each costs half a millisecond, and while one pod is read all others wait; a pod of
twenty thousand is as easily sent as any other. The pods that people write have fewer than twenty."""

LISTED: Final = 12
"""How many names a message lists."""


@dataclass(slots=True)
class Interpretation:
    """What a pod asks. `chosen` is the container that pod-wide shorthand went to, when nobody named one."""

    asked: list[Asked] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    chosen: str | None = None


def interpret(pod: Pod, rulebook: Rulebook) -> Interpretation:
    """Everything the pod says about GPUs, with all that is wrong with it collected."""
    result = Interpretation()
    general = _pod_wide(pod, rulebook, result)
    annotated = _per_container(pod, rulebook, result)
    claims = _claims(pod, rulebook, result)
    target = _target(pod, general, result)
    qualifiers = {key: entry for key, entry in general.items() if key in shorthand.QUALIFIERS}
    spoken = native.spoken(pod, rulebook) if rulebook.spoken else {}
    marks = marks_of(pod, rulebook)
    for container in pod.containers:
        able = container.kind != EPHEMERAL
        said = annotated.pop(container.name, {}) if able else {}
        named = claims.pop(container.name, []) if able else []
        pod_wide: Mapping[str, Stated] = general if container.name == target else qualifiers
        try:
            claim = sources.claim(container.name, named, pod_wide, said, pod, rulebook)
            pod_wide, said = _claimed(claim, pod_wide, said)
            asked = ask(container, pod_wide, said, spoken.get(container.name, {}), marks, rulebook)
        except Refusal as refusal:
            result.violations += refusal.violations
        else:
            result.asked.append(_kept(asked, claim))
            result.warnings += result.asked[-1].warnings
    missed = [said for left in annotated.values() for said in list(left.values())[:1]]
    missed += [reference.said for left in claims.values() for reference in left[:1]]
    result.violations += [_no_such_container(pod, said) for said in missed]
    result.warnings += _about_nothing(pod, general, result)
    return result


def _claims(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, list[Reference]]:
    """The claims that annotations name, by container."""
    found: dict[str, list[Reference]] = {}
    for container, reference in sources.named(pod, rulebook):
        if isinstance(reference, Violation):
            result.violations.append(reference)
        else:
            found.setdefault(container, []).append(reference)
    return found


def _claimed(
    claim: Claim | None, pod_wide: Mapping[str, Stated], said: dict[str, Stated]
) -> tuple[Mapping[str, Stated], dict[str, Stated]]:
    """What is said for the pod and for a container, with the words of its claim; raises Refusal."""
    if claim is None:
        return pod_wide, said
    said = dict(said)
    wrong = [violation for key, entry in claim.words.items() for violation in places.merge(said, key, entry)]
    if wrong:
        raise Refusal(*wrong)
    if not claim.by_word:
        return pod_wide, said
    said.pop(sources.CLAIM, None)
    return {key: entry for key, entry in pod_wide.items() if key != sources.CLAIM}, said


def _kept(asked: Asked, claim: Claim | None) -> Asked:
    """What a container asks, with the words of its claim to be kept as its annotations."""
    if claim is None:
        return asked
    persist = {**asked.persist, **claim.words, **claim.keep}
    return replace(asked, persist=persist, warnings=[*claim.warnings, *asked.warnings])


def marks_of(pod: Pod, rulebook: Rulebook) -> frozenset[str]:
    """The annotations of the pod that some rule depends on."""
    if rulebook.marked.isdisjoint(pod.annotations):
        return frozenset()
    said = [mark for key, value in pod.annotations.items() for mark in (key, f"{key}={value}")]
    return rulebook.marks.intersection(said)


def _about_nothing(pod: Pod, general: Mapping[str, Stated], result: Interpretation) -> Iterator[str]:
    """Words that have no effect, and their author should know."""
    if any(asked.anything for asked in result.asked):
        yield from places.misspelt(pod)
    elif general and not result.violations and "gpu" not in general:
        first = next(iter(general.values()))
        yield f"{first}, and nothing asks for a GPU; write gpu: 1 for one"


def asks_nothing(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether the pod plainly has nothing to do with GPUs; the answer for most pods, so it is quick."""
    if any(key.startswith("gpu") for key in pod.labels):
        return False
    if any(key == "gpu" or PREFIX in key for key in pod.annotations):
        return False
    if rulebook.sources and sources.mentions(pod, rulebook):
        return False
    known = rulebook.resources
    if rulebook.spoken and any(f"annotation {key}" in known for key in pod.annotations):
        return False
    return not any(
        name in known or name in places.RESOURCES
        for container in pod.containers
        for section in (container.limits, container.requests)
        for name in section
    )


def check_size(pod: Pod, rulebook: Rulebook) -> None:
    """Refuse (GPU001) a pod that asks for a GPU and has more containers than anybody should wait for."""
    if len(pod.containers) > MOST_CONTAINERS and not asks_nothing(pod, rulebook):
        raise Refusal(
            Violation(
                code="GPU001",
                path="spec.containers",
                message=f"the pod has {len(pod.containers)} containers, and one that asks for a GPU may have "
                f"{MOST_CONTAINERS}",
                fix="make several pods of it",
            )
        )


def _pod_wide(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, Stated]:
    stated: dict[str, Stated] = {}
    for found in places.pod_wide(pod):
        if len(result.violations) > MOST:
            break
        if isinstance(found, Finding) and found.tolerant and _somebody_elses(found, pod, rulebook):
            _unknown_value(found, rulebook, result)
        else:
            _add(found, stated, rulebook, result)
    none = stated.get("gpu")
    if none is not None and none.value is None:
        result.violations += [together("gpu", key, stated) for key in ASKING[1:] if key in stated]
    return stated


def _add(found: Finding | Violation, into: dict[str, Stated], rulebook: Rulebook, result: Interpretation) -> None:
    entry = places.parse(found) if isinstance(found, Finding) else found
    if isinstance(entry, Violation):
        result.violations.append(entry)
    elif isinstance(found, Finding):
        known, unknown = _catalogued(found.key, entry, rulebook)
        result.violations += unknown or places.merge(into, found.key, known)


def _catalogued(key: str, said: Stated, rulebook: Rulebook) -> tuple[Stated, list[Violation]]:
    """Models by the names of the catalogue, and a violation (GPU303) for what no catalogue knows."""
    if key == "gpu-profile" and said.value not in rulebook.profiles:
        return said, [_unknown(f'profile "{said.value}"', said.value, said, rulebook.profiles)]
    if key != "gpu-model":
        return said, []
    models = {device.model for device in rulebook.devices.values()}
    unknown = [
        _unknown(f'model "{shown(model)}"', model, said, models)
        for model in said.value
        if model.lower() not in rulebook.devices
    ]
    known = [rulebook.devices[model.lower()].model for model in said.value if model.lower() in rulebook.devices]
    return Stated(tuple(dict.fromkeys(known)), said.path, said.text), unknown


def _unknown(what: str, name: str, said: Stated, known: Collection[str]) -> Violation:
    return Violation(
        code="GPU303",
        path=said.path,
        message=f"no catalogue knows the GPU {what}{nearest(name, known)}",
        fix=f"ask for one of: {', '.join(sorted(known)[:LISTED])}, ...",
    )


def _somebody_elses(finding: Finding, pod: Pod, rulebook: Rulebook) -> bool:
    """A value like `true` or `a100`: not ours, as clusters have had such labels before us.

    So is the name of a model or back end that nobody knows, on a pod whose labels ask for no GPU.
    """
    if finding.key == "gpu-model" and "gpu" not in pod.labels:
        return not all(model.strip().lower() in rulebook.devices for model in finding.text.split(","))
    if finding.key == "gpu-backend" and "gpu" not in pod.labels:
        return finding.text not in rulebook.backends
    if _NUMBER.match(finding.text) or finding.text == "none":
        return False
    try:
        shorthand.KEYS[finding.key](finding.text)
    except QuantityError:
        return True
    return False


def _unknown_value(finding: Finding, rulebook: Rulebook, result: Interpretation) -> None:
    path = path_of(finding.path)
    message = f'"{shown(finding.text)}" is not a value of {finding.key} that means anything here'
    if rulebook.cluster.unknown_value == "refuse":
        fix = f"write a value of the shorthand, as {EXAMPLES[finding.key]}, or remove it"
        result.violations.append(Violation(code="GPU201", path=path, message=message, fix=fix))
        return
    model = f", or gpu-model: {finding.text} for a model" if finding.text.lower() in rulebook.devices else ""
    nothing = ", and asks for no GPU" if finding.key == "gpu" else ""
    wish = f"{EXAMPLES[finding.key]} for one{model}" if finding.key == "gpu" else f"it as {EXAMPLES[finding.key]}"
    result.warnings.append(f"{path}: {message}; it is left alone{nothing}. Write {wish}")


def _per_container(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, dict[str, Stated]]:
    stated: dict[str, dict[str, Stated]] = {}
    for container, found in places.per_container(pod):
        if len(result.violations) > MOST:
            break
        _add(found, stated.setdefault(container, {}), rulebook, result)
    return stated


def _target(pod: Pod, general: Mapping[str, Stated], result: Interpretation) -> str | None:
    """The container that pod-wide amounts are for: named, kubectl's default, or the first, with a warning."""
    if general.keys().isdisjoint(ASKING):
        return None
    if named := general.get("gpu-container"):
        if not any(c.name == named.value and c.kind != EPHEMERAL for c in pod.containers):
            result.violations.append(_no_such_container(pod, named))
        return str(named.value)
    regular = [container.name for container in pod.containers if container.kind == "container"]
    default = pod.annotations.get(places.DEFAULT_CONTAINER)
    result.chosen = str(default) if default in regular else next(iter(regular), None)
    if len(regular) > 1 and default not in regular:
        key = places.CONTAINER
        result.warnings.append(f'the GPU goes to the first container, "{result.chosen}"; name another with {key}')
    return result.chosen


def _no_such_container(pod: Pod, stated: Stated) -> Violation:
    names = [container.name for container in pod.containers if container.kind != EPHEMERAL]
    return Violation(
        code="GPU204",
        path=stated.path,
        message=f"{stated}, and the pod has no such container that can have a GPU",
        fix=f"name one of: {', '.join(names[:LISTED])}{', ...' if len(names) > LISTED else ''}",
    )
