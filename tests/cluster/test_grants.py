"""Each right that the manifests give is used by some program in some ordinary situation, and none is missing."""

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cluster import grants
from tests.cluster.accounts import NAMESPACE, SETTLER, kubeconfig_of
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.grants import Asked, Grant
from tests.cluster.installation import AUTHORITIES, SERVING, Installation, servers
from tests.cluster.pods import pod
from tests.cluster.rollouts import DEPLOYMENT, Rollouts
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import create, gpu_pod, refusal, told
from tests.cluster.test_certs import FAST
from tests.cluster.test_elastic_claims import CRDS
from tests.cluster.waiting import until
from tests.cluster.watcher import running_watcher
from tests.cluster.webhook import PROGRAM, ROOT, configurations
from tests.release import kustomized

pytestmark = [pytest.mark.cluster, pytest.mark.large]

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0", "controller": True}
EVENT: Object = {"apiVersion": "v1", "kind": "Event", "metadata": {}}
RESOURCE_QUOTA: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
LASTING = ("--leaf-lifetime=90s", "--ca-lifetime=6m", "--renew-at=0.025")
"""As often, and valid for longer: nobody mounts the next leaf here."""

NO_PODS = {"hard": {"pods": "0"}}
JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "gpu-webhook-doctor", "namespace": NAMESPACE},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("grants")


@pytest.fixture(scope="module")
def installed(programs: Binaries, folder: Path) -> Iterator[Installation]:
    """All that has an account, on an API server that writes down what it is asked; one replica, as one has it all."""
    options, _ = grants.audited(folder)
    with ExitStack() as stack:
        made = stack.enter_context(servers(programs, *options, count=1))
        made.lay_out()
        for crd in CRDS:
            made.client.apply(yaml.safe_load(crd.read_text()))
        _apply(made.client, folder)
        made.client.patch(DEPLOYMENT, {"spec": {"replicas": 1}})
        stack.enter_context(made.issuer(*FAST, *LASTING))
        until(lambda: made.stored(SERVING), "the serving Secret", within=60)
        running = Rollouts(made)
        stack.callback(running.close)
        running.scale()
        world.start_settler(made.planes[0], kubeconfig=kubeconfig_of(made.planes[0], SETTLER))
        account = kubeconfig_of(made.planes[0], "gpu-webhook")
        stack.enter_context(running_watcher(made.planes[0], account, ROOT / "rules", folder / "surroundings.json"))
        until(made.works, "pods are rewritten", within=60)
        yield made


def _apply(client: Client, folder: Path) -> None:
    kustomized.overlay(folder, ["doctor"])
    applied = client.kubectl("apply", "--server-side", "-k", str(folder))
    assert applied.returncode == 0, applied.stderr


@pytest.fixture(scope="module")
def rights(installed: Installation) -> set[Grant]:
    return grants.granted(installed.client)


@pytest.fixture(scope="module")
def asked(installed: Installation, rights: set[Grant], folder: Path) -> list[Asked]:
    """What was asked in ordinary situations."""
    for configuration in configurations():
        installed.client.delete(configuration)
    until(installed.works, "the configurations are there again", within=60)
    for secret in (SERVING, AUTHORITIES):
        installed.client.delete(secret)
    until(lambda: installed.stored(SERVING) and installed.stored(AUTHORITIES), "the Secrets are there again")
    _rules_become_more(installed)
    _a_tenant_comes_and_goes(installed.client)
    _examine(installed)
    log = folder / "audit.log"
    with contextlib.suppress(TimeoutError):  # the tests say what is missing
        until(lambda: not _unused(rights, grants.asked(log)), "every right is used", within=30)
    return grants.asked(log)


def _rules_become_more(installed: Installation) -> None:
    """A configuration of a former version, of which the present one is an upgrade."""
    made = configurations()[1]
    [first, *others] = installed.client.get(made)["webhooks"]
    installed.client.patch(made, {"webhooks": [{**first, "rules": first["rules"][:1]}, *others]})
    until(lambda: installed.client.get(made)["webhooks"] == [first, *others], "the rules are those wanted", within=60)


def _a_tenant_comes_and_goes(client: Client) -> None:
    """A policy; pods that are stored, refused by the quota, and refused after us; all of it is deleted again."""
    policy = world.policy("vision", "vision", quota={"devices": "3"})
    client.create(policy)
    there = client.in_namespace("vision")
    world.await_counted(client, "vision", "vision")
    [stored] = create(there, gpu_pod("one"))
    refused = gpu_pod("too-many", "4")
    refused["metadata"]["ownerReferences"] = [OWNER]
    assert "GPU104" in str(refusal(there, refused))
    until(lambda: there.list(EVENT), "the owner is told")
    there.create({**RESOURCE_QUOTA, "spec": NO_PODS})
    there.patch(RESOURCE_QUOTA, {"status": {**NO_PODS, "used": {"pods": "0"}}}, subresource="status")
    until(lambda: told(there, pod("ordinary"), dry_run=True)[1], "the ResourceQuota is in force")
    assert "exceeded quota: none" in str(refusal(there, gpu_pod("late")))
    until(lambda: not world.usage(client, "vision")["pending"], "its reservation is dropped")
    there.delete(stored)
    client.delete(policy)
    until(lambda: not world.usage(client, "vision"), "the ledger is deleted")


def _examine(installed: Installation) -> None:
    """What the Job of the component doctor does."""
    [container] = installed.client.get(JOB)["spec"]["template"]["spec"]["containers"]
    command = [each.replace("/etc/gpu-webhook/rules", str(ROOT / "rules")) for each in container["args"]]
    kubeconfig = kubeconfig_of(installed.planes[0], JOB["metadata"]["name"])
    job = installed.planes[0].processes.start("doctor", PROGRAM, *command, env={"KUBECONFIG": str(kubeconfig)})
    assert job.popen.wait(60) in {0, 1}, job.tail()


def _unused(rights: set[Grant], asked: list[Asked]) -> set[Grant]:
    return {right for right in rights if not any(each.is_allowed and right.allows(each.request) for each in asked)}


def test_every_right_is_used(rights: set[Grant], asked: list[Asked]) -> None:
    assert _unused(rights, asked) == set()
    assert {each.account for each in rights} == {
        "gpu-webhook",
        "gpu-webhook-certs",
        "gpu-webhook-doctor",
        "gpu-webhook-settler",
    }


def test_nothing_was_asked_that_no_right_is_for(asked: list[Asked]) -> None:
    assert {each.request for each in asked if not each.is_allowed} == set()


def test_every_role_is_one_of_our_accounts_but_that_for_people(installed: Installation) -> None:
    shipped = kustomized.objects(installed.binaries.path("kubectl"), ["doctor"])

    named = {each["metadata"]["name"] for each in shipped if each["kind"] in {"Role", "ClusterRole"}}
    assert named - grants.roles(installed.client) == {"gpu-webhook-tenantusage-reader"}
