"""The order of keys and of containers says nothing."""

import random
from collections.abc import Mapping
from typing import Any

import jsonpatch
from hypothesis import strategies as st

from tests import builders
from tests.laws import every
from tests.laws.asking import Asking
from webhook.core.mutate import mutate


def _outcome(asked: Asking, pod: Mapping[str, Any]) -> tuple[Any, ...]:
    """What becomes of a pod, its containers found by name."""
    decision = mutate(builders.creating(pod), asked.rulebook)
    after = jsonpatch.apply_patch(pod, decision.patch)
    for kind in ("initContainers", "containers"):
        if kind in after["spec"]:
            after["spec"][kind] = {container["name"]: container for container in after["spec"][kind]}
    said = sorted((violation.code, violation.message, violation.fix) for violation in decision.violations)
    return after, said, decision.backends, sorted(decision.warnings)


def _shuffled(value: Any, dice: random.Random) -> Any:
    """The same value with the keys of every mapping in another order."""
    if isinstance(value, dict):
        return {key: _shuffled(value[key], dice) for key in dice.sample(list(value), len(value))}
    return [_shuffled(element, dice) for element in value] if isinstance(value, list) else value


@every.backend(16, least=4, also=[st.integers(0, 2**32)])
def test_the_order_of_keys_says_nothing(asked: Asking, seed: int) -> bool:
    shuffled = _shuffled(asked.pod, random.Random(seed))  # noqa: S311  not a secret
    before = _outcome(asked, asked.pod)

    assert _outcome(asked, shuffled) == before
    return _served(before)


def _served(outcome: tuple[Any, ...]) -> bool:
    return bool(outcome[2])


@every.backend(16, least=4, named=True)
def test_the_order_of_containers_says_nothing_where_one_is_named(asked: Asking) -> bool:
    spec = dict(asked.pod["spec"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = spec[kind][::-1]
    turned = {**asked.pod, "spec": spec}
    before, after = _outcome(asked, asked.pod), _outcome(asked, turned)

    assert _without_places(after) == _without_places(before)
    return _served(before)


def _without_places(outcome: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outcome with the index of a container, which is part of field paths, left out of its texts."""
    after, said, backends, warnings = outcome
    numbers = str.maketrans("01", "**")
    return (
        after,
        [(code, message.translate(numbers), fix) for code, message, fix in said],
        backends,
        [warning.translate(numbers) for warning in warnings],
    )
