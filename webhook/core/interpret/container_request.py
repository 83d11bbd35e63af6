"""What one container asks for: its own shorthand, that of the pod, and its resources, joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.extended_resources import ExtendedResources
from webhook.core.kube.paths import field as path_of
from webhook.core.kube.pod import EPHEMERAL, Container
from webhook.core.kube.quantity import QuantityError, show
from webhook.core.request import shorthand
from webhook.core.request.request import ASKING, FieldValue, GpuRequest, build
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation


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
            devices = shorthand.devices_from(1, amount)
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
