"""What an API server makes of match conditions and admission policies: by its own code, in `controlplane`."""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from threading import Thread
from typing import Any, NamedTuple

import orjson

from tests.cluster.binaries import EXPRESSIONS, Binaries
from tests.cluster.client import Object
from webhook.core.registration import conditions, policies
from webhook.core.rules.rulebook import Rulebook

DEVICES, DELETIONS = "gpu-webhook-devices", "gpu-webhook-deletions"
CONDITIONS_BUDGET, POLICY_BUDGET = 2_500_000, 10_000_000
"""Of all conditions of a webhook or a policy; of all else of a policy (apiserver/pkg/apis/cel/config.go)."""


class Outcome(NamedTuple):
    """Whether conditions hold, what is refused then, what went wrong, and what conditions and policy cost."""

    matches: bool
    refused: tuple[str, ...]
    errors: tuple[str, ...]
    cost: int
    policy_cost: int


def matchers(rulebook: Rulebook) -> Mapping[str, Object]:
    """Of every webhook and policy that is asked about pods what it has of CEL, by its name."""
    webhooks = conditions.by_webhook(rulebook)
    made = {name: {"Conditions": webhooks[name]} for name in ("mutate", "remove", "validate")}
    specs = {DEVICES: dict(_kept(rulebook))[DEVICES]}  # the other one warns of the same
    for rendered in policies.render_validating(rulebook):
        resources = rendered["spec"].get("matchConstraints", {}).get("resourceRules", [{}])[0].get("resources")
        if resources == ["pods"]:
            specs[rendered["metadata"]["name"]] = rendered["spec"]
    return {**made, **{name: _matcher(spec) for name, spec in specs.items()}}


def of_deletions(rulebook: Rulebook) -> Mapping[str, Object]:
    """The same of the policy that is asked about deletions."""
    return {DELETIONS: _matcher(dict(_kept(rulebook))[DELETIONS])}


def _kept(rulebook: Rulebook) -> Iterator[tuple[str, Object]]:
    return ((name, spec) for name, spec, _ in policies.filled_in(rulebook, 0))


def _matcher(spec: Object) -> Object:
    keys = {"Conditions": "matchConditions", "Variables": "variables", "Validations": "validations"}
    return {key: spec[of] for key, of in keys.items()}


def creating(pod: Object, *, user: str = "ada", labels: Mapping[str, str] | None = None) -> Object:
    """The request of a user to create a pod, in the namespace of the pod."""
    name = pod["metadata"]["namespace"]
    there = {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **(labels or {})}}}
    return {"Pod": pod, "Operation": "CREATE", "Username": user, "Namespace": there}


def deleting(pod: Object, *, user: str = "ada", seconds: int = 0) -> Object:
    """The request of a user to delete a pod within so many seconds."""
    asked = creating(pod, user=user)
    return {**asked, "Pod": None, "Old": pod, "Operation": "DELETE", "GracePeriodSeconds": seconds}


def updating(old: Object, pod: Object, user: str) -> Object:
    """The request of a user to change a pod, in the namespace of the pod."""
    return {**creating(pod, user=user), "Old": old, "Operation": "UPDATE"}


def judged(
    programs: Binaries, asked: Mapping[str, Object], requests: Iterable[Object]
) -> Iterator[Mapping[str, Outcome]]:
    """What becomes of each request, by the name of what is asked about it."""
    command = [str(programs.path(EXPRESSIONS))]
    seldom = {**os.environ, "GOGC": "800"}  # garbage is collected: a sixth less of CPU [measured]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=seldom) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        writer = Thread(target=_write, args=(program.stdin, asked, requests))
        writer.start()
        for line in program.stdout:
            yield {name: _outcome(found) for name, found in orjson.loads(line).items()}
        writer.join()
    assert program.returncode == 0


def _write(into: Any, asked: Mapping[str, Object], requests: Iterable[Object]) -> None:
    with into:
        into.write(orjson.dumps(asked))
        for request in requests:
            into.write(orjson.dumps(request))


def _outcome(found: Mapping[str, Any]) -> Outcome:
    return Outcome(
        matches=found["Matches"],
        refused=tuple(found["Refused"] or ()),
        errors=tuple(found["Errors"] or ()),
        cost=found["Cost"],
        policy_cost=found["PolicyCost"],
    )
