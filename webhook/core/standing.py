"""What the resources on one container stand for: of which back end, on which card, and how much in the neutral unit.

Read from what stands there and not from the words its author used; so who writes a back end's own resources counts
as much as who writes the shorthand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core import (
    choice,
    claims,
    inverse,
    measures,
    native,
    partitions,
    places,
    recognition,
    shorthand,
    translate,
)
from webhook.core.amounts import CannotExpressError
from webhook.core.asked import Asked
from webhook.core.backend import Backend
from webhook.core.choice import Served
from webhook.core.device import Device
from webhook.core.measures import Measure
from webhook.core.pod import Pod
from webhook.core.request import PREFIX, GpuRequest
from webhook.core.rulebook import Rulebook


class Found(NamedTuple):
    """The card that a container finds, and the partition that all of its node's cards are cut into."""

    card: Device | None
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a container has: `request` is what its resources mean, on the `card` that is known, if one is."""

    backend: Backend
    card: Device | None
    request: GpuRequest
    measure: Measure


def read(asked: Asked, owners: Sequence[Backend], find: Callable[[Backend], Found]) -> Standing:
    """The first of the owners that can have meant what stands on a container; raises CannotExpressError.

    `find` says which card a container of each would get.
    """
    reasons: list[CannotExpressError] = []
    for backend in owners:
        try:
            return _as_meant(asked, backend, find(backend))
        except CannotExpressError as reason:
            reasons.append(reason)
    if reasons:
        raise reasons[0]
    names = " and ".join(asked.native.amounts)
    raise CannotExpressError("GPU405", f"no enabled back end owns {names}", "enable one that does")


def _as_meant(asked: Asked, backend: Backend, found: Found) -> Standing:
    card = found.card
    request, mode = inverse.understand(asked.native.amounts, recognition.for_card(backend, card), asked.marks)
    if found.profile is not None and request.devices == "whole":
        request = replace(request, profile=found.profile)
    if backend.partitions is not None and mode.when.devices == "profile" and card and request.devices == "part":
        request = partitions.cut(request, card, backend)
    return Standing(backend=backend, card=card, request=request, measure=measures.asked(request, card))


def written(asked: Asked, owners: Sequence[Backend], rulebook: Rulebook) -> Standing | None:
    """What the shorthand of a container comes to, where one of the owners writes for it just what stands there.

    Resources alone do not always tell: a slice and a whole card may both be 1 of the same.
    """
    if asked.request is None:
        return None
    bare = replace(asked, native=native.NOTHING)
    for backend in owners:
        try:
            served = choice.consider(bare, backend, rulebook)
        except CannotExpressError:
            continue
        if served.amounts == asked.native.amounts:
            return _as_served(served)
    return None


def _as_served(served: Served) -> Standing:
    measure = measures.asked(served.request, served.card)
    return Standing(backend=served.backend, card=served.card, request=served.request, measure=measure)


def owners(asked: Asked, rulebook: Rulebook) -> list[Backend]:
    """The enabled owners of all of a container's resources: the one that is named, then in the cluster's order."""
    groups = [rulebook.resources[name].owners for name in asked.native.amounts]
    common = [owner for owner in groups[0] if all(owner in group for group in groups)]
    named = asked.stated.get("gpu-backend")
    return common if named is None else sorted(common, key=lambda owner: owner.name != named.value)


def card(asked: Asked, backend: Backend, rulebook: Rulebook) -> Device | None:
    """The card where no node says which it is: the model that is asked for, or the cluster's."""
    said = asked.stated.get("gpu-model")
    return translate.find_card(GpuRequest(models=said.value if said else ()), rulebook, backend)


def claimed(asked: Asked, seen: Pod, rulebook: Rulebook) -> Standing | None:
    """What a container that was translated into resource claims has; None for one that never was."""
    there = claims.used(seen, asked.container)
    for candidate in choice.candidates(asked, rulebook) if there else ():
        if isinstance(candidate, Served) and there.issuperset(claims.templates(candidate, rulebook) or [""]):
            return _as_served(candidate)
    return None


def depends(kind: str, key: str, rulebook: Rulebook) -> bool:
    """Whether what a pod holds may depend on its `label` or `annotation` of this key, by any rule there is."""
    if kind == "label":
        return key in shorthand.KEYS or key.startswith(PREFIX) or f"label {key}" in rulebook.heard
    if key == "gpu" or (PREFIX in key and key != places.NOTE):
        return True
    if key in rulebook.all_marked or f"annotation {key}" in rulebook.heard:
        return True
    return any(key in resource.addresses for resource in rulebook.heard.values())
