"""Cases of scheduling, read from `scheduling/<back end>.yaml`: what a pod asks, and the nodes it could land on.

Each document of a file is one case. `ask` is the shorthand of the pod; `annotations` and `pod`, a part of its spec,
are what else its author writes. Exactly one node, called `right`, may have it, and it has room for one such pod; each
of the others is tempting, and `refused` says why the scheduler must not take it: `taint`, `affinity`, `claim`, or the
names of the resources that are not enough. `full` is the same for `right` once its room is taken. What must exist
before the pod (a DeviceClass, say) stands under `objects`; the devices of a node that are allocated by claim, under
its `devices`. A file whose back end is not shipped has its rule in `sites/`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import builders
from tests.cluster import nodes
from tests.cluster.client import Client, Object
from tests.cluster.devices import resource_slice
from tests.cluster.pods import pod
from tests.cluster.rules import backends
from tests.cluster.verdicts import Reasons

FOLDER = Path(__file__).with_name("scheduling")
RIGHT = "right"
BACKEND = "gpu-webhook.io/backend"
CASE = "example.com/case"

_WORDS = {
    "taint": "node(s) had untolerated taint(s)",
    "affinity": "node(s) didn't match Pod's node affinity/selector",
    "claim": "cannot allocate all claims",
}


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of one case, and the pod that looks for one of them."""

    backend: str
    name: str
    label: str
    ask: Mapping[str, str]
    nodes: Mapping[str, Mapping[str, Any]]
    full: tuple[str, ...]
    annotations: Mapping[str, str]
    pod: Mapping[str, Any]
    objects: tuple[Object, ...]

    def __str__(self) -> str:
        return f"{self.backend}: {self.name}"

    def asking(self, name: str) -> Object:
        """A pod that asks in shorthand, by labels, and says which back end is meant."""
        spec = {"nodeSelector": {CASE: self.label}, **self.pod}
        return pod(name, labels=self.ask, annotations={BACKEND: self.backend, **self.annotations}, **spec)

    @property
    def right(self) -> str:
        """The name of the one node that has what the pod asks."""
        return self._name(RIGHT)

    @property
    def refusals(self) -> Reasons:
        """What the scheduler says while only wrong nodes are there."""
        return Counter(reason for offered in self.nodes.values() for reason in _reasons(offered.get("refused", ())))

    @property
    def refusals_when_full(self) -> Reasons:
        """What it says when the right node is there, and taken."""
        return self.refusals + Counter(self.full)

    def prepare(self, client: Client) -> None:
        """Create what must exist before the pod, beside nodes."""
        for obj in self.objects:
            client.create(obj)

    def add_right(self, client: Client) -> None:
        """Let the right node join the cluster."""
        self._add(client, RIGHT)

    def add_wrong(self, client: Client) -> None:
        """Let all the others join."""
        self._add(client, *(name for name in self.nodes if name != RIGHT))

    def _add(self, client: Client, *names: str) -> None:
        for name in names:
            for driver, listed in self.nodes[name].get("devices", {}).items():
                client.create(resource_slice(self._name(name), listed, driver=driver))
        nodes.add(client, [self._node(name) for name in names])

    def _node(self, name: str) -> Object:
        offered = self.nodes[name]
        return nodes.node(
            self._name(name),
            labels={CASE: self.label, **offered.get("labels", {})},
            taints=offered.get("taints", ()),
            capacity=offered.get("capacity", {}),
        )

    def _name(self, name: str) -> str:
        return f"{self.label}.{name}"


def pools() -> list[Pool]:
    """Every case of every file whose back end exists."""
    known = backends()
    return [pool for path in sorted(FOLDER.glob("*.yaml")) if path.stem in known for pool in _read(path)]


def _read(path: Path) -> Iterator[Pool]:
    for number, document in enumerate(builders.documents(path.read_text()), 1):
        yield Pool(
            backend=path.stem,
            name=document["name"],
            label=f"{path.stem}.{number}",
            ask=document["ask"],
            nodes=document["nodes"],
            full=_reasons(document["full"]),
            annotations=document.get("annotations", {}),
            pod=document.get("pod", {}),
            objects=tuple(document.get("objects", ())),
        )


def _reasons(written: str | Iterable[str]) -> tuple[str, ...]:
    """What the scheduler says in full."""
    words = [written] if isinstance(written, str) else written
    return tuple(_WORDS.get(word) or f"Insufficient {word}" for word in words)
