"""No shape of a pod turns a condition off: none errs, whatever a pod has, and what is not sent is nothing to us."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from tests import builders
from tests.cluster.binaries import Binaries
from tests.cluster.client import Object
from tests.cluster.expressions import CONDITIONS_BUDGET, POLICY_BUDGET, creating, judged, matchers
from tests.cluster.shapes import NAMESPACE, Shapes
from tests.laws import SOAK
from webhook.core.mutate import mutate
from webhook.core.validate import validate

pytestmark = [pytest.mark.cluster, pytest.mark.large]

PODS = 150_000 if SOAK else 10_000
POLICY = f"""
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {{name: bounded}}
spec: {{namespaces: {{names: [{NAMESPACE}]}}, quota: {{devices: 1}}}}
"""
RULEBOOK = builders.rulebook({**builders.shipped_files(), "tenants.yaml": POLICY})


def _pods() -> Iterator[Object]:
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
    for number, outcomes in enumerate(judged(programs, matchers(RULEBOOK), requests())):
        pod, pods[number] = pods[number], {}
        refused, reviewed = outcomes["gpu-webhook-devices"].refused, outcomes["validate"].matches
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

    with capsys.disabled():
        costs = ", ".join(f"{name} {cost:,}" for name, cost in dearest.items() if cost)
        sys.stdout.write(
            f"\n{PODS:,} pods; sent or matched: {dict(sent)}\ndearest of {CONDITIONS_BUDGET:,}: {costs}\n"
        )
    assert wrong == []
    assert min(sent[name] for name in ("mutate", "validate", "gpu-webhook-devices")) > PODS / 50
    assert max(cost for name, cost in dearest.items() if "policy" not in name) <= CONDITIONS_BUDGET / 2
    assert max(dearest.values()) <= POLICY_BUDGET / 2
