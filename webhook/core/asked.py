"""What one container asks for: its own words, what the pod says for it, and the resources that are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.core import native, places, shorthand
from webhook.core.document import nearest
from webhook.core.fields import field as path_of
from webhook.core.native import Native
from webhook.core.pod import Container
from webhook.core.quantity import QuantityError, show
from webhook.core.request import GpuRequest, Stated, build
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
    warnings: Sequence[str] = ()

    @property
    def anything(self) -> bool:
        """Whether the container gets a GPU at all."""
        return self.request is not None or bool(self.native.amounts)


def ask(
    container: Container, general: Mapping[str, Stated], special: Mapping[str, Stated], rulebook: Rulebook
) -> Asked:
    """What a container asks, `general` being said of the pod and `special` of this container by annotations.

    Raises Refusal with everything that is wrong with it.
    """
    known = native.read(container, rulebook)
    own = places.resources(container)
    if container.kind == EPHEMERAL and (own or known.amounts or known.fractions):
        raise Refusal(_ephemeral(container))
    said = dict(special)
    wrong = [violation for key, entry in own.items() for violation in places.merge(said, key, entry)]
    wrong += known.violations
    stated = {**general, **said}
    fraction, differing = _fraction(container, known, stated, rulebook)
    request = build(stated)
    wrong += differing
    wrong += _inconsistent(container, request, known, stated)
    if request is not None or known.amounts:
        wrong += _unknown_models(stated.get("gpu-model"), rulebook)
    if wrong:
        raise Refusal(*wrong)
    return Asked(
        container=container,
        request=request,
        native=known,
        stated=stated,
        persist=own if fraction is None else {**own, "gpu": stated["gpu"]},
        fraction=fraction,
        warnings=[*places.overridden(general, said), *known.warnings],
    )


def _fraction(
    container: Container, known: Native, stated: dict[str, Stated], rulebook: Rulebook
) -> tuple[str | None, list[Violation]]:
    """A fraction of a count (`0.5` of a card) is shorthand in another place: it joins `stated`."""
    name = next(iter(known.fractions), None)
    if name is None:
        return None, []
    amount = known.fractions[name]
    if not rulebook.resources[name].owners:
        raise Refusal(native.not_whole(container, rulebook.resources[name], amount))
    try:
        devices = shorthand.devices_from(1, amount)
    except QuantityError as error:
        fix = f"{str(error).partition('; ')[2]}, in the label gpu"
        raise Refusal(native.not_whole(container, rulebook.resources[name], amount, fix)) from None
    said = Stated(devices, native.where(container, name), show(amount))
    present = stated.setdefault("gpu", said)
    return name, [] if present.value == said.value else [disagree(present, said)]


def _inconsistent(
    container: Container, request: GpuRequest | None, known: Native, stated: Mapping[str, Stated]
) -> Iterator[Violation]:
    """Words that cannot hold together: `none` with a resource, a share with a profile, a share that is exclusive."""
    if request is None and "gpu" in stated:
        for name, amount in known.amounts.items():
            yield disagree(stated["gpu"], Stated(amount, native.where(container, name), str(amount)))
    if request is None:
        return
    amounts = [key for key in ("gpu-tflops", "gpu-cores", "gpu-memory", "gpu") if key in stated]
    if request.profile is not None and (request.share or request.memory or request.cores):
        yield _together("gpu-profile", amounts[0], stated)
    if request.sharing == "exclusive" and request.devices == "part":
        yield _together("gpu-sharing", amounts[0], stated)
    if request.tflops is not None and "gpu-cores" in stated:
        yield _together("gpu-cores", "gpu-tflops", stated)


def _together(key: str, other: str, stated: Mapping[str, Stated]) -> Violation:
    return Violation(
        code="GPU202",
        path=stated[key].path,
        message=f"{key} and {other} cannot hold together: {stated[other]}, and {stated[key]}",
        fix=f"keep {key} or {other}",
    )


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
