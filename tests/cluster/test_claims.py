"""Claims (DRA) out of shorthand: what the API server stores, and what the real scheduler allocates for it."""

from typing import Any

import pytest

from tests import tables
from tests.cluster import nodes
from tests.cluster.client import Client, RefusedError
from tests.cluster.devices import API, allocated, claim_template, device, device_class, resource_slice
from tests.cluster.pods import container, pod
from tests.cluster.verdicts import await_running

pytestmark = pytest.mark.cluster

BY_CLAIM = {"gpu-webhook.io/backend": "dra-claim-template"}
KNOWN = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
UNKNOWN = "deviceclass.resource.kubernetes.io/gpu.example.com"
LARGE = "device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"


def _claimed(stored: dict[str, Any]) -> dict[str, list[str]]:
    """The templates that each container claims."""
    spec = stored["spec"]
    templates = {claim["name"]: claim["resourceClaimTemplateName"] for claim in spec["resourceClaims"]}
    return {
        one["name"]: [templates[claim["name"]] for claim in one["resources"]["claims"]]
        for one in (*spec.get("initContainers", ()), *spec["containers"])
    }


@tables.rows
def test_every_way_of_asking_ends_in_a_claim(
    scheduled: Client, labels: dict[str, str], annotations: dict[str, str], template: str
) -> None:
    stored = scheduled.create(pod("asking", labels=labels, annotations=BY_CLAIM | annotations), dry_run=True)

    assert _claimed(stored) == {"main": [template]}


def test_containers_of_every_kind_get_a_claim_each(scheduled: Client) -> None:
    asked = {"gpu.gpu-webhook.io/prepare": "1", "gpu.gpu-webhook.io/main": "1", "claim.gpu-webhook.io/serve": "small"}
    asking = pod(
        "asking",
        annotations=BY_CLAIM | asked,
        initContainers=[container("prepare"), container("serve", restartPolicy="Always")],
    )

    assert _claimed(scheduled.create(asking, dry_run=True)) == {
        "prepare": ["gpu"],
        "serve": ["small"],
        "main": ["gpu"],
    }


def test_a_template_by_name_is_allocated_where_its_device_is(scheduled: Client) -> None:
    nodes.add(scheduled, [nodes.node(name) for name in ("small", "large")])
    made = [
        resource_slice("small", [device("gpu-0", "Tesla T4", "15360Mi")]),
        resource_slice("large", [device("gpu-0", "NVIDIA A100-SXM4-80GB", "81920Mi")]),
        device_class("gpu.example.com"),
    ]
    for obj in made:
        scheduled.create(obj)
    scheduled.create(claim_template("large-card", "gpu.example.com", LARGE))

    asking = scheduled.create(pod("asking", labels={"gpu-claim": "large-card"}, annotations=BY_CLAIM))

    assert await_running(scheduled, asking) == "large"
    claims = scheduled.list({"apiVersion": API, "kind": "ResourceClaim"})
    assert [allocated(claim) for claim in claims] == [[("large", "gpu-0")]]
    for obj in made:
        scheduled.delete(obj)


WRONG = [
    pytest.param({"limits": "0.5", "requests": "0.5"}, "[GPU402]", id="half of a device"),
    pytest.param({"limits": "2", "requests": "1"}, "[GPU401]", id="a request that is not the limit"),
]


def _asking(name: str, amounts: dict[str, str]) -> dict[str, Any]:
    resources = {section: {name: amount} for section, amount in amounts.items()}
    return pod("asking", containers=[container("main", resources=resources)])


@pytest.mark.parametrize(("amounts", "code"), WRONG)
def test_what_kubernetes_takes_of_a_device_class_is_refused_of_one_that_a_rule_knows(
    scheduled: Client, amounts: dict[str, str], code: str
) -> None:
    """To the API server the implicit name of a class is its own, so it does not look at the amount."""
    scheduled.create(_asking(UNKNOWN, amounts), dry_run=True)

    with pytest.raises(RefusedError) as refusal:
        scheduled.create(_asking(KNOWN, amounts), dry_run=True)
    assert code in str(refusal.value)
