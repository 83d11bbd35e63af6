"""Ways to a device that no request names: what of a node, a runtime or a plugin a pod may say beside its resources.

Each is opened in a pod as a tenant would write it; the mutations that follow misspell some.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

from tests import tables

Pod = Any

_WORDS: Final[Mapping[str, Any]] = tables.table(__file__, "words")
VARIABLES: Final[Sequence[str]] = _WORDS["variables"]
_SPELLINGS: Final[Sequence[Callable[[str], str]]] = (
    str,
    lambda path: f"{path}/",
    lambda path: f"/{path}",
    lambda path: f"/.{path}",
    lambda path: path.lstrip("/"),
    lambda path: path.replace("/run", "/var/run"),
    lambda path: path.replace("/var/run", "/run"),
)
_MOUNTED: Final = "/var/run/nvidia-container-devices"


def opened(pod: Pod, dice: Random) -> None:
    """Open one of the doors of a pod, in any of its containers."""
    there = [each for section in ("containers", "initContainers") for each in pod["spec"].get(section) or ()]
    dice.choice(_DOORS)(pod, dice.choice(there[:8]), dice)


def _name_devices(pod: Pod, container: Any, dice: Random) -> None:  # noqa: ARG001  a door
    name = dice.choice(VARIABLES)
    source = {"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
    entry = source if dice.random() < 0.2 else {"value": dice.choice(_WORDS["values"])}
    container["env"] = [*(container.get("env") or ()), {"name": name, **entry}]


def _take_privileges(pod: Pod, container: Any, dice: Random) -> None:
    context = container["securityContext"] = dict(container.get("securityContext") or {})
    match dice.randrange(4):
        case 0 | 1:
            context["privileged"] = True
        case 2:
            context["capabilities"] = {"add": [dice.choice(_WORDS["capabilities"]) for _ in range(2)]}
        case _:
            pod["spec"]["hostPID"] = True
            pod["spec"]["runtimeClassName"] = "nvidia"


def _mount_the_node(pod: Pod, container: Any, dice: Random) -> None:
    path = dice.choice(_SPELLINGS)(dice.choice(_WORDS["paths"]))
    _mount(pod, container, {"name": "node", "hostPath": {"path": path}}, "/mnt")


def _mount_by_name(pod: Pod, container: Any, dice: Random) -> None:
    spelled = dice.choice((_MOUNTED, f"/{_MOUNTED}/", "/var/run/./nvidia-container-devices"))
    _mount(pod, container, {"name": "named", "emptyDir": {}}, f"{spelled}/{dice.choice(('all', '0'))}")


def _mount(pod: Pod, container: Any, volume: Any, where: str) -> None:
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]
    entry = {"name": volume["name"], "mountPath": where}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), entry]


def _annotate(pod: Pod, container: Any, dice: Random) -> None:  # noqa: ARG001  a door
    key = dice.choice([*_WORDS["annotations"]])
    there = pod["metadata"].get("annotations") or {}
    pod["metadata"]["annotations"] = {**there, key: dice.choice(_WORDS["annotations"][key])}


_DOORS: Final[Sequence[Callable[[Pod, Any, Random], None]]] = (
    _name_devices,
    _take_privileges,
    _mount_the_node,
    _mount_by_name,
    _annotate,
)
