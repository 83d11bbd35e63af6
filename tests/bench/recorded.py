"""`python -m tests.bench.recorded PORT TENANTS NAMESPACES PODS`: as much of an API server as its followers need.

It lists a cluster of that size in pages, of which nothing ever changes: a watch is silent, and ends when it should.
Only TenantUsages are written, with a version each, and forgotten at the end.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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

    def page(self, first: int, count: int, *, every: int = 1) -> bytes:
        """So many pods as the API server would list them, each `every`-th of them: those of one namespace."""
        texts = templates()
        numbers = range(first, min(self.pods, first + count * every), every)
        items = (
            texts[number % len(texts)] % (self.space(number % self.namespaces), number, number) for number in numbers
        )
        following = first + count if every == 1 and first + count < self.pods else ""
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


@dataclass(slots=True)
class Server:
    """Answers what a follower and a settler ask."""

    cluster: Cluster
    usages: dict[str, Document] = field(default_factory=dict)
    written: int = VERSION

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Whatever is asked."""
        parts = request.path.strip("/").split("/")
        if "watch" in request.query:
            return await _silence(request)
        if parts[-1] == "pods":
            return _json(self._pods(parts, request.query))
        if "tenantusages" in parts:
            return await self._usage(parts, request)
        collections = {"tenantpolicies": self.cluster.policies, "namespaces": self.cluster.spaces}
        return _json(_list(list(collections.get(parts[-1], lambda: iter(()))())))

    def _pods(self, parts: list[str], query: Mapping[str, str]) -> bytes:
        if "namespaces" in parts:
            number = int(parts[-2].rsplit("-", 1)[1])
            return self.cluster.page(number, self.cluster.pods, every=self.cluster.namespaces)
        return self.cluster.page(int(query.get("continue") or 0), int(query["limit"]))

    async def _usage(self, parts: list[str], request: web.Request) -> web.StreamResponse:
        if request.method == "GET" and parts[-1] == "tenantusages":
            return _json(_list(list(self.usages.values())))
        sent = json.loads(await request.read()) if request.method in {"POST", "PUT"} else None
        name = sent["metadata"]["name"] if sent else parts[-1]
        if sent is not None:
            self.written += 1
            sent["metadata"]["resourceVersion"] = str(self.written)
            self.usages[name] = sent
        if name not in self.usages:
            return web.json_response({"kind": "Status", "message": "not found", "code": 404}, status=404)
        return web.json_response(self.usages[name])


def _list(items: list[Document]) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": str(VERSION)}, "items": items}).encode()


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


async def _silence(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await asyncio.sleep(float(request.query["timeoutSeconds"]))
    return response


def main() -> int:
    port, *sizes = map(int, sys.argv[1:])
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", Server(Cluster(*sizes)).answer)
    web.run_app(application, host="127.0.0.1", port=port, print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
