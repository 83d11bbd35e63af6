"""Where ledgers are kept, for whoever reads and replaces them: the admission servers and the settler."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from webhook.core.tenancy.ledger import Ledger


class StoreError(Exception):
    """A ledger could not be read, or it is not known whether it was written."""


class ConflictError(StoreError):
    """Somebody else has written the ledger meanwhile."""


class Versioned(NamedTuple):
    """A ledger, and the version of the object it stands in."""

    ledger: Ledger
    version: str


class Store(Protocol):
    """Where ledgers are: one object a tenant, which is replaced only in the version it was read in."""

    async def read(self, tenant: str) -> Versioned:
        """The ledger as it is now; raises StoreError."""

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        """Replace it; raises ConflictError, or StoreError if it may or may not have been replaced."""
