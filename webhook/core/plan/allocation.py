"""Allocation: what the resources on a container mean, that is their back end, card, request and measure.

It is read from the resources, whatever form the pod's author used: a back end's own resources count as much as the
shorthand for them. The check of a stored pod, the policies and the reports share this reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple

from webhook.core import request
from webhook.core.backends import cards, charge, read_back, translate
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.charge import Measure
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.interpret import ContainerRequest, Interpretation, interpret
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import choose, inject
from webhook.core.plan.choose import Assignment
from webhook.core.plan.inject import NodeSelection
from webhook.core.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Mode
from webhook.core.rules.rulebook import Rulebook, Surroundings
from webhook.core.rules.verbs import Slot, SlotKind
from webhook.core.violations import Violation

# Allocation: what the resources on a container mean, that is their back end, card, request and measure.


class Found(NamedTuple):
    """The card of a container's node, and the partition that all cards of the node are cut into."""

    card: Card | None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a container has: how a back end serves it, and what that counts as."""

    served: Assignment
    measure: Measure


def lasting_rulebook(seen: Pod, rulebook: Rulebook) -> Rulebook:
    """The rulebook without surroundings, but with the card that /mutate noted on the pod.

    What a pod counts must not change with the nodes of the cluster, nor with the claims that the pod names.
    """
    card = rulebook.devices.get(str(seen.annotations.get(locations.CARD, "")).lower())
    key = (Surroundings, card and card.model)
    known: Rulebook | None = rulebook.cache.get(key)
    if known is None:
        known_cards = {backend.name: card for backend in rulebook.enabled if backend.serves(card)} if card else {}
        known = replace(rulebook, surroundings=Surroundings(cards=known_cards), sources=())
        rulebook.cache[key] = known
    return known


def of(asked: ContainerRequest, reach: NodeSelection, said: Allocation | None = None) -> Allocation:
    """The allocation of a container: the largest that any node gives on which its pod may run.

    The shorthand (`said`, if it was read before) is not undercut. Resources alone are those of the owner to whose
    nodes the pod is bound; else the cluster's order decides, between equal ranks the largest. If labels tell each
    owner's nodes and the pod is bound to none of them, it may get what any known back end gives. Raises
    CannotExpressError.
    """
    rulebook = reach.rulebook
    meant = said or written(asked, rulebook) or _preferred(_ranked_readings(asked, rulebook))
    if _is_sure(asked, meant, rulebook):
        return meant
    owners = _with_the_card(_owners_on_nodes(asked, rulebook), meant, reach)
    enabled = [owner for owner in owners if owner.name in rulebook.orders["whole"]]
    found = _readings(asked, enabled, rulebook)
    bound = [one for one in found if reach.stays_with(one.served)]
    if reach.stays_with(meant.served):
        bound = [meant, *(one for one in bound if one.served.backend.name != meant.served.backend.name)]
    if bound and asked.request is None and "gpu-backend" not in asked.stated:
        return _largest(bound)
    if not bound and all(reach.pool(one.served) for one in found):
        found += _readings(asked, [owner for owner in owners if owner not in enabled], rulebook)
    return _largest([meant, *(bound or found)])


def _owners_on_nodes(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend]:
    """All back ends whose nodes have the container's resources; its annotations and labels may be those of others."""
    names = {name for name in asked.extended.amounts if not isinstance(name, Slot)}
    return [owner for owner in rulebook.resources[next(iter(names))].known if names <= owner.owns]


def _with_the_card(owners: Sequence[Backend], meant: Allocation, reach: NodeSelection) -> Sequence[Backend]:
    """Those that serve a card that the container asks for, if its pod is bound to such cards; else all of them."""
    if not reach.stays_on_card(meant.served):
        return owners
    there = [reach.rulebook.devices[model.lower()] for model in _named(meant.served.asked)]
    return [owner for owner in owners if any(owner.serves(one) for one in there)]


def _is_sure(asked: ContainerRequest, meant: Allocation, rulebook: Rulebook) -> bool:
    """Whether no node can give more or less: nobody else owns the resources, or all owners count whole devices."""
    known = [rulebook.resources[name] for name in asked.extended.amounts if not isinstance(name, Slot)]
    if not known or not all(resource.shared for resource in known):
        return True
    return meant.served.request.devices == "whole" and all(resource.only_counts for resource in known)


def _largest(found: Sequence[Allocation]) -> Allocation:
    """The first of the largest; where the first has a card of unknown size, sizes do not count."""
    sized = not found[0].measure.unsized
    return max(found, key=lambda one: (one.measure.devices, one.measure.memory if sized else 0))


def _ranked_readings(asked: ContainerRequest, rulebook: Rulebook) -> list[tuple[int, Allocation]]:
    """What the resources alone mean, by the rank of each owner; raises the first's reason if nobody can read them."""
    found: list[tuple[int, Allocation]] = []
    failed = CannotExpressError("GPU405", "no back end owns all of it", "use two containers")
    for rank, owner in reversed(_ranked_owners(asked, rulebook)):
        try:
            found.append((rank, _as_read(asked, owner, Found(card(asked, owner, rulebook)), rulebook)))
        except CannotExpressError as reason:
            failed = reason
    if not found:
        raise failed
    return found


def _readings(asked: ContainerRequest, owners: Iterable[Backend], rulebook: Rulebook) -> list[Allocation]:
    """What each of these owners' nodes give for the resources, if they give anything."""
    found: list[Allocation] = []
    for owner in owners:
        with suppress(CannotExpressError):
            found.append(_as_read(asked, owner, Found(card(asked, owner, rulebook)), rulebook))
    return found


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
            found.append((rank, _as_served(served, rulebook)))
    return _preferred(found) if found else None


def as_written(bare: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Assignment | None:
    """How a back end serves a container without resources; None if it cannot."""
    try:
        return choose.consider(bare, backend, rulebook)
    except CannotExpressError:
        return None


def _preferred(found: Sequence[tuple[int, Allocation]]) -> Allocation:
    return max(found, key=lambda one: (-one[0], one[1].measure.devices))[1]


def _ranked_owners(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[tuple[int, Backend]]:
    """The back ends that own all of a container's resources, with their ranks; else those that are not enabled."""
    owners = enabled_owners(asked, rulebook)
    if not owners:
        return [(0, owner) for owner in known_owners(asked, rulebook)]
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


def read(
    asked: ContainerRequest, owners: Iterable[Backend], find: Callable[[Backend], Found], rulebook: Rulebook
) -> Allocation:
    """The allocation by the first owner that can read the container's resources; raises CannotExpressError.

    `find` returns the card that a container of a back end gets.
    """
    reasons: list[CannotExpressError] = []
    for backend in owners:
        try:
            return _as_read(asked, backend, find(backend), rulebook)
        except CannotExpressError as reason:
            reasons.append(reason)
    if reasons:
        raise reasons[0]
    names = " and ".join(asked.extended.amounts)
    raise CannotExpressError("GPU405", f"no enabled back end owns {names}", "enable one that does")


def _as_read(asked: ContainerRequest, backend: Backend, found: Found, rulebook: Rulebook) -> Allocation:
    said = asked.extended.amounts
    amounts = {name: said[name] for name in said if name in backend.owns or not isinstance(name, Slot)}
    request, mode = read_back.understand(amounts, cards.for_card(backend, found.card), asked.annotations)
    if found.profile is not None and request.devices == "whole":
        request = replace(request, profile=found.profile)
    if backend.partitions is not None and mode.when.devices == "profile" and found.card and request.devices == "part":
        request = translate.cut_partition(request, found.card, backend)
    return _as_served(
        Assignment(asked=asked, backend=backend, request=request, mode=mode, card=found.card, amounts=amounts),
        rulebook,
    )


def _as_served(served: Assignment, rulebook: Rulebook) -> Allocation:
    return Allocation(
        served, measure(served.asked, served.request, served.backend, served.card, [served.mode], rulebook)
    )


def measure(
    asked: ContainerRequest,
    request: GpuRequest,
    backend: Backend,
    card: Card | None,
    modes: Sequence[Mode],
    rulebook: Rulebook,
) -> Measure:
    """What a request counts as; on an unknown card the largest of those that it may be."""
    others = inject.taken_for(_named(asked), modes, rulebook)
    sure = _on_card(asked, request, backend, card, modes, rulebook)
    return reduce(Measure.at_least, (charge.asked(request, other) for other in others), sure)


def _on_card(
    asked: ContainerRequest,
    request: GpuRequest,
    backend: Backend,
    card: Card | None,
    modes: Sequence[Mode],
    rulebook: Rulebook,
) -> Measure:
    plain = charge.asked(request, card)
    if card is not None:
        return plain
    named = _named(asked)
    if request.profile is not None:
        having = [one for one in cards.card_served(backend, rulebook) if request.profile in one.profiles]
        could_be = [one for one in having if not named or one.model in named] or having
        return reduce(Measure.at_least, (charge.asked(request, one) for one in could_be)) if could_be else plain
    sizes = [charge.asked(request, rulebook.devices[model.lower()]).memory for model in named]
    plain = replace(plain, memory=max(sizes), unsized=Fraction(0)) if sizes else plain
    if request.devices != "part" or any(mode.when.devices != "profile" for mode in modes):
        return plain
    return reduce(Measure.at_least, _cut(request, named, backend, rulebook), plain)


def _cut(request: GpuRequest, named: Sequence[str], backend: Backend, rulebook: Rulebook) -> Iterator[Measure]:
    """What the partition counts as that a share becomes, on each card that it may get."""
    for one in cards.card_served(backend, rulebook):
        if not named or one.model in named:
            with suppress(CannotExpressError):
                yield charge.asked(translate.cut_partition(request, one, backend), one)


def models(asked: ContainerRequest, card: Card | None, modes: Iterable[Mode], rulebook: Rulebook) -> tuple[str, ...]:
    """The card models that a container may get, if it names any or its card is known; none: any."""
    named = _named(asked)
    others = [other.model for other in inject.taken_for(named, modes, rulebook)]
    return (*named, *others) or ((card.model,) if card else ())


def _named(asked: ContainerRequest) -> tuple[str, ...]:
    """The card models that a container asks for."""
    said = asked.stated.get("gpu-model")
    return said.value if said else ()


def card(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Card | None:
    """The card if the node is unknown: the model that is asked for, or the cluster's."""
    return translate.find_card(GpuRequest(models=_named(asked)), rulebook, backend)


def claimed(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Allocation | None:
    """The allocation of a container that was translated into resource claims; None if it was not."""
    there = inject.used_claims(seen, asked.container)
    for candidate in choose.candidates(asked, rulebook) if there else ():
        if isinstance(candidate, Assignment) and there.issuperset(
            inject.claim_templates(candidate, rulebook) or [""]
        ):
            return _as_served(candidate, rulebook)
    return None


def depends(kind: SlotKind, key: str, rulebook: Rulebook) -> bool:
    """Whether what a pod holds may depend on its `label` or `annotation` of this key, by any loaded rule."""
    if request.is_key(kind, key):
        return (kind, key) != ("annotation", locations.NOTE)
    if key in rulebook.all_slots[kind]:
        return True
    if kind == "label":
        return False
    return (
        key in rulebook.all_annotations
        or key in addresses(rulebook)
        or rulebook.as_ruled(key) in rulebook.all_slots[kind]
    )


def addresses(rulebook: Rulebook) -> frozenset[str]:
    """The annotations that may name the container that another is for; found once for each rulebook."""
    known: frozenset[str] | None = rulebook.cache.get(addresses)
    if known is None:
        resources = [resource for by_key in rulebook.all_slots.values() for resource in by_key.values()]
        known = rulebook.cache[addresses] = frozenset(key for each in resources for key in each.addresses)
    return known


# The check that a pod, as it would be stored, gives at least what its shorthand asks.

CREATE_AGAIN: Final = "create the pod again; if it happens again, show this to an operator of the cluster"
"""The fix for a pod that the mutating webhook has not translated."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The violations, and how the pod was read: the rulebook, the interpretation, the allocations by container."""

    violations: Sequence[Violation]
    interpretation: Interpretation
    rulebook: Rulebook
    allocations: Mapping[str, Allocation]


def check_sufficient(seen: Pod, rulebook: Rulebook) -> Checked:
    """Compare what each container asks with its resources.

    The replica that translated the pod may have a back end enabled that this one has not. So if something seems to be
    missing from a pod with the note of a translation, it is read again by the rules of every back end.
    """
    first = _checked(seen, rulebook)
    if first.violations and locations.NOTE in seen.annotations:
        again = _checked(seen, _hearing_all(rulebook))
        if not again.violations:
            return again
    return first


def _hearing_all(rulebook: Rulebook) -> Rulebook:
    """The rulebook that reads the annotations and labels of every back end, enabled or not."""
    return replace(rulebook, slots=rulebook.all_slots, annotations=rulebook.all_annotations)


def _checked(seen: Pod, rulebook: Rulebook) -> Checked:
    found = interpret(seen, rulebook)
    lasting = lasting_rulebook(seen, rulebook)
    # A model that this replica's catalogue lacks (3xx) may be in that of the replica that translated.
    violations = [violation for violation in found.violations if not violation.code.startswith("GPU3")]
    allocations: dict[str, Allocation] = {}
    for asked in found.asked:
        there = written(asked, lasting)
        if there is not None:
            allocations[asked.container.name] = there
        if there is None or not _claimed(there.served, asked, seen, rulebook):
            violations += _given(asked, seen, rulebook)
    return Checked(violations, found, rulebook, allocations)


def _claimed(served: Assignment, asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> bool:
    """Whether a container has the resource claims that its shorthand becomes."""
    wanted = inject.claim_templates(served, rulebook)
    return not wanted or inject.used_claims(seen, asked.container).issuperset(wanted)


def _given(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Iterator[Violation]:
    """A violation if the container's resources are less than its shorthand asks.

    Resources that no rule here knows may be those of a back end that only the translating replica knows, if the pod
    has its note. The note proves nothing, and a forged one gives no GPU.
    """
    noted = locations.NOTE in seen.annotations
    if asked.request is None or (noted and any(extended_resources.foreign(asked.container, rulebook))):
        return
    if asked.extended.amounts:
        owners = known_owners(asked, rulebook)
        if not any(_gives(asked, owner, rulebook) or _writes(asked, seen, owner, rulebook) for owner in owners):
            yield _less(asked, seen)
    elif noted and inject.made_for(seen, asked.container):
        return  # another webhook, which runs later, made claims of its resources
    elif not any(_writes(asked, seen, backend, rulebook) for backend in _by_claim(asked, seen, rulebook)):
        yield _untranslated(asked)


def _by_claim(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Sequence[Backend]:
    """The back ends that may have served a container without resources: those with claims, if it has a claim."""
    if not inject.used_claims(seen, asked.container):
        return ()
    return [backend for backend in rulebook.backends.values() if any(mode.claims for mode in backend.modes)]


def _writes(asked: ContainerRequest, seen: Pod, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end translates this request to exactly the container's resources."""
    served = as_written(replace(asked, extended=extended_resources.NOTHING), backend, rulebook)
    return served is not None and asked.extended.amounts == served.amounts and _claimed(served, asked, seen, rulebook)


def _gives(asked: ContainerRequest, owner: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end reads the container's resources as at least what is asked."""
    if asked.request is None:
        return True
    try:
        given, _ = read_back.understand(asked.extended.amounts, owner, asked.annotations)
        card = translate.find_card(asked.request, rulebook, owner)
        return read_back.gives(given, translate.with_cores(asked.request, card), card)
    except CannotExpressError:
        return False


def _untranslated(asked: ContainerRequest) -> Violation:
    return Violation(
        code="GPU601",
        path=asked.request.path() if asked.request else "",
        message=f'the container "{asked.container.name}" asks for {asked.request} and has no GPU resource: '
        "the mutating webhook did not run, or another one took its work away",
        fix=CREATE_AGAIN,
    )


def _less(asked: ContainerRequest, seen: Pod) -> Violation:
    there = ", ".join(f"{name}: {asked.extended.texts[name]}" for name in asked.extended.amounts)
    note = seen.annotations.get(locations.NOTE, "untranslated")
    return Violation(
        code="GPU602",
        path=extended_resources.where(asked.container, next(iter(asked.extended.amounts))),
        message=f'the container "{asked.container.name}" asks for {asked.request} and would get {there} ({note})',
        fix=f"remove {', '.join(asked.extended.amounts)}; the shorthand writes what it needs",
    )
