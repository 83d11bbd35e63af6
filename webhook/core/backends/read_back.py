"""Read back: from the resources on a container to the request that they mean.

The modes of a back end are read in reverse. A value that no rule could have written is refused, with the nearest
possible ones. The result, in neutral form, can be compared with the shorthand, and judged.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from webhook.core.backends import translate
from webhook.core.backends.translate import CannotExpressError
from webhook.core.kube.quantity import Fraction
from webhook.core.request import MAX_MEMORY, GpuRequest, pasteable
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Mode, Output, When
from webhook.core.rules.verbs import PERCENT, Amount, Slot


class VagueError(CannotExpressError):
    """Its fix says what is to come of the change, and not which change."""


class NotThisModeError(CannotExpressError):
    """The mode could have written every value, but it is for other requests."""


class _NotThisRequestError(NotThisModeError, VagueError):
    """And nothing but the amounts tells."""


def understand(
    native: Mapping[str, int],
    backend: Backend,
    annotations: frozenset[str] = frozenset(),
    models: tuple[str, ...] = (),
) -> tuple[GpuRequest, Mode]:
    """The request that resources on a container mean; raises CannotExpressError if they mean none.

    `annotations` are the annotations of its pod that rules depend on, `models` the cards that the container may get.
    """
    bare = GpuRequest(annotations=annotations, models=models)
    reasons: list[CannotExpressError] = []
    modes = [mode for mode in backend.modes if _asking(native, mode).keys() <= mode.amounts.keys()]
    modes = modes or list(backend.modes)
    if not models:
        modes.sort(key=lambda mode: bool(mode.when.models))  # modes for a certain card come last
    for mode in modes:
        try:
            return _request_of(_asking(native, mode), mode, bare), mode
        except CannotExpressError as error:
            reasons.append(error)
    # The mode with most of the keys in common is the one that was meant.
    common = [len(native.keys() & mode.amounts.keys()) for mode in modes]
    wrong = [isinstance(reason, NotThisModeError) for reason in reasons]
    place = {id(mode): index for index, mode in enumerate(backend.modes)}
    meant = max(
        range(len(reasons)), key=lambda i: (common[i], wrong[i], modes[i].profile is None, place[id(modes[i])])
    )
    reason = reasons[meant]
    if not reason.near or reason.key not in native:
        raise reason
    # The nearest values that any mode takes.
    here, output = native[reason.key], modes[meant].amounts[reason.key]
    values = {value for other in reasons if other.key == reason.key for value in other.near}
    ends = (max((v for v in values if v < here), default=None), min((v for v in values if v > here), default=None))
    near = [value for value in ends if value is not None]
    message = reason.message
    if len(near) > 1 and not {*near} <= {*reason.near}:
        written, low, high = (translate.as_text(output, value) for value in (here, *near))
        message = f"{reason.key}: {written} is between {low} and {high}, the nearest it can express"
    raise CannotExpressError(reason.code, message, _write(output, near), reason.key, near)


def understand_or_advise(
    native: Mapping[str, int], backend: Backend, annotations: frozenset[str], models: tuple[str, ...]
) -> tuple[GpuRequest, Mode]:
    """The same with a fix that helps, if one change of an amount does: many readings, so for what a user reads."""
    try:
        return understand(native, backend, annotations, models)
    except CannotExpressError as error:
        reason = error
    if not (reason.near or isinstance(reason, VagueError)):
        raise reason

    def helps(name: str, value: int | None) -> bool:
        changed = {key: amount for key, amount in {**native, name: value}.items() if amount is not None}
        with contextlib.suppress(CannotExpressError):
            return bool(understand(changed, backend, annotations, models))
        return False

    outputs = {key: output for mode in backend.modes for key, output in mode.amounts.items()}
    if near := [value for value in reason.near if helps(reason.key, value)]:
        raise CannotExpressError(reason.code, reason.message, _write(outputs[reason.key], near), reason.key)
    counts = {1, *native.values(), *(end for mode in backend.modes for end in mode.when.count if end)}
    for name, amount in native.items():
        numbers = [output for mode in backend.modes if isinstance(output := mode.amounts.get(name), Amount)]
        nearest = {value for output in numbers for value in translate.near(output, Fraction(amount))}
        for value in sorted((counts | nearest) - {amount}, key=lambda end: (abs(end - amount), end)):
            if helps(name, value):
                fix = _write(outputs[name], [value])
                if outputs[name].what == "count" and value and amount % value == 0 and not isinstance(name, Slot):
                    fix = f"use {amount // value} pods, each with {name}: {value}"  # as many devices as asked for
                raise CannotExpressError(reason.code, reason.message, fix, name)
    if needless := next((name for name in native if len(native) > 1 and helps(name, None)), None):
        raise CannotExpressError(reason.code, reason.message, f"remove {needless}", needless)
    raise reason


def _write(output: Output, values: Sequence[int]) -> str:
    return f"write {' or '.join(translate.as_text(output, value) for value in values) or 'less'}"


def _asking(native: Mapping[str, int], mode: Mode) -> Mapping[str, int]:
    """The resources without what only the scheduler of the mode writes: it repeats what was asked."""
    if mode.companions is None or not mode.companions.reserved:
        return native
    reserved = {name for name in native if isinstance(name, Slot) and mode.companions.reserves(name.key)}
    return {name: value for name, value in native.items() if name not in reserved} if reserved else native


def _request_of(native: Mapping[str, int], mode: Mode, bare: GpuRequest) -> GpuRequest:
    """The request that a mode's amounts mean, without what it takes from `bare`."""
    count = _checked_count(native, mode, bare.annotations)
    numbers: dict[str, Any] = {"count": count}
    for resource, output in sorted(mode.amounts.items(), key=lambda entry: entry[1].most):
        number = native.get(resource)
        if number is None and (output.what, output.absent) == ("cores", "whole"):
            numbers.setdefault("cores", Fraction(100))
        if number is None or not isinstance(output, Amount) or output.what == "count":
            continue
        for key, amount in translate.as_fields(output, number, count).items():
            if output.most:  # of what a container may take at most, the greater counts
                numbers[key] = max(amount, numbers.get(key, amount))
            elif numbers.setdefault(key, amount) != amount:
                message = f"{resource} says another part of a device than the resources beside it"
                fix = f"remove {resource}" if output.absent is not None else f"write {resource} as large as those say"
                raise VagueError("GPU405", message, fix, resource)

    # The request, with whole devices recognised. Other requests must be of those that the mode is for.
    if mode.profile is not None:
        numbers = {"count": count, "profile": mode.profile}
    memory_share, cores = numbers.get("memory_share"), numbers.get("cores")
    sized = mode.size is not None or numbers.keys() & {"memory", "memory_share", "profile"}
    if mode.when.devices == "whole" or (not sized and cores in {None, 100}):
        # Whole devices, in whatever resource the mode has: count, models and annotations of the mode must match.
        request, when, model = replace(bare, count=count), mode.when, frozenset(["model"])
        told = replace(when, devices=None, has=when.has & model, lacks=when.lacks & model)
        if translate.matches(_told_by_resources(told, request), request):
            return request
        reason = _not_this(mode, request)
        message = reason.message if translate.excluded(mode, request) else f"{count} devices are not {mode.name}"
        raise (VagueError if isinstance(reason, VagueError) else CannotExpressError)("GPU405", message, reason.fix)
    if memory_share is not None and cores == 100 * memory_share:
        numbers["share"] = memory_share
    if mode.size is not None:
        numbers["memory"] = mode.size
    request = replace(bare, **numbers)
    if not mode.when.unannotated.isdisjoint(bare.annotations):
        raise _not_this(mode, request)
    if mode.when.devices == "profile" and request.devices == "part":
        return request  # a size that the back end makes a partition of; which one depends on the card
    if not translate.matches(_told_by_resources(mode.when, bare), request):
        raise _not_this(mode, request)
    return request


def _checked_count(native: Mapping[str, int], mode: Mode, annotations: frozenset[str]) -> int:
    """The number of devices; raises CannotExpressError for amounts that the mode could not have written."""
    for resource in sorted(native.keys() - mode.amounts.keys()):
        sizes = [name for name, output in mode.amounts.items() if output.what != "count" and not output.most]
        others = [name for name in sizes if name in native] or sizes or [*mode.amounts]
        message = f"{resource} does not go together with {' and '.join(others)}"
        raise CannotExpressError("GPU405", message, f"remove {resource}", resource)
    for annotation in sorted(mode.enforced - annotations):
        message = f"{', '.join(native)} is meant so only with the annotation {annotation.replace('=', ': ', 1)}"
        raise CannotExpressError("GPU405", message, f"annotate the pod {pasteable(*annotation.partition('=')[::2])}")
    for resource, output in mode.amounts.items():
        if resource not in native and output.absent is None:
            beside = next((name for name in native if isinstance(name, Slot) == isinstance(resource, Slot)), "")
            raise CannotExpressError("GPU405", f"{resource} is missing", f"add {resource}", beside)
    count = _count(native, mode)
    for resource, value in native.items():
        output = mode.amounts[resource]
        if not isinstance(output, Amount):
            if value != output.number:
                message = f"{resource} has to be {output.number}, not {value}"
                raise CannotExpressError("GPU405", message, f"write {output.number}", resource)
            continue
        times = count if output.per_total else 1  # devices that the value is for
        quotient = Fraction(value, times)
        near: list[int] = []
        if output.what == "memory" and output.unit_name != PERCENT and quotient * output.unit > MAX_MEMORY:
            reason = "is more memory than any GPU has"
        elif translate.admits(output, quotient):
            continue
        else:
            near = [times * option for option in translate.near(output, quotient)]
            reason = f"does not divide by {times} devices"
            if quotient.denominator == 1:
                reason = translate.why_not_admitted(output, quotient, partial(translate.as_text, output))
        message = f"{resource}: {translate.as_text(output, value)} {reason}"
        raise CannotExpressError("GPU405", message, _write(output, near), resource, near)
    return count


def _count(native: Mapping[str, int], mode: Mode) -> int:
    """The number of devices: a count, the number that the mode fixes, or derived from a total over all devices."""
    numbers = {name: output for name, output in mode.amounts.items() if isinstance(output, Amount)}
    counts = {name: output for name, output in numbers.items() if output.what == "count"}
    if number := next((native[name] for name in counts if name in native), None):
        return number
    for name, output in numbers.items() if mode.when.devices == "whole" else ():
        if output.what == "cores" and output.per_total and (name in native or not counts):
            value, device = native.get(name, 0), 100 / output.unit
            devices, rest = divmod(value, device)
            if rest or not devices:
                whole = [number for number in (devices, devices + 1) if number]
                near = [int(number * device) for number in whole if translate.admits(output, number * device)]
                message = f"{name}: {value} is not a whole number of devices"
                raise CannotExpressError("GPU405", message, f"write {' or '.join(map(str, near))}", name, near)
            return int(devices)
    absent = next((output.absent for output in counts.values() if isinstance(output.absent, int)), None)
    return absent or (1 if counts else mode.when.count[0])


def _not_this(mode: Mode, request: GpuRequest) -> CannotExpressError:
    """Why a mode is not for a request, and how to change that."""
    excluded = translate.excluded(mode, request)
    message, fix = excluded or (f"this is not {mode.name}", f"ask for {mode.name}")
    if missing := sorted(mode.when.annotated - request.annotations):
        fix = "annotate the pod " + " and ".join(pasteable(*name.partition("=")[::2]) for name in missing)
        return CannotExpressError("GPU405", message, fix)
    return (NotThisModeError if excluded else _NotThisRequestError)("GPU405", message, fix)


def _told_by_resources(when: When, request: GpuRequest) -> When:
    """The condition without what resources do not tell: sharing, and models unless they are known."""
    models = when.models if request.models else frozenset[str]()
    return when if (models, None) == (when.models, when.sharing) else replace(when, models=models, sharing=None)


def gives(given: GpuRequest, request: GpuRequest, card: Card | None) -> bool:
    """Whether `given` is at least `request`, in devices, and in memory and compute of each."""
    if given.count < request.count:
        return False
    whole = request.devices == "whole"
    if request.profile is not None:
        return given.profile == request.profile
    if given.profile is not None:
        # A partition gives a share that it has. On an unknown card any share passes.
        profile = card.profiles.get(given.profile) if card else None
        has = card is None or (profile is not None and translate.has_partition(profile, request, card))
        return not whole and has
    if given.cores is not None and given.cores < (100 if whole else request.cores or 0):
        return False
    if given.memory is None and given.memory_share is None:
        return True
    if given.memory_share is not None and request.memory is None:
        return given.memory_share >= (1 if whole else request.memory_share or 0)
    if given.memory is not None and request.memory is not None:
        return given.memory >= request.memory
    if whole or card is None:
        # Bytes and parts of an unknown card cannot be compared: only a whole card is certainly more.
        return not whole
    return (translate.in_bytes(given, card) or 0) >= (translate.in_bytes(request, card) or 0)
