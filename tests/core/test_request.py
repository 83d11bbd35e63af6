"""The words of the shorthand one by one, what they ask together, and what that is charged, in devices."""

import random
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from webhook.core.backends import charge
from webhook.core.kube.quantity import QuantityError
from webhook.core.request import KEYS, Devices, FieldValue, GpuRequest, build

Words = Mapping[str, str]

DEVICES = builders.rulebook(builders.shipped_files()).devices


def _devices(count: int, share: str | None = None) -> Devices:
    return Devices(count, None if share is None else Fraction(share))


def _request(words: Words) -> GpuRequest | None:
    return build({key: FieldValue(KEYS[key](text), f"metadata.labels.{key}", text) for key, text in words.items()})


@tables.rows
def test_a_word_means(key: str, text: str, meaning: Any) -> None:
    read = {"gpu": lambda devices: devices and _devices(**devices), "gpu-model": tuple}
    number = key in {"gpu-cores", "gpu-tflops"}

    assert KEYS[key](text) == (Fraction(meaning) if number else read.get(key, lambda same: same)(meaning))


@tables.rows
def test_a_word_that_means_nothing_is_refused_saying_how_to_write_it(key: str, text: str, message: str) -> None:
    with pytest.raises(QuantityError) as refused:
        KEYS[key](text)

    assert str(refused.value) == message


LETTERS = "0123456789..,,/%xX*me- +gGiBKMo\uff11\u00bd\u00b2\u00d7halfgpu"
ONE_VALUE = re.compile(r'write (\S+)|remove it, and write ([a-z-]+): "?([^"]+)"?')


@pytest.mark.parametrize("key", ["gpu", "gpu-memory", "gpu-cores", "gpu-tflops"])
def test_a_value_that_a_fix_names_is_one(key: str) -> None:
    texts, named = random.Random(key), 0  # noqa: S311 - no secret
    for _ in range(10_000):
        text = "".join(texts.choices(LETTERS, k=texts.randint(1, 6)))
        try:
            KEYS[key](text)
        except QuantityError as error:
            if match := ONE_VALUE.fullmatch(error.fix):
                KEYS[match[2] or key](match[1] or match[3])
                named += 1

    assert named > 100


@tables.rows
def test_devices_are_shown_in_the_shorthand(devices: Mapping[str, Any], text: str) -> None:
    assert str(_devices(**devices)) == text


@tables.rows
def test_a_form_means(words: Words, meaning: Mapping[str, Any] | None) -> None:
    assert _request(words) == builders.request(meaning)


@tables.rows
def test_a_form_takes_devices(words: Words, devices: str, has: list[str]) -> None:
    request = _request(words)

    assert request is not None
    assert (request.devices, request.has()) == (devices, set(has))


@tables.rows
def test_a_request_is_shown_as_the_shorthand_that_asks_for_it(words: Words, text: str) -> None:
    assert str(_request(words)) == text


@tables.rows
def test_a_form_is_charged(words: Words, card: str | None, devices: str) -> None:
    request = _request(words)

    assert request is not None
    assert charge.charge(request, None if card is None else DEVICES[card.lower()]) == Fraction(devices)
