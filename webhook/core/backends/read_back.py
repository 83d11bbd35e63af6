"""Read back: from the resources on a container to the request that they mean.

The modes of a back end are read in reverse. A value that no rule could have written is refused, with the nearest
possible ones. The result, in neutral form, can be compared with the shorthand, and judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from webhook.core.backends import amounts, translate
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.backends.translate import has_partition
from webhook.core.kube.quantity import Fraction
from webhook.core.request import MAX_MEMORY, GpuRequest, pasteable
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Mode, Output, When
from webhook.core.rules.verbs import PERCENT, Amount, Slot


def understand(
    native: Mapping[str, int],
    backend: Backend,
    annotations: frozenset[str] = frozenset(),
    models: tuple[str, ...] = (),
) -> tuple[GpuRequest, Mode]:
    """The request that resources on a container mean; raises CannotExpressError if they mean none.

    `annotations` are the annotations of its pod that rules depend on, `models` the cards that the container may get.
    """
    said = GpuRequest(annotations=annotations, models=models)
    reasons: list[CannotExpressError] = []
    modes = [mode for mode in backend.modes if _asking(native, mode).keys() <= mode.amounts.keys()]
    modes = modes or list(backend.modes)
    if not models:
        modes.sort(key=lambda mode: bool(mode.when.models))  # modes for a certain card come last
    for mode in modes:
        try:
            return _request_of(_asking(native, mode), mode, said), mode
        except CannotExpressError as reason:
            reasons.append(reason)
    # The mode with most of the keys in common is the one that was meant.
    common = [len(native.keys() & mode.amounts.keys()) for mode in modes]
    wrong = [isinstance(reason, NotThisModeError) for reason in reasons]
    place = {id(mode): index for index, mode in enumerate(backend.modes)}
    meant = max(
        range(len(reasons)), key=lambda i: (common[i], wrong[i], modes[i].profile is None, place[id(modes[i])])
    )
    raise _with_all_near(reasons[meant], reasons, native, modes[meant])


def _asking(native: Mapping[str, int], mode: Mode) -> Mapping[str, int]:
    """The resources without what only the scheduler of the mode writes: it repeats what was asked."""
    if mode.companions is None or not mode.companions.reserved:
        return native
    reserved = {name for name in native if isinstance(name, Slot) and mode.companions.reserves(name.key)}
    return {name: value for name, value in native.items() if name not in reserved} if reserved else native


def _with_all_near(
    reason: CannotExpressError, reasons: Sequence[CannotExpressError], native: Mapping[str, int], mode: Mode
) -> CannotExpressError:
    """The reason, with the nearest values that any mode takes."""
    if not reason.near or reason.key not in native:
        return reason
    here = native[reason.key]
    values = {value for other in reasons if other.key == reason.key for value in other.near}
    ends = (max((v for v in values if v < here), default=None), min((v for v in values if v > here), default=None))
    output = mode.amounts[reason.key]
    near = [value for value in ends if value is not None]
    message = reason.message
    if len(near) > 1 and not {*near} <= {*reason.near}:
        written, low, high = (amounts.as_text(output, value) for value in (here, *near))
        message = f"{reason.key}: {written} is between {low} and {high}, the nearest it can express"
    return CannotExpressError(reason.code, message, _write(output, near), reason.key, near)


def _write(output: Output, values: Sequence[int]) -> str:
    return f"write {' or '.join(amounts.as_text(output, value) for value in values)}"


def understand_or_advise(
    native: Mapping[str, int], backend: Backend, annotations: frozenset[str], models: tuple[str, ...]
) -> tuple[GpuRequest, Mode]:
    """The same with a fix that helps, if one change of an amount does: many readings, so for what a user reads."""
    try:
        return understand(native, backend, annotations, models)
    except CannotExpressError as reason:
        raise _advised(reason, native, backend, annotations, models) from None


def _advised(
    reason: CannotExpressError,
    native: Mapping[str, int],
    backend: Backend,
    annotations: frozenset[str],
    models: tuple[str, ...],
) -> CannotExpressError:
    if not (reason.near or isinstance(reason, VagueError)):
        return reason

    def helps(name: str, value: int | None) -> bool:
        changed = {key: amount for key, amount in {**native, name: value}.items() if amount is not None}
        with contextlib.suppress(CannotExpressError):
            return bool(understand(changed, backend, annotations, models))
        return False

    near = {reason.key: [value for value in reason.near if helps(reason.key, value)]}
    found = near if near[reason.key] else _changes(native, backend, helps)
    if not found:
        return reason
    name, values = next(iter(found.items()))
    outputs = {key: output for mode in backend.modes for key, output in mode.amounts.items()}
    return CannotExpressError(
        reason.code, reason.message, _write(outputs[name], values) if values else f"remove {name}", name
    )


def _changes(
    native: Mapping[str, int], backend: Backend, helps: Callable[[str, int | None], bool]
) -> Mapping[str, Sequence[int]]:
    """The amount that has to change, with the nearest value that helps; none if it has to go."""
    ends = {1, *native.values(), *(end for mode in backend.modes for end in mode.when.count if end)}
    for name, amount in native.items():
        outputs = (mode.amounts.get(name) for mode in backend.modes)
        numbers = [output for output in outputs if isinstance(output, Amount)]
        near = {value for output in numbers for value in amounts.near(output, Fraction(amount))}
        for value in sorted((ends | near) - {amount}, key=lambda end: (abs(end - amount), end)):
            if helps(name, value):
                return {name: [value]}
    return next(({name: []} for name in native if len(native) > 1 and helps(name, None)), {})


def _request_of(native: Mapping[str, int], mode: Mode, said: GpuRequest) -> GpuRequest:
    _check_companions(native, mode, said.annotations)
    count = _count(native, mode)
    _check_values(native, mode, count)
    found: dict[str, Any] = {"count": count}
    for resource, output in sorted(mode.amounts.items(), key=lambda entry: entry[1].most):
        value = native.get(resource)
        if value is not None and isinstance(output, Amount) and output.what != "count":
            _join(found, amounts.read_back(output, value, count), resource, output=output)
        if value is None and (output.what, output.absent) == ("cores", "whole"):
            found.setdefault("cores", Fraction(100))
    return _normal(found, mode, said)


def _join(found: dict[str, Any], more: Mapping[str, Any], resource: str, output: Amount) -> None:
    """Add the fields of one amount; raises CannotExpressError if they contradict those of others.

    Of what a container may take at most, the greater counts.
    """
    for key, value in more.items():
        if output.most:
            found[key] = max(value, found.get(key, value))
        elif found.setdefault(key, value) != value:
            message = f"{resource} says another part of a device than the resources beside it"
            fix = f"remove {resource}" if output.absent is not None else f"write {resource} as large as those say"
            raise VagueError("GPU405", message, fix, resource)


def _check_companions(native: Mapping[str, int], mode: Mode, annotations: frozenset[str]) -> None:
    """Raise CannotExpressError for a resource that the mode does not write, or without something that it needs."""
    for resource in sorted(native.keys() - mode.amounts.keys()):
        others = [name for name, output in mode.amounts.items() if not output.most]
        message = f"{resource} does not go together with {', '.join(others)}"
        raise CannotExpressError("GPU405", message, f"remove {resource}", resource)
    for annotation in sorted(mode.enforced - annotations):
        message = f"{', '.join(native)} is meant so only with the annotation {annotation.replace('=', ': ', 1)}"
        raise CannotExpressError("GPU405", message, f"annotate the pod {pasteable(*annotation.partition('=')[::2])}")
    for resource, output in mode.amounts.items():
        if resource not in native and output.absent is None:
            beside = next((name for name in native if isinstance(name, Slot) == isinstance(resource, Slot)), "")
            message = f"{resource} is missing"
            raise CannotExpressError("GPU405", message, f"add {resource}", beside)


def _check_values(native: Mapping[str, int], mode: Mode, count: int) -> None:
    for resource, value in native.items():
        output = mode.amounts[resource]
        if isinstance(output, Amount):
            _admissible(resource, output, value, count if output.per_total else 1)
        elif value != output.number:
            message = f"{resource} has to be {output.number}, not {value}"
            raise CannotExpressError("GPU405", message, f"write {output.number}", resource)


def _count(native: Mapping[str, int], mode: Mode) -> int:
    """The number of devices: a count, the number that the mode fixes, or derived from a total over all devices."""
    numbers = {name: output for name, output in mode.amounts.items() if isinstance(output, Amount)}
    counts = {name: output for name, output in numbers.items() if output.what == "count"}
    if said := next((native[name] for name in counts if name in native), None):
        return said
    for name, output in numbers.items() if mode.when.devices == "whole" else ():
        if output.what == "cores" and output.per_total and (name in native or not counts):
            return _whole_devices(name, native.get(name, 0), output)
    absent = next((output.absent for output in counts.values() if isinstance(output.absent, int)), None)
    return absent or (1 if counts else mode.when.count[0])


def _whole_devices(resource: str, value: int, output: Amount) -> int:
    device = 100 / output.unit
    devices, rest = divmod(value, device)
    if rest or not devices:
        admissible = [count for count in (devices, devices + 1) if count and amounts.admits(output, count * device)]
        near = [int(count * device) for count in admissible]
        message = f"{resource}: {value} is not a whole number of devices"
        raise CannotExpressError("GPU405", message, f"write {' or '.join(map(str, near))}", resource, near)
    return int(devices)


def _admissible(resource: str, output: Amount, value: int, times: int) -> None:
    each = Fraction(value, times)
    if output.what == "memory" and output.unit_name != PERCENT and each * output.unit > MAX_MEMORY:
        message = f"{resource}: {amounts.as_text(output, value)} is more memory than any GPU has"
        raise CannotExpressError("GPU405", message, "write less", resource)
    if not amounts.admits(output, each):
        near = [times * option for option in amounts.near(output, each)]
        reason = amounts.outside(output, each, partial(amounts.as_text, output))
        if each.denominator > 1:
            reason = f"does not divide by {times} devices"
        fix = f"write {' or '.join(amounts.as_text(output, option) for option in near) or 'less'}"
        raise CannotExpressError(
            "GPU405", f"{resource}: {amounts.as_text(output, value)} {reason}", fix, resource, near
        )


def _normal(found: dict[str, Any], mode: Mode, said: GpuRequest) -> GpuRequest:
    """The request, with whole devices recognised. Other requests must be of those that the mode is for."""
    if mode.profile is not None:
        found = {"count": found["count"], "profile": mode.profile}
    memory_share, cores = found.get("memory_share"), found.get("cores")
    sized = mode.size is not None or found.keys() & {"memory", "memory_share", "profile"}
    all_of_it = not sized and cores in {None, 100}
    if mode.when.devices == "whole" or all_of_it:
        return _whole(replace(said, count=found["count"]), mode)
    if memory_share is not None and cores == 100 * memory_share:
        found["share"] = memory_share
    if mode.size is not None:
        found["memory"] = mode.size
    request = replace(said, **found)
    if not mode.when.unannotated.isdisjoint(said.annotations):
        raise _not_this(mode, request)
    if mode.when.devices == "profile" and request.devices == "part":
        return request  # a size that the back end makes a partition of; which one depends on the card
    if not translate.matches(_told_by_resources(mode.when, said), request):
        raise _not_this(mode, request)
    return request


class VagueError(CannotExpressError):
    """Its fix says what is to come of the change, and not which change."""


class NotThisModeError(CannotExpressError):
    """The mode could have written every value, but it is for other requests."""


class _NotThisRequestError(NotThisModeError, VagueError):
    """And nothing but the amounts tells."""


def _not_this(mode: Mode, request: GpuRequest) -> CannotExpressError:
    """Why a mode is not for a request, and how to change that."""
    message, fix = f"this is not {mode.name}", f"ask for {mode.name}"
    missing = sorted(mode.when.annotated - request.annotations)
    excluded = translate.excluded(mode, request)
    if excluded:
        message, fix = excluded
    if missing:
        fix = "annotate the pod " + " and ".join(pasteable(*each.partition("=")[::2]) for each in missing)
        return CannotExpressError("GPU405", message, fix)
    return (NotThisModeError if excluded else _NotThisRequestError)("GPU405", message, fix)


def _whole(request: GpuRequest, mode: Mode) -> GpuRequest:
    """Whole devices, in whatever resource the mode has: count, models and annotations of the mode must match."""
    when = mode.when
    model = frozenset(["model"])
    bare = replace(when, devices=None, has=when.has & model, lacks=when.lacks & model)
    if not translate.matches(_told_by_resources(bare, request), request):
        reason = _not_this(mode, request)
        message = (
            reason.message if translate.excluded(mode, request) else f"{request.count} devices are not {mode.name}"
        )
        kind = VagueError if isinstance(reason, VagueError) else CannotExpressError
        raise kind(reason.code, message, reason.fix)
    return request


def _told_by_resources(when: When, said: GpuRequest) -> When:
    """The condition without what resources do not tell: sharing, and models unless they are known."""
    models = when.models if said.models else frozenset[str]()
    return when if (models, None) == (when.models, when.sharing) else replace(when, models=models, sharing=None)


def gives(given: GpuRequest, asked: GpuRequest, card: Card | None) -> bool:
    """Whether `given` is at least `asked`, in devices, and in memory and compute of each."""
    if given.profile is not None or asked.profile is not None:
        return given.count >= asked.count and _enough_partition(given, asked, card)
    return (
        given.count >= asked.count
        and _enough_memory(given, asked, card)
        and (given.cores is None or given.cores >= (100 if asked.devices == "whole" else asked.cores or 0))
    )


def _enough_partition(given: GpuRequest, asked: GpuRequest, card: Card | None) -> bool:
    """Whether a partition is the requested one, or has the requested share. On an unknown card a share passes."""
    if asked.profile is not None or given.profile is None:
        return given.profile == asked.profile
    if asked.devices == "whole":
        return False
    return card is None or (
        given.profile in card.profiles and has_partition(card.profiles[given.profile], asked, card)
    )


def _enough_memory(given: GpuRequest, asked: GpuRequest, card: Card | None) -> bool:
    if given.memory is None and given.memory_share is None:
        return True
    if given.memory_share is not None and asked.memory is None:
        return given.memory_share >= (1 if asked.devices == "whole" else asked.memory_share or 0)
    if given.memory is not None and asked.memory is not None:
        return given.memory >= asked.memory
    if asked.devices == "whole" or card is None:
        # Bytes and parts of an unknown card cannot be compared: only a whole card is certainly more.
        return asked.devices != "whole"
    return (amounts.in_bytes(given, card) or 0) >= (amounts.in_bytes(asked, card) or 0)
