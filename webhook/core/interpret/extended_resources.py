"""The extended resources on a container that a rule knows, with the repairs they need; and numbers in metadata.

Kubernetes requires of an extended resource a whole number, a limit, and a request equal to it. It checks that only
after the mutating webhooks, so a fraction such as `nvidia.com/gpu: "0.5"` can still be read here as a share.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from webhook.core import request
from webhook.core.backends import translate
from webhook.core.interpret import locations
from webhook.core.kube import quantity
from webhook.core.kube.fields import Edit, Put, field_path
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction, QuantityError, show, show_size, shown
from webhook.core.request import KEYS, FieldValue, pasteable
from webhook.core.rules import verbs
from webhook.core.rules.modes import Output
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.verbs import CONTAINER as CONTAINER_HOLE
from webhook.core.rules.verbs import METADATA, Amount, Slot
from webhook.core.violations import AS_WRITTEN, Alternative, Readings, Violation, joined


@dataclass(slots=True)
class ExtendedResources:
    """The known resources of a container: whole amounts above zero, zeros, and fractions; `texts` as written.

    `words` are shorthand that is read instead of a resource.
    """

    amounts: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    zeros: set[str] = field(default_factory=set)
    fractions: dict[str, Fraction] = field(default_factory=dict)
    repairs: dict[str, Edit] = field(default_factory=dict)
    words: dict[str, FieldValue] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The one domain of Kubernetes whose resources are devices: a DRA device class by name (KEP-5004)."""

NO_RESOURCES: Final = ExtendedResources()
"""Of a container without known resources. It is shared and must not be changed."""


def read(
    container: Container, rulebook: Rulebook, slot_values: Mapping[str, str], instead: Readings = AS_WRITTEN
) -> ExtendedResources:
    """Every known resource of the container, with repairs and violations.

    `slot_values` are amounts for this container from annotations and labels of the pod, by slot.
    """
    resources, limits, requests = rulebook.resources, container.limits, container.requests
    if not slot_values and resources.keys().isdisjoint(limits) and resources.keys().isdisjoint(requests):
        return NO_RESOURCES
    native = ExtendedResources()
    for name, text in slot_values.items():
        _take(native, container, resources[name], text, instead)
    for name in sorted([key for key in limits if key in resources]):
        limit, requested = limits[name], requests.get(name, limits[name])
        if limit != requested and not quantity.same(limit, requested):
            native.violations.append(locations.overcommitted(container, name))
        else:
            _take(native, container, resources[name], limit, instead)
    # A request without a limit, which Kubernetes would refuse. It becomes a limit, unless the rule refuses it.
    for name in sorted([key for key in requests if key in resources and key not in limits]):
        requested, resource = requests[name], resources[name]
        _take(native, container, resource, requested, instead)
        if name not in {*native.amounts, *native.fractions, *native.zeros}:
            continue
        path = where(container, name)
        if resource.refuse_request_only:
            fix = f"write limits: {{{name}: {requested}}} instead of requests"
            native.violations.append(_violation("GPU404", container, resource, " is requested without a limit", fix))
            continue
        if name not in native.fractions:
            native.repairs[name] = Put((*container.path, "resources", "limits", name), requested, resource.rule)
        native.warnings.append(f"{path} has no limit; the webhook adds a limit of the same amount. Write limits only")
    return native


def where(container: Container, name: str) -> str:
    """The field path of a resource (in limits if it is there), or of the annotation or label of a slot."""
    if isinstance(name, Slot):
        return field_path(("metadata", f"{name.kind}s", name.named(container.name)))
    return field_path((*container.path, "resources", "limits" if name in container.limits else "requests", name))


def _take(native: ExtendedResources, container: Container, resource: Resource, value: Any, instead: Readings) -> None:
    """Add an amount to those of the container, or what is wrong with it."""
    name = resource.name
    text = value if isinstance(value, str) else quantity.text_of(value)
    if instead:
        key, text = instead.get(where(container, name), (name, text))
        if key in KEYS:
            native.words[key] = FieldValue(KEYS[key](text), where(container, name), text)
        if key != name:
            return
    try:
        amount = _amount(resource, text)
    except QuantityError as error:
        fix, example = error.fix, ", as 1"
        if fix.endswith(example):
            fix = f"{fix.removesuffix(example)}, as {min(_legal(resource, Fraction(1)), default=1)}"
        meant = request.devices_meant(text) if resource.counts else ()
        meant = [text for text in meant if text.replace(".", "").isdecimal()] or _as_percents(resource, text)
        native.violations.append(_violation("GPU403", container, resource, f": {error.message}", fix, meant))
        return
    if resource.digits:
        scale = 10**resource.digits
        most = max(getattr(output, "maximum", 0) or scale for output in _outputs(resource))
        if amount >= 1 and amount * scale > most:  # more than a part, or a percentage
            percent = [show(amount / 100)] if 1 < amount < 100 and amount.denominator == 1 else []
            message = f": {shown(text)} is more than {show(Fraction(most, scale))}, the most it can express"
            wrong = _violation("GPU403", container, resource, message, "", percent, [show(ceil(amount))])
            native.violations.append(wrong)
            return
        amount *= scale
        if amount.denominator != 1:
            low = amount.numerator // amount.denominator
            near = [show(Fraction(whole, scale)) for whole in (low, low + 1) if whole % scale]
            message = f": {shown(text)} has more than {resource.digits} decimals"
            native.violations.append(_violation("GPU402", container, resource, message, meant=near))
            return
    native.texts[name] = shown(text)
    if amount == 0:
        native.zeros.add(name)
    elif amount.denominator == 1:
        native.amounts[name] = amount.numerator
    elif resource.counts:
        native.fractions[name] = amount
    else:
        native.violations.append(not_whole(container, resource, amount, _as_percents(resource, text)))


def _as_percents(resource: Resource, text: str) -> Sequence[str]:
    """What to write where `50%`, `0.5` or `half` stands for a part in what counts parts; none for no part."""
    part = quantity.nearly(quantity.tidied(request.AMOUNTS.get(text.lower(), text)))
    outputs = [output for output in _outputs(resource) if isinstance(output, Amount)]
    units = [output.unit for output in outputs if output.unit_name == verbs.PERCENT]
    if part is None or not 0 < part <= 1 or not units:
        return ()
    near = sorted(_legal(resource, 100 * part / units[0]))
    return [show(Fraction(number, 10**resource.digits)) for number in near]


def _amount(resource: Resource, text: str) -> Fraction:
    unit = resource.memory_unit
    try:
        amount = quantity.with_suffix(text) if resource.digits else quantity.served(text)
    except QuantityError as error:
        try:
            in_bytes = quantity.size(text)
        except QuantityError:
            if unit is not None and quantity.nearly(quantity.tidied(text)) is None and quantity.sizes_meant(text):
                raise _other_unit(unit, text) from None
            raise QuantityError(error.message, error.fix.removesuffix(" or 0.5")) from None
        if resource.in_bytes:
            return Fraction(in_bytes)
        if unit is None:
            raise QuantityError(f'"{text}" is not a plain number', "write a plain number, as 1") from None
        raise _other_unit(unit, text) from None
    if resource.only_counts and amount > request.MAX_DEVICES:
        raise QuantityError(f'"{text}" is {amount} devices', "write a number of GPUs, as 1")
    if unit is None or amount * unit <= request.MAX_MEMORY:
        return amount
    if not text.isdecimal():
        raise _other_unit(unit, text)
    # A number of units that no GPU has: perhaps it is one of smaller units, which another back end counts in.
    smaller = {
        output.unit: owner
        for owner in resource.known
        for mode in owner.modes
        if owner not in resource.owners and isinstance(output := mode.amounts.get(resource.name), Amount)
    }
    fix, least = "write a smaller number, as 8", min(smaller, default=unit)
    if least < unit:
        enabled = " and ".join(owner.name for owner in resource.owners)
        fix += f", or have spec.backends of the Cluster document name {smaller[least].name} instead of {enabled}, "
        fix += f"if 1 is {show_size(int(least))} on your nodes"
    raise QuantityError(f"{int(text)} units of {show_size(int(unit))} are more memory than any GPU has", fix)


def _other_unit(unit: Fraction, text: str) -> QuantityError:
    fix = "write a smaller number, as 1024"
    for size in (text, *quantity.sizes_meant(text)):
        with suppress(QuantityError):
            fix = f"write {-(-in_bytes // unit)}" if (in_bytes := quantity.size(size)) else fix
            break
    return QuantityError(f'"{text}" is not a plain number; it counts units of {show_size(unit.numerator)}', fix)


def _outputs(resource: Resource) -> Iterator[Output]:
    """What the modes of the resource's back ends write there."""
    for owner in resource.owners or resource.known:
        yield from (mode.amounts[resource.name] for mode in owner.modes if resource.name in mode.amounts)


def _legal(resource: Resource, amount: Fraction) -> set[int]:
    """The numbers nearest to an amount, below and above, that a mode could have written."""
    numbers = {
        number
        for output in _outputs(resource)
        for number in (translate.near(output, amount) if isinstance(output, Amount) else [output.number])
    }
    below = sorted(number for number in numbers if number < amount)
    above = sorted(number for number in numbers if number >= amount)
    return {*below[-1:], *above[:1]}


def not_whole(container: Container, resource: Resource, amount: Fraction, meant: Sequence[str] = ()) -> Violation:
    """The violation (GPU402) for a fraction of what counts in whole numbers; `meant` are values to write."""
    message = f" is {show(amount)}, and it counts in whole numbers"
    meant = meant or [*map(str, sorted(_legal(resource, amount)))] or ["1"]
    return _violation("GPU402", container, resource, message, meant=meant)


def _violation(
    code: str,
    container: Container,
    resource: Resource,
    message: str,
    fix: str = "",
    meant: Sequence[str] = (),
    elsewhere: Sequence[str] = (),
) -> Violation:
    """A violation in the line of a resource, whose name begins the message; `meant` are values to write there.

    Where they give no GPU, as of what no enabled back end owns, the shorthand may, or values for `elsewhere`.
    """
    name, path = resource.name, where(container, resource.name)
    write = request.as_string if isinstance(name, Slot) else str
    values = [Alternative(f"write {write(text)}", {path: (name, text)}) for text in meant]
    words = [word for text in (*meant, *elsewhere) if (word := in_shorthand(container, resource, text))]
    return Violation(
        code=code,
        path=path,
        message=name.replace(CONTAINER_HOLE, container.name) + message,
        fix=joined(value.text for value in values or words[: len(elsewhere)]) or fix,
        rule=resource.rule,
        alternatives=[values, words],
    )


def in_shorthand(container: Container, resource: Resource, text: str) -> Alternative | None:
    """To ask for what a resource counts by the key of the shorthand for it; None if there is none."""
    wish = ("gpu", text)
    try:
        if not (resource.counts or resource.digits):
            wish = ("gpu-memory", show_size(int(_amount(resource, text) * (resource.memory_unit or 0))))
        KEYS[wish[0]](wish[1])
    except QuantityError:
        return None
    return Alternative(
        f"ask for {pasteable(*wish)} instead of {resource.name}", {where(container, resource.name): wish}
    )


def foreign(container: Container, rulebook: Rulebook) -> Iterator[str]:
    """Extended resources on the container that no rule knows."""
    for name in container.limits:
        core = "kubernetes.io/" in name and not name.startswith(DEVICE_CLASS)
        if "/" in name and name not in rulebook.resources and not core:
            yield name


# Amounts in annotations and labels of the pod.


def slot_values(pod: Pod, rulebook: Rulebook) -> dict[str, dict[str, str]]:
    """Amounts for enabled back ends in annotations and labels: by container, then by slot."""
    values: dict[str, dict[str, str]] = {}
    in_annotations = rulebook.slots["annotation"]
    for slot in rulebook.per_container if in_annotations and pod.annotations else ():
        for key in pod.annotations if slot.key in in_annotations else ():
            container = slot.container(key)
            if container is not None:
                values.setdefault(container, {})[slot] = quantity.text_of(pod.annotations[key])
    for section, kind in reversed(METADATA):  # annotations first
        present, numbers = getattr(pod, section), rulebook.slots[kind]
        for key in present if numbers else ():
            if key in numbers:
                for container in _addressed(pod, numbers[key], values):
                    values.setdefault(container, {})[numbers[key].name] = quantity.text_of(present[key])
    return values


def _addressed(pod: Pod, resource: Resource, values: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """The containers that an annotation or label of the pod applies to.

    These are the containers with resources of its back end, or with annotations of it for them alone, as far as they
    are `values`. A key that asks by itself applies to the container that another annotation names; without one, and
    if no container has such resources, to the first.
    """
    names = {name for owner in resource.owners or resource.known for name in owner.owns}
    named = [str(pod.annotations[key]) for key in resource.addresses if key in pod.annotations]
    if resource.alone and named:
        return named[:1]
    having = [name for name, amounts in values.items() if not names.isdisjoint(amounts)]
    if having:
        return having
    owned = {name for name in names if not isinstance(name, Slot)}
    for container in pod.containers:
        amounts = (container.limits.get(name, container.requests.get(name)) for name in owned)
        if any(amount is not None and str(amount) != "0" for amount in amounts):
            having.append(container.name)
    if having or not resource.alone:
        return having
    return [container.name for container in pod.containers if container.kind == "container"][:1]


def address(pod: Pod, container: str, resource: Resource) -> FieldValue:
    """The annotation that names the container for which an annotation or label of the pod asks, or does so itself."""
    if isinstance(resource.name, Slot) and resource.name.per_container:
        key = resource.name.named(container)
    else:
        key = next(key for key in resource.addresses if str(pod.annotations.get(key)) == container)
    text = str(pod.annotations[key])
    return FieldValue(text, field_path(("metadata", "annotations", key)), shown(text))
