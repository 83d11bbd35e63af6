"""What a tenant with all rights in its namespace gets past its quota while a part of the webhook is not there."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import pytest
import yaml

from tests.cli.program import run
from tests.cluster.accounts import NAMESPACE
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import attempts, world
from tests.cluster.tenancy.town import delete_all, owner, told
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, configurations, register, unregister
from tests.release import kustomized
from webhook.playground import imagined

pytestmark = pytest.mark.cluster

QUOTA = 3
TENANT = "bounded"
OPTED_IN = "gpu-webhook.io/admission"
HERE: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
NATIVE: Object = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-webhook"}}
POLICY = world.policy(TENANT, TENANT, priority=1, quota={"devices": QUOTA}, ceilings={"pod": {"devices": 2}})
MARKED = {**world.policy("marked"), "spec": {"namespaces": {"selector": {"matchLabels": {"team": "marked"}}}}}


def _asking(resource: str, devices: int = 1) -> Object:
    return pod("asking", containers=[container("main", resources=limits(**{resource: str(devices)}))])


PAST_THE_QUOTA: Mapping[str, Object] = {
    "whole devices": _asking("amd.com/gpu"),
    "whole devices, more than a pod may have": _asking("amd.com/gpu", 3),
    "devices that may be shared": _asking("nvidia.com/gpu"),
    "shorthand": pod("asking", labels={"gpu": "1"}),
    "a variable": attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    "privileged": attempts.trying(securityContext={"privileged": True}),
    "a host path": attempts.on_host("/dev"),
}
"""Of each one more is created than the quota has devices."""


def _admitted(whole: int, shared: int, shorthand: int) -> Mapping[str, int]:
    counts = [whole, 0, shared, shorthand, 0, 0, 0]
    return dict(zip(PAST_THE_QUOTA, counts, strict=True))


ADMITTED = {
    "nothing": _admitted(QUOTA, QUOTA, QUOTA),
    "rules": _admitted(QUOTA, QUOTA, QUOTA),  # the last good ones stay in use
    "label": _admitted(QUOTA, QUOTA + 1, 0),
    "Deployment": _admitted(0, 0, 0),
    "configuration": _admitted(QUOTA, QUOTA + 1, 0),
}
"""What is taken away, in this order, and how many pods are admitted then.

Where the webhook is not asked a ResourceQuota bounds whole devices, and nothing a resource that may be a share.
"""


@dataclass(frozen=True, slots=True)
class Judged:
    """The administrator, the tenant, and how many of its pods were admitted."""

    client: Client
    tenant: Client
    admitted: Mapping[str, Mapping[str, int]]


@pytest.fixture(scope="module")
def judged(
    programs: Binaries,
    controllers: None,  # noqa: ARG001 - asked for what it checks
) -> Iterator[Judged]:
    """Each part is taken away by the operator, and what the tenant creates then is counted."""
    with control_plane(programs, controllers=True) as plane:
        client, rules = plane.client, imagined(plane.processes.folder / "rules")
        world.define(client)
        world.start_settler(plane)
        with world.attached_webhook(plane, "webhook", rules=rules) as webhook:
            tenant = _installed(plane, webhook)

            def take_rules() -> None:
                for file in rules.iterdir():
                    file.unlink()
                until(lambda: "the last good ones stay" in webhook.process.log.read_text(), "the rules are missed")

            def take_label() -> None:
                client.patch(HERE, {"metadata": {"labels": {OPTED_IN: None}}})
                until(partial(_said, tenant, "[GPU601]"), "the namespace has left")

            def stop() -> None:
                client.patch(HERE, {"metadata": {"labels": {OPTED_IN: "enabled"}}})
                until(partial(_said, tenant, ""), "the namespace is back")
                webhook.process.stop()

            def take_configuration() -> None:
                unregister(client)
                until(partial(_said, tenant, "[GPU601]"), "the webhook is not asked any more")

            taking: Mapping[str, Callable[[], None]] = {
                "nothing": lambda: None,
                "rules": take_rules,
                "label": take_label,
                "Deployment": stop,
                "configuration": take_configuration,
            }
            admitted = {}
            for what, take in taking.items():
                take()
                admitted[what] = {name: _count(client, tenant, made) for name, made in PAST_THE_QUOTA.items()}
            yield Judged(client, tenant, admitted)


def _installed(plane: ControlPlane, webhook: Webhook) -> Client:
    """Everything an operator installs, asked only where a namespace has the label; returns the tenant."""
    client = plane.client
    register(client, webhook)
    narrowed = kustomized.objects(client.kubectl_path, ["namespace-opt-in"])
    selectors = {
        hook["name"]: hook["namespaceSelector"] for each in narrowed for hook in each.get("webhooks", ()) if hook
    }
    for configuration in configurations():
        stored = client.get(configuration)
        hooks = [{**hook, "namespaceSelector": selectors[hook["name"]]} for hook in stored["webhooks"]]
        client.update({**stored, "webhooks": hooks})
    there = client.in_namespace(TENANT)
    tenants = plane.processes.folder / "tenants.yaml"
    tenants.write_text(yaml.safe_dump_all([POLICY, MARKED]))
    for each in (POLICY, MARKED):
        client.create(each)
    rules = imagined(plane.processes.folder / "rendered")
    for each in yaml.safe_load_all(run("render", "policies", "--rules", rules, "--with", tenants).out):
        client.create(each)
    client.patch(HERE, {"metadata": {"labels": {OPTED_IN: "enabled"}}})
    world.await_counted(client, TENANT, TENANT)
    elsewhere = client.in_namespace("elsewhere")
    until(lambda: told(elsewhere, _asking("amd.com/gpu"), dry_run=True)[0] == HTTPStatus.CREATED, "it is narrowed")
    until(lambda: "'gpu-webhook-ceilings'" in told(there, _asking("amd.com/gpu", 3), dry_run=True)[1], "the policies")
    until(lambda: there.get(NATIVE).get("status"), "Kubernetes counts")
    tenant = owner(there, "eve")
    until(partial(_said, tenant, ""), "the webhook is asked")
    return tenant


def _said(tenant: Client, what: str) -> bool:
    """Whether a pod in shorthand is refused with these words; without words, whether it is admitted."""
    said = told(tenant, PAST_THE_QUOTA["shorthand"], dry_run=True)[1]
    return what in said if what else not said


def _count(client: Client, tenant: Client, made: Object) -> int:
    """How many copies are admitted; they are gone, and counted no more, afterwards."""
    copies = [{**made, "metadata": {**made["metadata"], "name": f"{index}"}} for index in range(QUOTA + 1)]
    codes = [told(tenant, each)[0] for each in copies]
    delete_all(tenant)
    until(partial(_nothing_counts, client), "what was deleted counts no more")
    return codes.count(HTTPStatus.CREATED)


def _nothing_counts(client: Client) -> bool:
    usage = world.usage(client, TENANT)
    native = client.in_namespace(TENANT).get(NATIVE)["status"]["used"]
    return usage["used"].get("devices", "0") == "0" and not usage["pending"] and {*native.values()} == {"0"}


@pytest.mark.parametrize("what", ADMITTED)
def test_what_is_admitted_is_what_policies_and_resource_quotas_admit(judged: Judged, what: str) -> None:
    assert judged.admitted[what] == ADMITTED[what]


OF_THE_OPERATOR: Mapping[str, Object] = {
    "the Deployment": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": NAMESPACE}},
    "the rules": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": NAMESPACE}},
    **{each["kind"]: {**each, "metadata": {}} for each in configurations()},
}


@pytest.mark.parametrize("what", OF_THE_OPERATOR)
def test_the_tenant_takes_nothing_away(judged: Judged, what: str) -> None:
    made = OF_THE_OPERATOR[what]

    with pytest.raises(RefusedError, match="cannot delete resource"):
        judged.tenant.delete({**made, "metadata": {**made["metadata"], "name": "gpu-webhook"}})


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize("labels", [{OPTED_IN: None}, {OPTED_IN: "disabled"}, {"team": "marked"}])
def test_the_tenant_changes_no_label_that_says_which_policy_is_for_its_namespace(
    judged: Judged, labels: Mapping[str, str | None], subresource: str
) -> None:
    judged.tenant.patch(HERE, {"metadata": {"labels": {"mood": "good"}}}, subresource=subresource)

    with pytest.raises(RefusedError, match="only who may assign tenantpolicies changes it"):
        judged.tenant.patch(HERE, {"metadata": {"labels": labels}}, subresource=subresource)


def test_the_tenant_changes_no_such_label_by_finalizing_its_namespace(judged: Judged) -> None:
    stored = judged.tenant.get(HERE)
    labels = {**stored["metadata"]["labels"], "team": "marked"}

    with pytest.raises(RefusedError, match="only who may assign tenantpolicies changes it"):
        judged.tenant.update({**stored, "metadata": {**stored["metadata"], "labels": labels}}, subresource="finalize")


def test_nobody_else_writes_what_a_tenant_uses(judged: Judged) -> None:
    ledger = {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {"name": TENANT}}

    with pytest.raises(RefusedError, match="only accounts of gpu-webhook-system write what tenants use"):
        judged.client.patch(ledger, {"status": {"held": {}}}, subresource="status")
