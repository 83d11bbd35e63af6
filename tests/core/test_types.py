"""No type of JSON value in any field that is read makes a review fail: the pod is refused by the field's path."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy.tenants import RULES, TENANT, quota, rules
from tests.edited import edited, places
from webhook.cli import workload_advice
from webhook.core import projection
from webhook.core.decision import Decision
from webhook.core.kube.fields import Path, Put
from webhook.core.mutate import mutate
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

Object = dict[str, Any]

COUNTED = replace(TENANT, quota=quota(devices=100, memory=1 << 50))
RULEBOOKS: Mapping[str, Rulebook] = {
    "the shipped rules": RULES,
    "a policy": rules(COUNTED),
    "observe mode": rules(COUNTED, observing=True),
    "every back end": rulebook.with_every_backend(RULES),
}
VALUES: tuple[Any, ...] = (None, True, 0.5, "text", [], [[]], [{}], {}, {"name": []})
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}


def whole_pod(**main: Any) -> Object:
    """A pod with every field that anything reads; its containers differ in their names alone."""
    pod: Object = copy.deepcopy(tables.table(__file__, "whole pod"))
    [container] = pod["spec"]["containers"]
    container |= main
    pod["spec"]["initContainers"] = [{**container, "name": "init"}]
    return pod


PODS: Mapping[str, Object] = {
    "its own words": whole_pod(),
    "shorthand": whole_pod(resources={"limits": {"gpu": "300m", "gpu-memory": "8Gi"}, "claims": [{"name": "claim"}]}),
}


def answers(pod: Object, before: Object, rulebook: Rulebook) -> Iterator[Decision]:
    """What is said of a pod that is created, by both webhooks and in a template, and of updates to it and from it."""
    request = builders.creating(pod, "vision-dev")
    for judge in (mutate, validate):
        yield judge(request, rulebook)
    yield workload_advice.warn(
        request._replace(resource="deployments", pod={**DEPLOYMENT, "spec": {"template": pod}}), rulebook
    )
    for old, new in ((before, pod), (pod, before)):
        yield validate(builders.updating(old, new)._replace(namespace="vision-dev"), rulebook)


@pytest.mark.parametrize(
    "rulebook",
    ["a policy", *(pytest.param(name, marks=pytest.mark.large) for name in RULEBOOKS if name != "a policy")],
)
@pytest.mark.parametrize("asked", PODS)
def test_a_value_of_any_type_in_any_field_is_answered(rulebook: str, asked: str) -> None:
    pod, failed = PODS[asked], []
    for path in places(pod):
        for value in VALUES:
            try:
                list(answers(edited([Put(path, value)], pod), pod, RULEBOOKS[rulebook]))
            except Exception as error:  # noqa: BLE001 - any is a fault
                failed.append((path, value, repr(error)))

    assert failed == []


def test_the_pod_of_these_tests_has_every_field_that_is_read() -> None:
    assert projection.prune(PODS["shorthand"], projection.allow_list(RULES)).keys() == {"metadata", "spec"}


@tables.rows
def test_a_field_of_another_type_is_refused_by_its_path(path: Path, value: Any, shape: str) -> None:
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")

    refused = mutate(builders.creating(edited([Put(path, value)], PODS["its own words"])), RULES)

    assert [str(violation) for violation in refused.violations] == [
        f"[GPU001] {where} is not {shape}\n  at   {where}\n  fix  write {where} as {shape}"
    ]
