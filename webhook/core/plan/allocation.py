"""Allocation: what the resources on a container mean, that is their back end, card, request and measure.

It is read from the resources, whatever form the pod's author used: a back end's own resources count as much as the
shorthand for them. The check of a stored pod, the policies and the reports share this reader.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Final, NamedTuple

from webhook.core.backends import charge, read_back, translate
from webhook.core.backends.cards import Recognised, card_served, for_card, for_nodes
from webhook.core.backends.charge import Measure
from webhook.core.backends.translate import CannotExpressError
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.interpret import ContainerRequest, Interpretation, interpret
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import Fraction
from webhook.core.plan import choose, plan
from webhook.core.plan.choose import Assignment, NodeSelection
from webhook.core.request import GpuRequest, is_key
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Mode
from webhook.core.rules.rulebook import Rulebook, Surroundings, kept
from webhook.core.rules.verbs import Slot, SlotKind
from webhook.core.violations import Violation


class Allocation(NamedTuple):
    """What a container has: how a back end serves it, and what that counts as."""

    assignment: Assignment
    measure: Measure


MOST_NOTES: Final = 256
"""For how many different notes of cards a rulebook is kept: an author can write any note."""

CardOnNode = Callable[[Backend], Recognised]
"""The card that a container of a back end gets, and the partition that all cards of the node are cut into."""


def lasting_rulebook(pod: Pod, rulebook: Rulebook) -> Rulebook:
    """The rulebook without surroundings, but with the cards that /mutate noted on the pod.

    What a pod counts must not change with the nodes of the cluster, nor with the claims that the pod names.
    """
    note = str(pod.annotations.get(locations.CARD, ""))
    note = note.lower() if len(note) <= locations.LONGEST_NOTE else ""
    lasting: dict[str, Rulebook] = rulebook.cache.setdefault(Surroundings, {})
    if note not in lasting:
        if len(lasting) >= MOST_NOTES:
            lasting.clear()
        noted = [rulebook.devices.get(model) for model in dict.fromkeys(note.split(","))]
        by_backend = {
            backend.name: [card for card in noted if card and backend.serves(card)]
            for backend in (rulebook.enabled if all(noted) else ())
        }
        lasting[note] = replace(rulebook, surroundings=Surroundings(cards=by_backend), sources=())
    return lasting[note]


# What a container has: by its shorthand, by its resources, by its claims, and the most that it may have.


def from_shorthand(demand: ContainerRequest, rulebook: Rulebook) -> Allocation | None:
    """The allocation by the container's shorthand, if a back end translates it to exactly these resources; else None.

    Resources alone can be ambiguous: a partition and a whole card may both be 1 of the same resource.
    """
    amounts = demand.extended.amounts
    if demand.request is None or not amounts:
        return None
    bare = replace(demand, extended=extended_resources.NO_RESOURCES)
    best: list[Allocation] = []
    best_rank = 0
    for rank, owner in _ranked_owners(demand, rulebook):
        if best and rank > best_rank:
            break
        candidate = choose.attempt(bare, owner, rulebook)
        if isinstance(candidate, Assignment) and candidate.amounts == amounts:
            best.append(_measured(candidate, rulebook))
            best_rank = rank
    return max(best, key=lambda allocation: allocation.measure.devices, default=None)


def from_resources(
    demand: ContainerRequest, owners: Iterable[Backend], card_on_node: CardOnNode, rulebook: Rulebook
) -> Allocation:
    """The allocation by the first owner that can read the container's resources; raises CannotExpressError."""
    reasons: list[CannotExpressError] = []
    for reading in _readings(demand, owners, rulebook, card_on_node):
        if isinstance(reading, Allocation):
            return reading
        reasons.append(reading)
    if reasons:
        raise reasons[0]
    names = " and ".join(demand.extended.amounts)
    raise CannotExpressError("GPU405", f"no enabled back end owns {names}", "enable one that does")


def from_claims(demand: ContainerRequest, pod: Pod, rulebook: Rulebook) -> Allocation | None:
    """The allocation of a container that was translated into resource claims; None if it was not."""
    used = plan.used_claims(pod, demand.container)
    for candidate in choose.candidates(demand, rulebook) if used else ():
        if isinstance(candidate, Assignment):
            templates = plan.claim_templates(candidate, rulebook)
            if templates and used.issuperset(templates):
                return _measured(candidate, rulebook)
    return None


def largest_possible(
    demand: ContainerRequest, nodes: NodeSelection, shorthand: Allocation | None = None
) -> Allocation:
    """The allocation of a container: the largest that any node gives on which its pod may run.

    What `from_shorthand` found, now or before (`shorthand`), is not undercut. Resources alone are those of the owner
    to whose nodes the pod is bound; else the cluster's order decides, between equal ranks the largest. If labels tell
    each owner's nodes and the pod is bound to none of them, it may get what any known back end gives. Raises
    CannotExpressError.
    """
    rulebook, demand = nodes.rulebook, nodes.bind(demand)
    likely = shorthand or from_shorthand(demand, rulebook)
    if likely is None:
        reasons: list[CannotExpressError] = []
        ranks: list[tuple[int, Allocation]] = []
        for rank, owner in reversed(_ranked_owners(demand, rulebook)):
            for reading in _readings(demand, [owner], rulebook):
                if isinstance(reading, Allocation):
                    ranks.append((rank, reading))
                else:
                    reasons.append(reading)
        if not ranks:
            nobody = CannotExpressError("GPU405", "no back end owns all of it", "use two containers")
            raise reasons[-1] if reasons else nobody
        likely = max(ranks, key=lambda ranked: (-ranked[0], ranked[1].measure.devices))[1]

    # No node gives more or less if nobody else owns the resources, or if all owners count whole devices.
    names = [name for name in demand.extended.amounts if not isinstance(name, Slot)]
    resources = [rulebook.resources[name] for name in names]
    if not resources or not all(resource.shared for resource in resources):
        return likely
    if likely.assignment.request.devices == "whole" and all(resource.only_counts for resource in resources):
        return likely

    # All back ends whose nodes have the resources and the card; annotations and labels may be those of others.
    owners = [owner for owner in resources[0].known if owner.owns.issuperset(names)]
    if nodes.binds_to_card(likely.assignment):
        there = [rulebook.devices[model.lower()] for model in likely.assignment.demand.models]
        owners = [owner for owner in owners if any(owner.serves(card) for card in there)]
    enabled = [owner for owner in owners if owner.name in rulebook.orders["whole"]]
    readings = [reading for reading in _readings(demand, enabled, rulebook) if isinstance(reading, Allocation)]
    bound = [reading for reading in readings if nodes.binds_to(reading.assignment)]
    if nodes.binds_to(likely.assignment):
        backend = likely.assignment.backend.name
        bound = [likely, *(reading for reading in bound if reading.assignment.backend.name != backend)]
    possible = bound or readings
    if not bound and all(nodes.pool(reading.assignment) for reading in readings):
        others = [owner for owner in owners if owner not in enabled]
        possible += [reading for reading in _readings(demand, others, rulebook) if isinstance(reading, Allocation)]
    if not bound or demand.request is not None or "gpu-backend" in demand.stated:
        possible = [likely, *possible]

    # The first of the largest; where the first has a card of unknown size, sizes do not count.
    sized = not possible[0].measure.unsized
    return max(possible, key=lambda reading: (reading.measure.devices, reading.measure.memory if sized else 0))


def _ranked_owners(demand: ContainerRequest, rulebook: Rulebook) -> Sequence[tuple[int, Backend]]:
    """The back ends that own all of a container's resources, with their ranks; else those that are not enabled."""
    owners = enabled_owners(demand, rulebook)
    if not owners:
        return [(0, owner) for owner in known_owners(demand, rulebook)]
    stated = demand.stated.get("gpu-backend")
    if stated is not None and owners[0].name == stated.value:
        owners = owners[:1]
    ranks = rulebook.ranks["whole" if demand.request is None else demand.request.devices]
    return sorted(((ranks[owner.name], owner) for owner in owners), key=lambda ranked: ranked[0])


def enabled_owners(demand: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend]:
    """The enabled back ends that own all of a container's resources; the one that it names is first."""
    names, stated = demand.extended.amounts.keys(), demand.stated.get("gpu-backend")
    owners = [owner for owner in rulebook.resources[next(iter(names))].owners if names <= owner.owns]
    return owners if stated is None else sorted(owners, key=lambda owner: owner.name != stated.value)


def known_owners(demand: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend]:
    """All back ends that own all of a container's resources, enabled or not."""
    names = demand.extended.amounts.keys()
    return [owner for owner in rulebook.resources[next(iter(names))].known if names <= owner.owns]


def _readings(
    demand: ContainerRequest, owners: Iterable[Backend], rulebook: Rulebook, card_on_node: CardOnNode | None = None
) -> Iterator[Allocation | CannotExpressError]:
    """What the resources alone mean to each of these owners, or why they mean nothing."""
    amounts = demand.extended.amounts
    for backend in owners:
        own = {name: amounts[name] for name in amounts if name in backend.owns or not isinstance(name, Slot)}
        expected = None if card_on_node else translate.find_card(demand.models, rulebook, backend)
        there = card_on_node(backend) if card_on_node else Recognised(expected, None)
        try:
            request, mode = read_back.understand(
                own, for_card(for_nodes(backend, demand.nodes, rulebook), there.card), demand.annotations
            )
            if there.profile is not None and request.devices == "whole":
                request = replace(request, profile=there.profile)
            cut = backend.partitions is not None and mode.when.devices == "profile" and request.devices == "part"
            if cut and there.card:
                request = translate.smallest_partition(request, there.card, backend)
        except CannotExpressError as reason:
            yield reason
            continue
        assignment = Assignment(
            demand=demand, backend=backend, request=request, mode=mode, card=there.card, amounts=own
        )
        yield _measured(assignment, rulebook)


# What a request counts as.


def _measured(assignment: Assignment, rulebook: Rulebook) -> Allocation:
    demand, request, backend = assignment.demand, assignment.request, assignment.backend
    return Allocation(assignment, measure(demand, request, backend, assignment.card, [assignment.mode], rulebook))


def measure(
    demand: ContainerRequest,
    request: GpuRequest,
    backend: Backend,
    card: Card | None,
    modes: Sequence[Mode],
    rulebook: Rulebook,
) -> Measure:
    """What a request counts as: of each amount the largest on any card that it may get.

    A part whose compute the back end could limit, and does not, counts whole devices, as it may take all of it.
    """
    cards: Sequence[Card | None] = [card] if card else translate.possible_cards(demand.models, rulebook, backend)
    cards = [*cards, *choose.lookalike_cards(demand.models, modes, rulebook)]
    able = [card for card in cards if card] or card_served(backend, rulebook)
    if request.profile is not None:
        having = [other for other in able if request.profile in other.profiles]
    else:  # no card gives more than its nominal memory
        having = [other for other in able if (request.memory or 0) <= other.nominal] if cards else []
    measured = reduce(Measure.at_least, [charge.asked(request, other) for other in having or cards or [None]])
    if card is None and request.devices == "part" and all(mode.when.devices == "profile" for mode in modes):
        for other in able:
            with suppress(CannotExpressError):  # the share becomes a partition; which one depends on the card
                cut = translate.smallest_partition(request, other, backend)
                measured = measured.at_least(charge.asked(cut, other))
    is_limited = request.cores or request.tflops or any("share" in mode.verbs for mode in modes)
    if request.devices == "part" and backend.limits_compute and not is_limited:
        measured = measured.at_least(Measure(devices=Fraction(request.count)))
    return measured


def possible_models(
    demand: ContainerRequest, backend: Backend, card: Card | None, modes: Iterable[Mode], rulebook: Rulebook
) -> tuple[str, ...]:
    """The card models that a container may get, if it names any or those of the nodes are known; none: any."""
    others = [other.model for other in choose.lookalike_cards(demand.models, modes, rulebook)]
    there = [card] if card else rulebook.surroundings.cards.get(backend.name, ())
    return (*demand.models, *others) or tuple(card.model for card in there)


# What of a pod's metadata an allocation depends on.


def depends(kind: SlotKind, key: str, rulebook: Rulebook) -> bool:
    """Whether what a pod holds may depend on its `label` or `annotation` of this key, by any loaded rule."""
    if is_key(kind, key):
        return (kind, key) != ("annotation", locations.NOTE)
    slots = rulebook.all_slots[kind]
    if key in slots or kind == "label":
        return key in slots
    return key in rulebook.all_annotations or key in addresses(rulebook) or rulebook.as_ruled(key) in slots


@kept
def addresses(rulebook: Rulebook) -> frozenset[str]:
    """The annotations that may name the container that another is for."""
    resources = [resource for by_key in rulebook.all_slots.values() for resource in by_key.values()]
    return frozenset(key for resource in resources for key in resource.addresses)


# The check that a pod, as it would be stored, gives at least what its shorthand asks.

CREATE_AGAIN: Final = "create the pod again; if it happens again, show this to an operator of the cluster"
"""The fix for a pod that the mutating webhook has not translated."""


class Checked(NamedTuple):
    """The violations, and how the pod was read: the rulebook, the interpretation, the allocations by container."""

    violations: Sequence[Violation]
    interpretation: Interpretation
    rulebook: Rulebook
    allocations: Mapping[str, Allocation]


def check_sufficient(pod: Pod, rulebook: Rulebook) -> Checked:
    """Compare what each container asks with its resources.

    The replica that translated the pod may have a back end enabled that this one has not. So if something seems to be
    missing from a pod with the note of a translation, it is read again with the annotations and labels of every back
    end, enabled or not.
    """
    checked = _check(pod, rulebook)
    if checked.violations and locations.NOTE in pod.annotations:
        again = _check(pod, replace(rulebook, slots=rulebook.all_slots, annotations=rulebook.all_annotations))
        if not again.violations:
            return again
    return checked


def _check(pod: Pod, rulebook: Rulebook) -> Checked:
    interpretation = interpret(pod, rulebook)
    lasting = lasting_rulebook(pod, rulebook)
    note = pod.annotations.get(locations.NOTE)
    # A model that this replica's catalogue lacks (3xx) may be in that of the replica that translated.
    violations = [violation for violation in interpretation.violations if not violation.code.startswith("GPU3")]
    allocations: dict[str, Allocation] = {}
    for demand in interpretation.asked:
        container, amounts = demand.container, demand.extended.amounts
        allocation = from_shorthand(demand, lasting)
        if allocation is not None:
            allocations[container.name] = allocation
            if _has_claims(allocation.assignment, pod, rulebook):
                continue

        # Resources that no rule here knows may be those of a back end that only the translating replica knows, if the
        # pod has its note. The note proves nothing, and a forged one gives no GPU.
        if demand.request is None or (note is not None and any(extended_resources.foreign(container, rulebook))):
            continue
        owners: Sequence[Backend] = ()
        if amounts:
            owners = known_owners(demand, rulebook)
        elif note is not None and plan.has_claim_objects(pod, container):
            continue  # another webhook, which runs later, made claims of its resources
        elif plan.used_claims(pod, container):
            owners = [backend for backend in rulebook.backends.values() if any(mode.claims for mode in backend.modes)]
        if any(_suffices(demand, owner, pod, rulebook) for owner in owners):
            continue
        if amounts:
            there = ", ".join(f"{name}: {demand.extended.texts[name]}" for name in amounts)
            code, path = "GPU602", extended_resources.where(container, next(iter(amounts)))
            lack = f"would get {there} ({'untranslated' if note is None else note})"
            fix = f"remove {', '.join(amounts)}; the shorthand writes what it needs"
        else:
            code, path, fix = "GPU601", demand.request.path(), CREATE_AGAIN
            lack = "has no GPU resource: the mutating webhook did not run, or another one took its work away"
        message = f'the container "{container.name}" asks for {demand.request} and {lack}'
        violations.append(Violation(code=code, path=path, message=message, fix=fix))
    return Checked(violations, interpretation, rulebook, allocations)


def _has_claims(assignment: Assignment, pod: Pod, rulebook: Rulebook) -> bool:
    """Whether a container has the resource claims that its shorthand becomes."""
    if not assignment.mode.claims:
        return True
    templates = plan.claim_templates(assignment, rulebook)
    return not templates or plan.used_claims(pod, assignment.demand.container).issuperset(templates)


def _suffices(demand: ContainerRequest, owner: Backend, pod: Pod, rulebook: Rulebook) -> bool:
    """Whether a back end reads the container's resources as at least what is asked, or would write exactly these."""
    amounts = demand.extended.amounts
    if amounts and demand.request is not None:
        with suppress(CannotExpressError):
            given, _ = read_back.understand(amounts, owner, demand.annotations)
            card = translate.find_card(demand.request.models, rulebook, owner)
            if read_back.gives(given, translate.with_cores(demand.request, card), card):
                return True
    candidate = choose.attempt(replace(demand, extended=extended_resources.NO_RESOURCES), owner, rulebook)
    if isinstance(candidate, choose.Failure) or candidate.amounts != amounts:
        return False
    return _has_claims(candidate, pod, rulebook)
