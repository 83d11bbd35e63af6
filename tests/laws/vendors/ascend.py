"""Huawei's Ascend, by MindCluster, by HAMi, and by Volcano with HAMi's plugin: a share is a template, or soft."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from tests import tables
from tests.laws.vendors.seen import MIB, Given, Seen, among, counting, percent

Template = tuple[int, int]
"""MB and AI cores."""

CHIPS: Mapping[str, Template] = tables.table(__file__, "chips")
TEMPLATES: Mapping[str, Sequence[Template]] = tables.table(__file__, "templates")


def _of(seen: Seen, template: Template) -> Given:
    memory, cores = template
    all_memory, all_cores = CHIPS[seen.model]
    return Given(
        devices=1,
        memory=Fraction(memory * MIB),
        part=Fraction(memory, all_memory),
        cores=Fraction(100 * cores, all_cores),
    )


def _with_cores(seen: Seen, cores: int) -> Given:
    return _of(seen, next(template for template in TEMPLATES[seen.model] if template[1] == cores))


def _static(seen: Seen) -> Given:
    """One device that was cut beforehand; its resource is named after its AI cores, CPUs and gigabytes."""
    [(name, count)] = [item for item in seen.limits.items() if item[0].startswith("huawei.com/")]
    kind, _, cut = name.removeprefix("huawei.com/").partition("-")
    assert count == 1
    assert kind == seen.model[:9] or (kind, seen.model) == ("Ascend310P", "Ascend310P")
    cores, *more = cut.split(".")
    given = _with_cores(seen, int(cores.removesuffix("c")))
    sizes = [int(part.removesuffix("g")) for part in more if part.endswith("g")]
    assert [size * 1024 * MIB for size in sizes] in ([], [given.memory])
    return given


def _dynamic(seen: Seen) -> Given:
    """AI cores: as many as a template has, or all of so many chips."""
    seen.scheduled("volcano").only("huawei.com/npu-core")
    cores, each = seen.limits["huawei.com/npu-core"], CHIPS[seen.model][1]
    assert seen.labels["ring-controller.atlas"] == ("ascend-310P" if each == 8 else "ascend-910b")
    assert seen.labels.get("vnpu-level") in {None, "low", "high"}
    assert seen.labels.get("vnpu-dvpp") in {None, "null", "yes", "no"}
    if cores % each == 0:
        return seen.whole(cores // each)
    return _with_cores(seen, among(cores, (1, 2, 4) if each == 8 else (each // 4, each // 2)))


def _soft(seen: Seen) -> Given:
    """Labels say memory and percent, and the resource has to be the percent again."""
    label = "huawei.com/scheduler.softShareDev."
    cores = percent(int(seen.labels[label + "aicoreQuota"]))
    seen.scheduled("volcano").only("huawei.com/Ascend910")
    assert seen.limits["huawei.com/Ascend910"] == cores
    assert seen.labels[label + "policy"] in {"fixed-share", "elastic", "best-effort"}
    assert seen.annotations["huawei.com/schedule_policy"] == "chip1-softShareDev"
    assert seen.nodes("huawei.com/scheduler.chip1softsharedev.enable") == ["true"]
    return seen.sized(int(seen.labels[label + "hbmQuota"]) * MIB, cores)


def _whole(resource: str) -> Callable[[Seen], Given]:
    def read(seen: Seen) -> Given:
        assert seen.labels["ring-controller.atlas"] in {"ascend-910", "ascend-910b", "ascend-npu", "ascend-310P"}
        given: Given = counting(resource)(seen)
        return given

    return read


def _hami(chip: str, scheduler: str = "hami-scheduler") -> Callable[[Seen], Given]:
    """The smallest template that has the memory, the whole chip above the largest; several chips are whole ones."""

    def read(seen: Seen) -> Given:
        seen.scheduled(scheduler)
        count, memory = seen.limits[f"huawei.com/{chip}"], seen.limits.get(f"huawei.com/{chip}-memory")
        assert f"huawei.com/{chip}-core" not in seen.limits
        assert chip != "Ascend910C" or count % 2 == 0
        templates = TEMPLATES[chip]
        if memory is None or memory > templates[-1][0]:
            assert memory is None or memory <= CHIPS[chip][0]
            return seen.whole(count)
        assert count == 1
        assert "huawei.com/vnpu-mode" not in seen.annotations
        return _of(seen, next(template for template in templates if template[0] >= memory))

    return read


def _by_core(seen: Seen) -> Given:
    assert seen.annotations["huawei.com/vnpu-mode"] == "hami-core"
    count, memory, cores = seen.of("huawei.com/Ascend910B3", "", "-memory", "-core")
    assert count == 1
    return seen.sized(seen.memory if memory is None else memory * MIB, None if cores is None else percent(cores))


def _named(system: str, chip: str) -> str:
    return f"{system}-{chip.lower().replace('ascend', 'ascend-')}"


READINGS: Mapping[str, Callable[[Seen], Given]] = {
    "ascend-910": _whole("huawei.com/Ascend910"),
    "ascend-310p": _whole("huawei.com/Ascend310P"),
    "ascend-soft-share": _soft,
    "ascend-vnpu-dynamic": _dynamic,
    "ascend-vnpu-dynamic-910b": _dynamic,
    "ascend-vnpu-static": _static,
    "ascend-vnpu-static-910a": _static,
    **{_named("hami", chip): _hami(chip) for chip in CHIPS},
    **{_named("volcano", chip): _hami(chip, "volcano") for chip in CHIPS if chip != "Ascend910C"},
    "hami-ascend-soft": lambda seen: _by_core(seen.scheduled("hami-scheduler")),
    "volcano-ascend-soft": lambda seen: _by_core(seen.scheduled("volcano")),
}
