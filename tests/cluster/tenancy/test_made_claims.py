"""Claims are judged by the device classes that they ask for, as they are made, by the API server alone."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.devices import API
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import told
from tests.cluster.waiting import until
from webhook.playground import CLUSTER, imagined

pytestmark = pytest.mark.cluster

GPU, CHANNEL = "gpu.example.com", "channel.example.com"
LISTED = f"deviceclass.resource.kubernetes.io/{CHANNEL.partition('.')[0]}.*"
OF_A_RESOURCE = "resource.kubernetes.io/extended-resource-claim"


def _exactly(name: str, **fields: Any) -> Object:
    return {"name": name.partition(".")[0], "exactly": {"deviceClassName": name, **fields}}


def _template(*requests: Object, name: str = "made", annotations: Mapping[str, str] | None = None) -> Object:
    spec = {"metadata": {"annotations": annotations or {}}, "spec": {"devices": {"requests": [*requests]}}}
    return {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def _claim(*requests: Object, annotations: Mapping[str, str] | None = None) -> Object:
    metadata = {"name": "made", "annotations": annotations or {}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": requests}},
    }


EITHER = {"name": "card", "firstAvailable": [{"name": name[:3], "deviceClassName": name} for name in (CHANNEL, GPU)]}
REFUSED: Mapping[str, Object] = {
    "a template of the name of a harmless one": _template(_exactly(GPU, allocationMode="All"), name="channel"),
    "a GPU beside something else": _template(_exactly(CHANNEL), _exactly(GPU)),
    "a GPU or something else": _template(EITHER),
    "a claim": _claim(_exactly(GPU)),
    "a claim that says it is for an extended resource": _claim(_exactly(GPU), annotations={OF_A_RESOURCE: "true"}),
}
FREE: Mapping[str, Object] = {
    "a template without a GPU": _template(_exactly(CHANNEL, count=2)),
    "a claim without a GPU": _claim(_exactly(CHANNEL)),
    "a claim of nothing": _claim(),
}
"""What the API server stores."""


@pytest.fixture(scope="module")
def there(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A tenant with templates that are older than the settler, where no webhook is."""
    rules = imagined(tmp_path_factory.mktemp("rules") / "rules")
    document = rules / CLUSTER.name
    text = document.read_text().replace("\nspec:\n", f"\nspec:\n  otherDevices: [{json.dumps(LISTED)}]\n")
    document.unlink()
    document.write_text(text)
    with control_plane(programs, controllers=True) as plane:
        world.define(plane.client)
        for name in ("bounded", "elsewhere", "spared"):
            plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        plane.client.create(world.policy("bounded", "bounded", "spared", quota={"devices": 1}))
        why = {"owner": "ada", "reason": "their own cards", "expires": "2099-01-01T00:00:00Z"}
        exemption = {"apiVersion": world.API_VERSION, "kind": "Exemption", "metadata": {"name": "spared"}}
        plane.client.create({**exemption, "spec": {**why, "namespaces": ["spared"], "lifts": ["quota"]}})
        client = plane.client.in_namespace("bounded")
        client.create(_template(_exactly(GPU), name="old"))
        client.create(_template(_exactly(GPU), name="old-and-sly", annotations={OF_A_RESOURCE: "true"}))
        client.create(_template(_exactly(CHANNEL), name="channels"))
        world.start_settler(plane, rules=rules)
        until(lambda: told(client, REFUSED["a claim"], dry_run=True)[0] == 403, "the policy is filled in")
        yield client


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_a_claim_of_a_class_that_nothing_counts_is_refused(there: Client, made: Object) -> None:
    code, words = told(there, made, dry_run=True)

    assert (code, f"[GPU108] a claim of {GPU} may hold a GPU" in words) == (403, True), words


@pytest.mark.parametrize("made", FREE.values(), ids=FREE)
def test_one_of_a_class_that_the_site_lists_is_not(there: Client, made: Object) -> None:
    assert told(there, made, dry_run=True)[0] == 201


def test_where_nobody_gets_a_device_nobody_claims_one_and_an_exemption_lets_them(there: Client) -> None:
    made = REFUSED["a claim"]

    codes = {
        name: told(there.in_namespace(name), made, dry_run=True)[0] for name in ("elsewhere", "spared", "default")
    }

    assert codes == {"elsewhere": 403, "spared": 201, "default": 403}


def test_what_the_scheduler_claims_for_extended_resources_was_counted_at_the_pod(there: Client) -> None:
    scheduler = there.acting_as("system:kube-scheduler")
    annotations: Sequence[Mapping[str, str]] = (
        {OF_A_RESOURCE: "true"},
        {},
        {OF_A_RESOURCE: "true", "resource.kubernetes.io/pod-claim-name": "card"},
    )

    codes = [told(scheduler, _claim(_exactly(GPU), annotations=keys), dry_run=True)[0] for keys in annotations]

    assert codes == [201, 403, 403]


@pytest.mark.parametrize("template", ["old", "old-and-sly"])
def test_a_template_from_before_makes_no_claim_of_a_gpu(there: Client, template: str) -> None:
    there.create(_claiming(template))

    [event] = until(partial(_events, there, template), "the controller says why")
    assert f"[GPU108] a claim of {GPU} may hold a GPU" in event["message"]
    assert [claim for claim in _claims(there) if claim["metadata"]["generateName"].startswith(f"{template}-")] == []


def test_a_template_without_a_gpu_makes_its_claim(there: Client) -> None:
    there.create(_claiming("channels"))

    until(lambda: [claim for claim in _claims(there) if "channels" in str(claim["metadata"])], "the claim is made")


def _claiming(template: str) -> Object:
    claims = [{"name": "card", "resourceClaimTemplateName": template}]
    return pod(
        template, resourceClaims=claims, containers=[container("main", resources={"claims": [{"name": "card"}]})]
    )


def _claims(there: Client) -> Sequence[Object]:
    return there.list({"apiVersion": API, "kind": "ResourceClaim"})


def _events(there: Client, name: str) -> Sequence[Object]:
    events = there.list({"apiVersion": "v1", "kind": "Event"})
    return [event for event in events if event["involvedObject"]["name"] == name][:1]
