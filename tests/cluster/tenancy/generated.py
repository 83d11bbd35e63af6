"""Pods with some names that are protected, some that only look like them, and requests of every kind."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import attempts

Object = dict[str, Any]


def _choose(chance: random.Random, among: Sequence[Any], most: int = 2) -> list[Any]:
    return chance.sample(among, chance.choice([*[0] * 8, *range(1, most + 1)]))


def _near(names: Sequence[str]) -> list[str]:
    return [near for name in names for near in (name, f"{name}x", name[:-1].rstrip("-_/"), f"a{name}")]


def _variable(name: str, value: str) -> Object:
    source, _, rest = value.partition(" ")
    if source == "configMapKeyRef":
        return {"name": name, "valueFrom": {source: {"name": "mine", "key": "cards"}}}
    if source == "fieldRef":
        return {"name": name, "valueFrom": {source: {"fieldPath": "metadata.name"}}}
    return {"name": name, "value": rest or value}


VALUES = ["all", "", "void", "none", "0", "false", "Void", "configMapKeyRef x", "fieldRef x"]
ENV = _near([attempts.one(each.name) for each in attempts.names("env")])
KEYS = {
    section: _near([attempts.one(each.name) for each in attempts.names(section)])
    for section in ("annotations", "labels")
}
CAPABILITIES = ["SYS_ADMIN", "CAP_SYS_ADMIN", "sys_rawio", "ALL", "CAP_CAP_ALL", "NET_ADMIN", "SYS_ADMINS"]
CLASSES = ["nvidia", "nvidia-cdi", "amd", "amdx", "nvidi", "gvisor"]
PATHS = [
    spelled
    for each in attempts.names("host_paths")
    for path in [attempts.one(each.name)]
    for spelled in (path, f"{path}/x", f"{path}x", path.rpartition("/")[0] or "/", f"/.{path}/", f"/var/{path}")
] + ["dev", "/dev/shm", "/dev//net/./tun", "/var/run", "/var/run/", "/var/running", "/srv", "/run/x/docker.sock"]  # noqa: S108 - paths of pods
MOUNTS = [
    spelled
    for each in attempts.names("mount_paths")
    for path in [attempts.one(each.name)]
    for spelled in (path, f"{path}/x", f"{path}x", f"/{path}/.", path.rpartition("/")[0] or "/x")
]
REQUESTS: Sequence[Mapping[str, Any]] = [
    {},
    {},
    {"labels": {"gpu": "1"}},
    {"labels": {"gpu": "none"}},
    {"labels": {"gpu": "true"}},
    {"labels": {"gpu": "0"}},
    {"labels": {"gpu-memory": "a100"}},
    {"annotations": {"gpu-webhook.io/gpu": "2"}},
    {"labels": {"gpu": "1"}, "annotations": {"gpu.gpu-webhook.io/main": "none"}},
    {"resources": limits(**{"nvidia.com/gpu": "1"})},
    {"resources": limits(**{"amd.com/gpu": "2", "example.com/nic": "1"})},
    {"resources": limits(**{"amd.com/gpu": "3"})},
]


def one(chance: random.Random) -> Object:
    """A pod by chance."""
    asking = chance.choice(REQUESTS)
    mounts = [{"name": "mine", "mountPath": path} for path in dict.fromkeys(_choose(chance, MOUNTS, 1))]
    paths = _choose(chance, PATHS)
    context: Object = {"capabilities": {"add": _choose(chance, CAPABILITIES)}}
    if chance.random() < 0.05:
        context |= {"privileged": True}
    fields = {
        "env": [_variable(name, chance.choice(VALUES)) for name in _choose(chance, ENV, 3)],
        "volumeMounts": mounts,
        "securityContext": context,
    }
    made = pod(
        "made",
        labels={**dict.fromkeys(_choose(chance, KEYS["labels"], 1), "x"), **asking.get("labels", {})},
        annotations={
            **{key: chance.choice(["all", "nvidia.com/pgpu=0"]) for key in _choose(chance, KEYS["annotations"], 1)},
            **asking.get("annotations", {}),
        },
        containers=[
            container("main", resources=asking.get("resources", {}), **(fields if chance.random() < 0.7 else {}))
        ],
        initContainers=[container("first", resources=chance.choice(REQUESTS).get("resources", {}), **fields)]
        if chance.random() < 0.3
        else [],
        volumes=[
            {"name": "mine", "emptyDir": {}},
            *({"name": f"host-{index}", "hostPath": {"path": path}} for index, path in enumerate(paths)),
        ],
    )
    if chance.random() < 0.2:
        made["spec"]["runtimeClassName"] = chance.choice(CLASSES)
        made["spec"]["hostPID"] = chance.random() < 0.3
    return made
