"""Allocation: what the resources on a container mean, that is their back end, card, request and measure.

It is read from the resources, whatever form the pod's author used: a back end's own resources count as much as the
shorthand for them. The check of a stored pod, the policies and the reports share this reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from webhook.core.backends import cards, charge, partitions, read_back, translate
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.charge import Measure
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.kube.pod import Pod
from webhook.core.plan import choose, resource_claims
from webhook.core.plan.choose import Assignment
from webhook.core.request import shorthand
from webhook.core.request.request import PREFIX, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook, Surroundings


class Found(NamedTuple):
    """The card of a container's node, and the partition that all cards of the node are cut into."""

    card: Card | None
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a container has: `request` is the meaning of its resources, `card` its card if that is known.

    `served` is the translation of its shorthand, if that gives exactly these resources.
    """

    backend: Backend
    card: Card | None
    request: GpuRequest
    measure: Measure
    served: Assignment | None = None


def lasting(seen: Pod, rulebook: Rulebook) -> Rulebook:
    """The rulebook without surroundings, but with the card that /mutate noted on the pod.

    What a pod counts must not change with the nodes of the cluster, nor with the claims that the pod names.
    """
    card = rulebook.devices.get(str(seen.annotations.get(locations.CARD, "")).lower())
    key = (Surroundings, card and card.model)
    known: Rulebook | None = rulebook.memory.get(key)
    if known is None:
        known_cards = {backend.name: card for backend in rulebook.enabled if backend.serves(card)} if card else {}
        known = replace(rulebook, surroundings=Surroundings(cards=known_cards), sources=())
        rulebook.memory[key] = known
    return known


def of(asked: ContainerRequest, rulebook: Rulebook) -> Allocation:
    """The allocation of a container: by its shorthand if that gives its resources, else by its resources alone.

    If several back ends can read the resources, the cluster's order decides; between equal ranks the largest counts.
    Raises CannotExpressError.
    """
    found = written(asked, rulebook)
    if found is not None:
        return found
    readings: list[tuple[int, Allocation]] = []
    failed = CannotExpressError("GPU405", "no back end owns all of it", "use two containers")
    for rank, owner in reversed(_ranked_owners(asked, rulebook)):
        try:
            readings.append((rank, _as_read(asked, owner, Found(card(asked, owner, rulebook)))))
        except CannotExpressError as reason:
            failed = reason
    preferred = _preferred(readings)
    if preferred is None:
        raise failed
    return preferred


def written(asked: ContainerRequest, rulebook: Rulebook) -> Allocation | None:
    """The allocation by the container's shorthand, if a back end translates it to exactly these resources; else None.

    Resources alone can be ambiguous: a partition and a whole card may both be 1 of the same resource.
    """
    if asked.request is None or not asked.extended.amounts:
        return None
    bare = replace(asked, extended=extended_resources.NOTHING)
    found: list[tuple[int, Allocation]] = []
    for rank, owner in _ranked_owners(asked, rulebook):
        if found and rank > found[0][0]:
            break
        served = as_written(bare, owner, rulebook)
        if served is not None and served.amounts == asked.extended.amounts:
            found.append((rank, _as_served(served)))
    return _preferred(found)


def as_written(bare: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Assignment | None:
    """How a back end serves a container without resources; None if it cannot."""
    try:
        return choose.consider(bare, backend, rulebook)
    except CannotExpressError:
        return None


def _preferred(found: Sequence[tuple[int, Allocation]]) -> Allocation | None:
    return max(found, key=lambda one: (-one[0], one[1].measure.devices))[1] if found else None


def _ranked_owners(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[tuple[int, Backend]]:
    """The back ends that own all of a container's resources, with their ranks; else one that is not enabled."""
    owners = enabled_owners(asked, rulebook)
    if not owners:
        return [(0, owner) for owner in known_owners(asked, rulebook)[:1]]
    named = asked.stated.get("gpu-backend")
    chosen = [owner for owner in owners if named is not None and owner.name == named.value]
    ranks = rulebook.ranks["whole" if asked.request is None else asked.request.devices]
    return sorted(((ranks[owner.name], owner) for owner in chosen or owners), key=lambda ranked: ranked[0])


def enabled_owners(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend]:
    """The enabled back ends that own all of a container's resources; the one that it names is first."""
    names, named = asked.extended.amounts.keys(), asked.stated.get("gpu-backend")
    owners = [owner for owner in rulebook.resources[next(iter(names))].owners if names <= owner.owns]
    return owners if named is None else sorted(owners, key=lambda owner: owner.name != named.value)


def known_owners(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend]:
    """All back ends that own all of a container's resources, enabled or not."""
    names = asked.extended.amounts.keys()
    return [owner for owner in rulebook.resources[next(iter(names))].known if names <= owner.owns]


def read(asked: ContainerRequest, owners: Iterable[Backend], find: Callable[[Backend], Found]) -> Allocation:
    """The allocation by the first owner that can read the container's resources; raises CannotExpressError.

    `find` returns the card that a container of a back end gets.
    """
    reasons: list[CannotExpressError] = []
    for backend in owners:
        try:
            return _as_read(asked, backend, find(backend))
        except CannotExpressError as reason:
            reasons.append(reason)
    if reasons:
        raise reasons[0]
    names = " and ".join(asked.extended.amounts)
    raise CannotExpressError("GPU405", f"no enabled back end owns {names}", "enable one that does")


def _as_read(asked: ContainerRequest, backend: Backend, found: Found) -> Allocation:
    request, mode = read_back.understand(asked.extended.amounts, cards.for_card(backend, found.card), asked.marks)
    if found.profile is not None and request.devices == "whole":
        request = replace(request, profile=found.profile)
    if backend.partitions is not None and mode.when.devices == "profile" and found.card and request.devices == "part":
        request = partitions.cut(request, found.card, backend)
    return Allocation(backend=backend, card=found.card, request=request, measure=charge.asked(request, found.card))


def _as_served(served: Assignment) -> Allocation:
    measure = charge.asked(served.request, served.card)
    return Allocation(
        backend=served.backend, card=served.card, request=served.request, measure=measure, served=served
    )


def card(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Card | None:
    """The card if the node is unknown: the model that is asked for, or the cluster's."""
    said = asked.stated.get("gpu-model")
    return translate.find_card(GpuRequest(models=said.value if said else ()), rulebook, backend)


def claimed(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Allocation | None:
    """The allocation of a container that was translated into resource claims; None if it was not."""
    there = resource_claims.used(seen, asked.container)
    for candidate in choose.candidates(asked, rulebook) if there else ():
        if isinstance(candidate, Assignment) and there.issuperset(
            resource_claims.templates(candidate, rulebook) or [""]
        ):
            return _as_served(candidate)
    return None


def depends(kind: str, key: str, rulebook: Rulebook) -> bool:
    """Whether what a pod holds may depend on its `label` or `annotation` of this key, by any loaded rule."""
    if kind == "label":
        return key in shorthand.KEYS or key.startswith(PREFIX) or key in rulebook.heard["label"]
    if key == "gpu" or (PREFIX in key and key != locations.NOTE):
        return True
    return key in rulebook.all_marked or key in rulebook.heard["annotation"] or key in _addresses(rulebook)


def _addresses(rulebook: Rulebook) -> frozenset[str]:
    """The annotations that may name the container that another is for; found once for each rulebook."""
    known: frozenset[str] | None = rulebook.memory.get(_addresses)
    if known is None:
        resources = [resource for by_key in rulebook.heard.values() for resource in by_key.values()]
        known = rulebook.memory[_addresses] = frozenset(key for each in resources for key in each.addresses)
    return known
