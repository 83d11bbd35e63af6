"""NVIDIA's own systems: the device plugin with MIG, time-slicing and MPS, vGPUs in machines, DRA, and nos."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction

from tests.laws.vendors.seen import GIB, MIB, Given, Seen, counting

Slices = Mapping[str, tuple[int, int, int]]
"""By profile: GiB by its name, slices of memory, slices of compute."""


def _seven(one: int, double: int, half: int, all_of_it: int) -> Slices:
    return {
        f"1g.{one}gb": (one, 1, 1),
        f"1g.{one}gb+me": (one, 1, 1),
        f"1g.{double}gb": (double, 2, 1),
        f"2g.{double}gb": (double, 2, 2),
        f"3g.{half}gb": (half, 4, 3),
        f"4g.{half}gb": (half, 4, 4),
        f"7g.{all_of_it}gb": (all_of_it, 8, 7),
    }


_FOUR_24 = {"1g.6gb": (6, 1, 1), "2g.12gb": (12, 2, 2), "4g.24gb": (24, 4, 4)}
_FOUR_96 = {"1g.24gb": (24, 1, 1), "2g.48gb": (48, 2, 2), "4g.96gb": (96, 4, 4)}
MIG: Mapping[str, Slices] = {
    "A30": {**_FOUR_24, "1g.6gb+me": (6, 1, 1), "2g.12gb+me": (12, 2, 2)},
    "A100-40GB": _seven(5, 10, 20, 40),
    "A800-40GB": _seven(5, 10, 20, 40),
    "A100-80GB": _seven(10, 20, 40, 80),
    "A800-80GB": _seven(10, 20, 40, 80),
    "H100-80GB": _seven(10, 20, 40, 80),
    "H800": _seven(10, 20, 40, 80),
    "H100-94GB": _seven(12, 24, 47, 94),
    "H20": _seven(12, 24, 48, 96),
    "GH200-96GB": _seven(12, 24, 48, 96),
    "GH200-144GB": _seven(18, 36, 72, 144),
    "H20-3e": _seven(18, 35, 71, 141),
    "H200": _seven(18, 35, 71, 141),
    "B200": _seven(23, 45, 90, 180),
    "GB200": _seven(23, 47, 93, 186),
    "B300": _seven(34, 67, 135, 269),
    "GB300": _seven(35, 70, 139, 278),
    "RTX-PRO-6000": {
        **{name + extra: slices for name, slices in _FOUR_96.items() for extra in ("", "+gfx")},
        **{name + extra: _FOUR_96[name] for name in ("1g.24gb", "2g.48gb") for extra in ("+me.all", "-me")},
        "1g.24gb+me": (24, 1, 1),
    },
}
"""NVIDIA's tables of MIG, by card."""

USABLE: Mapping[str, Mapping[str, int]] = {
    "A30": {"1g": 5836, "2g": 11672, "4g": 23344},
    "A100-40GB": {"1g.5gb": 4864, "1g.10gb": 9856, "2g": 9856, "3g": 19968, "4g": 19968, "7g": 40192},
    "A100-80GB": {"1g.10gb": 9728, "1g.20gb": 19968, "2g": 19968, "3g": 40192, "4g": 40192, "7g": 80384},
}
"""What NVML says that a partition has, in MiB, where it is known."""


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
