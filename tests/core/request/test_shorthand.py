"""The words of the shorthand, one by one."""

from fractions import Fraction
from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("gpu", "1.5", "1.5 is neither a share of one GPU nor a whole number; ask for 1, 2 or 2x0.75"),
        ("gpu", "3.5", "3.5 is neither a share of one GPU nor a whole number; ask for 3, 4 or 4x0.875"),
        ("gpu", "2x0", "a share of 0 is nothing; write none for no GPU"),
        ("gpu", "0x0.5", "no pod gets 0 GPUs; write 1 to 1024"),
        ("gpu", "1025", "no pod gets 1025 GPUs; write 1 to 1024"),
        ("gpu", "101%", "101% is more than one GPU; write a number of GPUs, as 2, or 2x50%"),
        ("gpu", "-1", '"-1" is not a number of GPUs; write 1, 2, 0.5, 2x0.5 or none'),
        ("gpu", "1e1", '"1e1" is not a number of GPUs; write 1, 2, 0.5, 2x0.5 or none'),
        ("gpu", "two", '"two" is not a number of GPUs; write 2'),
        ("gpu", "Half", '"Half" is not a number of GPUs; write 0.5'),
        ("gpu", "all", '"all" is not a number of GPUs; write 1, or another number of GPUs'),
        ("gpu", ".5", '".5" is not a number of GPUs; write 0.5'),
        ("gpu", "0,3", '"0,3" is not a number of GPUs; write 0.3'),
        ("gpu", "1/2", '"1/2" is not a number of GPUs; write 0.5'),
        ("gpu", "6/3", '"6/3" is not a number of GPUs; write 2'),
        ("gpu", "3/2", '"3/2" is not a number of GPUs; write 1, 2, 0.5, 2x0.5 or none'),
        ("gpu", "1/0", '"1/0" is not a number of GPUs; write 1, 2, 0.5, 2x0.5 or none'),
        ("gpu", "8Gi", '"8Gi" is not a number of GPUs; remove it, and add gpu-memory: 8Gi'),
        ("gpu", "", '"" is not a number of GPUs; write 1, or none for no GPU'),
        ("gpu-memory", "0Gi", "0 is no memory; leave the key out for all of it"),
        ("gpu-cores", "0", "0 is not a percentage of one GPU; write 1 to 100"),
        ("gpu-cores", "101", "101 is not a percentage of one GPU; write 1 to 100"),
        ("gpu-tflops", "0", "0 is no compute; leave the key out for all of it"),
        ("gpu-model", "", '"" is not a name; write a name of letters and digits, as A10'),
        ("gpu-model", "T4,,A10", '"" is not a name; write a name of letters and digits, as A10'),
        ("gpu-backend", "a/b", '"a/b" is not a name; write a name of letters and digits, as A10'),
        (
            "gpu-sharing",
            "shared",
            '"shared" is not one of its values; write exclusive, fractional, partitioned, time-sliced or mps',
        ),
        ("gpu-placement", "pack", '"pack" is not one of its values; write binpack, spread or topology'),
    ],
)
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
