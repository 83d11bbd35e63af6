"""Nobody is refused because of us before a replica answers, and nothing is unseen once one has."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from certs.activation import WANTED
from tests.cluster.binaries import Binaries
from tests.cluster.client import RefusedError
from tests.cluster.installation import Installation, Issuer, servers
from tests.cluster.load import ASKING, ORDINARY, Load
from tests.cluster.rollouts import report
from tests.cluster.test_operating import COMMANDS, executed
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, configurations, shipped

pytestmark = [pytest.mark.cluster, pytest.mark.large]

PODS = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "*"}]


@pytest.fixture(scope="module")
def empty(programs: Binaries) -> Iterator[Installation]:
    """Two API servers; nothing is installed."""
    with servers(programs) as made:
        made.lay_out()
        yield made


@pytest.fixture(scope="module")
def issuer(empty: Installation) -> Iterator[Issuer]:
    with empty.issuer("--idle=1s") as running:
        yield running


def rules(installed: Installation) -> list[Any]:
    """Of each webhook, as the cluster has it."""
    return [hook.get("rules") for each in shipped() for hook in installed.client.get(each)["webhooks"]]


def is_known(installed: Installation) -> bool:
    """Whether every API server has heard of both configurations: they refuse a ping while no replica is there."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "any", "namespace": "gpu-webhook-system", "labels": {"gpu-webhook.io/ping": "any"}},
    }
    for client in installed.clients:
        try:
            client.create(lease, dry_run=True)
        except RefusedError as refusal:
            if "ping.gpu-webhook.io" in str(refusal):
                continue
            raise
        return False
    return True


def done(installed: Installation, command: str) -> str:
    """What a command prints."""
    return executed(installed.planes[0], command, ROOT)


def log(issuer: Issuer) -> str:
    return issuer.process.log.read_text()


def test_nobody_is_refused_between_the_first_apply_and_the_first_replica(
    empty: Installation, request: pytest.FixtureRequest
) -> None:
    """By the three lines of the README, with the programs of this machine behind the Services."""
    apply, wait, attempt = COMMANDS["install"].splitlines()
    active = [hook["rules"] for each in configurations() for hook in each["webhooks"]]
    with Load(empty.clients, 8, (ASKING, ORDINARY)) as load:
        load.rewriting = False
        assert "serverside-applied" in done(empty, apply)
        until(lambda: is_known(empty), "every API server knows both configurations", within=30)
        waiting: Issuer = request.getfixturevalue("issuer")
        until(lambda: "gets no answer from a replica" in log(waiting), "no replica answers", within=60)
        assert (rules(empty) != active, set(waiting.problems())) == (True, {"inactive"})
        before = load.created.total()
        until(lambda: load.created.total() > before + 100, "pods are created meanwhile")

        empty.start_replicas(1)
        assert "condition met" in done(empty, wait)
        until(lambda: rules(empty) == active, "the webhooks have their rules", within=60)
        until(empty.works, "pods are rewritten through both API servers", within=30)

    assert load.failures == []
    assert waiting.done("activate") == 2
    report(empty.client, replicas=1, updated=1)
    assert done(empty, attempt) == '{"nvidia.com/gpu":"1"}'


@pytest.mark.usefixtures("issuer")
def test_rules_that_are_taken_out_are_there_again(empty: Installation) -> None:
    active = rules(empty)
    for made in configurations():
        stored = empty.client.get(made)
        stored["webhooks"][0].pop("rules")
        empty.client.update(stored)

    until(lambda: rules(empty) == active, "the rules are there again", within=30)


@pytest.mark.usefixtures("issuer")
def test_rules_of_a_new_version_are_copied(empty: Installation) -> None:
    mutating = shipped()[0]
    mutating["metadata"]["annotations"][WANTED] = json.dumps({"mutate.gpu-webhook.io": PODS})
    empty.client.apply(mutating)

    until(lambda: rules(empty)[0] == PODS, "the new rules", within=30)

    empty.client.apply(shipped()[0])
    until(lambda: rules(empty)[0] != PODS, "the old rules", within=30)


def test_rules_of_a_new_version_wait_for_its_last_replica_and_the_log_says_so(
    empty: Installation, issuer: Issuer
) -> None:
    active = rules(empty)
    report(empty.client, replicas=3, updated=2)
    validating = shipped()[1]
    more = [{**PODS[0], "resources": ["pods/eviction"], "scope": "Namespaced"}]
    validating["metadata"]["annotations"][WANTED] = json.dumps({"bindings.gpu-webhook.io": more})
    empty.client.apply(validating)

    until(lambda: issuer.problems() == ["rollout"], "an old replica is left", within=30)
    assert rules(empty) == active
    former = "bindings.gpu-webhook.io: the former rules stay until no old replica of gpu-webhook is left"
    assert f"{former}: 2 of 3 replicas are of the new version" in log(issuer)

    report(empty.client, replicas=3, updated=3)
    until(lambda: more in rules(empty), "the new rules", within=30)
    empty.client.apply(shipped()[1])
    until(lambda: rules(empty) == active, "the old rules", within=30)


def test_an_annotation_that_cannot_be_read_is_said_and_changes_nothing(empty: Installation, issuer: Issuer) -> None:
    active = rules(empty)
    mutating = shipped()[0]
    mutating["metadata"]["annotations"][WANTED] = "[1"
    empty.client.apply(mutating)

    until(lambda: issuer.problems() == ["configuration"], "a problem is told", within=30)

    assert f"its annotation {WANTED} is not JSON" in log(issuer)
    assert rules(empty) == active
    empty.client.apply(shipped()[0])
    until(lambda: issuer.problems() == [], "all is well", within=30)


def test_a_replica_that_goes_takes_no_rules_with_it(empty: Installation, issuer: Issuer) -> None:
    active = rules(empty)
    empty.replicas[0].process.kill()

    with pytest.raises(RefusedError, match=r'failed calling webhook "mutate\.gpu-webhook\.io"'):
        empty.client.create(ASKING, dry_run=True)
    turned = issuer.age()
    until(lambda: issuer.age() < turned, "the certificate program has looked again", within=30)
    assert rules(empty) == active
