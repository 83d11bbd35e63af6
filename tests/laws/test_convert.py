"""A pod of one system that is rewritten for another gets no less there; rewritten for its own, it stays as it is."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests import tables
from tests.cases.served import as_served
from tests.laws import clusters, every, own
from tests.laws.asking import NATIVE, SHORTHAND, Asking, accompany
from tests.laws.outcome import Stored, given, stored
from tests.laws.test_enough import TOLD_BY_CARD, TOLD_BY_NODES, is_enough
from tests.laws.vendors import READINGS
from webhook.cli import convert
from webhook.cli.explanation import Explanation
from webhook.core.interpret.locations import NOTE

TRIED = 3
"""So many other systems at most are asked to serve a pod."""


ODD = TOLD_BY_NODES | TOLD_BY_CARD
"""Back ends whose own words do not tell alone what they give."""

UNSAID: Mapping[str, str] = tables.table(__file__, "unsaid")
"""Back ends some of whose own words have no shorthand so far."""


@cache
def partners(backend: str) -> Sequence[str]:
    """The other systems that serve the card of this one's cluster, and its partitions if it serves nothing else."""
    card = clusters.card(backend)
    others = [name for name in READINGS if name != backend]
    cut = all(mode.when.devices == "profile" for mode in clusters.backend(backend).modes)
    return [
        name
        for name in others
        if card in clusters.cards(name) and (not cut or card.profiles.keys() & clusters.backend(name).profiles)
    ]


def _converted(done: Stored, target: str) -> Explanation:
    rulebook, source = done.asked.rulebook, done.served.backend.name
    [result] = convert.convert(done.pod, target, rulebook, source)
    return result


def _elsewhere(done: Stored, first: int) -> Iterator[tuple[str, Explanation]]:
    """The pod, rewritten for the first other system that can serve it."""
    others = partners(done.asked.backend)
    for number in range(first, first + min(TRIED, len(others))):
        target = others[number % len(others)]
        result = _converted(done, target)
        if result.decision.allowed and done.card in clusters.cards(target):
            yield target, result
            return


@every.backend(
    6, least=1, forms=SHORTHAND, backends=[name for name in READINGS if partners(name)], also=[st.integers(0, 2**16)]
)
def test_who_asked_in_shorthand_gets_it_of_another_system(asked: Asking, first: int) -> bool:
    done = _stored(asked)
    for target, result in _elsewhere(done, first) if done and done.card else ():
        assert done is not None
        assert done.card is not None
        after = given(target, result.after, asked.container, done.card)

        assert is_enough(after, asked.request, done.card, list(result.decision.warnings))
        return True
    return False


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def _keyed(asked: Asking) -> Asking:
    """The same pod with keys that the API server takes: no conversion is allowed for a pod that it refuses."""
    metadata = dict(asked.pod["metadata"])
    for section in _SAID.keys() & metadata.keys():
        metadata[section] = {key.replace("~", "-"): value for key, value in metadata[section].items()}
    return replace(asked, pod={**asked.pod, "metadata": metadata})


def _stored(asked: Asking) -> Stored | None:
    """What becomes of the pod, which has what any other system needs it to have."""
    asked = _keyed(asked)
    container = next(one for one in _containers(asked.pod) if one["name"] == asked.container)
    for target in partners(asked.backend):
        accompany(target, asked.pod, container)
    return stored(asked) if asked.cluster != clusters.ALL else None


@every.backend(
    8,
    least=1,
    forms=NATIVE[:2],
    backends=[name for name in READINGS if own.spoken(clusters.backend(name)) and name not in ODD | UNSAID.keys()],
)
def test_a_pod_stays_as_it_is_for_its_own_system(asked: Asking) -> bool:
    """Amounts may be said in another way, by which the vendor gives the same; a number rounded up is told."""
    done = stored(_keyed(asked)) if asked.cluster != clusters.ALL else None
    before = done.reading() if done else None
    if done is None or done.card is None or before is None:
        return False
    result = _converted(done, asked.backend)

    assert list(result.decision.violations) == []
    after = given(asked.backend, result.after, asked.container, done.card)
    rounded = any("rounded up" in warning for warning in result.decision.warnings)
    assert after.devices == before.devices or (rounded and after.devices > before.devices)
    assert after.cores == before.cores
    assert after.memory >= before.memory
    assert _without_amounts(result.after, asked) == _without_amounts(done.pod, asked)
    return True


def _without_amounts(pod: Mapping[str, Any], asked: Asking) -> dict[str, Any]:
    """The pod as it is stored, but for what asks for its back end's devices."""
    served = as_served(pod)
    served["spec"] = {key: value for key, value in served["spec"].items() if value != []}
    served["metadata"].get("annotations", {}).pop(NOTE, None)
    owned = clusters.backend(asked.backend).owns
    for container in _containers(served):
        for section, there in container["resources"].items():
            container["resources"][section] = {name: value for name, value in there.items() if name not in owned}
    served["metadata"] = {**served["metadata"], **{section: _others(served, section, owned) for section in _SAID}}
    return served


_SAID = {"labels": "label", "annotations": "annotation"}


def _others(pod: Mapping[str, Any], section: str, owned: Collection[str]) -> dict[str, str]:
    there = pod["metadata"].get(section) or {}
    return {key: value for key, value in there.items() if f"{_SAID[section]} {key}" not in owned}
