"""Which back end serves a container: the one it names, else the tenant's default, else by the cluster's order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from webhook.core.backends import read_back, translate
from webhook.core.backends.amounts import CannotExpressError, as_text
from webhook.core.backends.translate import Translation
from webhook.core.forms.document import nearest
from webhook.core.interpret import extended_resources
from webhook.core.interpret.interpret import ContainerRequest
from webhook.core.request import FieldValue, GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import CONTAINER
from webhook.core.violations import Refusal, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Translation):
    """A container's request as one back end serves it."""

    asked: ContainerRequest
    backend: Backend


Candidate = Assignment | tuple[Backend, CannotExpressError]
"""One back end in the choice: how it serves the container, or why it cannot."""


def choose(
    asked: ContainerRequest,
    rulebook: Rulebook,
    preferred: str | None,
    suitable: Callable[[Assignment], bool],
    stays: Callable[[Assignment], bool] | None,
) -> Assignment | None:
    """The first candidate that can serve; None for resources of back ends that this cluster does not enable.

    A candidate that is not `suitable`, as the pod excludes its nodes or the tenant's policy forbids it, is taken only
    if no other can serve. Resources that several back ends own are of the one whose nodes the pod `stays` on (None:
    it selects no nodes). Raises Refusal with the reason of every candidate.
    """
    lost: list[tuple[Backend, CannotExpressError]] = []
    excluded: Assignment | None = None
    found: Iterable[Candidate] = candidates(asked, rulebook, preferred)
    if stays is not None and asked.request is None and told_by_nodes(asked, rulebook):
        found = sorted(found, key=lambda one: not (isinstance(one, Assignment) and stays(one)))
    for candidate in found:
        if isinstance(candidate, Assignment):
            if suitable(candidate):
                return candidate
            excluded = excluded or candidate
            continue
        lost.append(candidate)
        if candidate[1].code == "GPU203" and not asked.extended.amounts:
            break  # a zero contradicts the shorthand; another back end must not be taken instead
    if excluded is not None or (not lost and asked.request is None):
        return excluded
    raise Refusal(_nobody_here(asked, lost, rulebook))


def told_by_nodes(asked: ContainerRequest, rulebook: Rulebook) -> bool:
    """Whether only the node decides what a container's resources are."""
    known = [rulebook.resources[name] for name in asked.extended.amounts]
    return all(one.shared for one in known) and not all(one.only_counts for one in known)


def candidates(asked: ContainerRequest, rulebook: Rulebook, preferred: str | None = None) -> Iterator[Candidate]:
    """The back ends that may serve, in order of preference; each is judged when the iterator reaches it."""
    for backend in _order(asked, rulebook, preferred):
        try:
            yield consider(asked, backend, rulebook)
        except CannotExpressError as reason:
            yield backend, reason


def _order(asked: ContainerRequest, rulebook: Rulebook, preferred: str | None) -> Iterable[Backend]:
    owners = _owners(asked, rulebook)
    if named := asked.stated.get("gpu-backend"):
        return [_named(named, asked, owners, rulebook)]
    if asked.request is None:
        return _preferring(preferred, _as_they_read(asked, owners or (), rulebook))
    order = rulebook.orders[asked.request.devices]
    if owners:
        return _preferring(preferred, _ordered(owners, asked.request.devices, rulebook))
    # Nodes decide only among back ends of equal rank: a node pool that is scaled to zero must be able to grow.
    unknown = rulebook.surroundings.present is None
    ordered = order.values() if unknown else _ordered(order.values(), asked.request.devices, rulebook)
    if preferred is not None and preferred in order:
        return [order[preferred], *ordered]
    return ordered


def _preferring(preferred: str | None, backends: Sequence[Backend]) -> Sequence[Backend]:
    return backends if preferred is None else sorted(backends, key=lambda backend: backend.name != preferred)


def _named(
    named: FieldValue, asked: ContainerRequest, owners: Sequence[Backend] | None, rulebook: Rulebook
) -> Backend:
    backend = rulebook.orders["whole"].get(named.value)
    if backend is None:
        raise Refusal(_not_enabled(named, asked, rulebook))
    if owners is not None and backend not in owners and not (asked.request and _akin(asked, backend, rulebook)):
        raise Refusal(_not_its_resources(asked, named, rulebook))
    return backend


def _akin(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether the resources it does not own may come from the mutator of a back end that shares its resources."""
    foreign = [name for name in asked.extended.amounts if name not in backend.owns]
    return all(backend.owns & owner.owns for name in foreign for owner in rulebook.resources[name].owners)


def _as_they_read(asked: ContainerRequest, owners: Sequence[Backend], rulebook: Rulebook) -> Sequence[Backend]:
    """The owners of the resources on a container, in the order for the request that these mean."""
    if len(owners) < 2:
        return owners
    for owner in owners:
        with contextlib.suppress(CannotExpressError):
            request, _ = read_back.understand(asked.extended.amounts, owner, asked.annotations)
            return _ordered(owners, request.devices, rulebook)
    return owners


def _ordered(owners: Iterable[Backend], devices: str, rulebook: Rulebook) -> Sequence[Backend]:
    """In the cluster's order; among back ends of equal rank, those with nodes come first."""
    ranks, present = rulebook.ranks[devices], rulebook.surroundings.present or frozenset()
    return sorted(owners, key=lambda owner: (ranks[owner.name], owner.name not in present))


def _owners(asked: ContainerRequest, rulebook: Rulebook) -> Sequence[Backend] | None:
    """The enabled back ends that own every resource on the container; None if it has none."""
    names = _resources(asked)
    if not names:
        return None
    groups = [rulebook.resources[name].owners for name in names]
    common = [owner for owner in groups[0] if all(owner in group for group in groups[1:])]
    if not common and all(groups):
        raise Refusal(_two_systems(asked, names, rulebook))
    if not all(groups) and (asked.request is not None or any(groups)):
        raise Refusal(_partly_enabled(asked, names, rulebook))
    return common


def _resources(asked: ContainerRequest) -> list[str]:
    return [*asked.extended.amounts, *([asked.fraction] if asked.fraction else ())]


def consider(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Assignment:
    """How one back end serves a container; raises CannotExpressError if it cannot."""
    _check_sharing(asked, backend)
    _check_nodes(backend, rulebook)
    if asked.request is None:
        return _as_it_stands(asked, backend, rulebook)
    done = translate.translate(asked.request, backend, rulebook)
    known = {field.name: getattr(done, field.name) for field in fields(done)}
    served = Assignment(asked=asked, backend=backend, **known)
    if asked.extended.amounts or asked.extended.zeros & served.amounts.keys():
        _check_agreement(served)
    return served


def _as_it_stands(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Assignment:
    """A container with the back end's own resources: they are read, kept, and completed."""
    amounts = asked.extended.amounts
    said = asked.stated.get("gpu-model")
    models, placement = said.value if said else (), asked.stated.get("gpu-placement")
    card = translate.find_card(GpuRequest(models=models), rulebook, backend)
    could_be = models or ((card.model,) if card else ())
    request, mode = read_back.understand_or_advise(amounts, backend, asked.annotations, could_be)
    request = replace(request, models=models, placement=placement and placement.value)
    translate.check_cards(request, backend, rulebook)
    translate.check_size(request, card, rulebook)
    translate.check_selects(request, mode, backend, rulebook)
    if card is not None and mode.when.devices == "profile" and request.devices == "part":
        request = translate.cut_partition(request, card, backend)
    implied = [name for name, output in mode.amounts.items() if isinstance(output.absent, int)]
    _check_counts(asked, implied)
    completed = {**amounts, **{name: request.count for name in implied if name not in amounts}}
    return Assignment(asked=asked, backend=backend, request=request, mode=mode, card=card, amounts=completed)


def _check_counts(asked: ContainerRequest, counts: Collection[str]) -> None:
    """Check that no number of devices is 0 beside what asks for a part of each: one of the two is a mistake."""
    for name in sorted(asked.extended.zeros.intersection(counts)):
        fix = f"write 1, or remove {' and '.join(asked.extended.amounts)}"
        raise CannotExpressError("GPU405", f"{name} is 0, which is no device", fix, name)


def _check_sharing(asked: ContainerRequest, backend: Backend) -> None:
    wanted = asked.stated.get("gpu-sharing")
    if wanted is None or wanted.value in backend.sharing:
        return
    part = asked.request is not None and asked.request.devices == "part"
    fitting = [kind for kind in sorted(backend.sharing) if (kind == "exclusive") != part]
    fix = f"ask for gpu-sharing: {' or '.join(fitting)}, or leave it out" if fitting else "leave gpu-sharing out"
    message = f"its sharing is {' or '.join(sorted(backend.sharing))}, not {wanted.value}"
    raise CannotExpressError("GPU301", message, fix, "gpu-sharing")


def _check_nodes(backend: Backend, rulebook: Rulebook) -> None:
    """With `requireNodes` a back end serves only if one of its nodes is known."""
    present = rulebook.surroundings.present
    if backend.nodes.required and present is not None and backend.name not in present:
        raise CannotExpressError("GPU301", "no node of this cluster has it", "ask for what another back end serves")


def _check_agreement(served: Assignment) -> None:
    """Check that the resources on the container are what its shorthand becomes.

    More is accepted only if the shorthand leaves it open: a back end's own mutator may have added it.
    """
    there = {name: value for name, value in served.asked.extended.amounts.items() if name in served.backend.owns}
    outputs = served.mode.amounts
    same = all(there.get(name, outputs[name].absent) == value for name, value in served.amounts.items())
    if same and there.keys() <= served.amounts.keys():
        return
    given, _ = read_back.understand(there, served.backend, served.asked.annotations) if same else (None, None)
    if given is None or not read_back.gives(given, served.request, served.card):
        becomes = ", ".join(f"{name}: {as_text(outputs[name], value)}" for name, value in served.amounts.items())
        raise CannotExpressError(
            "GPU203",
            "the shorthand and the container's resources disagree: "
            f"{_shorthand_of(served.asked)}, which is {becomes} on {served.backend.name}, "
            f"and {_resources_of(served.asked)}",
            f"remove {' and '.join(_paths_of(served.asked))}; the shorthand writes what it needs",
        )


def _shorthand_of(asked: ContainerRequest) -> str:
    """The shorthand of a container, with its field paths."""
    said = [str(stated) for key, stated in sorted(asked.stated.items()) if key != "gpu-container"]
    return " and ".join(said)


def _paths_of(asked: ContainerRequest) -> Sequence[str]:
    """The field paths of a container's resources that are no shorthand."""
    present = [*asked.extended.amounts, *sorted(asked.extended.zeros)]
    return [extended_resources.where(asked.container, name) for name in present]


def _resources_of(asked: ContainerRequest) -> str:
    texts = asked.extended.texts
    present = [*asked.extended.amounts, *sorted(asked.extended.zeros)]
    return " and ".join(f"{extended_resources.where(asked.container, name)} says {texts[name]}" for name in present)


_RANK: Final = {"GPU203": 0, "GPU303": 2}
"""Which reason a message begins with: a disagreement first, "not my vendor" last; the others by preference."""


def _nobody_here(
    asked: ContainerRequest, lost: Sequence[tuple[Backend, CannotExpressError]], rulebook: Rulebook
) -> Violation:
    """Why no back end can serve; where the cluster has none for any such request, that first."""
    if not lost:
        here = rulebook.cluster.at.of(rulebook.cluster.name)
        message = "this cluster has no GPUs: it has no back end that is enabled"
        fix = "an administrator enables what the cluster has (gpu-webhook survey)"
        return Violation(code="GPU301", path=_path(asked, ""), message=message, fix=fix, rule=here)
    found = _nobody(asked, lost)
    part = asked.request is not None and asked.request.devices in {"part", "profile"}
    if asked.fraction and not any(one.shares for one in rulebook.resources[asked.fraction].known):
        return found
    if not part or rulebook.trial or any(one.shares for one in rulebook.enabled):
        return found
    fix = f"{found.fix}; or an administrator enables a back end that shares GPUs (gpu-webhook survey)"
    return replace(found, message=f"this cluster shares no GPUs; {found.message}", fix=fix)


def _nobody(asked: ContainerRequest, lost: Sequence[tuple[Backend, CannotExpressError]]) -> Violation:
    """Why no back end can serve: the reason of the preferred one, and in notes those of the others."""
    ranked = sorted(lost, key=lambda one: _RANK.get(one[1].code, 1))
    first, reason = ranked[0]
    others = [] if reason.code == "GPU203" else ranked[1:]
    same = bool(others) and all(why.message == reason.message for _, why in others)
    if reason.code == "GPU203" or (same and reason.key == "gpu-tflops"):
        message = reason.message
    elif same:
        message = f"no enabled back end can serve {_subject(asked)}: {reason.message}"
    elif others:
        message = f"no enabled back end can serve {_subject(asked)}; {first.name}: {reason.message}"
    else:
        message = f"{first.name} cannot serve {_subject(asked)}: {reason.message}"
    wrong = asked.fraction is not None and reason.code == "GPU301"
    fix = f"write {asked.fraction}: 1, which is a whole device" if wrong else reason.fix
    name = asked.container.name
    return Violation(
        code="GPU402" if wrong else reason.code,
        path=_path(asked, reason.key),
        message=message.replace(CONTAINER, name),
        fix=fix.replace(CONTAINER, name),
        rule=first.rule,
        notes=tuple(note.replace(CONTAINER, name) for note in _also(reason, others)),
    )


def _also(first: CannotExpressError, others: Sequence[tuple[Backend, CannotExpressError]]) -> Iterator[str]:
    """The reasons of the other back ends, each once; one that equals the first is left out."""
    names: dict[str, list[str]] = {}
    for backend, reason in others:
        names.setdefault(reason.message, []).append(backend.name)
    names.pop(first.message, None)
    for message in list(names)[:MENTIONED]:
        shown = ", ".join(names[message][:MENTIONED]) + (", ..." if len(names[message]) > MENTIONED else "")
        yield f"{shown}: {message}"
    if len(names) > MENTIONED:
        yield f"{len(names) - MENTIONED} more reasons of other back ends; gpu-webhook explain lists them all"


MENTIONED = 4
"""How many further reasons, and back ends of each, a message names; `explain` lists them all."""


def _subject(asked: ContainerRequest) -> str:
    if asked.request is not None:
        return str(asked.request)
    return " and ".join(f"{name}: {asked.extended.texts[name]}" for name in asked.extended.amounts)


def _path(asked: ContainerRequest, key: str) -> str:
    """The field path of the key or resource at fault."""
    if key in asked.stated:
        return asked.stated[key].path
    if asked.request is not None:
        return asked.request.path()
    return extended_resources.where(asked.container, key or next(iter(asked.extended.amounts)))


def _not_enabled(named: FieldValue, asked: ContainerRequest, rulebook: Rulebook) -> Violation:
    name, enabled = named.value, [backend.name for backend in rulebook.enabled]
    able = [backend.name for backend in rulebook.enabled if _can(asked, backend, rulebook)]
    known = "is not enabled in this cluster"
    if name not in rulebook.backends:
        known = f"is not known here{nearest(name, enabled)}"
    return Violation(
        code="GPU302",
        path=named.path,
        message=f'the back end "{name[:63]}" {known}',
        fix=f"name one of: {', '.join(able or enabled)}",
        rule=rulebook.cluster.at.of(rulebook.cluster.name),
    )


def _can(asked: ContainerRequest, backend: Backend, rulebook: Rulebook) -> bool:
    try:
        consider(asked, backend, rulebook)
    except CannotExpressError:
        return False
    return True


def _not_its_resources(asked: ContainerRequest, named: FieldValue, rulebook: Rulebook) -> Violation:
    names = _resources(asked)
    owned = [name for name in names if all(owner.name != named.value for owner in rulebook.resources[name].owners)]
    owners = [owner.name for owner in rulebook.resources[owned[0]].owners] or ["no back end of this cluster"]
    return Violation(
        code="GPU203",
        path=extended_resources.where(asked.container, owned[0]),
        message=f"{named}, and {owned[0]} on the container belongs to {' or '.join(owners[:MENTIONED])}",
        fix=f"remove {owned[0]}, or write gpu-backend: {owners[0]}",
    )


def _partly_enabled(asked: ContainerRequest, names: Sequence[str], rulebook: Rulebook) -> Violation:
    """A resource of a back end that is not enabled must not hide the request beside it."""
    foreign = next(name for name in names if not rulebook.resources[name].owners)
    known = ", ".join(owner.name for owner in rulebook.resources[foreign].known[:MENTIONED])
    others = ", ".join(name for name in names if rulebook.resources[name].owners) or "the shorthand"
    return Violation(
        code="GPU405",
        path=extended_resources.where(asked.container, foreign),
        message=f"{foreign} belongs to {known}, which this cluster does not enable, and stands beside {others}",
        fix=f"remove {foreign}, or use two containers",
        rule=rulebook.resources[foreign].rule,
    )


def _keeping_one(names: Sequence[str], rulebook: Rulebook) -> Iterator[str]:
    """For each system with resources on a container, the others to remove."""
    owners = [rulebook.resources[name].owners for name in names]
    for owner in {one.name: one for group in owners for one in group}.values():
        others = [name for name, group in zip(names, owners, strict=True) if owner not in group]
        yield f"remove {' and '.join(others)}"


def _two_systems(asked: ContainerRequest, names: Sequence[str], rulebook: Rulebook) -> Violation:
    owned = [f"{name} ({', '.join(b.name for b in rulebook.resources[name].owners[:3])})" for name in names]
    return Violation(
        code="GPU405",
        path=extended_resources.where(asked.container, names[0]),
        message=f"one container asks for resources of different systems: {' and '.join(owned)}",
        fix=f"{', or '.join(dict.fromkeys(_keeping_one(names, rulebook)))}, or use two containers",
    )
