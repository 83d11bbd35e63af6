"""The extended resources on a container that a rule knows, with the repairs they need.

Kubernetes requires of an extended resource a whole number, a limit, and a request equal to it. It checks that only
after the mutating webhooks, so a fraction such as `nvidia.com/gpu: "0.5"` can still be read here as a share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.core.backends import translate
from webhook.core.interpret import locations
from webhook.core.kube import quantity
from webhook.core.kube.fields import Edit, Path, Put
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction, QuantityError, show_size
from webhook.core.request import MAX_DEVICES, MAX_MEMORY, FieldValue
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.verbs import CONTAINER, Amount, Slot, SlotKind
from webhook.core.violations import Violation


@dataclass(slots=True)
class ExtendedResources:
    """The known resources of a container: whole amounts above zero, zeros, and fractions; `texts` as written."""

    amounts: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    zeros: set[str] = field(default_factory=set)
    fractions: dict[str, Fraction] = field(default_factory=dict)
    repairs: dict[str, Edit] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)


DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
"""The one domain of Kubernetes whose resources are devices: a DRA device class by name (KEP-5004)."""

NOTHING: Final = ExtendedResources()
"""Of a container without known resources. It is shared and must not be changed."""


def read(container: Container, rulebook: Rulebook, slot_values: Mapping[str, str]) -> ExtendedResources:
    """Every known resource of the container, with repairs and violations.

    `slot_values` are amounts for this container from annotations and labels of the pod, by slot.
    """
    resources = rulebook.resources
    if (
        not slot_values
        and resources.keys().isdisjoint(container.limits)
        and resources.keys().isdisjoint(container.requests)
    ):
        return NOTHING
    native = ExtendedResources()
    for name, text in slot_values.items():
        _take(native, container, resources[name], text)
    for name in sorted(key for key in container.limits if key in resources):
        _read_limit(native, container, resources[name])
    for name in sorted(key for key in container.requests if key in resources and key not in container.limits):
        _read_request(native, container, resources[name])
    return native


def where(container: Container, name: str) -> str:
    """The field path of a resource (in limits if it is there), or of the annotation or label of a slot."""
    if isinstance(name, Slot):
        return path_of(("metadata", f"{name.kind}s", name.named(container.name)))
    return path_of(_path(container, "limits" if name in container.limits else "requests", name))


def _path(container: Container, section: str, name: str) -> Path:
    return (*container.path, "resources", section, name)


def _read_limit(native: ExtendedResources, container: Container, resource: Resource) -> None:
    limit = container.limits[resource.name]
    request = container.requests.get(resource.name, limit)
    if not quantity.same(limit, request):
        native.violations.append(locations.overcommitted(container, resource.name))
        return
    _take(native, container, resource, limit)


def _read_request(native: ExtendedResources, container: Container, resource: Resource) -> None:
    """A request without a limit, which Kubernetes would refuse. It becomes a limit, unless the rule refuses it."""
    request = container.requests[resource.name]
    path = path_of(_path(container, "requests", resource.name))
    _take(native, container, resource, request)
    if resource.name not in {*native.amounts, *native.fractions, *native.zeros}:
        return
    if resource.refuse_request_only:
        native.violations.append(
            Violation(
                code="GPU404",
                path=path,
                message=f"{resource.name} is requested without a limit",
                fix=f"write limits: {{{resource.name}: {request}}} instead of requests",
                rule=resource.rule,
            )
        )
        return
    if resource.name not in native.fractions:
        native.repairs[resource.name] = Put(_path(container, "limits", resource.name), request, resource.rule)
    native.warnings.append(f"{path} has no limit; the webhook adds a limit of the same amount. Write limits only")


def _take(native: ExtendedResources, container: Container, resource: Resource, value: Any) -> None:
    text = quantity.text_of(value)
    try:
        amount = _amount(resource, text)
    except QuantityError as error:
        native.violations.append(_misread(container, resource, error))
        return
    if resource.digits:
        amount *= 10**resource.digits
        if amount.denominator != 1:
            native.violations.append(_too_fine(container, resource, text, amount))
            return
    native.texts[resource.name] = quantity.shown(text)
    if amount == 0:
        native.zeros.add(resource.name)
    elif amount.denominator == 1:
        native.amounts[resource.name] = amount.numerator
    elif resource.counts:
        native.fractions[resource.name] = amount
    else:
        native.violations.append(not_whole(container, resource, amount))


def _amount(resource: Resource, text: str) -> Fraction:
    try:
        amount = quantity.with_suffix(text) if resource.digits else quantity.served(text)
    except QuantityError as error:
        in_bytes = _size(text)
        if in_bytes is None:
            raise QuantityError(error.message, error.fix.removesuffix(" or 0.5")) from None
        if resource.in_bytes:
            return Fraction(in_bytes)
        raise _other_unit(resource, text, in_bytes) from None
    if resource.only_counts and amount > MAX_DEVICES:
        raise QuantityError(f'"{text}" is {amount} devices', "write a number of GPUs, as 1")
    if resource.memory_unit is not None and amount * resource.memory_unit > MAX_MEMORY:
        if text.isdecimal():
            raise _too_much(resource, int(text), resource.memory_unit)
        raise _other_unit(resource, text, _size(text))
    return amount


def _size(text: str) -> int | None:
    try:
        return quantity.size(text)
    except QuantityError:
        return None


def _other_unit(resource: Resource, text: str, in_bytes: int | None) -> QuantityError:
    if resource.memory_unit is None:
        return QuantityError(f'"{text}" is not a plain number', "write a plain number, as 1")
    unit = quantity.show_size(resource.memory_unit.numerator)
    fix = f"write {-(-in_bytes // resource.memory_unit)}" if in_bytes else "write a smaller number, as 1024"
    return QuantityError(f'"{text}" is not a plain number; it counts units of {unit}', fix)


def _too_much(resource: Resource, amount: int, unit: Fraction) -> QuantityError:
    """A number of units that no GPU has: perhaps it is one of smaller units, which another back end counts in."""
    others = [owner for owner in resource.known if owner not in resource.owners]
    units = {unit: owner for owner in others for unit in _units(resource, owner)}
    fix, least = "write a smaller number, as 8", min(units, default=unit)
    if least < unit:
        enabled = " and ".join(owner.name for owner in resource.owners)
        fix += f", or have spec.backends of the Cluster document name {units[least].name} instead of {enabled}, "
        fix += f"if 1 is {show_size(int(least))} on your nodes"
    return QuantityError(f"{amount} units of {show_size(int(unit))} are more memory than any GPU has", fix)


def _units(resource: Resource, owner: Backend) -> Iterator[Fraction]:
    numbers = (mode.amounts.get(resource.name) for mode in owner.modes)
    yield from (output.unit for output in numbers if isinstance(output, Amount))


_EXAMPLE: Final = ", as 1"


def _misread(container: Container, resource: Resource, error: QuantityError) -> Violation:
    fix = error.fix
    if fix.endswith(_EXAMPLE):
        fix = f"{fix.removesuffix(_EXAMPLE)}, as {min(_legal(resource, Fraction(1)), default=1)}"
    return Violation(
        code="GPU403",
        path=where(container, resource.name),
        message=f"{resource.name.replace(CONTAINER, container.name)}: {error.message}",
        fix=fix,
        rule=resource.rule,
    )


def _legal(resource: Resource, amount: Fraction) -> set[int]:
    """The numbers nearest to an amount, below and above, that a mode could have written."""
    modes = (mode.amounts.get(resource.name) for owner in resource.owners or resource.known for mode in owner.modes)
    outputs = [output for output in modes if output is not None]
    numbers = {
        number
        for output in outputs
        for number in (translate.near(output, amount) if isinstance(output, Amount) else [output.number])
    }
    below, above = (
        [number for number in numbers if number < amount],
        [number for number in numbers if number >= amount],
    )
    return {*sorted(below)[-1:], *sorted(above)[:1]}


def not_whole(container: Container, resource: Resource, amount: Fraction, fix: str = "") -> Violation:
    """The violation (GPU402) for a fraction of a resource that counts in whole numbers."""
    return Violation(
        code="GPU402",
        path=where(container, resource.name),
        message=f"{resource.name.replace(CONTAINER, container.name)} is {quantity.show(amount)}, and it counts in "
        "whole numbers",
        fix=fix or f"write {' or '.join(map(str, sorted(_legal(resource, amount)))) or '1'}",
        rule=resource.rule,
    )


def _too_fine(container: Container, resource: Resource, text: str, amount: Fraction) -> Violation:
    """The violation (GPU402) for more decimals than the rule writes; `amount` is in units of the last of these."""
    scale, low = 10**resource.digits, amount.numerator // amount.denominator
    near = [quantity.show(Fraction(whole, scale)) for whole in (low, low + 1) if whole % scale]
    name = resource.name.replace(CONTAINER, container.name)
    return Violation(
        code="GPU402",
        path=where(container, resource.name),
        message=f"{name}: {quantity.shown(text)} has more than {resource.digits} decimals",
        fix=f"write {' or '.join(near)}",
        rule=resource.rule,
    )


def foreign(container: Container, rulebook: Rulebook) -> Iterator[str]:
    """Extended resources on the container that no rule knows."""
    for name in container.limits:
        core = "kubernetes.io/" in name and not name.startswith(DEVICE_CLASS)
        if "/" in name and name not in rulebook.resources and not core:
            yield name


def slot_values(pod: Pod, rulebook: Rulebook) -> dict[str, dict[str, str]]:
    """Amounts for enabled back ends in annotations and labels: by container, then by slot."""
    values = _per_container(pod, rulebook)
    places: tuple[tuple[SlotKind, Mapping[str, Any]], ...]
    places = (("annotation", pod.annotations), ("label", pod.labels))
    for kind, present in places:
        numbers = rulebook.slots[kind]
        for key in present if numbers else ():
            if key in numbers:
                for container in _addressed(pod, numbers[key], values):
                    values.setdefault(container, {})[numbers[key].name] = quantity.text_of(present[key])
    return values


def _per_container(pod: Pod, rulebook: Rulebook) -> dict[str, dict[str, str]]:
    """Amounts in annotations whose keys name the container: by container, then by slot."""
    values: dict[str, dict[str, str]] = {}
    for slot in rulebook.per_container if rulebook.slots["annotation"] else ():
        for key in pod.annotations if slot.key in rulebook.slots["annotation"] else ():
            container = slot.container(key)
            if container is not None:
                values.setdefault(container, {})[slot] = quantity.text_of(pod.annotations[key])
    return values


def _addressed(pod: Pod, resource: Resource, values: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """The containers that an annotation or label of the pod applies to.

    These are the containers with resources of its back end, or with annotations of it for them alone, as far as they
    are `values`. A key that asks by itself applies to the container that another annotation names; without one, and
    if no container has such resources, to the first.
    """
    names = {name for owner in resource.owners or resource.known for name in owner.owns}
    owned = {name for name in names if not isinstance(name, Slot)}
    named = [str(pod.annotations[key]) for key in resource.addresses if key in pod.annotations]
    if resource.alone and named:
        return named[:1]
    having = [name for name, amounts in values.items() if not names.isdisjoint(amounts)]
    having = having or [
        container.name for container in pod.containers if any(_is_some(container, name) for name in owned)
    ]
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
    return FieldValue(text, path_of(("metadata", "annotations", key)), quantity.shown(text))


def _is_some(container: Container, name: str) -> bool:
    """Whether a container has more than zero of a resource."""
    amount = container.limits.get(name, container.requests.get(name))
    return amount is not None and str(amount) != "0"
