"""What each container of a pod asks for, from everywhere it may be said, in neutral form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.core import native, places, shorthand
from webhook.core.document import nearest
from webhook.core.fields import field as path_of
from webhook.core.native import Native
from webhook.core.places import Finding
from webhook.core.pod import Container, Pod
from webhook.core.quantity import QuantityError, text_of
from webhook.core.request import ASKING, PREFIX, GpuRequest, Stated, build
from webhook.core.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

EPHEMERAL: Final = "ephemeral container"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one container asks: in shorthand (`request`), and in resources of back ends (`native`).

    `persist` is shorthand from its resources, which leave the container and have to be kept as annotations;
    `fraction` is the back end's own resource that said it, if one did (`0.5` of a count).
    """

    container: Container
    request: GpuRequest | None
    native: Native
    stated: Mapping[str, Stated]
    persist: Mapping[str, Stated]
    fraction: str | None = None

    @property
    def anything(self) -> bool:
        """Whether the container gets a GPU at all."""
        return self.request is not None or bool(self.native.amounts)


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
    special = _per_container(pod, result)
    target = _target(pod, general, result)
    for container in pod.containers:
        said = special.pop(container.name, {})
        mine = general if container.name == target else _qualifiers(general)
        try:
            result.asked.append(_asked(container, mine, said, rulebook, result))
        except Refusal as refusal:
            result.violations += refusal.violations
    result.violations += [_no_such_container(pod, next(iter(left.values()))) for left in special.values()]
    return result


def asks_nothing(pod: Pod, rulebook: Rulebook) -> bool:
    """Whether the pod plainly has nothing to do with GPUs; the answer for most pods, so it is quick."""
    if any(key.startswith("gpu") for key in pod.labels):
        return False
    if any(key == "gpu" or PREFIX in key for key in pod.annotations):
        return False
    known = rulebook.resources
    return not any(
        name in known or name in places.RESOURCES
        for container in pod.containers
        for section in (container.limits, container.requests)
        for name in section
    )


def _pod_wide(pod: Pod, rulebook: Rulebook, result: Interpretation) -> dict[str, Stated]:
    stated: dict[str, Stated] = {}
    try:
        for finding in places.pod_wide(pod):
            if finding.tolerant and _somebody_elses(finding):
                _unknown_value(finding, rulebook, result)
            else:
                _add(finding, stated, result)
    except Refusal as refusal:
        result.violations += refusal.violations
    return stated


def _add(finding: Finding, into: dict[str, Stated], result: Interpretation) -> None:
    try:
        entry = places.parse(finding)
    except Refusal as refusal:
        result.violations += refusal.violations
    else:
        result.violations += places.merge(into, finding.key, entry)


def _somebody_elses(finding: Finding) -> bool:
    """A value like `true` or `a100`: not ours, as clusters have had such labels before us."""
    if finding.text[:1].isdigit() or finding.text == "none":
        return False
    try:
        shorthand.KEYS[finding.key](finding.text)
    except QuantityError:
        return True
    return False


def _unknown_value(finding: Finding, rulebook: Rulebook, result: Interpretation) -> None:
    path = path_of(finding.path)
    message = f'"{finding.text}" is not a value of {finding.key} that means anything here'
    if rulebook.cluster.unknown_value == "refuse":
        fix = "write a value of the shorthand, as gpu: 1, or remove it"
        result.violations.append(Violation(code="GPU201", path=path, message=message, fix=fix))
    else:
        result.warnings.append(f"{path}: {message}; it is left alone, and asks for no GPU")


def _per_container(pod: Pod, result: Interpretation) -> dict[str, dict[str, Stated]]:
    stated: dict[str, dict[str, Stated]] = {}
    try:
        for container, finding in places.per_container(pod):
            _add(finding, stated.setdefault(container, {}), result)
    except Refusal as refusal:
        result.violations += refusal.violations
    return stated


def _qualifiers(general: Mapping[str, Stated]) -> dict[str, Stated]:
    return {key: entry for key, entry in general.items() if key in shorthand.QUALIFIERS}


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
        fix=f"name one of: {', '.join(names)}",
    )


def _asked(
    container: Container,
    general: Mapping[str, Stated],
    said: dict[str, Stated],
    rulebook: Rulebook,
    result: Interpretation,
) -> Asked:
    known = native.read(container, rulebook)
    own = places.resources(container)
    if container.kind == EPHEMERAL and (own or known.amounts or known.fractions):
        raise Refusal(_ephemeral(container))
    for key, entry in own.items():
        result.violations += places.merge(said, key, entry)
    result.warnings += places.overridden(general, said)
    stated = {**general, **said}
    fraction = _fraction(container, known, stated, result)
    persist = own if fraction is None else {**own, "gpu": stated["gpu"]}
    result.warnings += known.warnings
    result.violations += known.violations
    request = build(stated)
    if request is None and "gpu" in stated:
        result.violations += _none_and_some(container, known, stated["gpu"])
    _check_consistent(request, result)
    if request is not None or known.amounts:
        result.violations += _unknown_models(stated.get("gpu-model"), rulebook)
    return Asked(container, request, known, stated, persist, fraction)


def _fraction(container: Container, known: Native, stated: dict[str, Stated], result: Interpretation) -> str | None:
    """A fraction of a count (`0.5` of a card) is shorthand in another place: it joins `stated`."""
    name = next(iter(known.fractions), None)
    if name is None:
        return None
    section = container.limits if name in container.limits else container.requests
    path = native.where(container, name)
    try:
        said = Stated(shorthand.devices_from(1, known.fractions[name]), path, text_of(section[name]))
    except QuantityError as error:
        raise Refusal(places.misread(path, f"{name}: {error} in the label gpu")) from None
    present = stated.setdefault("gpu", said)
    if present.value != said.value:
        result.violations.append(disagree(present, said))
    return name


def _unknown_models(said: Stated | None, rulebook: Rulebook) -> Iterator[Violation]:
    for model in said.value if said else ():
        if model.lower() not in rulebook.devices:
            models = {device.model for device in rulebook.devices.values()}
            yield Violation(
                code="GPU303",
                path=said.path if said else "",
                message=f'no catalogue knows the GPU model "{model}"{nearest(model, models)}',
                fix=f"ask for one of: {', '.join(sorted(models)[:12])}, ...",
            )


def _none_and_some(container: Container, known: Native, none: Stated) -> Iterator[Violation]:
    for name, amount in known.amounts.items():
        yield disagree(none, Stated(amount, native.where(container, name), str(amount)))


def disagree(asked: Stated, given: Stated) -> Violation:
    """The shorthand and a resource on the container that differ, both named."""
    return Violation(
        code="GPU203",
        path=given.path,
        message=f"the shorthand and the container's resources disagree: {asked}, and {given}",
        fix="keep one of the two: remove the resource, and the shorthand will write it",
    )


def _check_consistent(request: GpuRequest | None, result: Interpretation) -> None:
    """Words that cannot hold together: a share with a profile, a share that is exclusive."""
    if request is None:
        return
    for key, wrong in (
        ("gpu-profile", request.profile is not None and (request.share or request.memory or request.cores)),
        ("gpu-sharing", request.sharing == "exclusive" and request.devices == "part"),
        ("gpu-cores", "gpu-cores" in request.stated and request.tflops is not None),
    ):
        if wrong:
            others = [name for name in ("gpu", "gpu-memory", "gpu-cores", "gpu-tflops") if name in request.stated]
            other = next((name for name in reversed(others) if name != key), "gpu")
            result.violations.append(_together(key, other, request.stated))


def _together(key: str, other: str, stated: Mapping[str, Stated]) -> Violation:
    return Violation(
        code="GPU202",
        path=stated[key].path,
        message=f"{key} and {other} cannot hold together: {stated[other]}, and {stated[key]}",
        fix=f"keep {key} or {other}",
    )


def _ephemeral(container: Container) -> Violation:
    return Violation(
        code="GPU204",
        path=path_of((*container.path, "resources")),
        message=f'the ephemeral container "{container.name}" asks for a GPU, and Kubernetes gives it no resources',
        fix="ask in a container or an init container",
    )
