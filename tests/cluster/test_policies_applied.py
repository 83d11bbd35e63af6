"""Who applies a TenantPolicy or an Exemption reads what is wrong with it, and nobody is kept from repairing one."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.plane import control_plane
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import Town, create, gpu_pod
from tests.cluster.waiting import until
from tests.cluster.webhook import register

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place(programs: Binaries) -> Iterator[Town]:
    """A cluster with the namespaces `vision` and `speech`, a settler, an admission server, and no policy."""
    with control_plane(programs, controllers=False) as plane:
        world.define(plane.client)
        settler = world.start_settler(plane)
        with world.attached_webhook(plane, "webhook") as webhook:
            register(plane.client, webhook)
            speech, _ = (plane.client.in_namespace(name) for name in ("speech", "vision"))
            yield Town(plane, settler, webhook, speech)


def applied(client: Client, made: Object, *, dry: bool = False) -> tuple[str, list[str]]:
    """What kubectl prints when it applies an object: what became of it, and the warnings."""
    options = ["--dry-run=server"] if dry else []
    done = client.kubectl("apply", *options, "-f", "-", stdin=json.dumps(made))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr.splitlines()


def test_kubectl_prints_what_is_wrong_with_a_policy_as_it_is_applied(place: Town) -> None:
    vision = world.policy("vision", "vision", quota={"devices": 4})
    all_others = "default, kube-node-lease, kube-public, and 1 more"
    first = (
        "Warning: TenantPolicy/vision spec.namespaces: as the first TenantPolicy it takes GPUs from each namespace "
        f"that it does not select (4), unless the Cluster document says namespacesWithoutPolicy: open: {all_others}"
    )
    until(lambda: applied(place.client, vision, dry=True)[1] == [first], "the server knows all namespaces")

    assert applied(place.client, vision) == ("tenantpolicy.gpu-webhook.io/vision created", [first])
    world.await_counted(place.client, "vision", "vision")
    create(place.client.in_namespace("vision"), gpu_pod("one", "3"))
    place.await_used("vision", "3")
    smaller = world.policy("vision", "vision", quota={"devices": 1})
    used = (
        "Warning: TenantPolicy/vision spec.quota.devices: 1 is less than the 3 that the tenant uses: "
        "what runs stays, and more is refused before 2 are free"
    )
    assert applied(place.client, smaller) == ("tenantpolicy.gpu-webhook.io/vision configured", [used])
    assert applied(place.client, smaller) == ("tenantpolicy.gpu-webhook.io/vision unchanged", [])
    gone = place.client.kubectl("delete", "tenantpolicy", "vision")
    assert (gone.returncode, gone.stderr) == (0, "")


def test_kubectl_prints_what_is_wrong_with_an_exemption_as_it_is_applied(place: Town) -> None:
    spec = {"namespaces": ["speech"], "lifts": ["quota"], "owner": "ada@example.com", "reason": "a deadline"}
    made = {
        "apiVersion": world.API_VERSION,
        "kind": "Exemption",
        "metadata": {"name": "deadline"},
        "spec": {**spec, "expires": "2020-01-01T00:00:00Z"},
    }

    printed, [ended, nothing] = applied(place.client, made)

    assert printed == "exemption.gpu-webhook.io/deadline created"
    assert ended.startswith("Warning: Exemption/deadline spec.expires: it ended ")
    nobody = "no TenantPolicy that is known here is for speech; until one is, it lifts nothing"
    assert nothing == f"Warning: Exemption/deadline spec.namespaces: {nobody}"


def test_with_the_webhook_away_a_policy_is_applied_all_the_same(place: Town) -> None:
    place.webhook.process.stop()

    assert applied(place.client, world.policy("dev", "*-dve")) == ("tenantpolicy.gpu-webhook.io/dev created", [])
