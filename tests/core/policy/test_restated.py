"""An update that states again what its pod was created from changes nothing; another request is refused."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from tests import builders, tables
from tests.cases.served import as_served
from tests.core.policy import tenants
from tests.sent import applied
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.mutate import mutate
from webhook.core.rules import rulebook
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy

RULES = tenants.RULES

Object = dict[str, Any]


def _asking(**limits: Any) -> Object:
    return builders.pod(builders.container(limits=limits))


def _created(written: Object, rulebook: Rulebook = RULES, namespace: str = "default") -> Object:
    arrives = as_served(written)
    patch = mutate(builders.creating(arrives, namespace), rulebook).patch
    stored = as_served(jsonpatch.apply_patch(arrives, patch))
    return {**stored, "metadata": {**stored["metadata"], "uid": "1"}}


def _sent(stored: Object, sent: Object, rulebook: Rulebook = RULES, namespace: str = "default") -> Decision:
    return mutate(builders.updating(stored, as_served(sent))._replace(namespace=namespace), rulebook)


def _again(stored: Object, sent: Object, rulebook: Rulebook = RULES, namespace: str = "default") -> Object:
    """How the pod is stored once it was sent again."""
    result = as_served(jsonpatch.apply_patch(sent, _sent(stored, sent, rulebook, namespace).patch))
    return {**result, "metadata": {**result["metadata"], "uid": "1"}}


@tables.rows
def test_a_pod_that_is_applied_again(written: Object, only: str, patch: list[Object]) -> None:
    """`only` is the back end that is enabled by now, if one is."""
    stored = _created(builders.written(written))
    rules = rulebook.with_only(only, RULES) if only else RULES

    assert _sent(stored, applied(stored, builders.written(written)), rules) == Decision(allowed=True, patch=patch)


def test_a_client_that_sends_null_for_requests_is_answered() -> None:
    stored = _created(builders.pod(labels={"gpu": "0.5"}))
    sent = builders.pod({"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": None}})

    decision = mutate(builders.updating(stored, {**sent, "metadata": stored["metadata"]}), RULES)

    assert {violation.code for violation in decision.violations} == {"GPU109"}


@tables.rows
def test_a_pod_that_is_replaced_by_its_manifest_gets_back_all_that_it_lacks(written: Object) -> None:
    stored = _created(builders.written(written))

    assert _again(stored, as_served(builders.written(written))) == stored


def test_what_a_policy_puts_on_pods_is_put_back_into_a_manifest() -> None:
    nodes = {"key": "pool", "operator": "In", "values": ["vision"]}
    policy = tenants.policy(labels={"team": "vision"}, annotations={"owner": "ada"}, affinity=(nodes,))
    rulebook = tenants.rules(policy)
    written = builders.pod(labels={"gpu": "0.3"})
    stored = _created(written, rulebook, "vision-dev")

    assert stored["metadata"]["labels"] == {"gpu": "0.3", "team": "vision"}
    assert _again(stored, as_served(written), rulebook, "vision-dev") == stored


REMOVING = tenants.rules(tenants.policy(device_access="remove", quota=tenants.quota(devices=4)))
ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
SWITCHES = {"name": "NVIDIA_NVSWITCH", "value": "all"}
MINE = {"name": "A", "value": "b"}


@pytest.mark.parametrize("labels", [{}, {"gpu": "0.3"}], ids=["without a GPU", "with a GPU"])
@pytest.mark.parametrize("sending", [lambda _, written: as_served(written), applied], ids=["replaced", "applied"])
def test_a_variable_that_was_taken_out_and_is_applied_again_is_taken_out_again(
    labels: Mapping[str, str], sending: Callable[[Object, Object], Object]
) -> None:
    two = [builders.container(env=[ALL, MINE]), builders.container("other", env=[MINE, SWITCHES, ALL])]
    written = builders.pod(*two, labels=labels)
    stored = _created(written, REMOVING, "vision-dev")

    assert stored["spec"]["containers"][1]["env"] == [
        MINE,
        {"name": SWITCHES["name"]},
        {"name": ALL["name"], "value": "void"},
    ]
    assert _again(stored, sending(stored, written), REMOVING, "vision-dev") == stored


def test_a_variable_that_is_stored_stays_where_the_policy_takes_it_out_by_now() -> None:
    written = builders.pod(builders.container(env=[ALL]), labels={"gpu": "0.3"})
    stored = _created(written, RULES, "vision-dev")

    changed = builders.pod(builders.container(env=[ALL], image="newer"), labels={"gpu": "0.3"})
    again = _again(stored, applied(stored, changed), REMOVING, "vision-dev")

    assert again["spec"]["containers"][0]["env"] == [ALL]


def test_a_pod_keeps_its_back_end_where_the_cluster_has_another_order_by_now() -> None:
    written = builders.pod(labels={"gpu": "0.3"})
    stored = _created(written)
    cluster = replace(RULES.cluster, backends=("kai", "hami-vgpu"), part="kai", tiers={})
    later = rulebook.index(cluster, RULES.backends, RULES.devices, RULES.digest)

    assert _created(written, later)["spec"]["schedulerName"] == "kai-scheduler"
    assert _again(stored, as_served(written), later)["spec"] == stored["spec"]


@tables.rows
def test_another_request_is_refused_with_what_to_do(
    created: Mapping[str, str], sent: Mapping[str, str], said: str
) -> None:
    stored = _created(_asking(**created))

    decision = _sent(stored, applied(stored, _asking(**sent)))

    assert (decision.code, "\n".join(map(str, decision.violations)), decision.patch) == (403, said, ())


def test_another_label_in_a_manifest_is_refused_as_the_label() -> None:
    stored = _created(builders.pod(labels={"gpu": "0.3"}))

    decision = _sent(stored, builders.pod(labels={"gpu": "2"}))

    assert (decision.violations[0].code, decision.violations[0].path) == ("GPU109", "metadata.labels.gpu")


def test_in_observe_mode_nothing_is_refused() -> None:
    stored = _created(_asking(gpu="0.3"))
    rulebook = replace(RULES, tenancy=Tenancy(observing=True))

    decision = _sent(stored, applied(stored, _asking(gpu="0.5")), rulebook)

    assert (decision.allowed, decision.patch) == (True, ())
    assert decision.warnings[0].startswith('would be refused: [GPU109] the container "main" was created with gpu=0.3')


def test_an_annotation_that_somebody_takes_away_is_left_to_the_check() -> None:
    stored = _created(_asking(gpu="0.3"))
    without = {**stored, "metadata": {"name": "train", "uid": "1"}}

    assert _sent(stored, without) == UNTOUCHED


@pytest.mark.parametrize("written", [builders.pod(), builders.pod(labels={"gpu": "0.3"})], ids=["none", "a share"])
def test_an_image_or_a_toleration_changes_as_ever(written: Object) -> None:
    stored = _created(written)
    tolerations = [*stored["spec"].get("tolerations", ()), {"key": "mine", "operator": "Exists"}]
    containers = [{**stored["spec"]["containers"][0], "image": "registry.example/train:2"}]

    decision = _sent(
        stored, {**stored, "spec": {**stored["spec"], "tolerations": tolerations, "containers": containers}}
    )

    assert decision == UNTOUCHED


def test_a_system_namespace_is_left_alone() -> None:
    stored = _created(_asking(gpu="0.3"))

    assert _sent(stored, applied(stored, _asking(gpu="0.5")), namespace="kube-system") == UNTOUCHED


def test_a_stored_pod_that_is_over_the_budget_is_not_read() -> None:
    stored = _created(_asking(gpu="0.3"))
    others = [builders.container(f"c{number}") for number in range(300)]
    large = {**stored, "spec": {**stored["spec"], "containers": [*stored["spec"]["containers"], *others]}}

    assert _sent(large, applied(stored, _asking(gpu="0.5"))) == UNTOUCHED
