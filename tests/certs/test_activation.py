"""Which rules our webhooks lack, the patch that gives them, and whether an old replica may still answer."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from jsonpatch import JsonPatch

from certs import activation
from certs.api import additions
from tests import tables
from tests.cluster.webhook import configurations, shipped
from webhook.core.decision import pinged

RULES = [{"apiGroups": [""], "resources": ["pods"]}]


def stored(annotation: str | None, *hooks: dict[str, Any]) -> dict[str, Any]:
    annotations = {} if annotation is None else {activation.WANTED: annotation}
    return {"metadata": {"resourceVersion": "7", "annotations": annotations}, "webhooks": [*hooks]}


def wanted(**rules: Any) -> str:
    return json.dumps({f"{name}.gpu-webhook.io": value for name, value in rules.items()})


def test_a_webhook_without_its_rules_is_inactive_and_others_are_left_alone() -> None:
    mine, other = {"name": "mutate.gpu-webhook.io"}, {"name": "other.example.com", "rules": RULES}
    configuration = stored(wanted(mutate=RULES), other, mine)

    rules = activation.inactive(configuration)

    assert rules == {1: RULES}
    changed = JsonPatch(additions(configuration, {"/webhooks/1/rules": rules[1]})).apply(configuration)
    assert changed["webhooks"] == [other, {**mine, "rules": RULES}]
    assert activation.inactive(changed) == {}


@tables.rows
def test_rules_are_compared_as_the_api_server_stores_them(rules: list[Any], there: list[Any] | None) -> None:
    hook = {"name": "mutate.gpu-webhook.io", **({} if there is None else {"rules": there})}

    assert activation.inactive(stored(wanted(mutate=rules), hook)) == {}


def test_webhooks_of_others_are_left_alone_even_if_the_annotation_names_them() -> None:
    configuration = stored(json.dumps({"other.example.com": RULES}), {"name": "other.example.com", "rules": []})

    assert activation.inactive(configuration) == {}
    assert activation.deactivated(configuration) == configuration


def test_a_deactivated_configuration_lacks_exactly_what_is_wanted() -> None:
    mine, other = {"name": "mutate.gpu-webhook.io", "rules": RULES}, {"name": "other.example.com", "rules": RULES}
    configuration = stored(wanted(mutate=RULES), other, mine)

    assert activation.deactivated(configuration)["webhooks"] == [other, {"name": "mutate.gpu-webhook.io"}]
    assert activation.inactive(activation.deactivated(configuration)) == {1: RULES}


def test_a_configuration_that_was_written_since_is_not_patched() -> None:
    assert additions(stored(None), {})[0] == {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": "7",
    }


POD = {"resources": ["pods", "pods/status"], "operations": ["CREATE"], "scope": "Namespaced"}


@pytest.mark.parametrize(
    ("rules", "wider"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param([POD, POD], False, id="the same"),
        pytest.param([{**POD, "resources": ["pods"]}], False, id="a resource less"),
        pytest.param([POD, {**POD, "resources": ["pods/resize"]}], True, id="a rule more"),
        pytest.param([{**POD, "resources": ["pods", "pods/resize"]}], True, id="another resource"),
        pytest.param([{**POD, "operations": ["CREATE", "UPDATE"]}], True, id="an operation more"),
        pytest.param([{**POD, "scope": None}], True, id="every scope"),
        pytest.param([{**POD, "resources": 7}], True, id="what cannot be read"),
        pytest.param([{**POD, "scope": [{}]}, "pods"], True, id="what cannot be read either"),
    ],
)
def test_rules_that_ask_for_less_need_no_new_replica(rules: list[Any], *, wider: bool) -> None:
    hook = {"name": "validate.gpu-webhook.io", "rules": [POD]}

    assert activation.widens(stored(wanted(validate=rules), hook), {0: rules}) is wider


def test_a_webhook_that_comes_with_a_new_version_needs_new_replicas_and_the_first_ones_need_none() -> None:
    active, other = {"name": "mutate.gpu-webhook.io", "rules": RULES}, {"name": "ping.gpu-webhook.io", "rules": RULES}
    annotation = wanted(mutate=RULES, validate=RULES)

    assert activation.widens(stored(annotation, active, {"name": "validate.gpu-webhook.io"}), {1: RULES})
    assert not activation.widens(stored(annotation, other, {"name": "validate.gpu-webhook.io"}), {1: RULES})


@pytest.mark.parametrize("annotation", [None, "{}", wanted(absent=RULES)])
def test_nothing_is_wanted_of_what_the_annotation_does_not_name(annotation: str | None) -> None:
    assert activation.inactive(stored(annotation, {"name": "mutate.gpu-webhook.io"})) == {}


@pytest.mark.parametrize("annotation", ["", "{", "[]", "null", '{"mutate.gpu-webhook.io": {}}', "[" * 100_000])
def test_an_annotation_that_is_no_object_of_lists_is_unreadable(annotation: str) -> None:
    with pytest.raises(activation.UnreadableError, match=r"^its annotation gpu-webhook\.io/rules is not"):
        activation.inactive(stored(annotation, {"name": "mutate.gpu-webhook.io"}))


def test_every_shipped_webhook_is_active_or_becomes_so() -> None:
    made = [hook["name"] for each in shipped() for hook in each["webhooks"] if "rules" in hook]

    assert made == ["ping.gpu-webhook.io"] * 2
    assert all("rules" in hook for each in configurations() for hook in each["webhooks"])


def test_replicas_say_what_the_certificate_program_listens_for() -> None:
    said = [warning for path in ("mutate", "validate") for warning in pinged(path).warnings]

    assert said == [*activation.ANSWERS.values()]


NOW = datetime(2026, 11, 23, 12, 1, tzinfo=UTC)
SPEC = {"template": {"spec": {"terminationGracePeriodSeconds": 40}}}
DONE = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3}


def progressing(at: str) -> Any:
    available = {"type": "Available", "lastUpdateTime": "2026-11-23T12:01:00Z"}
    return {"conditions": [available, {"type": "Progressing", "lastUpdateTime": at}]}


@pytest.mark.parametrize(
    ("status", "left"),
    [
        pytest.param(None, "its controller has not seen the change yet", id="not seen at all"),
        pytest.param({**DONE, "observedGeneration": 1}, "its controller has not seen the change yet", id="not seen"),
        pytest.param({**DONE, "updatedReplicas": 1}, "1 of 3 replicas are of the new version", id="one is new"),
        pytest.param({**DONE, "updatedReplicas": None}, "0 of 3 replicas are of the new version", id="none is new"),
        pytest.param(DONE | progressing("2026-11-23T12:00:21Z"), "the last old replica has 40 s to end", id="leaves"),
        pytest.param(DONE | progressing("2026-11-23T12:00:20Z"), "", id="it has ended"),
        pytest.param({**DONE, "availableReplicas": 1}, "", id="one that is new and away is no old one"),
    ],
)
def test_an_old_replica_is_left_until_all_are_new_and_the_last_old_one_has_ended(status: Any, left: str) -> None:
    shown = {key: value for key, value in (status or {}).items() if value is not None}
    made = {"metadata": {"generation": 2}, "spec": SPEC} | ({} if status is None else {"status": shown})

    assert activation.unfinished(made, NOW) == left


def test_where_replicas_are_of_no_deployment_nothing_is_waited_for() -> None:
    assert activation.unfinished(None, NOW) == ""
