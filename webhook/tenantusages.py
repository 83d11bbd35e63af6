"""Ledgers in a cluster: the status of one TenantUsage object for each tenant."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from webhook import api
from webhook.api import GROUP, Api, ApiError, MissingError, Object
from webhook.core.document import API_VERSION
from webhook.core.tenancy import stored
from webhook.core.tenancy.ledger import Ledger
from webhook.stores import ConflictError, StoreError, Versioned

COLLECTION: Final = f"{GROUP}/tenantusages"
WRITE_SECONDS: Final = 3.0


class UsageObjects:
    """The store of ledgers that the cluster is."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; one that nobody has made yet is empty, and counts nothing."""
        try:
            return read(await self._api.get(f"{COLLECTION}/{tenant}"))
        except MissingError:
            return Versioned(Ledger(), "")
        except ApiError as error:
            raise StoreError(str(error)) from None

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace the ledger, if it has this version still.

        What is stored then is what was sent, as a whole; but advances only where the definition of TenantUsage is new
        enough to keep them.
        """
        path, replacement = f"{COLLECTION}/{tenant}/status", written(tenant, ledger, version)
        try:
            answer = await self._api.put(path, replacement, WRITE_SECONDS)
        except api.ConflictError as error:
            raise ConflictError(str(error)) from None
        except ApiError as error:
            raise StoreError(str(error)) from None
        kept = ledger if (answer.get("status") or {}).get("advances") else replace(ledger, advances={})
        return Versioned(kept, str(answer["metadata"]["resourceVersion"]))

    async def create(self, tenant: str) -> Versioned:
        """Make the object of a new tenant, that nobody has counted yet; raises ConflictError if it is there."""
        try:
            return read(await self._api.post(COLLECTION, written(tenant, None, "")))
        except api.ConflictError as error:
            raise ConflictError(str(error)) from None
        except ApiError as error:
            raise StoreError(str(error)) from None

    async def delete(self, tenant: str, version: str) -> None:
        """Take the object away, if it has this version still."""
        try:
            await self._api.delete(f"{COLLECTION}/{tenant}", version)
        except api.ConflictError as error:
            raise ConflictError(str(error)) from None
        except MissingError:
            return
        except ApiError as error:
            raise StoreError(str(error)) from None

    async def roll(self) -> dict[str, Ledger]:
        """All ledgers there are, of one moment: a consistent list."""
        try:
            return {
                found["metadata"]["name"]: read(found).ledger
                async for page in self._api.pages(COLLECTION)
                for found in page["items"] or ()
            }
        except ApiError as error:
            raise StoreError(str(error)) from None


def read(found: Object) -> Versioned:
    """The ledger in an object; raises StoreError where somebody has written something else into it."""
    try:
        return Versioned(stored.read(found.get("status") or {}), str(found["metadata"]["resourceVersion"]))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise StoreError(f"TenantUsage {found['metadata'].get('name')} cannot be read: {error}") from None


def written(tenant: str, ledger: Ledger | None, version: str) -> Object:
    """The object of a tenant."""
    metadata = {"name": tenant, **({"resourceVersion": version} if version else {})}
    status = {} if ledger is None else {"status": stored.write(ledger)}
    return {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": metadata, **status}
