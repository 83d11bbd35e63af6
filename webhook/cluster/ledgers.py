"""Ledgers in a cluster: the status of one TenantUsage object for each tenant, replaced by compare-and-swap."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from webhook.cluster.client import GROUP, Api, MissingError, Object
from webhook.core.forms.document import API_VERSION
from webhook.core.quota import stored
from webhook.core.quota.ledger import Ledger

COLLECTION: Final = f"{GROUP}/tenantusages"
WRITE_SECONDS: Final = 3.0


class Versioned(NamedTuple):
    """A ledger, and the version of the object that holds it; "": there is no object."""

    ledger: Ledger
    version: str


class Store(Protocol):
    """Where reservations are written: one ledger a tenant. `TenantUsages` is the one of a cluster."""

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; raises ApiError."""

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace it; raises ConflictError, or ApiError where it may or may not have been replaced."""

    async def uid(self, name: str) -> str | None:
        """The UID of the pod that has a name (`namespace/name`) now; raises ApiError."""


class TenantUsages:
    """The ledgers of a cluster, and the pods they reserve for; every method raises ApiError."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; empty where there is no object."""
        found = await self._api.find(f"{COLLECTION}/{tenant}")
        return Versioned(Ledger(), "") if found is None else read(found)

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace the ledger if it still has this version; raises ConflictError if it has not.

        What is stored is what was sent, as a whole; but advances only where the definition of TenantUsage is new
        enough to keep them.
        """
        replacement = written(tenant, ledger, version)
        answer = await self._api.replace(f"{COLLECTION}/{tenant}/status", replacement, WRITE_SECONDS)
        kept = ledger if (answer.get("status") or {}).get("advances") else replace(ledger, advances={})
        return Versioned(kept, str(answer["metadata"]["resourceVersion"]))

    async def create(self, tenant: str) -> Versioned:
        """Create the object of a new tenant, not yet counted; raises ConflictError if it is there."""
        return read(await self._api.create(COLLECTION, written(tenant, None, "")))

    async def delete(self, tenant: str, version: str) -> None:
        """Delete the object if it still has this version; raises ConflictError if it has not."""
        try:
            await self._api.delete(f"{COLLECTION}/{tenant}", version)
        except MissingError:
            return

    async def uid(self, name: str) -> str | None:
        """The UID of the pod that has a name (`namespace/name`) now: a quorum read."""
        namespace, _, pod = name.partition("/")
        found = await self._api.find(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        return None if found is None else str(found["metadata"]["uid"])

    async def all(self) -> dict[str, Ledger]:
        """All ledgers, of one moment: a consistent list."""
        return {found["metadata"]["name"]: read(found).ledger for found in await self._api.list(COLLECTION)}


def read(found: Object) -> Versioned:
    """The ledger in an object, and what is wrong with it."""
    return Versioned(stored.read(found.get("status") or {}), str(found["metadata"]["resourceVersion"]))


def written(tenant: str, ledger: Ledger | None, version: str) -> Object:
    """The object of a tenant."""
    metadata = {"name": tenant, **({"resourceVersion": version} if version else {})}
    status = {} if ledger is None else {"status": stored.write(ledger)}
    return {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": metadata, **status}
