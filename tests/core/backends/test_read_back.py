"""Resources on a container, read back into what they stand for."""

from collections.abc import Mapping
from fractions import Fraction

import pytest

from tests import builders, tables
from tests.core import acme
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError
from webhook.core.request import GpuRequest

GI = 1 << 30
BACKENDS = builders.rulebook(builders.shipped_files()).backends
T4 = builders.rulebook(builders.shipped_files()).devices["t4"]


@pytest.mark.parametrize(
    ("backend", "limits", "request_"),
    [
        ("nvidia-gpu", {"nvidia.com/gpu": 2}, GpuRequest(count=2)),
        ("hami-vgpu", {"nvidia.com/gpu": 1}, GpuRequest()),
        ("hami-vgpu", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8192}, GpuRequest(memory=8 * GI)),
        ("hami-vgpu", {"nvidia.com/gpumem": 8192}, GpuRequest(memory=8 * GI)),
        (
            "hami-vgpu",
            {"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 30, "nvidia.com/gpucores": 30},
            GpuRequest(count=2, share=Fraction(3, 10), memory_share=Fraction(3, 10), cores=Fraction(30)),
        ),
        ("hami-vgpu", {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100}, GpuRequest()),
        ("hami-vgpu", {"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100}, GpuRequest()),
        ("tencent-qgpu", {"tke.cloud.tencent.com/qgpu-core": 200}, GpuRequest(count=2)),
        (
            "tencent-qgpu",
            {"tke.cloud.tencent.com/qgpu-core": 30, "tke.cloud.tencent.com/qgpu-memory": 8},
            GpuRequest(memory=8 * GI, cores=Fraction(30)),
        ),
        ("nvidia-mig-mixed", {"nvidia.com/mig-3g.40gb": 1}, GpuRequest(profile="3g.40gb")),
    ],
)
def test_what_a_back_end_writes_reads_back(backend: str, limits: Mapping[str, int], request_: GpuRequest) -> None:
    assert read_back.understand(limits, BACKENDS[backend])[0] == request_


@tables.rows
def test_what_no_back_end_could_have_written_is_refused_with_what_it_could(
    backend: str, limits: Mapping[str, int], message: str, fix: str
) -> None:
    with pytest.raises(CannotExpressError) as refused:
        read_back.understand(limits, BACKENDS[backend])

    assert (refused.value.code, refused.value.message, refused.value.fix) == ("GPU405", message, fix)


def test_a_constant_has_to_be_there_as_it_is() -> None:
    backend = acme.backend("modes: [{when: {devices: whole}, limits: {acme.example/x: 7, acme.example/n: count}}]")

    assert read_back.understand({"acme.example/x": 7, "acme.example/n": 2}, backend)[0] == GpuRequest(count=2)
    with pytest.raises(CannotExpressError) as refused:
        read_back.understand({"acme.example/x": 8, "acme.example/n": 2}, backend)
    assert (refused.value.message, refused.value.fix) == ("acme.example/x has to be 7, not 8", "write 7")


def test_a_total_is_divided_among_the_devices() -> None:
    backend = acme.backend(
        """
        modes:
        - limits: {acme.example/n: count, acme.example/memory: {memory: {unit: GiB, per: total}}}
        """
    )
    limits = {"acme.example/n": 2, "acme.example/memory": 16}

    assert read_back.understand(limits, backend)[0] == GpuRequest(count=2, memory=8 * GI)


@pytest.mark.parametrize(
    ("value", "request_"),
    [
        (100, GpuRequest()),
    ],
)
def test_a_share_is_of_memory_and_of_compute(value: int, request_: GpuRequest) -> None:
    backend = acme.backend("modes: [{when: {count: 1}, limits: {acme.example/share: {share: {max: 100}}}}]")

    assert read_back.understand({"acme.example/share": value}, backend)[0] == request_


HALF = GpuRequest(share=Fraction(1, 2), memory_share=Fraction(1, 2), cores=Fraction(50))


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (GpuRequest(count=2), GpuRequest(count=2)),
        (GpuRequest(count=3), GpuRequest(count=2)),
        (GpuRequest(), HALF),
        (HALF, HALF),
        (GpuRequest(memory=8 * GI), GpuRequest(memory=8 * GI)),
        (GpuRequest(memory=8 * GI), GpuRequest(memory_share=Fraction(1, 2))),
        (GpuRequest(memory_share=Fraction(6, 10)), GpuRequest(memory=9 * GI)),
        (GpuRequest(memory=8 * GI, cores=Fraction(30)), GpuRequest(memory=8 * GI)),
    ],
)
def test_at_least_as_much_is_enough(given: GpuRequest, asked: GpuRequest) -> None:
    assert read_back.gives(given, asked, T4)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        (GpuRequest(count=1), GpuRequest(count=2)),
        (HALF, GpuRequest()),
        (GpuRequest(memory=15 * GI), GpuRequest()),
        (GpuRequest(cores=Fraction(99)), GpuRequest()),
        (GpuRequest(memory_share=Fraction(49, 100), cores=Fraction(50)), HALF),
        (GpuRequest(memory_share=Fraction(50, 100), cores=Fraction(49)), HALF),
        (GpuRequest(memory=8 * GI - 1), GpuRequest(memory=8 * GI)),
        (GpuRequest(memory=7 * GI), GpuRequest(memory_share=Fraction(1, 2))),
        (GpuRequest(memory_share=Fraction(1, 2)), GpuRequest(memory=8 * GI)),
        (GpuRequest(profile="1g.10gb"), GpuRequest(profile="2g.20gb")),
        (GpuRequest(profile="1g.10gb"), GpuRequest()),
    ],
)
def test_less_of_anything_is_not(given: GpuRequest, asked: GpuRequest) -> None:
    assert not read_back.gives(given, asked, T4)


def test_bytes_and_parts_of_an_unknown_card_are_not_held_against_anybody() -> None:
    assert read_back.gives(GpuRequest(memory=GI), GpuRequest(memory_share=Fraction(1, 2)), None)
    assert not read_back.gives(GpuRequest(memory=GI), GpuRequest(), None)
