"""Devices by claim (DRA): the real scheduler allocates them, by the name of a resource or by a template."""

from typing import Any

import pytest

from tests.cluster import nodes
from tests.cluster.client import Client
from tests.cluster.devices import API, allocated, claim_template, device, device_class, resource_slice
from tests.cluster.pods import container, limits, pod
from tests.cluster.verdicts import Reasons, await_refusals, await_running

pytestmark = pytest.mark.cluster

LARGE = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"
T4, A100 = ("Tesla T4", "15360Mi"), ("NVIDIA A100-SXM4-80GB", "81920Mi")


@pytest.fixture
def devices(scheduled: Client) -> Client:
    """Three nodes: small cards, a large card, and none; and a DeviceClass for all cards."""
    nodes.add(scheduled, [nodes.node(name) for name in ("small", "large", "none")])
    scheduled.create(resource_slice("small", [device("gpu-0", *T4), device("gpu-1", *T4)]))
    scheduled.create(resource_slice("large", [device("gpu-0", *A100)]))
    scheduled.create(device_class("gpu.example.com", extended_resource="example.com/gpu"))
    return scheduled


def _claims(client: Client) -> list[list[tuple[str, str]]]:
    """What each claim of the namespace has."""
    return [allocated(claim) for claim in client.list({"apiVersion": API, "kind": "ResourceClaim"})]


def _asking(name: str, **quantities: Any) -> dict[str, Any]:
    return pod(name, containers=[container("main", resources=limits(**quantities))])


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu.example.com"])
def test_a_resource_that_a_device_class_names_is_allocated_by_claim(devices: Client, resource: str) -> None:
    asking = devices.create(_asking("asking", **{resource: 2}))

    assert await_running(devices, asking) == "small"
    assert _claims(devices) == [[("small", "gpu-0"), ("small", "gpu-1")]]


def test_more_devices_than_any_node_has_are_not_allocated(devices: Client) -> None:
    asking = devices.create(_asking("asking", **{"example.com/gpu": 3}))

    await_refusals(devices, asking, Reasons({"cannot allocate all claims": 3}))
    assert _claims(devices) == []


def test_a_template_chooses_devices_by_their_attributes_and_each_pod_gets_a_claim(devices: Client) -> None:
    devices.create(claim_template("large-card", "gpu.example.com", LARGE))
    first, second = (
        pod(
            name,
            resourceClaims=[{"name": "card", "resourceClaimTemplateName": "large-card"}],
            containers=[container("main", resources={"claims": [{"name": "card"}]})],
        )
        for name in ("first", "second")
    )

    assert await_running(devices, devices.create(first)) == "large"
    waiting = devices.create(second)
    await_refusals(devices, waiting, Reasons({"cannot allocate all claims": 3}))
    assert sorted(_claims(devices)) == [[], [("large", "gpu-0")]]
