"""What one container asks for: its own words, what the pod says for it, and the resources that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.core import native, places, shorthand
from webhook.core.fields import field as path_of
from webhook.core.native import Native
from webhook.core.pod import Container
from webhook.core.quantity import QuantityError, show
from webhook.core.request import ASKING, GpuRequest, Stated, build
from webhook.core.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation

EPHEMERAL: Final = "ephemeral container"


@dataclass(frozen=True, slots=True)
class Asked:
    """What one container asks: in shorthand (`request`), and in resources of back ends (`native`).

    `persist` is shorthand from its resources, which leave the container and have to be kept as annotations;
    `fraction` is the back end's own resource that said it, if one did (`0.5` of a count); `overrides`: what is said
    for the whole pod does not hold here.
    """

    container: Container
    request: GpuRequest | None
    native: Native
    stated: Mapping[str, Stated]
    persist: Mapping[str, Stated]
    fraction: str | None = None
    marks: frozenset[str] = frozenset()
    overrides: bool = False
    warnings: Sequence[str] = ()

    @property
    def anything(self) -> bool:
        """Whether the container gets a GPU at all."""
        return self.request is not None or bool(self.native.amounts)


def ask(
    container: Container,
    pod_wide: Mapping[str, Stated],
    annotated: Mapping[str, Stated],
    spoken: Mapping[str, str],
    marks: frozenset[str],
    rulebook: Rulebook,
) -> Asked:
    """What a container asks: its resources, what is `annotated` for it, and what is said for the whole pod.

    `spoken` is what the pod asks for it in a back end's own annotations, `marks` those that rules depend on.
    Raises Refusal with everything that is wrong with it.
    """
    known = native.read(container, rulebook, spoken)
    own, wrong = places.resources(container)
    said = dict(annotated)
    for key, entry in own.items():
        wrong += places.merge(said, key, entry)
    stated = {**pod_wide, **said}
    wrong += known.violations
    wrong += _join_fraction(container, known, stated, rulebook)
    request = build(stated)
    if request is not None and marks:
        request = replace(request, marks=marks)
    wrong += _inconsistent(container, request, known, stated)
    if container.kind == EPHEMERAL and (own or known.amounts or known.fractions):
        wrong = [_ephemeral(container)]
    if wrong:
        raise Refusal(*wrong)
    fraction = next(iter(known.fractions), None)
    overridden = list(places.overridden(pod_wide, said))
    return Asked(
        container=container,
        request=request,
        native=known,
        stated=stated,
        persist=own if fraction is None else {**own, "gpu": stated["gpu"]},
        fraction=fraction,
        marks=marks,
        overrides=bool(overridden) or (request is None and "gpu" in own and not pod_wide.keys().isdisjoint(ASKING)),
        warnings=[*overridden, *known.warnings],
    )


def _join_fraction(
    container: Container, known: Native, stated: dict[str, Stated], rulebook: Rulebook
) -> Iterator[Violation]:
    """A fraction of a count (`0.5` of a card) is shorthand in another place: it joins `stated`."""
    for name, amount in known.fractions.items():
        resource = rulebook.resources[name]
        if not resource.owners:
            yield native.not_whole(container, resource, amount)
            continue
        try:
            devices = shorthand.devices_from(1, amount)
        except QuantityError as error:
            yield native.not_whole(container, resource, amount, f"{error.fix}, in the label gpu")
            continue
        said = Stated(devices, native.where(container, name), show(amount))
        present = stated.setdefault("gpu", said)
        if present.value != said.value or (present is not said and len(known.fractions) > 1):
            yield disagree(present, said)


def _inconsistent(
    container: Container, request: GpuRequest | None, known: Native, stated: Mapping[str, Stated]
) -> Iterator[Violation]:
    """Words that cannot hold together: `none` with a resource, a share with a profile, a share that is exclusive."""
    if request is None and "gpu" in stated:
        for name, amount in known.amounts.items():
            yield disagree(stated["gpu"], Stated(amount, native.where(container, name), str(amount)))
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


def _amount(stated: Mapping[str, Stated]) -> str:
    return next(key for key in ("gpu-tflops", "gpu-cores", "gpu-memory", "gpu") if key in stated)


def together(key: str, other: str, stated: Mapping[str, Stated]) -> Violation:
    """Two keys (GPU202) that cannot both hold."""
    return Violation(
        code="GPU202",
        path=stated[key].path,
        message=f"{key} and {other} cannot hold together: {stated[other]}, and {stated[key]}",
        fix=f"keep {key} or {other}",
    )


def disagree(asked: Stated, given: Stated) -> Violation:
    """The shorthand and a resource on the container that differ, both named."""
    return Violation(
        code="GPU203",
        path=given.path,
        message=f"the shorthand and the container's resources disagree: {asked}, and {given}",
        fix="keep one of the two: remove the resource, and the shorthand will write it",
    )


def _ephemeral(container: Container) -> Violation:
    return Violation(
        code="GPU204",
        path=path_of((*container.path, "resources")),
        message=f'the ephemeral container "{container.name}" asks for a GPU, and Kubernetes gives it no resources',
        fix="ask in a container or an init container",
    )
