"""`python -m tests.bench.recorded PORT TENANTS NAMESPACES PODS`: what a server of ours follows of an API server.

It lists a cluster of that size, of which nothing ever changes: a watch is silent, and ends when it should.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web

from tests import tables
from tests.bench import reviews

API: Final = "gpu-webhook.io/v1alpha1"
VERSION: Final = 1_000_000
"""Of everything that is listed."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """How large it is; pods and namespaces are spread evenly."""

    tenants: int
    namespaces: int
    pods: int

    def owner(self, namespace: int) -> int:
        """Whose namespace it is."""
        return namespace * self.tenants // self.namespaces

    def policies(self) -> Iterator[Document]:
        """A policy for each tenant: one half of them select by name, the other by label."""
        for tenant in range(self.tenants):
            by_label = {"selector": {"matchLabels": {"tenant": f"tenant-{tenant}"}}}
            chosen = by_label if tenant % 2 else {"names": [f"tenant-{tenant}-*"]}
            spec = {"namespaces": chosen, "quota": {"devices": 100_000}}
            yield {"apiVersion": API, "kind": "TenantPolicy", "metadata": meta(f"tenant-{tenant}"), "spec": spec}

    def spaces(self) -> Iterator[Document]:
        """The namespaces, with the label of their tenant."""
        for number in range(self.namespaces):
            labels = {"tenant": f"tenant-{self.owner(number)}", "kubernetes.io/metadata.name": self.space(number)}
            metadata = {**meta(self.space(number)), "labels": labels}
            spec, status = {"finalizers": ["kubernetes"]}, {"phase": "Active"}
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": spec, "status": status}

    def space(self, number: int) -> str:
        """The name of a namespace."""
        return f"tenant-{self.owner(number)}-{number}"

    def page(self, first: int, count: int) -> bytes:
        """So many pods as the API server would list them."""
        texts = templates()
        numbers = range(first, min(self.pods, first + count))
        items = (
            texts[number % len(texts)] % (self.space(number % self.namespaces), number, number) for number in numbers
        )
        following = first + count if first + count < self.pods else ""
        metadata = json.dumps({"resourceVersion": str(VERSION), "continue": str(following)})
        return f'{{"kind":"PodList","apiVersion":"v1","metadata":{metadata},"items":[{",".join(items)}]}}'.encode()


def meta(name: str) -> Document:
    """What all objects have."""
    created = "2026-11-21T10:00:00Z"
    return {
        "name": name,
        "uid": f"uid-of-{name}",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": created,
    }


def templates() -> list[str]:
    """Pods as they are stored when they run: a whole device, a share by HAMi, a partition, and two without a GPU."""
    asked: list[Document] = [
        {"nvidia.com/gpu": "1"},
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "30"},
        {"nvidia.com/mig-1g.10gb": "1"},
        {},
        {},
    ]
    return [stored(limits) for limits in asked]


def stored(limits: Document) -> str:
    """A format of a running pod, with places for its namespace, its number in the name, and in the UID."""
    main = reviews.container("main", 18)
    main["resources"]["limits"] |= limits
    found = reviews.pod([main], {})
    found["metadata"] |= {
        "name": "NUMBER",
        "namespace": "NAMESPACE",
        "uid": "UID",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "managedFields": [{"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsV1": FIELDS}],
    }
    found["spec"]["nodeName"] = "node-17"
    found["status"] = STATUS
    text = json.dumps(found, separators=(",", ":")).replace("%", "%%")
    return text.replace("NAMESPACE", "%s").replace('"NUMBER"', '"pod-%d"').replace('"UID"', '"uid-%d"')


FIELDS: Final[Document] = tables.table(__file__, "fields")
STATUS: Final[Document] = tables.table(__file__, "status")


async def answer(cluster: Cluster, request: web.Request) -> web.StreamResponse:
    """Whatever is listed or watched; of kinds that the cluster has not the list is empty."""
    if "watch" in request.query:
        return await _silence(request)
    collections = {"tenantpolicies": cluster.policies, "namespaces": cluster.spaces}
    listed = collections.get(request.path.rpartition("/")[2])
    return web.json_response({"metadata": {"resourceVersion": str(VERSION)}, "items": [*listed()] if listed else []})


async def _silence(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await asyncio.sleep(float(request.query["timeoutSeconds"]))
    return response


def main() -> int:
    port, *sizes = map(int, sys.argv[1:])
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", partial(answer, Cluster(*sizes)))
    web.run_app(application, host="127.0.0.1", port=port, print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
