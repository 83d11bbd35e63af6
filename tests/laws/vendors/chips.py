"""Cards of other makers: AMD, Intel, and those that HAMi shares, Ascend apart."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from tests.laws.vendors.seen import GIB, MIB, Given, Seen, among, counting, hundreds, number, percent


def _amd_partition(seen: Seen) -> Given:
    """A mode of compute says in how many a card is cut; cpx is one for each of its dies."""
    [(name, count)] = [item for item in seen.limits.items() if item[0].startswith("amd.com/")]
    mode, _, memory = name.removeprefix("amd.com/").partition("_")
    assert memory in {"nps1", "nps2", "nps4", "nps8"}
    parts = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 6 if seen.model == "MI300A" else 8}[mode]
    return seen.part(Fraction(1, parts), Fraction(100, parts), count)


def _hami_amd(seen: Seen) -> Given:
    seen.scheduled("hami-scheduler")
    count, memory, cores = seen.of("amd.com/", "gpu", "gpumem", "gpucores")
    assert count is not None
    size = seen.memory if memory is None else memory * MIB
    return seen.sized(size, percent(100 if cores is None else cores), count)


def _cambricon(seen: Seen) -> Given:
    seen.scheduled("hami-scheduler")
    count, memory, cores = seen.of("cambricon.com/", "vmlu", "mlu.smlu.vmemory", "mlu.smlu.vcore")
    return _one_shared(seen, count, None if memory is None else memory * 256 * MIB, 100 if cores is None else cores)


def _hygon(seen: Seen) -> Given:
    seen.scheduled("hami-scheduler")
    count, memory, cores = seen.of("hygon.com/dcu", "num", "mem", "cores")
    return _one_shared(seen, count, None if memory is None else memory * MIB, 100 if cores is None else cores)


def _one_shared(seen: Seen, count: int | None, memory: int | None, cores: int | None) -> Given:
    """A part of one card, or whole ones, of which nothing but the count is told."""
    assert count is not None
    if count > 1:
        assert memory is None
        return seen.whole(count)
    return seen.sized(seen.memory if memory is None else memory, None if cores is None else percent(cores))


def _iluvatar(card: str) -> Callable[[Seen], Given]:
    def read(seen: Seen) -> Given:
        seen.scheduled("hami-scheduler")
        names = (f"iluvatar.ai/{card}{name}" for name in ("-vgpu", ".vMem", ".vCore"))
        return _vcuda(seen, *map(seen.limits.get, names))

    return read


def _vcuda(seen: Seen, count: int | None, memory: int | None, cores: int | None) -> Given:
    """Of several cards the compute is 100 for each; HAMi writes it so itself."""
    if (count or 1) > 1:
        assert cores in {None, 100 * (count or 1)}
        cores = None
    return _one_shared(seen, count, None if memory is None else memory * 256 * MIB, cores)


def _iluvatar_vcuda(seen: Seen) -> Given:
    """The vendor's own manager: without a count, 100 of compute for each card."""
    count, memory, cores = seen.of("iluvatar.ai/", "vgpu", "vcuda-memory", "vcuda-core")
    if count is None:
        count = 1 if cores is None or cores < 100 else hundreds(cores)
    return _vcuda(seen, count, memory, cores)


def _metax(seen: Seen) -> Given:
    """A bare number of memory is GiB; one with a suffix is what it says."""
    seen.scheduled("hami-scheduler")
    whole, count, cores = seen.of("metax-tech.com/", "gpu", "sgpu", "vcore")
    assert (whole is None) != (count is None)
    if whole is not None:
        return seen.whole(whole)
    memory = seen.text("metax-tech.com/vmemory")
    size = Fraction(seen.memory) if memory is None else number(memory) * (GIB if memory.isdigit() else 1)
    return seen.sized(size, percent(100 if cores is None else cores), count or 0)


def _moore_threads(seen: Seen) -> Given:
    seen.scheduled("hami-scheduler")
    count, memory, cores = seen.of("mthreads.com/", "vgpu", "sgpu-memory", "sgpu-core")
    assert count is not None
    if count > 1:
        assert memory in {None, 96 * count}
        assert cores in {None, 16 * count}
        return seen.whole(count)
    if memory is None:
        assert cores in {None, 16}
        return seen.whole(1)
    size = among(memory, (2, 4, 8, 16, 32, 64, 96)) * 512 * MIB
    return seen.sized(size, None if cores is None else Fraction(100 * among(cores, range(1, 17)), 16))


def _enflame(seen: Seen) -> Given:
    """Whole cards; or memory and compute, or slices, of one card, of which HAMi makes a partition that has both."""
    seen.scheduled("hami-scheduler")
    whole, slices, memory, cores = seen.of("enflame.com/", "gcu", "drs-gcu", "gcu-memory", "gcu-core")
    if whole is not None:
        seen.only("enflame.com/gcu")
        return seen.whole(whole)
    if slices is not None:
        seen.only("enflame.com/drs-gcu")
        part = Fraction(among(slices, (1, 3, 6)), 6)
        return seen.part(part, 100 * part)
    assert memory is not None or cores is not None
    assert memory is None or memory >= 1024
    return seen.sized(seen.memory if memory is None else memory * MIB, None if cores is None else percent(cores))


def _kunlunxin(seen: Seen) -> Given:
    """A quarter, a half, or all of a card: HAMi rounds memory up to them, and the compute goes with it."""
    seen.scheduled("hami-scheduler")
    whole, count, memory = seen.of("kunlunxin.com/", "xpu", "vxpu", "vxpu-memory")
    assert (whole is None) != (count is None)
    if memory is None:
        return seen.whole(whole or count or 0)
    assert count is not None
    quarter = next(quarter for quarter in (1, 2, 4) if memory <= quarter * 24576)
    return seen.part(Fraction(quarter, 4), Fraction(25 * quarter), count)


def _env_share(seen: Seen) -> Given:
    """One of ten turns on a card; several would be of as many cards."""
    seen.only("cambricon.com/mlu.share")
    assert seen.limits["cambricon.com/mlu.share"] == 1
    return seen.part(Fraction(1, 10), Fraction(10))


def _rngd(seen: Seen) -> Given:
    """Whole cards, or equal parts that are named after their cores, of which a card has eight, and their memory."""
    [(name, count)] = [item for item in seen.limits.items() if item[0].startswith("furiosa.ai/rngd")]
    seen.only(name)
    part = name.removeprefix("furiosa.ai/rngd")
    if not part:
        return seen.whole(count)
    cores, memory = {"-1core.6gb": (1, 6), "-2core.12gb": (2, 12), "-4core.24gb": (4, 24)}[part]
    return seen.sized(memory * GIB, Fraction(100 * cores, 8), count)


READINGS: Mapping[str, Callable[[Seen], Given]] = {
    "amd-gpu": counting("amd.com/gpu"),
    "amd-partition": _amd_partition,
    "hami-amd": _hami_amd,
    "intel-i915": counting("gpu.intel.com/i915"),
    "intel-xe": counting("gpu.intel.com/xe"),
    "intel-gaudi": counting("habana.ai/gaudi"),
    "iluvatar-gpu": counting("iluvatar.com/gpu"),
    "cambricon-mlu": counting("cambricon.com/mlu"),
    "cambricon-env-share": _env_share,
    "furiosa-rngd": _rngd,
    "rebellions-npu": counting(*(f"rebellions.ai/{name}" for name in ("npu", "ATOM", "REBEL"))),
    "hami-biren": counting("birentech.com/gpu"),
    "hami-vastai": counting("vastaitech.com/va"),
    "hami-cambricon": _cambricon,
    "hami-hygon": _hygon,
    **{f"hami-iluvatar-{card.lower()}": _iluvatar(card) for card in ("BI-V100", "BI-V150", "MR-V100", "MR-V50")},
    "iluvatar-vcuda": _iluvatar_vcuda,
    "hami-metax": _metax,
    "hami-moore-threads": _moore_threads,
    "hami-enflame": _enflame,
    "hami-kunlunxin": _kunlunxin,
}
