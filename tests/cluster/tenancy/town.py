"""A cluster with one settler, one admission server and many tenants, for what happens to them one after the other."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.cluster.client import Answer, Client, Object, RefusedError
from tests.cluster.plane import ControlPlane
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.witness import HOLDS, Witness
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, register

PATIENCE = 30.0
"""Seconds for which somebody who is told to come again does."""

BACKOFF = 0.2
RBAC = "rbac.authorization.k8s.io"


@dataclass(slots=True)
class Town:
    """The cluster, and what serves it; `free` is a namespace whose policy limits nothing."""

    plane: ControlPlane
    settler: Process
    webhook: Webhook
    free: Client

    @property
    def client(self) -> Client:
        """The administrator."""
        return self.plane.client

    def tenant(self, name: str, *, namespaces: int = 1, **spec: Any) -> list[Client]:
        """A new tenant, and an administrator in each of its namespaces, as soon as pods can be created there."""
        names = [f"{name}-{letter}" for letter in "abc"[:namespaces]]
        self.client.create(world.policy(name, f"{name}-*", **spec))
        there = [self.client.in_namespace(each) for each in names]
        if "quota" in spec:
            world.await_counted(self.client, name, *names)
        return there

    def change(self, name: str, **spec: Any) -> None:
        """Change a policy."""
        self.client.patch(world.policy(name), {"spec": spec})

    def drop(self, name: str) -> None:
        """Delete a policy."""
        self.client.delete(world.policy(name))

    def used(self, tenant: str) -> Mapping[str, str]:
        """What is used, as everybody sees it."""
        return dict(world.usage(self.client, tenant).get("used", {}))

    def await_used(self, tenant: str, devices: str, *, within: float = 20.0) -> None:
        """Await that so many devices are used, and none is only reserved."""

        def settled() -> bool:
            usage = world.usage(self.client, tenant)
            return bool(usage) and usage["used"].get("devices", "0") == devices and not usage["pending"]

        try:
            until(settled, f"{tenant} uses {devices}", within=within)
        except TimeoutError:
            raise AssertionError(f"{tenant} should use {devices}: {world.usage(self.client, tenant)}") from None

    @contextmanager
    def watched(self, *there: Client) -> Iterator[Witness]:
        """Somebody who adds up by himself what `gpu_pod`s hold in these namespaces at every version."""
        with Witness(self.client, [client.namespace for client in there]) as witness:
            yield witness


def owner(there: Client, name: str) -> Client:
    """A user who may do everything in one namespace and nothing elsewhere, as soon as pods can be created there."""
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": name}}
    there.create({**role, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"apiGroup": RBAC, "kind": "User", "name": name}
    there.create({**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]})
    tenant = there.with_rights_of(name)
    until(lambda: told(tenant, pod("any"), dry_run=True)[0] == HTTPStatus.CREATED, f"{name} may create pods")
    return tenant


def gpu_pod(name: str, devices: str = "1", **labels: str) -> dict[str, Any]:
    """A pod that asks for so many devices, and says so to a `Witness`; `gpu_memory="8Gi"` asks for that, too."""
    asked = {key.replace("_", "-"): value for key, value in labels.items()}
    return pod(name, labels={"gpu": devices, **asked}, annotations={HOLDS: devices})


def create(there: Client, *made: Object) -> list[Answer]:
    """Create pods; whoever is told to come again does."""
    return [_create(there, each) for each in made]


def _create(there: Client, made: Object) -> Answer:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return there.create(made)
        except RefusedError as refused:
            if refused.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                raise
        time.sleep(BACKOFF)


def refusal(there: Client, made: Object) -> RefusedError:
    """Why a pod is not created, for good."""
    try:
        _create(there, made)
    except RefusedError as refused:
        return refused
    raise AssertionError(f"{made['metadata']['name']} was created")


def told(there: Client, made: Object, *, dry_run: bool = False) -> tuple[int, str]:
    """The code and the words with which one create is answered."""
    try:
        there.create(made, dry_run=dry_run)
    except RefusedError as refused:
        return refused.code, str(refused)
    return HTTPStatus.CREATED, ""


def delete_all(there: Client) -> None:
    """Delete all pods of a namespace by one request."""
    there.send("DELETE", there.collection(pod("any")), query={"gracePeriodSeconds": "0"})


def failures(there: Client) -> list[str]:
    """What controllers could not create in a namespace, as its events say."""
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {}}
    return [each["message"] for each in there.list(event, fieldSelector="reason=FailedCreate")]


@contextmanager
def running(plane: ControlPlane, *, rules: Path | None = None) -> Iterator[Town]:
    """All of it, until the end of the block."""
    world.define(plane.client)
    settler = world.start_settler(plane)
    with world.attached_webhook(plane, "town-webhook", rules=rules) as webhook:
        register(plane.client, webhook)
        plane.client.create(world.policy("free", "free"))
        town = Town(plane, settler, webhook, plane.client.in_namespace("free"))
        yield town
        town.settler.assert_running()
        webhook.process.assert_running()
