"""What commands and the console show of a cluster, read once."""

from __future__ import annotations

from typing import Final

from webhook.cluster.client import GROUP, Api, Object

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def nodes_and_pods(api: Api) -> tuple[list[Object], list[Object]]:
    """All nodes, and the pods that are not over."""
    return await api.list("/api/v1/nodes"), await api.list("/api/v1/pods", NOT_OVER)


async def tenants(api: Api) -> list[list[Object]]:
    """All policies, exemptions, ledgers and namespaces; raises MissingError where our kinds are not installed."""
    ours = (f"{GROUP}/{plural}" for plural in ("tenantpolicies", "exemptions", "tenantusages"))
    return [await api.list(path) for path in (*ours, "/api/v1/namespaces")]
