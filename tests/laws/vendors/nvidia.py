"""NVIDIA's own systems: the device plugin with MIG, time-slicing and MPS, vGPUs in machines, DRA, and nos."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from tests import tables
from tests.laws.vendors.seen import GIB, MIB, Given, Seen, counting

MIG: Mapping[str, Mapping[str, tuple[int, int, int]]] = tables.table(__file__, "mig")
USABLE: Mapping[str, Mapping[str, int]] = tables.table(__file__, "usable")


def partition(seen: Seen, profile: str, devices: int) -> Given:
    """So many MIG devices of one profile."""
    assert profile in MIG[seen.model], f"{seen.model} has no {profile}"
    gigabytes, memory_slices, compute_slices = MIG[seen.model][profile]
    plain = profile.partition("+")[0]
    usable = USABLE.get(seen.model, {})
    known = usable.get(plain) or usable.get(plain.split(".")[0])
    card = MIG[seen.model]
    most_memory, most_compute = max(one[1] for one in card.values()), max(one[2] for one in card.values())
    assert devices >= 1
    return Given(
        devices=devices,
        memory=Fraction(known * MIB if known else gigabytes * GIB),
        part=Fraction(memory_slices, most_memory),
        cores=Fraction(100 * compute_slices, most_compute),
    )


def mixed(seen: Seen) -> Given:
    """One resource for each profile; `+` is written as a dot."""
    [(name, count)] = [(name, count) for name, count in seen.limits.items() if name.startswith("nvidia.com/mig-")]
    seen.only(name)
    dotted = name.removeprefix("nvidia.com/mig-")
    [profile] = [one for one in MIG[seen.model] if one.replace("+", ".") == dotted]
    return partition(seen, profile, count)


def _single(seen: Seen) -> Given:
    """The node label of the product names the profile, its plus left out."""
    seen.only("nvidia.com/gpu")
    products = seen.nodes("nvidia.com/gpu.product")
    profiles = {product.partition("-MIG-")[2] for product in products}
    assert len(profiles) == 1
    spelled = {re.sub(r"[^A-Za-z0-9._-]", "", profile): profile for profile in MIG[seen.model]}
    return partition(seen, spelled[profiles.pop()], seen.limits["nvidia.com/gpu"])


def _replica(strategy: str) -> Callable[[Seen], Given]:
    """One of ten replicas of a card: more than one is refused by the kubelet, or gives no more."""

    def read(seen: Seen) -> Given:
        assert seen.limits["nvidia.com/gpu"] == 1
        assert seen.nodes("nvidia.com/gpu.sharing-strategy") == [strategy]
        return seen.part(Fraction(1, 10), Fraction(10))

    return read


def _grid(seen: Seen) -> Given:
    """A vGPU is a card to its machine; the label of its memory tells the type."""
    seen.only("nvidia.com/gpu")
    assert seen.nodes("nvidia.com/vgpu.present") == ["true"]
    sizes = seen.nodes("nvidia.com/gpu.memory")
    if not sizes:
        return seen.whole(seen.limits["nvidia.com/gpu"])
    [size] = sizes
    given = seen.sized(int(size) * MIB, None, seen.limits["nvidia.com/gpu"])
    assert int(size) % 1024 == 0
    return given


def _templates(seen: Seen) -> Given:
    """A claim is made by a template, which is named after what it asks for."""
    [template] = seen.templates
    profiles = [profile for profile in MIG.get(seen.model, ()) if template.endswith(f"-{profile.replace('+', '-')}")]
    return partition(seen, max(profiles, key=len), 1) if profiles else seen.whole(1)


def _nos(seen: Seen) -> Given:
    """Slices of MPS by whole GB, one to a container, for the user of the MPS server."""
    [(name, count)] = [item for item in seen.limits.items() if item[0].startswith("nvidia.com/gpu")]
    match = re.fullmatch(r"nvidia\.com/gpu-([0-9]+)gb", name)
    assert match
    assert count == 1
    assert seen.spec["hostIPC"] is True
    assert seen.spec["securityContext"]["runAsUser"] == 1000
    return seen.sized(int(match[1]) * GIB, None)


READINGS: Mapping[str, Callable[[Seen], Given]] = {
    "nvidia-gpu": counting("nvidia.com/gpu"),
    "aks-gpu": counting("nvidia.com/gpu"),
    "gke-gpu": counting("nvidia.com/gpu"),
    "dra-extended-resource": counting("nvidia.com/gpu", "deviceclass.resource.kubernetes.io/gpu.nvidia.com"),
    "nvidia-mig-mixed": mixed,
    "nvidia-mig-single": _single,
    "nvidia-time-slicing": _replica("time-slicing"),
    "nvidia-mps": _replica("mps"),
    "nvidia-grid": _grid,
    "dra-claim-template": _templates,
    "nos-mps": _nos,
}
