"""Pods of every shape: many of something, long texts, protected names in any spelling; up to 3 MiB."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tests.cluster.client import Object
from tests.cluster.tenancy import attempts
from webhook.core.registration import conditions

LARGEST: Final = 3 << 20
"""Bytes of a request (apiserver/pkg/server/config.go, MaxRequestBodyBytes)."""

COUNTS: Final = (0, 0, 1, 2, 3, conditions.FEW, conditions.FEW + 1, conditions.MANY, conditions.MANY + 1, 1000)
LENGTHS: Final = (1, 8, 20, 31, 32, 63, conditions.LETTERS, conditions.LETTERS + 1, 750, 4000, 100_000)
NAMESPACE: Final = "bounded"


def _names(section: str) -> list[str]:
    return [attempts.one(protected.name) for protected in attempts.names(section)]


VARIABLES, MOUNTS, PATHS = _names("env"), _names("mount_paths"), _names("host_paths")
HANDLERS: Final = {"fast": "nvidia-cdi", "faster": "amd", "sandbox": "runsc"}
KEYS, CLASSES = [*_names("annotations"), *_names("labels")], [*_names("runtime_classes"), *HANDLERS]
CAPABILITIES = [*_names("capabilities"), "NET_ADMIN", "\u017fys_admin", "CAP_SYS_ADMIN", "chown"]


class Shapes:
    """Makes pods by chance: most have short lists, a few one very long list, and a few as much as is looked at."""

    def __init__(self, dice: Random) -> None:
        self._dice, self._room, self._packed = dice, 0, 0

    def pod(self) -> dict[str, Any]:
        """One pod."""
        dice = self._dice
        self._room = LARGEST if dice.random() < 1 / 200 else 10_000
        self._packed = dice.choice((20, 60, 120, 127, 500)) if dice.random() < 1 / 100 else 0
        if self._packed:
            self._room = LARGEST
        sections = {
            "containers": dice.choice((1, 1, 2, 3, 15, 16, 17)),
            "initContainers": dice.choice((0, 0, 0, 1, 4)),
        }
        spec: dict[str, Any] = {
            section: [self._container(f"{section[0]}{number}") for number in range(count)]
            for section, count in sections.items()
        }
        if self._packed:
            spec = {"containers": [self._container(f"c{number}") for number in range(conditions.CONTAINERS)]}
        spec["volumes"] = self._many(lambda number: self._volume(f"v{number}"), conditions.MANY)
        if dice.random() < 1 / 10:
            spec["runtimeClassName"] = dice.choice([*CLASSES, "gvisor"])
        if dice.random() < 1 / 20:
            spec["hostPID"] = True
        metadata = {"name": "shape", "namespace": NAMESPACE, "uid": "0"}
        keys = {
            section: {f"{number}{self._key()}": "1" for number in self._many(int, conditions.MANY)}
            for section in ("labels", "annotations")
        }
        return {"metadata": {**metadata, **keys}, "spec": spec}

    def _container(self, name: str) -> Object:
        dice = self._dice
        made: dict[str, Any] = {"name": name, "image": "none"}
        variables = conditions.MANY
        made["env"] = self._many(lambda _: {"name": self._text(VARIABLES), "value": self._value()}, variables)
        made["volumeMounts"] = self._many(lambda number: {"name": f"v{number}", "mountPath": self._path(MOUNTS)})
        if dice.random() < 1 / 4 and not self._packed:
            added = self._many(lambda _: dice.choice([*CAPABILITIES, self._text(CAPABILITIES)]))
            made["securityContext"] = {"privileged": dice.random() < 1 / 4, "capabilities": {"add": added}}
            if dice.random() < 1 / 4:
                made["securityContext"] = {"procMount": dice.choice(["Unmasked", "Default", self._text([""])])}
        if dice.random() < 1 / 10:
            resources = [dice.choice(["cpu", "memory", "hugepages-2Mi", f"hugepages-{n}Mi"]) for n in self._many(int)]
            made["resources"] = {"limits": dict.fromkeys(resources, "1")}
        return made

    def _volume(self, name: str) -> Object:
        if self._dice.random() < 2 / 3:
            return {"name": name, "emptyDir": {}}
        return {"name": name, "hostPath": {"path": self._path(PATHS)}}

    def _many(self, make: Callable[[int], Any], packed: int = conditions.FEW) -> list[Any]:
        """A list of some length, as long as there is room; as long as is looked at in a pod that is packed."""
        count = packed if self._packed else self._any_count()
        made = []
        for number in range(count):
            if self._room <= 0:
                break
            made.append(make(number))
            self._room -= 40
        return made

    def _any_count(self) -> int:
        return self._dice.choice(COUNTS) if self._dice.random() < 1 / 3 else self._dice.choice((0, 1, 2, 4))

    def _text(self, words: Sequence[str]) -> str:
        """A word that is protected, begins as one, or is none; of any length there is room for."""
        dice = self._dice
        if self._packed:
            self._room -= self._packed
            return dice.choice("ABCD") * self._packed
        word = dice.choice(words) if dice.random() < 1 / 20 else ""
        length = dice.choice(LENGTHS) if dice.random() < 1 / 10 else dice.choice(LENGTHS[:4])
        length = min(length, max(1, self._room // 2))
        self._room -= length
        return word + dice.choice("ABCDNSX_") * (length if not word or dice.random() < 1 / 4 else 0)

    def _value(self) -> str:
        return self._dice.choice(["void", "none", "all", "0", self._text([""])]) if not self._packed else "none"

    def _path(self, words: Sequence[str]) -> str:
        path = self._text(words).lower() if self._dice.random() < 1 / 2 else self._text(words)
        if self._packed:
            return f"/{path[:-2]}"
        spelled = self._dice.choice(["/{}", "/{}", "/{}", "{}", "//{}", "/./{}", "/data/{}/x", "/{}/"])
        return str(spelled.format(path.lstrip("/")))

    def _key(self) -> str:
        return self._text(KEYS)[:300]
