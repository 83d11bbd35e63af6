"""The words of the shorthand, one by one."""

from fractions import Fraction
from typing import Any

import pytest

from tests import tables
from webhook.core import request
from webhook.core.kube.quantity import QuantityError
from webhook.core.request import Devices

HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    ("key", "text", "meaning"),
    [
        ("gpu", "2", Devices(2)),
        ("gpu", "0.3", Devices(1, Fraction(3, 10))),
        ("gpu", "30%", Devices(1, Fraction(3, 10))),
        ("gpu", "2x0.5", Devices(2, HALF)),
        ("gpu", "2x50%", Devices(2, HALF)),
        ("gpu", "2x1", Devices(2)),
        ("gpu", "2x2", Devices(4)),
        ("gpu", "100%", Devices(1)),
        ("gpu", "1.0", Devices(1)),
        ("gpu", "1024", Devices(1024)),
        ("gpu", "none", None),
        ("gpu", "None", None),
        ("gpu", "NONE", None),
        ("gpu", "0", None),
        ("gpu", "0.0", None),
        ("gpu-memory", "8Gi", 8 << 30),
        ("gpu-cores", "30", Fraction(30)),
        ("gpu-cores", "30%", Fraction(30)),
        ("gpu-cores", "1.5", Fraction(3, 2)),
        ("gpu-cores", "100", Fraction(100)),
        ("gpu-model", "A100-80GB", ("A100-80GB",)),
        ("gpu-model", "T4, A10,T4", ("T4", "A10")),
        ("gpu-model", "NVIDIA A100 80GB PCIe", ("NVIDIA A100 80GB PCIe",)),
        ("gpu-profile", "1g.10gb", "1g.10gb"),
        ("gpu-profile", "1g.10gb.me", "1g.10gb+me"),
        ("gpu-profile", "1g.10gb+me", "1g.10gb+me"),
        ("gpu-profile", "cpx_nps4", "cpx_nps4"),
        ("gpu-sharing", "time-sliced", "time-sliced"),
        ("gpu-sharing", "Exclusive", "exclusive"),
        ("gpu-sharing", "TIME_SLICED", "time-sliced"),
        ("gpu-backend", "hami-vgpu", "hami-vgpu"),
        ("gpu-container", "main", "main"),
        ("gpu-tflops", "20", Fraction(20)),
        ("gpu-tflops", "6.5", Fraction(13, 2)),
        ("gpu-placement", "binpack", "binpack"),
        ("gpu-placement", "BinPack", "binpack"),
    ],
)
def test_a_word_means(key: str, text: str, meaning: Any) -> None:
    assert request.KEYS[key](text) == meaning


@tables.rows
def test_a_word_that_means_nothing_is_refused_saying_how_to_write_it(key: str, text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        request.KEYS[key](text)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("devices", "text"),
    [(Devices(2), "2"), (Devices(1, HALF), "0.5"), (Devices(2, HALF), "2x0.5"), (Devices(1, Fraction(1, 3)), "1/3")],
)
def test_devices_are_shown_in_the_shorthand(devices: Devices, text: str) -> None:
    assert str(devices) == text
