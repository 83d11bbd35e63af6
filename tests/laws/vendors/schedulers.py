"""Schedulers that share NVIDIA's cards: HAMi, Volcano, Koordinator, KAI and Run:ai, Elastic GPU."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from tests.laws.vendors.nvidia import MIG, mixed, partition
from tests.laws.vendors.seen import GIB, MIB, Given, Seen, counting, hundreds, percent

_INT32 = 2**31 - 1


def _shares(seen: Seen, memory: int | None, percentage: int | None, cores: int | None, devices: int) -> Given:
    """MiB before percent; without either all of the memory; compute that is not given is not limited."""
    limit = None if cores is None else percent(cores)
    if memory is not None:
        assert memory <= _INT32
        return seen.sized(memory * MIB, limit, devices)
    return seen.part(percent(100 if percentage is None else percentage) / 100, limit, devices)


def _hami(seen: Seen) -> Given:
    count, memory, percentage, cores = seen.of("nvidia.com/", "gpu", "gpumem", "gpumem-percentage", "gpucores")
    seen.scheduled("hami-scheduler")
    assert count is not None
    assert seen.annotations.get("nvidia.com/vgpu-mode") in {None, "hami-core"}
    return _shares(seen, memory, percentage, cores, count)


def _hami_mig(seen: Seen) -> Given:
    """The smallest partition of HAMi's list that has the memory: the plain ones, and a 4g where there is no 3g.

    The memory is in MiB, else in percent of the card's; compute says nothing more.
    """
    seen.scheduled("hami-scheduler")
    seen.only("nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
    assert seen.annotations["nvidia.com/vgpu-mode"] == "mig"
    card = MIG[seen.model]
    plain = {name: slices for name, slices in card.items() if "+" not in name and "-" not in name}
    listed = {
        name: slices
        for name, slices in plain.items()
        if not (name.startswith("4g") and any(other.startswith("3g") for other in plain))
        and not (name.startswith("1g") and slices[1] > 1)
    }
    share = percent(seen.limits.get("nvidia.com/gpumem-percentage", 100))
    asked = seen.limits.get("nvidia.com/gpumem", int(seen.memory // MIB * share // 100))
    enough = [name for name, slices in listed.items() if slices[0] * 1024 >= asked]
    assert enough
    return partition(seen, min(enough, key=lambda name: listed[name]), seen.limits["nvidia.com/gpu"])


def _volcano(seen: Seen) -> Given:
    count, memory, percentage, cores = seen.of("volcano.sh/vgpu-", "number", "memory", "memory-percentage", "cores")
    seen.scheduled("volcano")
    assert count is not None
    assert seen.annotations["volcano.sh/vgpu-mode"] == "hami-core"
    assert memory is None or percentage is None
    return _shares(seen, memory, percentage, cores, count)


def _volcano_memory(seen: Seen) -> Given:
    seen.scheduled("volcano").only("volcano.sh/gpu-memory")
    given = seen.sized(seen.limits["volcano.sh/gpu-memory"] * MIB, None)
    assert given.part <= 1
    return given


def _koordinator(seen: Seen) -> Given:
    """One of the combinations that Koordinator lists; with gpu.shared, amounts are of all cards together."""
    seen.scheduled("koord-scheduler")
    limits = {name.removeprefix("koordinator.sh/"): value for name, value in seen.limits.items()}
    if "nvidia.com/gpu" in limits:
        seen.only("nvidia.com/gpu")
        assert not any(name.startswith("koordinator.sh/") for name in seen.limits)
        return seen.whole(limits["nvidia.com/gpu"])
    if "gpu" in limits:
        seen.only("koordinator.sh/gpu")
        value = limits["gpu"]
        return seen.part(Fraction(value, 100), Fraction(value)) if value < 100 else seen.whole(hundreds(value))
    ratio, memory, cores = limits.get("gpu-memory-ratio"), limits.get("gpu-memory"), limits.get("gpu-core")
    assert (ratio is None) != (memory is None)
    cards = limits.get("gpu.shared") or (1 if ratio is None or ratio <= 100 else hundreds(ratio))
    limit = None if cores is None else percent(_divided(cores, cards))
    if memory is not None:
        return seen.sized(Fraction(memory, cards), limit, cards)
    return seen.part(percent(_divided(ratio or 0, cards)) / 100, limit, cards)


def _divided(value: int, cards: int) -> int:
    assert value % cards == 0
    return value // cards


def _kai(scheduler: str) -> Callable[[Seen], Given]:
    """Annotations ask for a part, resources for whole cards and MIG; never both."""

    def read(seen: Seen) -> Given:
        seen.scheduled(scheduler)
        fraction, memory = seen.annotations.get("gpu-fraction"), seen.annotations.get("gpu-memory")
        if any(name.startswith("nvidia.com/mig-") for name in seen.limits):
            return mixed(seen)
        if "nvidia.com/gpu" in seen.limits:
            assert fraction is None
            assert memory is None
            return seen.whole(seen.limits["nvidia.com/gpu"])
        assert (fraction is None) != (memory is None)
        first: str = seen.spec["containers"][0]["name"]
        assert seen.annotations.get("gpu-fraction-container-name", first) == seen.container
        devices = int(seen.annotations.get("gpu-fraction-num-devices", "1"))
        if fraction is None:
            return seen.sized(int(memory or 0) * MIB, None, devices)
        assert 0 < Fraction(fraction) < 1
        assert "." in fraction
        return seen.part(Fraction(fraction), None, devices)

    return read


def _elastic(seen: Seen) -> Given:
    core, memory = seen.of("elasticgpu.com/gpu-", "core", "memory")
    assert core is not None or memory is not None
    if core is not None and core >= 100 and memory is None:
        return seen.whole(hundreds(core))
    size = seen.memory if memory is None else memory * MIB
    return seen.sized(size, None if core is None else percent(core))


def _gpushare(unit: int) -> Callable[[Seen], Given]:
    """Memory of one card, and nothing else; compute is not limited."""

    def read(seen: Seen) -> Given:
        seen.only("aliyun.com/gpu-mem")
        assert "nvidia.com/gpu" not in seen.limits
        return seen.sized(seen.limits["aliyun.com/gpu-mem"] * unit, None)

    return read


READINGS: Mapping[str, Callable[[Seen], Given]] = {
    "hami-vgpu": _hami,
    "hami-mig": _hami_mig,
    "volcano-vgpu": _volcano,
    "volcano-gpu-memory": _volcano_memory,
    "volcano-gpu-number": counting("volcano.sh/gpu-number"),
    "koordinator": _koordinator,
    "kai": _kai("kai-scheduler"),
    "runai": _kai("runai-scheduler"),
    "elastic-gpu": _elastic,
    "aliyun-gpushare": _gpushare(GIB),
    "aliyun-gpushare-mib": _gpushare(MIB),
}
