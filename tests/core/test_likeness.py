"""What is decided about pods that are alike is what would be decided about each: for every golden case, too."""

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tests.cases import golden
from tests.cases.golden import Case
from tests.cases.served import NeverServedError, as_served
from webhook.core import admit, likeness
from webhook.core.decision import Decision, Reservation
from webhook.core.review import AdmissionRequest, creating
from webhook.core.tenancy.ledger import Ask
from webhook.rulefiles import RuleFilesError

STAMP = "2026-11-22T08:00:05Z"
TOKEN = {"name": "kube-api-access-x2x9q", "projected": {"sources": [], "defaultMode": 420}}
MOUNT = {"name": "kube-api-access-x2x9q", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def made(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod with all that an API server and a controller give it."""
    pod = copy.deepcopy(pod)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "r-1", "controller": True}
    name = {"name": "train-7d9f8-x2x9q", "generateName": "train-7d9f8-", "uid": "u-1", "creationTimestamp": STAMP}
    pod["metadata"] |= {**name, "ownerReferences": [owner], "managedFields": [{"manager": "controller"}]}
    pod["spec"].setdefault("volumes", []).append(TOKEN)
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        container.setdefault("volumeMounts", []).append(MOUNT)
    return pod


def asking(pod: dict[str, Any]) -> AdmissionRequest:
    found = creating(pod, uid="review-1", namespace="vision-dev", at=1_800_000_000.5)
    return replace(found, name="train-7d9f8-x2x9q")


def well_formed(case: Case) -> bool:
    """Whether an API server would ask about the pod, and there are rules to answer by."""
    try:
        return case.has_pod and bool(as_served(case.pod())) and bool(case.rulebook())
    except (NeverServedError, RuleFilesError):
        return False


@pytest.mark.parametrize("case", [case for case in golden.find() if well_formed(case)], ids=lambda case: case.name)
def test_what_is_left_out_changes_no_decision(case: Case) -> None:
    request, rules = asking(made(as_served(case.pod()))), case.rulebook()
    for judge in (admit.mutate, admit.validate):
        assert likeness.about(judge(likeness.alike(request), rules), request) == judge(request, rules)


def test_pods_of_one_controller_are_alike_and_those_of_another_are_not() -> None:
    pod = {"metadata": {"labels": {"gpu": "0.3"}}, "spec": {"containers": [{"name": "main"}]}}
    one, other = made(pod), made(pod)
    other["metadata"] |= {"name": "train-7d9f8-22222", "uid": "u-2", "creationTimestamp": "2026-11-22T08:00:09Z"}
    other["spec"]["volumes"][-1] = {**TOKEN, "name": "kube-api-access-22222"}
    other["spec"]["containers"][0]["volumeMounts"][-1] = {**MOUNT, "name": "kube-api-access-22222"}
    assert likeness.alike(asking(one)) == likeness.alike(replace(asking(other), uid="review-2", at=1_800_000_000.9))
    other["metadata"]["labels"] = {"gpu": "0.4"}
    assert likeness.alike(asking(one)) != likeness.alike(asking(other))


@pytest.mark.parametrize("pod", [{}, {"metadata": 1}, {"metadata": {}, "spec": []}, {"metadata": {}, "spec": {}}])
def test_what_is_no_pod_stays_as_it_is(pod: dict[str, Any]) -> None:
    assert likeness.alike(asking(pod)).pod == pod


def test_a_volume_of_the_user_is_not_taken_for_the_token_whatever_it_is_called() -> None:
    own = {"name": "kube-api-access-mine", "hostPath": {"path": "/opt/mps"}}
    container = {"name": "main", "volumeMounts": [{"name": "kube-api-access-mine", "mountPath": "/opt/mps"}]}
    spec = {"volumes": [own], "containers": [container], "initContainers": [container]}
    assert likeness.alike(asking(made({"metadata": {}, "spec": spec}))).pod == {"metadata": {}, "spec": spec}


def test_a_decision_is_said_of_the_pod_there_is() -> None:
    ask = Ask(namespace="vision-dev", amount={"devices": Fraction(1)})
    decision = Decision(
        allowed=True,
        audit={"decision": "", "rules": "hami-vgpu"},
        reservation=Reservation(tenant="vision", ask=ask, path="spec", rule="vision"),
    )
    request = asking(made({"metadata": {}, "spec": {"containers": []}}))
    named = replace(ask, name="train-7d9f8-x2x9q", uid="u-1", created=1_795_334_405.0)
    assert likeness.about(decision, request) == Decision(
        allowed=True,
        audit={"decision": "review-1", "rules": "hami-vgpu"},
        reservation=Reservation(tenant="vision", ask=named, path="spec", rule="vision"),
    )
