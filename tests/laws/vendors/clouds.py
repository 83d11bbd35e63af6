"""Cards as clouds share them: Alibaba, Tencent, Huawei, Baidu, Google, Amazon."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from tests.laws.vendors.nvidia import partition
from tests.laws.vendors.seen import GIB, MIB, Given, Seen, among, hundreds, percent


def _cgpu(seen: Seen) -> Given:
    """Nodes serve either memory alone or memory with compute; several cards share memory alone."""
    memory, cores, tflops = seen.of("aliyun.com/gpu-", "mem", "core.percentage", "core.tflops")
    cards = int(seen.labels.get("aliyun.com/gpu-count", "1"))
    mode = seen.nodes("ack.node.gpu.schedule")
    assert memory is not None
    if cores is None and tflops is None:
        assert mode
        assert "core_mem" not in mode
        assert memory % cards == 0
        return seen.sized(memory // cards * GIB, None, cards)
    assert (cards, list(mode)) == (1, ["core_mem"])
    if cores is not None:
        assert tflops is None
        return seen.sized(memory * GIB, percent(cores, step=5, low=5))
    assert tflops is not None
    assert seen.tflops is not None
    return seen.sized(memory * GIB, min(Fraction(100), 100 * tflops / seen.tflops))


_QGPU = "tke.cloud.tencent.com/qgpu-"


def _qgpu(seen: Seen) -> Given:
    """5 to 100 in fives, 100 for each whole card, or between 100 and 200 for two cards, which are rounded down."""
    core, memory, greedy = seen.of(_QGPU, "core", "memory", "core-greedy")
    role = seen.annotations.get("tke.cloud.tencent.com/app-class")
    if role in {"offline", "online"}:
        assert core is None
        assert memory is not None
        assert (greedy is None) == (role == "online")
        return seen.sized(memory * GIB, None if greedy is None else percent(greedy))
    assert greedy is None
    assert core is not None
    if 100 < core < 200:
        assert memory is not None
        return seen.sized(memory // 2 * GIB, Fraction(core // 2), 2)
    if core >= 100:
        return seen.whole(hundreds(core))
    assert memory is not None
    return seen.sized(memory * GIB, percent(core, step=5, low=5))


def _vcuda(seen: Seen) -> Given:
    """Below 100 a part of one card, which needs memory as well; else 100 for each card."""
    core, memory = seen.of("tencent.com/vcuda-", "core", "memory")
    assert core is not None
    if core >= 100:
        return seen.whole(hundreds(core))
    assert memory is not None
    return seen.sized(memory * 256 * MIB, percent(core))


def _each(total: int, cards: int) -> int:
    """The part of each card of a total that all of them can divide."""
    assert total % cards == 0
    return total // cards


def _xgpu(seen: Seen) -> Given:
    """Blocks of 128 MiB, and steps of 5 percent; a label makes them a total of several cards."""
    seen.scheduled("volcano")
    memory, cores = seen.of("volcano.sh/gpu-", "mem.128Mi", "core.percentage")
    cards = int(seen.labels.get("volcano.sh/gpu-num", "1"))
    assert memory is not None
    limit = None if cores is None else percent(_each(cores, cards), step=5, low=5)
    return seen.sized(_each(memory, cards) * 128 * MIB, limit, cards)


def _baidu(seen: Seen) -> Given:
    """Cards; a size in GiB or percent takes that part of each. A pod that limits no compute takes what is left."""
    seen.scheduled("volcano")
    cards, memory, part, cores = seen.of("baidu.com/v100_32g_cgpu", "", "_memory", "_memory_percent", "_core")
    assert cards is not None
    if memory is None and part is None:
        assert cores is None
        return seen.whole(cards)
    limit = None if cores is None else percent(_each(cores, cards), step=5, low=5)
    if part is not None:
        assert (memory, cards) == (None, 1)
        return seen.part(percent(part) / 100, limit)
    assert memory is not None
    return seen.sized(_each(memory, cards) * GIB, limit, cards)


def _gke_sharing(seen: Seen) -> Given:
    """One of so many clients of a card, never more than one for a container."""
    assert seen.limits["nvidia.com/gpu"] == 1
    [clients] = seen.nodes("cloud.google.com/gke-max-shared-clients-per-gpu")
    [strategy] = seen.nodes("cloud.google.com/gke-gpu-sharing-strategy")
    assert strategy in {"time-sharing", "mps"}
    assert 2 <= int(clients) <= 48
    return seen.part(Fraction(1, int(clients)), Fraction(100, int(clients)))


def _gke_mig(seen: Seen) -> Given:
    [profile] = seen.nodes("cloud.google.com/gke-gpu-partition-size")
    return partition(seen, profile, seen.limits["nvidia.com/gpu"])


def _gke_tpu(seen: Seen) -> Given:
    """The chips of a machine that is a slice by itself; two containers may have half of those of a TPU7x each."""
    chips = seen.limits["google.com/tpu"]
    machines = {
        math.prod(map(int, topology.split("x"))) for topology in seen.nodes("cloud.google.com/gke-tpu-topology")
    }
    assert machines == {4 if (seen.model, chips) == ("TPU7x", 2) else chips}
    return seen.whole(among(chips, (1, 2, 4, 8)))


def _aws_vgpu(seen: Seen) -> Given:
    """A tenth of a card; with more cards than one in a machine only one of them."""
    assert seen.limits["k8s.amazonaws.com/vgpu"] == 1
    assert "nvidia.com/gpu" not in seen.limits
    assert seen.spec["hostIPC"] is True
    assert seen.mounts("/tmp/nvidia-mps")  # noqa: S108  the path that the vendor's daemon has
    return seen.part(Fraction(1, 10), Fraction(10))


NEURON_CORES = {"Inferentia": 4, "Inferentia2": 2, "Trainium": 2, "Trainium2": 8, "Trainium3": 8}


def _neuron(seen: Seen) -> Given:
    """Devices, or cores: less than a device has, or a multiple of them."""
    devices, cores = seen.of("aws.amazon.com/", "neuron", "neuroncore")
    assert (devices is None) != (cores is None)
    if cores is None:
        return seen.whole(devices or 0)
    each = NEURON_CORES[seen.model]
    if cores < each:
        return seen.part(Fraction(cores, each), Fraction(100 * cores, each))
    assert cores % each == 0
    return seen.whole(cores // each)


READINGS: Mapping[str, Callable[[Seen], Given]] = {
    "aliyun-cgpu": _cgpu,
    "tencent-qgpu": _qgpu,
    "tencent-vcuda": _vcuda,
    "huawei-xgpu": _xgpu,
    "baidu-cgpu": _baidu,
    "gke-sharing": _gke_sharing,
    "gke-mig": _gke_mig,
    "gke-tpu": _gke_tpu,
    "aws-vgpu": _aws_vgpu,
    "aws-neuron": _neuron,
    "hami-neuron": lambda seen: _neuron(seen.scheduled("hami-scheduler")),
}
