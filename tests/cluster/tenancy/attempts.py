"""Pods that try to reach a device that they do not ask for, by every protected name of the shipped rules."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from tests import builders
from tests.cluster.pods import container, limits, pod
from webhook.core.rules.cluster import ANY, Protected

VALUE = "all"
PROTECTIONS = builders.rulebook(builders.shipped_files()).protections


def names(section: str) -> Iterator[Protected]:
    for each in PROTECTIONS:
        yield from getattr(each, section).values()


def one(name: str) -> str:
    """A name that a glob covers."""
    return f"{name.removesuffix(ANY)}x" if name.endswith(ANY) else name


def trying(containers: str = "containers", **fields: Any) -> dict[str, Any]:
    made = pod("free", containers=[container("main", **fields)])
    if containers != "containers":
        made["spec"]["containers"] = [container("main")]
        made["spec"][containers] = [container("other", **fields)]
    return made


def variables() -> Iterator[dict[str, Any]]:
    for each in names("env"):
        name = one(each.name)
        key = {"configMapKeyRef": {"name": "mine", "key": "cards"}}
        yield trying(env=[{"name": "A", "value": "b"}, {"name": name, "value": VALUE}])
        yield trying("initContainers", env=[{"name": name, "valueFrom": key}])
        yield trying(env=[{"name": "A", "value": VALUE}, {"name": name, "value": "$(A)"}])


def metadata() -> Iterator[dict[str, Any]]:
    for section in ("annotations", "labels"):
        for each in names(section):
            made = trying()
            made["metadata"][section] = {one(each.name): VALUE}
            yield made


def host_paths() -> Iterator[dict[str, Any]]:
    for each in names("host_paths"):
        path = PurePosixPath(one(each.name))
        spelled = {str(path), f"{path}/", f"/{path}", f"{path.parent}/x/../{path.name}", f"{path.parent}"}
        spelled |= {f"/var{path}"} if str(path).startswith("/run/") else set()
        yield from (on_host(one) for one in sorted(spelled) if "/../" not in one)


def on_host(path: str) -> dict[str, Any]:
    made = trying(volumeMounts=[{"name": "host", "mountPath": "/mnt"}])
    made["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": path}}]
    return made


def mounts() -> Iterator[dict[str, Any]]:
    for each in names("mount_paths"):
        made = trying(volumeMounts=[{"name": "mine", "mountPath": f"{one(each.name)}/all"}])
        made["spec"]["volumes"] = [{"name": "mine", "emptyDir": {}}]
        yield made


def privileges() -> Iterator[dict[str, Any]]:
    yield trying(securityContext={"privileged": True})
    yield trying("initContainers", securityContext={"privileged": True})
    for name in ("\u017fys_admin", "SYS_ADM\u0131N", "sys_raw\u0131o"):  # their capitals are plain letters
        yield trying(securityContext={"capabilities": {"add": [name]}})
    for each in names("capabilities"):
        for name in (each.name, f"CAP_{each.name}", each.name.lower()):
            made = trying(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE", name]}})
            yield {**made, "spec": {**made["spec"], "hostPID": bool(each.harmless)}}
    yield unmasked()


def unmasked() -> dict[str, Any]:
    """The API server takes it without the node's users alone."""
    made = trying(securityContext={"procMount": "Unmasked"})
    made["spec"]["hostUsers"] = False
    return made


def runtime_classes() -> Iterator[dict[str, Any]]:
    for each in names("runtime_classes"):
        made = trying()
        made["spec"]["runtimeClassName"] = one(each.name)
        yield made


def resources() -> Iterator[dict[str, Any]]:
    for each in names("resources"):
        yield trying(resources=limits(**{one(each.name): "1"}))
        yield trying("initContainers", resources=limits(**{one(each.name): "1"}))


def past_ceilings() -> Iterator[dict[str, Any]]:
    """Where a container may have two whole devices, and a pod three."""
    two, three = (limits(**{"amd.com/gpu": str(count)}) for count in (2, 3))
    yield trying(resources=three)
    yield trying("initContainers", resources=three)
    main, other = (container(name, resources=two) for name in ("main", "other"))
    yield pod("free", containers=[main, other])
    yield pod("free", containers=[main], initContainers=[{**other, "restartPolicy": "Always"}])
