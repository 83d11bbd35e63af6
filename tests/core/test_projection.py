"""What of a pod is read, and that nothing else changes any decision: for every golden case, too."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from tests.cases import golden
from tests.cases.served import NeverServedError, as_served
from webhook.core import projection
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy
from webhook.core.validate import validate

STAMP = "2026-11-22T08:00:05Z"
TOKEN = {"name": "kube-api-access-x2x9q", "projected": {"sources": [], "defaultMode": 420}}
MOUNT = {"name": "kube-api-access-x2x9q", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def made(pod: dict[str, Any]) -> dict[str, Any]:
    """A pod with all that an API server, a controller and an ordinary author give it."""
    pod = copy.deepcopy(pod)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "r-1", "controller": True}
    name = {"name": "train-7d9f8-x2x9q", "generateName": "train-7d9f8-", "uid": "u-1", "creationTimestamp": STAMP}
    pod["metadata"] |= {**name, "ownerReferences": [owner], "managedFields": [{"manager": "controller"}]}
    pod["metadata"].setdefault("labels", {})["app"] = "train"
    pod["spec"].setdefault("volumes", []).append(TOKEN)
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        container.setdefault("volumeMounts", []).append(MOUNT)
        container.setdefault("env", []).append({"name": "EPOCHS", "value": "3"})
        container |= {"image": "train:7", "command": ["train"], "workingDir": "/work"}
    return pod


def asking(pod: dict[str, Any]) -> AdmissionRequest:
    found = creating(pod, uid="review-1", namespace="vision-dev", at=1_800_000_000.5)
    return found._replace(name="train-7d9f8-x2x9q")


def whole(request: AdmissionRequest, rulebook: Rulebook) -> AdmissionRequest:
    """The request as if it were pruned already, so that nothing is taken away."""
    return request._replace(projection=projection.allow_list(rulebook))


def changed_by_pruning(case: golden.Case) -> bool:
    """Whether a decision is another one when nothing is left out; a pod that is never served is decided by nobody."""
    try:
        request, rules = asking(made(as_served(case.pod()))), case.rulebook()
    except NeverServedError:
        return False
    return any(judge(request, rules) != judge(whole(request, rules), rules) for judge in (mutate, validate))


@pytest.mark.large
def test_what_is_left_out_changes_no_decision() -> None:
    assert [case.name for case in golden.find() if case.has_pod and changed_by_pruning(case)] == []


def pruned(pod: dict[str, Any], rulebook: Rulebook) -> Any:
    return projection.project(creating(pod, uid="review-1"), rulebook).pod


RULES = builders.rulebook(builders.shipped_files())
POD: dict[str, Any] = {"metadata": {"labels": {"gpu": "0.3"}}, "spec": {"containers": [{"name": "main"}]}}


def test_of_an_ordinary_pod_little_is_read() -> None:
    assert pruned(made(POD), RULES) == {
        "metadata": {"labels": {"gpu": "0.3"}},
        "spec": {"containers": [{"name": "main", "env": [], "volumeMounts": []}], "volumes": []},
    }


MADE_UP: str = tables.table(__file__, "made up")
CLUSTER = builders.cluster("backends: [made-up]")


def test_a_rule_that_reads_something_new_extends_what_is_read_by_being_loaded() -> None:
    read: dict[str, Any] = tables.table(__file__, "what the made up rule reads")

    assert pruned(made(read), builders.rulebook({"made-up.yaml": MADE_UP, "cluster.yaml": CLUSTER})) == read
    assert pruned(made(read), RULES) == {
        "metadata": {"labels": {}, "annotations": {}},
        "spec": {"containers": [{"name": "main", "env": [], "volumeMounts": []}], "volumes": []},
    }


def test_a_policy_that_reads_something_new_extends_what_is_read_by_being_loaded() -> None:
    annotations: dict[str, Any] = {"labels": {"team.example/queue": "a"}, "annotations": {"team.example/cost": "1"}}
    policy = TenantPolicy(name="vision", rule="vision", namespaces=Namespaces(names=("*",)), **annotations)
    pod = {"metadata": annotations, "spec": {"containers": []}}
    assert pruned(pod, replace(RULES, tenancy=Tenancy(policies=[policy]))) == pod
    assert pruned(pod, RULES) == {"metadata": {"labels": {}, "annotations": {}}, "spec": {"containers": []}}


def test_variables_keep_their_index_so_that_an_edit_of_one_hits_it() -> None:
    env = [{"name": "A"}, {"name": "MADE_UP_DEVICES", "value": "none"}, {"name": "B"}]
    pod = {"metadata": {}, "spec": {"containers": [{"name": "main", "env": env}]}}
    rules = builders.rulebook({"made-up.yaml": MADE_UP, "cluster.yaml": CLUSTER})
    assert pruned(pod, rules)["spec"]["containers"][0]["env"] == [{}, env[1]]


@pytest.mark.parametrize("pod", [{}, {"metadata": 1}, {"metadata": {}, "spec": []}, {"metadata": {}, "spec": {}}])
def test_what_is_no_pod_stays_as_it_is(pod: dict[str, Any]) -> None:
    assert pruned(pod, RULES) == pod


SHAPELESS: list[Any] = tables.table(__file__, "shapeless")


@pytest.mark.parametrize("value", SHAPELESS, ids=str)
@tables.rows
def test_a_field_of_another_shape_is_refused_as_if_nothing_were_left_out(field: str, value: Any) -> None:
    pod = copy.deepcopy(POD)
    pod["metadata" if field in {"labels", "annotations"} else "spec"][field] = value
    assert mutate(asking(pod), RULES) == mutate(whole(asking(pod), RULES), RULES)


@pytest.mark.parametrize("value", SHAPELESS, ids=str)
@pytest.mark.parametrize("field", ["env", "resources", "securityContext", "volumeMounts", "name"])
def test_a_container_of_another_shape_is_refused_as_if_nothing_were_left_out(field: str, value: Any) -> None:
    pod = {"metadata": POD["metadata"], "spec": {"containers": [{"name": "main", field: value}]}}
    assert mutate(asking(pod), RULES) == mutate(whole(asking(pod), RULES), RULES)
