"""The form of a `DeviceCatalog` document: card models with what sizes and names they have."""

from __future__ import annotations

from fractions import Fraction

from webhook.core import quantity
from webhook.core.device import Device, Profile
from webhook.core.document import Node, Problem, Section


def catalog(spec: Node, problems: list[Problem]) -> dict[str, Device]:
    """Read the spec of a catalogue: its devices by lower-case model, alias and product name."""
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), problems)
    vendor = section.need("vendor", Node.text, "")
    found: dict[str, Device] = {}
    for entry in section.need("devices", Node.elements, []):
        device, aliases = _device(entry, vendor, problems)
        for name in (device.model, *aliases, *device.names):
            found[name.lower()] = device
    section.done()
    return found


def _device(node: Node, vendor: str, problems: list[Problem]) -> tuple[Device, list[str]]:
    section = Section(node, problems)
    memory_slices, compute_slices = section.take("slices", lambda n: _slices(n, problems), (0, 0))
    nominal = section.need("memory", _size, 1)
    aliases = section.take("aliases", Node.texts, [])
    device = Device(
        model=section.need("model", Node.text, ""),
        vendor=vendor,
        names=tuple(section.take("names", Node.texts, [])),
        memory=section.take("usable", _size, nominal),
        nominal=nominal,
        tflops=section.take("tflops", _number, None),
        at=node.at,
        memory_slices=memory_slices,
        compute_slices=compute_slices,
        profiles=section.take("profiles", lambda n: _profiles(n, problems), {}),
    )
    section.done()
    for profile in device.profiles.values():
        _check_profile(profile, device, section)
    return device, aliases


def _check_profile(profile: Profile, device: Device, section: Section) -> None:
    """Complain of a partition that is more than its card."""
    if not device.memory_slices:
        section.complain(f"profiles need slices: {{memory: ..., compute: ...}}, what {profile.name} is a part of")
    elif profile.memory_slices > device.memory_slices or profile.compute_slices > device.compute_slices:
        section.complain(f"the profile {profile.name} has more slices than the card")
    elif profile.memory > device.nominal:
        section.complain(f"the profile {profile.name} has more memory than the card")


def _slices(node: Node, problems: list[Problem]) -> tuple[int, int]:
    section = Section(node, problems)
    memory = section.need("memory", lambda n: n.integer(1), 1)
    compute = section.need("compute", lambda n: n.integer(1), 1)
    section.done()
    return memory, compute


def _profiles(node: Node, problems: list[Problem]) -> dict[str, Profile]:
    return {name: _profile(name, entry, problems) for name, entry in node.items()}


def _profile(name: str, node: Node, problems: list[Problem]) -> Profile:
    section = Section(node, problems)
    profile = Profile(
        name=name,
        memory=section.need("memory", _size, 1),
        memory_slices=section.need("slices", lambda n: n.integer(1), 1),
        compute_slices=section.need("compute", lambda n: n.integer(1), 1),
        most=section.take("most", lambda n: n.integer(1), 1),
    )
    section.done()
    return profile


def _size(node: Node) -> int:
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        raise node.problem(f"has no unit; write {node.value}Mi or {node.value}Gi")
    try:
        return quantity.size(node.text())
    except quantity.QuantityError as error:
        raise node.problem(f"{error.message}; {error.fix}") from None


def _number(node: Node) -> Fraction:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float) or node.value <= 0:
        raise node.problem("has to be a number above 0")
    return Fraction(str(node.value))
