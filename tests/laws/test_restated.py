"""What created a pod can be sent again, in every form and by every client, and changes nothing."""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonpatch
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import clusters, every
from tests.laws.asking import Asking, askings
from tests.sent import applied
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

Object = dict[str, Any]

UID = "8f2f8d4e"


def _created(pod: Object, rules: Rulebook) -> Object | None:
    """The pod as it is stored, if it is admitted."""
    arrives = as_served(pod)
    decision = mutate(builders.creating(arrives), rules)
    if not decision.allowed:
        return None
    stored = as_served(jsonpatch.apply_patch(arrives, decision.patch))
    stored["metadata"]["uid"] = UID
    return stored


def _updates(stored: Object, written: Object) -> Iterator[tuple[str, Object, Object]]:
    """How clients send a pod again: the way, the stored pod, and the pod that the webhook sees."""
    running = {**stored, "spec": {**stored["spec"], "nodeName": "node-1"}}
    yield "apply", stored, as_served(applied(stored, written))
    yield "apply to a pod that runs", running, as_served(applied(running, written))
    yield "replace", stored, as_served(written)
    yield "edit", stored, stored


def _updated(stored: Object, sent: Object, rules: Rulebook) -> tuple[Decision, Object]:
    """The decision, and what the API server would store."""
    decision = mutate(builders.updating(stored, sent), rules)
    result = as_served(jsonpatch.apply_patch(sent, decision.patch))
    return decision, {**result, "metadata": {**result["metadata"], "uid": UID}}


@every.backend(16, least=4)
def test_a_pod_that_is_sent_again_stays_as_it_is(asked: Asking) -> bool:
    stored = _created(asked.pod, asked.rulebook)
    for way, there, sent in _updates(stored, asked.pod) if stored else ():
        decision, result = _updated(there, sent, asked.rulebook)

        assert (way, [*map(str, decision.violations)]) == (way, [])
        assert (way, result) == (way, there)
        judged = validate(builders.updating(there, result), asked.rulebook)
        assert (way, judged.allowed, judged.warnings) == (way, True, ())
    return stored is not None


@every.backend(6, least=2)
def test_its_resources_stay_where_other_back_ends_are_preferred_meanwhile(asked: Asking) -> bool:
    stored = _created(asked.pod, asked.rulebook)
    if stored is None:
        return False
    sent = as_served(applied(stored, asked.pod))
    decision, result = _updated(stored, sent, clusters.replica(clusters.ALL, asked.backend))

    assert [*map(str, decision.violations)] == []
    assert [each["resources"] for each in result["spec"]["containers"]] == [
        each["resources"] for each in stored["spec"]["containers"]
    ]
    return True


@every.backend(
    6, least=2, also=[st.sampled_from(clusters.names()).flatmap(askings), st.sampled_from(["apply", "replace"])]
)
def test_no_update_puts_anything_into_a_pod_but_what_is_stored(asked: Asking, other: Asking, way: str) -> bool:
    stored = _created(asked.pod, asked.rulebook)
    if stored is None:
        return False
    sent = as_served(applied(stored, other.pod) if way == "apply" else other.pod)
    decision, result = _updated(stored, sent, asked.rulebook)

    assert not (decision.violations and decision.patch)
    assert {*_leaves(result)} <= {*_leaves(sent), *_leaves(stored)}
    return True


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """What stands where; the place of an element in a list does not matter, but that of a container does."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{key}")
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _leaves(child, f"{path}[{index}]") if "ontainers" in path[-10:] else [(path, str(child))]
    else:
        yield path, str(value)
