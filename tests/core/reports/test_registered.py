"""Our webhook configurations beside the rendered ones, and beside other webhooks of new pods."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests import builders
from webhook.cli import doctor
from webhook.cli.checkup import Check
from webhook.core.registration import configurations

Object = dict[str, Any]
WANTED = configurations.both(builders.rulebook(builders.shipped_files()))


def live(change: Callable[[list[Object]], object] = lambda _: None) -> list[Check]:
    """The checks of configurations as an API server stores them, after a change of the validating one's webhooks."""
    stored = copy.deepcopy(WANTED)
    for each in stored:
        for hook in each["webhooks"]:
            hook["clientConfig"]["caBundle"] = "Q0E="
            hook.setdefault("objectSelector", {})
            hook.setdefault("matchConditions", [])
    for hook in stored[0]["webhooks"]:
        hook.setdefault("reinvocationPolicy", "Never")
    change(stored[1]["webhooks"])
    return doctor.check_registered(WANTED, {each["kind"]: each for each in stored})


def failing(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.result != "ok"]


def test_what_the_api_server_fills_in_and_the_ca_bundle_are_no_drift() -> None:
    assert [(check.name, check.result) for check in live()] == [
        ("configurations", "ok"),
        ("active", "ok"),
        ("failure-policy", "ok"),
        ("namespaces", "ok"),
    ]


def test_webhooks_that_are_not_active_yet_are_named_and_are_no_drift() -> None:
    def wait(hooks: list[Any]) -> None:
        for hook in hooks[:2]:
            del hook["rules"]

    text = "validate.gpu-webhook.io, bindings.gpu-webhook.io: no rules yet, so the API server never calls it"
    assert failing(live(wait)) == [Check("active", "fail", text, doctor.AWAIT)]


def test_rules_of_a_former_version_are_named_with_what_the_certificate_program_waits_for() -> None:
    checks = live(lambda hooks: hooks[0].update(rules=hooks[0]["rules"][:1]))

    text = "validate.gpu-webhook.io: other rules than are rendered"
    assert failing(checks) == [Check("active", "fail", text, f"{doctor.RENDER}; then {doctor.AWAIT}")]


def test_a_missing_configuration_is_all_there_is_to_say() -> None:
    (check,) = doctor.check_registered(WANTED, {"MutatingWebhookConfiguration": WANTED[0]})

    assert check == Check(
        "configurations", "fail", "there is no ValidatingWebhookConfiguration called gpu-webhook", doctor.RENDER
    )


@pytest.mark.parametrize(
    ("change", "result", "found"),
    [
        (
            lambda hooks: hooks[0].pop("matchConditions"),
            "fail",
            "validate.gpu-webhook.io: matchConditions is missing",
        ),
        (
            lambda hooks: hooks[0].update(objectSelector={"matchLabels": {"a": "b"}}),
            "fail",
            "validate.gpu-webhook.io: objectSelector differs from what is rendered",
        ),
        (
            lambda hooks: hooks[0].update(timeoutSeconds=10),
            "warn",
            "validate.gpu-webhook.io: timeoutSeconds is 10, rendered 3",
        ),
        (
            lambda hooks: hooks[0].update(clientConfig={"url": "https://10.0.0.1/validate"}),
            "warn",
            "validate.gpu-webhook.io: called at https://10.0.0.1/validate, not by the Service",
        ),
        (lambda hooks: hooks.pop(1), "fail", "ValidatingWebhookConfiguration has no bindings.gpu-webhook.io"),
        (
            lambda hooks: hooks.append({"name": "x.example.com", "clientConfig": {}}),
            "fail",
            "ValidatingWebhookConfiguration has x.example.com, which is not rendered",
        ),
    ],
)
def test_an_edited_configuration_is_named_with_what_differs(
    change: Callable[[list[Object]], object], result: str, found: str
) -> None:
    (check,) = failing(live(change))

    assert (check.name, check.result, check.found) == ("configurations", result, found)


def test_other_ways_to_write_the_same_rules_are_no_drift() -> None:
    def reorder(hooks: list[Object]) -> None:
        hooks.reverse()
        for hook in hooks:
            hook["rules"].reverse()
            for rule in hook["rules"]:
                rule["operations"].reverse()

    assert failing(live(reorder)) == []


def test_failing_open_is_a_warning_and_a_closed_door_for_warnings_a_failure() -> None:
    (opened,) = failing(live(lambda hooks: hooks[0].update(failurePolicy="Ignore")))
    (closed,) = failing(live(lambda hooks: hooks[2].update(failurePolicy="Fail")))

    assert (opened.name, opened.result) == ("failure-policy", "warn")
    assert opened.found == (
        "validate.gpu-webhook.io: failurePolicy Ignore: while no replica answers, GPU pods are created as they are,"
        " not counted"
    )
    assert (closed.name, closed.result) == ("failure-policy", "fail")


def test_namespaces_that_opt_in_are_a_warning_and_system_namespaces_that_do_not_opt_out_a_failure() -> None:
    def opt_in(hooks: list[Object]) -> None:
        hooks[0]["namespaceSelector"] = {**hooks[0]["namespaceSelector"], "matchLabels": {"gpu": "yes"}}

    (narrower,) = failing(live(opt_in))
    (wider,) = failing(live(lambda hooks: hooks[0].update(namespaceSelector={})))

    assert (narrower.name, narrower.result) == ("namespaces", "warn")
    assert narrower.found == "validate.gpu-webhook.io asks only about namespaces with gpu In [yes]"
    assert (wider.name, wider.result) == ("namespaces", "fail")


IMMUTABLE = "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("labels", "more", "asked"),
    [
        ({IMMUTABLE: "default"}, {}, True),
        ({IMMUTABLE: "kube-system"}, {}, False),
        ({IMMUTABLE: "default"}, {"matchLabels": {"gpu": "yes"}}, False),
        ({IMMUTABLE: "default", "gpu": "yes"}, {"matchLabels": {"gpu": "yes"}}, True),
        ({"gpu": "no"}, {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["yes"]}]}, False),
        ({"gpu": "no"}, {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, True),
        ({"gpu": "no"}, {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, False),
        ({}, {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_whether_pods_of_a_namespace_come_to_us_is_known_by_its_labels(
    labels: dict[str, str], more: Object, *, asked: bool
) -> None:
    configuration = copy.deepcopy(WANTED[0])
    hook = configuration["webhooks"][0]
    hook["namespaceSelector"] = {**hook["namespaceSelector"], **more}

    assert doctor.asks_about(configuration, hook["name"], labels) is asked


def another(name: str = "a-first", hook: str = "vgpu.acme.io", **more: Any) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {"metadata": {"name": name}, "webhooks": [{"name": hook, "rules": [rule], **more}]}


def test_a_webhook_for_gpus_that_runs_first_and_only_once_is_a_failure() -> None:
    check = doctor.others([another()], "gpu-webhook", ["acme"])

    assert check.result == "fail"
    assert check.found == (
        "runs before gpu-webhook and is not called again, so it misses what a translated pod asks: "
        "vgpu.acme.io of a-first"
    )
    assert check.fix == "set reinvocationPolicy: IfNeeded there, or give it a later name"


@pytest.mark.parametrize(
    "other",
    [
        another(reinvocationPolicy="IfNeeded"),
        another(hook="sidecars.example.com"),
        another(name="hami"),
        another(rules=[{"apiGroups": [""], "operations": ["UPDATE"], "resources": ["pods"]}]),
        another(rules=[{"apiGroups": ["apps"], "operations": ["*"], "resources": ["*"]}]),
        another(rules=[]),
    ],
    ids=["called again", "not of GPUs", "later", "of updates", "of no pods", "of nothing"],
)
def test_other_webhooks_do_no_harm(other: Object) -> None:
    assert doctor.others([other], "gpu-webhook", ["acme"]).result == "ok"


def test_a_rule_for_everything_is_one_for_pods() -> None:
    everything = [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"]}]

    assert doctor.others([another(rules=everything)], "gpu-webhook", ["acme"]).result == "fail"
