"""Nobody gets less than was asked, and what one replica made is accepted by every other."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import jsonpatch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import clusters, tried
from tests.laws.asking import Asking, askings
from webhook.core import admit, inverse, native, pod, translate
from webhook.core.request import GpuRequest


def _stored(asked: Asking) -> tuple[str, dict[str, Any]]:
    """The back end that serves, and the pod as it would be stored; only pods that are admitted count."""
    decision = admit.mutate(builders.creating(asked.pod), asked.rulebook)
    assume(decision.allowed and asked.container in decision.backends)
    return decision.backends[asked.container], as_served(jsonpatch.apply_patch(asked.pod, decision.patch))


def _amounts(stored: Mapping[str, Any], asked: Asking) -> dict[str, int]:
    seen = pod.read(stored)
    container = next(container for container in seen.containers if container.name == asked.container)
    return native.read(container, asked.rulebook, {}).amounts


@tried(1_000)
@given(askings())
def test_the_resources_read_back_are_at_least_what_was_asked(asked: Asking) -> None:
    backend, stored = _stored(asked)
    amounts = _amounts(stored, asked)
    if not asked.form.startswith("native"):
        owner = asked.rulebook.backends[backend]
        given, _ = inverse.understand(amounts, owner)

        assert inverse.gives(given, asked.request, translate.find_card(asked.request, asked.rulebook, owner))


Limits = Mapping[str, int]
Given = tuple[int, Fraction, Fraction]
"""What limits come to: devices, bytes of each, percent of the compute of each."""


def _hami(limits: Limits, card: int) -> Given:
    percentage = Fraction(card * limits.get("nvidia.com/gpumem-percentage", 100), 100)
    memory = Fraction(limits["nvidia.com/gpumem"] << 20) if "nvidia.com/gpumem" in limits else percentage
    return limits["nvidia.com/gpu"], memory, Fraction(limits.get("nvidia.com/gpucores", 100))


def _qgpu(limits: Limits, card: int) -> Given:
    cores, memory = limits["tke.cloud.tencent.com/qgpu-core"], limits.get("tke.cloud.tencent.com/qgpu-memory")
    if memory is None:
        return cores // 100, Fraction(card), Fraction(100)
    return 1, Fraction(memory << 30), Fraction(cores)


def _counted(resource: str) -> Callable[[Limits, int], Given]:
    return lambda limits, card: (limits[resource], Fraction(card), Fraction(100))


BY_HAND: Mapping[str, Callable[[Limits, int], Given]] = {
    "nvidia-gpu": _counted("nvidia.com/gpu"),
    "amd-gpu": _counted("amd.com/gpu"),
    "hami-vgpu": _hami,
    "tencent-qgpu": _qgpu,
}
"""Back ends understood without their rules, from their vendors' documentation."""


def _wanted(request: GpuRequest, card: int, tflops: Fraction) -> Given:
    """The table of meanings, said once more."""
    whole = request.share is None and request.memory is None and request.tflops is None and request.cores is None
    memory = Fraction(card) if request.share is None else card * request.share
    cores = Fraction(100) if whole else Fraction(0)
    if request.share is not None and request.tflops is None:
        cores = 100 * request.share
    if "gpu-cores" in request.stated:
        cores = Fraction(request.stated["gpu-cores"].text)
    if request.tflops is not None:
        cores = 100 * request.tflops / tflops
    return request.count, memory if request.memory is None else Fraction(request.memory), cores


@tried(1_000)
@given(askings())
def test_the_vendors_reading_is_at_least_what_was_asked(asked: Asking) -> None:
    backend, stored = _stored(asked)
    if asked.form.startswith("native") or backend not in BY_HAND:
        return
    card = asked.rulebook.devices[asked.words.get("gpu-model", clusters.CARD).lower()]
    devices, memory, cores = BY_HAND[backend](_amounts(stored, asked), card.memory)
    least_devices, least_memory, least_cores = _wanted(asked.request, card.memory, card.tflops or Fraction(1))

    assert devices == least_devices
    assert memory >= least_memory
    assert cores >= least_cores


SHORTHAND = ("labels", "qualified annotations", "plain annotation", "container annotations")
SLICES: Mapping[str, tuple[int, int, int]] = {
    "nvidia.com/mig-1g.10gb": (1, 1, 9856),
    "nvidia.com/mig-1g.10gb.me": (1, 1, 9856),
    "nvidia.com/mig-1g.20gb": (2, 1, 19968),
    "nvidia.com/mig-2g.20gb": (2, 2, 19968),
    "nvidia.com/mig-3g.40gb": (4, 3, 40192),
    "nvidia.com/mig-4g.40gb": (4, 4, 40192),
    "nvidia.com/mig-7g.80gb": (8, 7, 80384),
}
"""The partitions of an A100 of 80 GB by NVIDIA's tables: eighths of its memory, sevenths of its compute, MiB."""


@tried(300)
@given(askings(SHORTHAND, ["nvidia-mig-mixed"]))
def test_a_partition_has_the_slices_that_were_asked(asked: Asking) -> None:
    assume(asked.words.get("gpu-model") in {None, "A100-80GB"} and "gpu-profile" not in asked.words)
    _, stored = _stored(asked)
    [(resource, count)] = _amounts(stored, asked).items()
    eighths, sevenths, mebibytes = SLICES[resource]
    request = asked.request

    assert count == request.count
    assert mebibytes << 20 >= (request.memory or 0)
    assert Fraction(eighths, 8) >= (request.memory_share or 0)
    assert Fraction(sevenths, 7) >= (request.cores or 0) / 100


@tried(1_000)
@given(askings(), st.sampled_from([clusters.ALL, *clusters.names()]))
def test_every_replica_accepts_what_another_made(asked: Asking, other: str) -> None:
    _, stored = _stored(asked)

    assert admit.validate(builders.creating(stored), clusters.rulebook(other)).violations == ()


@tried(1_000)
@given(askings(SHORTHAND))
def test_who_was_not_translated_is_not_let_in(asked: Asking) -> None:
    assume(admit.mutate(builders.creating(asked.pod), asked.rulebook).allowed)

    codes = [v.code for v in admit.validate(builders.creating(asked.pod), asked.rulebook).violations]

    assert codes == ["GPU601"]


@tried(1_000)
@given(askings())
def test_a_pod_that_exists_can_be_cleaned_up(asked: Asking) -> None:
    """Whatever stands in it: an update that changes nothing about GPUs is neither refused nor warned about."""
    cleaned = {**asked.pod, "metadata": {**asked.pod["metadata"], "finalizers": []}}
    decision = admit.validate(builders.updating(asked.pod, cleaned), asked.rulebook)

    assert (decision.allowed, list(decision.warnings)) == (True, [])
