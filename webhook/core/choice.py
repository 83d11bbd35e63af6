"""Which back end serves a container: explicit, then the tenant's default, then the cluster's defaults and order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.core import inverse, native, partitions, translate
from webhook.core.amounts import CannotExpressError, as_text
from webhook.core.asked import Asked
from webhook.core.backend import Amount, Backend, Mode, Output
from webhook.core.device import Device
from webhook.core.document import nearest
from webhook.core.request import GpuRequest, Stated
from webhook.core.rulebook import Rulebook
from webhook.core.violations import Refusal, Violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A container's request as one back end serves it; `amounts` is all that it has to end up with.

    That is resources by name, and under `annotation KEY` or `label KEY` the numbers there.
    """

    asked: Asked
    backend: Backend
    request: GpuRequest
    mode: Mode
    card: Device | None
    amounts: Mapping[str, int]
    warnings: Sequence[str] = ()


Candidate = Served | tuple[Backend, CannotExpressError]
"""One back end that was considered: how it serves, or why it cannot."""


def choose(
    asked: Asked, rulebook: Rulebook, preferred: str | None, reachable: Callable[[Served], bool]
) -> Served | None:
    """The first candidate that can serve; None for resources of back ends this cluster does not enable.

    One whose nodes the pod excludes, so that it is not `reachable`, is taken only if no other can.
    Raises Refusal naming every candidate and why it cannot.
    """
    lost: list[tuple[Backend, CannotExpressError]] = []
    excluded: Served | None = None
    for candidate in candidates(asked, rulebook, preferred):
        if isinstance(candidate, Served):
            if reachable(candidate):
                return candidate
            excluded = excluded or candidate
            continue
        lost.append(candidate)
        if candidate[1].code == "GPU203" and not asked.native.amounts:
            break  # a zero contradicts the shorthand, and another system's card would be no answer to that
    if excluded is not None or (not lost and asked.request is None):
        return excluded
    raise Refusal(_nobody(asked, lost))


def candidates(asked: Asked, rulebook: Rulebook, preferred: str | None = None) -> Iterator[Candidate]:
    """The back ends that may serve, in order of preference, each judged when it is asked for."""
    for backend in _order(asked, rulebook, preferred):
        try:
            yield consider(asked, backend, rulebook)
        except CannotExpressError as reason:
            yield backend, reason


def _order(asked: Asked, rulebook: Rulebook, preferred: str | None) -> Iterable[Backend]:
    owners = _owners(asked, rulebook)
    if named := asked.stated.get("gpu-backend"):
        return [_named(named, asked, owners, rulebook)]
    if asked.request is None:
        return _preferring(preferred, _as_they_read(asked, owners or (), rulebook))
    order = rulebook.orders[asked.request.devices]
    if owners:
        return _preferring(preferred, _ordered(owners, asked.request.devices, rulebook))
    ordered = order.values() if rulebook.surroundings.present is None else _settled(asked.request.devices, rulebook)
    if preferred is not None and preferred in order:
        return [order[preferred], *ordered]
    return ordered


def _preferring(preferred: str | None, backends: Sequence[Backend]) -> Sequence[Backend]:
    return backends if preferred is None else sorted(backends, key=lambda backend: backend.name != preferred)


def _settled(devices: str, rulebook: Rulebook) -> Sequence[Backend]:
    """The cluster's order; of back ends that are as good as each other, those with nodes come first.

    Nodes settle nothing else: a pool that is scaled to zero has none, and has to be able to grow.
    """
    return _ordered([*rulebook.orders[devices].values()], devices, rulebook)


def _named(named: Stated, asked: Asked, owners: Sequence[Backend] | None, rulebook: Rulebook) -> Backend:
    backend = rulebook.orders["whole"].get(named.value)
    if backend is None:
        raise Refusal(_not_enabled(named.path, named.value, rulebook))
    if owners is not None and backend not in owners and not (asked.request and _akin(asked, backend, rulebook)):
        raise Refusal(_not_its_resources(asked, named, rulebook))
    return backend


def _akin(asked: Asked, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether what the back end does not own may have been added by the mutator of one that shares its resources."""
    foreign = [name for name in asked.native.amounts if name not in backend.owns]
    return all(backend.owns & owner.owns for name in foreign for owner in rulebook.resources[name].owners)


def _as_they_read(asked: Asked, owners: Sequence[Backend], rulebook: Rulebook) -> Sequence[Backend]:
    """The owners of the resources on a container, in the order for what those resources stand for."""
    if len(owners) < 2:
        return owners
    for owner in owners:
        with contextlib.suppress(CannotExpressError):
            request, _ = inverse.understand(asked.native.amounts, owner, asked.marks)
            return _ordered(owners, request.devices, rulebook)
    return owners


def _ordered(owners: Sequence[Backend], devices: str, rulebook: Rulebook) -> Sequence[Backend]:
    ranks, present = rulebook.ranks[devices], rulebook.surroundings.present or frozenset()
    return sorted(owners, key=lambda owner: (ranks[owner.name], owner.name not in present))


def _owners(asked: Asked, rulebook: Rulebook) -> Sequence[Backend] | None:
    """The enabled back ends that own every resource on the container; None if it has none."""
    names = _resources(asked)
    if not names:
        return None
    groups = [rulebook.resources[name].owners for name in names]
    common = [owner for owner in groups[0] if all(owner in group for group in groups[1:])]
    if not common and all(groups):
        raise Refusal(_two_systems(asked, names, rulebook))
    if asked.request is not None and not any(groups):
        raise Refusal(_partly_enabled(asked, names, rulebook))
    if not all(groups) and any(groups):
        raise Refusal(_partly_enabled(asked, names, rulebook))
    return common


def _resources(asked: Asked) -> list[str]:
    return [*asked.native.amounts, *([asked.fraction] if asked.fraction else ())]


def consider(asked: Asked, backend: Backend, rulebook: Rulebook) -> Served:
    """How one back end serves what is asked; raises CannotExpressError if it cannot."""
    _check_sharing(asked, backend)
    _check_nodes(backend, rulebook)
    if asked.request is None:
        return _as_it_stands(asked, backend, rulebook)
    done = translate.translate(asked.request, backend, rulebook)
    served = Served(
        asked=asked,
        backend=backend,
        request=done.request,
        mode=done.mode,
        card=done.card,
        amounts=done.amounts,
        warnings=done.warnings,
    )
    if asked.native.amounts or asked.native.zeros & done.amounts.keys():
        _check_agreement(served)
    return served


def _as_it_stands(asked: Asked, backend: Backend, rulebook: Rulebook) -> Served:
    """Resources that somebody wrote in the back end's own words: understood, kept, and completed."""
    amounts = asked.native.amounts
    said = asked.stated.get("gpu-model")
    models = said.value if said else ()
    card = translate.find_card(GpuRequest(models=models), rulebook, backend)
    could_be = models or ((card.model,) if card else ())
    request, mode = inverse.understand(amounts, backend, asked.marks, could_be)
    request = replace(request, models=models, placement=_placement(asked))
    translate.check_cards(request, backend, rulebook)
    translate.check_selects(request, mode, backend, rulebook)
    if card is not None and mode.when.devices == "profile" and request.devices == "part":
        request = partitions.cut(request, card, backend)
    missing = {
        name: request.count
        for name, output in mode.amounts.items()
        if name not in amounts and isinstance(output, Amount) and isinstance(output.absent, int)
    }
    return Served(
        asked=asked,
        backend=backend,
        request=request,
        mode=mode,
        card=card,
        amounts={**amounts, **missing},
    )


def _placement(asked: Asked) -> str | None:
    said = asked.stated.get("gpu-placement")
    return said.value if said else None


def _check_sharing(asked: Asked, backend: Backend) -> None:
    wanted = asked.stated.get("gpu-sharing")
    if wanted is None or wanted.value in backend.sharing:
        return
    part = asked.request is not None and asked.request.devices == "part"
    fitting = [kind for kind in sorted(backend.sharing) if (kind == "exclusive") != part]
    fix = f"ask for gpu-sharing: {' or '.join(fitting)}, or leave it out" if fitting else "leave gpu-sharing out"
    message = f"its sharing is {' or '.join(sorted(backend.sharing))}, not {wanted.value}"
    raise CannotExpressError("GPU301", message, fix, "gpu-sharing")


def _check_nodes(backend: Backend, rulebook: Rulebook) -> None:
    """A back end whose rule says so serves only where a node of it is known."""
    present = rulebook.surroundings.present
    if backend.nodes.required and present is not None and backend.name not in present:
        raise CannotExpressError("GPU301", "no node of this cluster has it", "ask for what another back end serves")


def _check_agreement(served: Served) -> None:
    """The resources that are there already have to be what the shorthand becomes.

    More is accepted only where it says what the shorthand leaves open, as a back end's own mutator may add it.
    """
    there = {name: value for name, value in served.asked.native.amounts.items() if name in served.backend.owns}
    outputs = served.mode.amounts
    same = all(there.get(name, _absent(outputs[name])) == value for name, value in served.amounts.items())
    if same and there.keys() <= served.amounts.keys():
        return
    given, _ = inverse.understand(there, served.backend, served.asked.marks) if same else (None, None)
    if given is None or not inverse.gives(given, served.request, served.card):
        becomes = ", ".join(f"{name}: {as_text(outputs[name], value)}" for name, value in served.amounts.items())
        raise CannotExpressError(
            "GPU203",
            "the shorthand and the container's resources disagree: "
            f"{_said(served.asked)}, which is {becomes} on {served.backend.name}, and {_there(served.asked)}",
            "keep one of the two: remove the resources, and the shorthand will write them",
        )


def _absent(output: Output) -> int | None:
    """The number that a missing resource stands for."""
    return output.absent if isinstance(output, Amount) and isinstance(output.absent, int) else None


def _said(asked: Asked) -> str:
    """Where the shorthand stands and what it says."""
    said = [str(stated) for key, stated in sorted(asked.stated.items()) if key != "gpu-container"]
    return " and ".join(said)


def _there(asked: Asked) -> str:
    texts = asked.native.texts
    present = [*asked.native.amounts, *sorted(asked.native.zeros)]
    return " and ".join(f"{native.where(asked.container, name)} says {texts[name]}" for name in present)


_RANK: Final = {"GPU203": 0, "GPU303": 2}
"""Which reason a message begins with: a disagreement before all, "not my vendor" after all; else by preference."""


def _nobody(asked: Asked, lost: Sequence[tuple[Backend, CannotExpressError]]) -> Violation:
    """Why nobody can serve: the reason of the preferred back end, and below it those of the others."""
    ranked = sorted(lost, key=lambda one: _RANK.get(one[1].code, 1))
    first, reason = ranked[0]
    others = [] if reason.code == "GPU203" else ranked[1:]
    same = bool(others) and all(why.message == reason.message for _, why in others)
    if reason.code == "GPU203" or (same and reason.key == "gpu-tflops"):
        message = reason.message
    elif same:
        message = f"no back end of this cluster can serve {_subject(asked)}: {reason.message}"
    elif others:
        message = f"no back end of this cluster can serve {_subject(asked)}; {first.name}: {reason.message}"
    else:
        message = f"{first.name} cannot serve {_subject(asked)}: {reason.message}"
    wrong = asked.fraction is not None and reason.code == "GPU301"
    return Violation(
        code="GPU402" if wrong else reason.code,
        path=_path(asked, reason.key),
        message=message,
        fix=f"write {asked.fraction}: 1, which is a whole device" if wrong else reason.fix,
        rule=first.rule,
        notes=tuple(_also(reason, others)),
    )


def _also(first: CannotExpressError, others: Sequence[tuple[Backend, CannotExpressError]]) -> Iterator[str]:
    """The reasons of the other back ends, each said once; one that is the same as the first needs no line."""
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


def _subject(asked: Asked) -> str:
    if asked.request is not None:
        return str(asked.request)
    return " and ".join(f"{name}: {asked.native.texts[name]}" for name in asked.native.amounts)


def _path(asked: Asked, key: str) -> str:
    """Where the word at fault stands: a key of the shorthand, or a resource."""
    if key in asked.stated:
        return asked.stated[key].path
    if asked.request is not None:
        return asked.request.path()
    return native.where(asked.container, key or next(iter(asked.native.amounts)))


def _not_enabled(path: str, name: str, rulebook: Rulebook) -> Violation:
    enabled = [backend.name for backend in rulebook.enabled]
    known = "is not enabled in this cluster"
    if name not in rulebook.backends:
        known = f"is not known here{nearest(name, enabled)}"
    return Violation(
        code="GPU302",
        path=path,
        message=f'the back end "{name[:63]}" {known}',
        fix=f"use one of: {', '.join(enabled)}",
        rule=rulebook.cluster.at.of(rulebook.cluster.name),
    )


def _not_its_resources(asked: Asked, named: Stated, rulebook: Rulebook) -> Violation:
    names = _resources(asked)
    owned = [name for name in names if all(owner.name != named.value for owner in rulebook.resources[name].owners)]
    owners = [owner.name for owner in rulebook.resources[owned[0]].owners] or ["no back end of this cluster"]
    return Violation(
        code="GPU203",
        path=native.where(asked.container, owned[0]),
        message=f"{named}, and {owned[0]} on the container belongs to {' or '.join(owners[:MENTIONED])}",
        fix=f"remove {owned[0]}, or name {owners[0]}, or say gpu-backend for one container only",
    )


def _partly_enabled(asked: Asked, names: Sequence[str], rulebook: Rulebook) -> Violation:
    """A resource of a system that is not here must not hide another that is."""
    foreign = next(name for name in names if not rulebook.resources[name].owners)
    known = ", ".join(owner.name for owner in rulebook.resources[foreign].known[:MENTIONED])
    others = ", ".join(name for name in names if rulebook.resources[name].owners) or "the shorthand"
    return Violation(
        code="GPU405",
        path=native.where(asked.container, foreign),
        message=f"{foreign} belongs to {known}, which this cluster does not enable, and stands beside {others}",
        fix=f"remove {foreign}, or use two containers",
        rule=rulebook.resources[foreign].rule,
    )


def _two_systems(asked: Asked, names: Sequence[str], rulebook: Rulebook) -> Violation:
    owned = [f"{name} ({', '.join(b.name for b in rulebook.resources[name].owners[:3])})" for name in names]
    return Violation(
        code="GPU405",
        path=native.where(asked.container, names[0]),
        message=f"one container asks for resources of different systems: {' and '.join(owned)}",
        fix="keep the resources of one system, or use two containers",
    )
