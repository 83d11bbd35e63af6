"""No shape of a pod turns a condition off: none errs, whatever a pod has, and what is not sent is nothing to us."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests import builders
from tests.cluster.binaries import Binaries
from tests.cluster.client import Object
from tests.cluster.expressions import (
    CONDITIONS_BUDGET,
    DELETIONS,
    POLICY_BUDGET,
    creating,
    deleting,
    judged,
    matchers,
    of_deletions,
    updating,
)
from tests.cluster.shapes import HANDLERS, NAMESPACE, Shapes
from tests.cluster.tenancy import attempts
from tests.laws import SOAK
from tests.results import Page
from webhook.core.mutate import mutate
from webhook.core.validate import validate

pytestmark = [pytest.mark.cluster, pytest.mark.large]

PODS = 170_000 if SOAK else 5_000
RESULTS = Path(__file__).with_name("EXPRESSIONS.md")
HEAD = """\
# What match conditions and admission policies made of pods of every shape

Written by `make soak`: what webhooks and policies ask about each pod, by the API server's own code.

{when:%Y-%m-%d}, commit {commit}

"""
POLICY = f"""
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {{name: bounded}}
spec: {{namespaces: {{names: [{NAMESPACE}]}}, quota: {{devices: 1}}}}
"""
RULES = builders.rulebook({**builders.shipped_files(), "tenants.yaml": POLICY})
RULEBOOK = replace(RULES, tenancy=replace(RULES.tenancy, handlers=HANDLERS))


def _pods() -> Iterator[dict[str, Any]]:
    shapes = Shapes(Random(os.urandom(8) if SOAK else 0))  # noqa: S311  not a secret
    return (shapes.pod() for _ in range(PODS))


def test_no_condition_errs_and_what_is_not_sent_we_would_have_left_alone(
    programs: Binaries, capsys: pytest.CaptureFixture[str]
) -> None:
    pods: list[Object] = []

    def requests() -> Iterator[Object]:
        for pod in _pods():
            pods.append(pod)
            yield creating(pod)

    wrong: list[tuple[str, str]] = []
    dearest: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    evaluated = 0
    for number, outcomes in enumerate(judged(programs, matchers(RULEBOOK), requests())):
        pod, pods[number] = pods[number], {}
        refused, reviewed = outcomes["gpu-webhook-devices"].refused, outcomes["validate"].matches
        evaluated += len(outcomes)
        for name, outcome in outcomes.items():
            wrong += [(f"{name}, pod {number}", error) for error in outcome.errors]
            dearest[name] = max(dearest[name], outcome.cost)
            dearest[f"{name}: policy"] = max(dearest[f"{name}: policy"], outcome.policy_cost)
            sent[name] += outcome.matches
        sent["refused by the API server"] += bool(refused)
        request = builders.creating(pod, NAMESPACE)
        if not outcomes["mutate"].matches and (patch := mutate(request, RULEBOOK).patch):
            wrong.append((f"pod {number} is not mutated", str(patch)))
        if not refused and not reviewed and (violations := validate(request, RULEBOOK).violations):
            wrong.append((f"pod {number} is not judged", str(violations)))

    costs = ", ".join(f"{name} {cost:,}" for name, cost in dearest.items() if cost)
    told = f"{PODS:,} pods, {evaluated:,} evaluations, {len(wrong)} wrong; sent or matched: {dict(sent)}"
    Page(RESULTS, HEAD).add(f"- {told}; dearest of {CONDITIONS_BUDGET:,}: {costs}")
    with capsys.disabled():
        sys.stdout.write(f"\n{told}\ndearest of {CONDITIONS_BUDGET:,}: {costs}\n")
    assert wrong == []
    assert min(sent[name] for name in ("mutate", "validate", "gpu-webhook-devices")) > PODS / 50
    assert max(cost for name, cost in dearest.items() if "policy" not in name) <= CONDITIONS_BUDGET / 2
    assert max(dearest.values()) <= POLICY_BUDGET / 2


STATES = [("", ""), ("node-1", ""), ("node-1", "Running"), ("node-1", "Succeeded"), ("node-1", "Failed")]


def test_no_deletion_errs_and_no_pod_with_a_gpu_that_may_run_is_deleted_at_once(programs: Binaries) -> None:
    """Every second pod has a GPU; of the others those that have much of something may be refused, too."""
    may_be_refused: list[tuple[bool, bool]] = []

    def requests() -> Iterator[Object]:
        for number, pod in enumerate(islice(_pods(), PODS // 10)):
            (node, phase), has_gpu = STATES[number % len(STATES)], number % 2 == 0
            pod["spec"]["nodeName"], pod["status"] = node, {"phase": phase}
            if has_gpu:
                pod["spec"]["containers"][-1]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
            runs = node != "" and phase in {"", "Running"}
            may_be_refused.append((runs, runs and has_gpu))
            yield deleting(pod)

    outcomes = [made[DELETIONS] for made in judged(programs, of_deletions(RULEBOOK), requests())]

    refused = [bool(outcome.refused) for outcome in outcomes]
    assert [error for outcome in outcomes for error in outcome.errors] == []
    assert [number for number, (may, _) in enumerate(may_be_refused) if refused[number] and not may] == []
    assert [number for number, (_, must) in enumerate(may_be_refused) if must and not refused[number]] == []
    assert max(outcome.cost for outcome in outcomes) <= CONDITIONS_BUDGET / 2
    assert max(outcome.policy_cost for outcome in outcomes) <= POLICY_BUDGET / 2


def _document(kind: str, name: str, spec: Object) -> str:
    document = {"apiVersion": "gpu-webhook.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return f"---\n{json.dumps(document)}\n"


def _policy(name: str, *names: str, **spec: object) -> str:
    return _document("TenantPolicy", name, {"namespaces": {"names": names}, "quota": {"devices": 1}, **spec})


def _exemption(name: str, lifts: str, *users: str) -> str:
    why = {"owner": "ada", "reason": "a driver is debugged", "expires": "2099-01-01T00:00:00Z"}
    of_users = {"users": users} if users else {}
    return _document("Exemption", name, {"namespaces": [NAMESPACE], "lifts": [lifts], **why, **of_users})


MINE, LIFTED = _policy("mine", NAMESPACE), _exemption("lifted", "deviceAccess")
MANY = "".join(_policy(f"of-{number}", f"team-{number}-development-and-more") for number in range(2_000))
TENANCIES = {
    "a policy": (MINE, ""),
    "an exemption": (MINE + LIFTED, ""),
    "of two exemptions one lifts something else": (MINE + LIFTED + _exemption("weaker", "quota"), ""),
    "an exemption of another user": (MINE + _exemption("lifted", "deviceAccess", "bob*"), ""),
    "an exemption of users in brackets": (MINE + _exemption("lifted", "deviceAccess", "[xy]da"), ""),
    "a policy that cannot be read": (_policy("unreadable", NAMESPACE), ""),
    "one that cannot be read is above another": (MINE + _policy("unreadable", "*", priority=9), ""),
    "two policies of one priority": (MINE + _policy("all", "*"), ""),
    "two policies of one priority, and without one all is allowed": (
        MINE + _policy("all", "*"),
        "namespacesWithoutPolicy: open",
    ),
    "a policy that warns is above another": (MINE + _policy("all", "*", priority=9, deviceAccess="warn"), ""),
    "no policy, an exemption, and the cluster refuses": (LIFTED, "deviceAccess: deny"),
    "no policy, and without one nobody gets a device": ("", "namespacesWithoutPolicy: no-devices"),
    "no policy, and the default one refuses": (
        _policy("lobby", "lobby"),
        "namespacesWithoutPolicy: {default: lobby}",
    ),
    "no policy, and the default one warns": (
        _policy("lobby", "lobby", deviceAccess="warn"),
        "namespacesWithoutPolicy: {default: lobby}",
    ),
    "no policy, and there is no default one": (_policy("lobby", "lobby"), "namespacesWithoutPolicy: {default: b}"),
    "a policy that warns, and the default one refuses": (
        _policy("mine", NAMESPACE, deviceAccess="warn") + _policy("lobby", "lobby", priority=9),
        "namespacesWithoutPolicy: {default: lobby}",
    ),
    "no policy, and of the default one's pods an exemption": (
        _policy("lobby", "lobby") + LIFTED,
        "namespacesWithoutPolicy: {default: lobby}",
    ),
    "two thousand policies": (MINE + MANY, ""),
}
BYPASSES: list[Object] = [
    {"securityContext": {"privileged": True}},
    {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
    {"securityContext": {"procMount": "Unmasked"}},
    {"securityContext": {"capabilities": {"add": ["BPF"]}}},
]


@pytest.mark.parametrize(("documents", "of_cluster"), TENANCIES.values(), ids=TENANCIES)
def test_who_is_spared_is_the_same_to_the_api_server_and_to_us(
    programs: Binaries, documents: str, of_cluster: str
) -> None:
    files = builders.shipped_files()
    cluster = f"{files['cluster.yaml']}\n  {of_cluster}\n"
    rulebook = builders.rulebook({**files, "cluster.yaml": cluster, "tenants.yaml": documents})
    policies = [
        replace(policy, quota=None, broken="no catalogue knows the model") if policy.name == "unreadable" else policy
        for policy in rulebook.tenancy.policies
    ]
    rulebook = replace(rulebook, tenancy=replace(rulebook.tenancy, policies=policies, handlers=HANDLERS))
    metadata = {"name": "a", "namespace": NAMESPACE, "uid": "0"}
    pods = [{**attempts.trying(**fields), "metadata": metadata} for fields in BYPASSES]
    classed = attempts.trying()
    pods.append({**classed, "metadata": metadata, "spec": {**classed["spec"], "runtimeClassName": "fast"}})

    outcomes = [made["gpu-webhook-devices"] for made in judged(programs, matchers(rulebook), map(creating, pods))]

    judgements = [validate(builders.creating(pod, NAMESPACE), rulebook).violations for pod in pods]
    assert [outcome.errors for outcome in outcomes] == [()] * len(pods)
    assert [bool(outcome.refused) for outcome in outcomes] == [bool(violations) for violations in judgements]


LISTED = """
  platformAccounts: ["system:serviceaccount:hami-system:*", "system:serviceaccount:acme:card-?", carol]
"""
WRITERS = {
    "ada": False,
    "carol": True,
    "carolina": False,
    "system:anonymous": False,
    "system:kube-scheduler": True,
    "system:node:gpu-7": True,
    f"system:serviceaccount:{NAMESPACE}:ci": False,
    "system:serviceaccount:of-nobody:ci": False,
    "system:serviceaccount:kube-system:device-plugin": True,
    "system:serviceaccount:kube-system-2:device-plugin": False,
    "system:serviceaccount:hami-system:hami-scheduler": True,
    "system:serviceaccount:hami-system-2:hami-scheduler": False,
    "system:serviceaccount:acme:card-1": True,
    "system:serviceaccount:acme:card-10": False,
    "system:serviceaccount:kai-scheduler:binder": True,
    "system:serviceaccount:volcano-system:volcano-scheduler": False,
}
"""Who may write into a pod what gives it devices: of the back ends that have writers KAI is enabled."""


@pytest.mark.parametrize(("documents", "of_cluster"), [(MINE, ""), ("", "deviceAccess: deny")])
def test_who_is_of_the_platform_is_the_same_to_the_api_server_and_to_us(
    programs: Binaries, documents: str, of_cluster: str
) -> None:
    files = builders.shipped_files()
    cluster = f"{files['cluster.yaml'].replace('amd-gpu,', 'kai,')}{LISTED}  {of_cluster}\n"
    rulebook = builders.rulebook({**files, "cluster.yaml": cluster, "tenants.yaml": documents})
    metadata = {"name": "a", "namespace": NAMESPACE, "uid": "0"}
    old = {**attempts.trying(), "metadata": metadata}
    new = {**old, "metadata": {**metadata, "annotations": {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}}}

    asked = (updating(old, new, user) for user in WRITERS)
    outcomes = [made["gpu-webhook-device-names"] for made in judged(programs, matchers(rulebook), asked)]

    update = builders.updating(old, new)._replace(namespace=NAMESPACE)
    judgements = [validate(update._replace(user=user), rulebook).allowed for user in WRITERS]
    assert dict(zip(WRITERS, judgements, strict=True)) == WRITERS
    assert {user: not made.refused for user, made in zip(WRITERS, outcomes, strict=True)} == WRITERS
    assert [made.errors for made in outcomes] == [()] * len(WRITERS)
