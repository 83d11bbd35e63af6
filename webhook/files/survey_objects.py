"""What `gpu-webhook survey` reads from files: the objects of a cluster, by kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from webhook.core.rules.rulebook import Rulebook
from webhook.files import inventory_objects

PATHS: Final[Mapping[str, str]] = {
    "Node": "/api/v1/nodes",
    "Deployment": "/apis/apps/v1/deployments",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/resourceclaimtemplates",
}
"""The kinds that a survey looks at, and where the API server has them."""

KUBECTL: Final = f"kubectl get {','.join(path.rpartition('/')[2] for path in PATHS.values())} -A -o yaml"


def paths(rulebook: Rulebook) -> Sequence[tuple[str, str]]:
    """The same with the classes of claims, in each version that there may be."""
    classes = [source.classes for source in rulebook.sources if source.classes]
    return [
        *PATHS.items(),
        *(
            (each.kind, f"/apis/{each.group}/{version}/{each.plural}")
            for each in classes
            for version in each.versions
        ),
    ]


def by_kind(contents: Iterable[tuple[bytes, str]], rulebook: Rulebook) -> dict[str, list[Mapping[str, Any]]]:
    """The objects of files, each with its name; raises UnreadableError."""
    known = dict(paths(rulebook))
    found: dict[str, list[Mapping[str, Any]]] = {}
    for content, name in contents:
        for document in inventory_objects.contents(content, name):
            for kind, one in inventory_objects.members(document):
                if kind in known:
                    found.setdefault(kind, []).append(one)
    return found


def files(named: Iterable[str]) -> Iterator[str]:
    """The files, and those in directories among them."""
    for name in named:
        folder = Path(name)
        yield from map(str, sorted(one for one in folder.rglob("*") if one.is_file())) if folder.is_dir() else [name]
