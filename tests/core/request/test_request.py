"""The table of meanings: what each form asks, and what it is charged, in devices."""

from fractions import Fraction

import pytest

from tests import builders, tables
from webhook.core.backends import charge
from webhook.core.request import KEYS, FieldValue, GpuRequest, build

GI = 1 << 30
TENTH = Fraction(1, 10)
DEVICES = builders.rulebook(builders.shipped_files()).devices


def _request(**words: str) -> GpuRequest | None:
    """What the words mean together; `gpu_memory` stands for `gpu-memory`."""
    said = {key.replace("_", "-"): text for key, text in words.items()}
    return build({key: FieldValue(KEYS[key](text), f"metadata.labels.{key}", text) for key, text in said.items()})


SHARE = GpuRequest(share=3 * TENTH, memory_share=3 * TENTH, cores=Fraction(30))


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ({"gpu": "2"}, GpuRequest(count=2)),
        ({"gpu": "0.3"}, SHARE),
        ({"gpu": "2x0.5"}, GpuRequest(count=2, share=5 * TENTH, memory_share=5 * TENTH, cores=Fraction(50))),
        ({"gpu_memory": "8Gi"}, GpuRequest(memory=8 * GI)),
        ({"gpu": "1", "gpu_memory": "8Gi"}, GpuRequest(memory=8 * GI)),
        ({"gpu": "0.3", "gpu_memory": "8Gi"}, GpuRequest(share=3 * TENTH, memory=8 * GI, cores=Fraction(30))),
        ({"gpu": "0.3", "gpu_cores": "50"}, GpuRequest(share=3 * TENTH, memory_share=3 * TENTH, cores=Fraction(50))),
        ({"gpu_cores": "40"}, GpuRequest(cores=Fraction(40))),
        (
            {"gpu": "0.3", "gpu_tflops": "20"},
            GpuRequest(share=3 * TENTH, memory_share=3 * TENTH, tflops=Fraction(20)),
        ),
        ({"gpu_profile": "1g.10gb"}, GpuRequest(profile="1g.10gb")),
        ({"gpu": "1", "gpu_model": "T4"}, GpuRequest(models=("T4",))),
        ({"gpu": "none"}, None),
        ({"gpu": "0"}, None),
        ({"gpu_model": "T4"}, None),
        ({}, None),
    ],
)
def test_a_form_means(words: dict[str, str], meaning: GpuRequest | None) -> None:
    assert _request(**words) == meaning


@pytest.mark.parametrize(
    ("words", "devices", "has"),
    [
        ({"gpu": "2"}, "whole", set()),
        ({"gpu": "0.3"}, "part", {"share", "cores"}),
        ({"gpu_memory": "8Gi"}, "part", {"memory"}),
        ({"gpu_cores": "40"}, "part", {"cores"}),
        ({"gpu_tflops": "20", "gpu_model": "T4"}, "part", {"model"}),
        ({"gpu_profile": "1g.10gb"}, "profile", {"profile"}),
    ],
)
def test_a_form_takes_devices(words: dict[str, str], devices: str, has: set[str]) -> None:
    request = _request(**words)

    assert request is not None
    assert (request.devices, request.has()) == (devices, has)


@tables.rows
def test_a_request_is_shown_as_the_shorthand_that_asks_for_it(words: dict[str, str], text: str) -> None:
    assert str(_request(**words)) == text


@pytest.mark.parametrize(
    ("words", "card", "devices"),
    [
        ({"gpu": "2"}, "T4", Fraction(2)),
        ({"gpu": "0.3"}, "T4", 3 * TENTH),
        ({"gpu": "0.3"}, None, 3 * TENTH),
        ({"gpu": "2x0.5"}, "T4", Fraction(1)),
        ({"gpu_memory": "8Gi"}, "T4", Fraction(8, 15)),
        ({"gpu_memory": "8Gi"}, None, Fraction(1)),
        ({"gpu_memory": "99Gi"}, "T4", Fraction(1)),
        ({"gpu": "2", "gpu_memory": "3Gi"}, "T4", Fraction(2, 5)),
        ({"gpu": "0.3", "gpu_memory": "8Gi"}, "T4", Fraction(8, 15)),
        ({"gpu": "0.9", "gpu_memory": "8Gi"}, "T4", 9 * TENTH),
        ({"gpu": "0.3", "gpu_cores": "50"}, "T4", 5 * TENTH),
        ({"gpu_cores": "40"}, "T4", Fraction(1)),
        ({"gpu": "0.3", "gpu_tflops": "65"}, "T4", Fraction(1)),
        ({"gpu": "0.3", "gpu_tflops": "13"}, "T4", 3 * TENTH),
        ({"gpu": "0.3", "gpu_tflops": "13"}, None, Fraction(1)),
        ({"gpu_profile": "1g.10gb"}, "A100", Fraction(1, 7)),
        ({"gpu_profile": "1g.20gb"}, "A100", Fraction(2, 8)),
        ({"gpu": "2", "gpu_profile": "7g.80gb"}, "A100", Fraction(2)),
        ({"gpu_profile": "1g.10gb"}, None, Fraction(1)),
    ],
)
def test_a_form_is_charged(words: dict[str, str], card: str | None, devices: Fraction) -> None:
    request = _request(**words)

    assert request is not None
    assert charge.charge(request, None if card is None else DEVICES[card.lower()]) == devices
