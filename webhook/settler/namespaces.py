"""Which tenant's ledger counts which namespace, as the policies say now.

A namespace belongs to the tenant whose policy selects it, if that policy has a quota. While policies are in conflict
over a namespace no pod is admitted there, and it stays where it was.
"""

from __future__ import annotations

from collections.abc import Collection, KeysView, Mapping
from time import monotonic

from webhook.core.policy import membership
from webhook.core.quota.settlement import Settlement
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import Quota, TenantPolicy


class Namespaces:
    """The namespaces of a cluster by tenant; tells the settlement which of them may hold pods without reservation."""

    def __init__(self, settlement: Settlement, grace: float) -> None:
        self._settlement, self._grace = settlement, grace
        self._quotas: dict[str, TenantPolicy] = {}
        self._wanted: dict[str, set[str]] = {}
        self._tenants: dict[str, str] = {}
        self._known: set[str] = set()
        self._changed_at = monotonic()

    @property
    def tenants(self) -> KeysView[str]:
        """The tenants that have a quota."""
        return self._quotas.keys()

    def policy(self, tenant: str) -> TenantPolicy | None:
        """The policy of a tenant, if it has a quota."""
        return self._quotas.get(tenant)

    def of(self, tenant: str) -> Collection[str]:
        """The namespaces that a tenant's ledger is to count."""
        return self._wanted.get(tenant, set())

    def tenant(self, namespace: str) -> str | None:
        """The tenant that counts a namespace."""
        return self._tenants.get(namespace)

    def policy_changed(self) -> None:
        """A policy is another one: pods may have been admitted by the one before."""
        self._changed_at = monotonic()
        self._settlement.changed()

    def namespace_changed(self, name: str, *, exists: bool, listing: bool) -> None:
        """A namespace came, changed or went; `listing`: that was found in a list, and may be long ago.

        In a new one no pod can have been admitted without a reservation, if policies have been the same for long.
        """
        now = monotonic()
        if not exists:
            self._known.discard(name)
            self._settlement.open(name, now)
        elif name not in self._known:
            self._known.add(name)
            if listing or now - self._changed_at <= self._grace:
                self._settlement.open(name, now)
            else:
                self._settlement.born(name, now)

    def sort(self, tenancy: Tenancy, exempt: Collection[str]) -> set[str]:
        """Assign every namespace anew; the tenants that have another quota or other namespaces now."""
        before = self._claims()
        self._quotas = {each.name: each for each in tenancy.policies if each.quota is not None}
        owners = {name: None if name in exempt else self._owner(name, tenancy) for name in tenancy.labels}
        self._wanted = {name: set() for name in self._quotas}
        for namespace, tenant in owners.items():
            if tenant is None:
                self._settlement.open(namespace, monotonic())
            else:
                self._wanted[tenant].add(namespace)
        self._tenants = {namespace: tenant for namespace, tenant in owners.items() if tenant is not None}
        after = self._claims()
        return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}

    def _claims(self) -> Mapping[str, tuple[Quota | None, set[str]]]:
        return {name: (policy.quota, self._wanted[name]) for name, policy in self._quotas.items()}

    def _owner(self, namespace: str, tenancy: Tenancy) -> str | None:
        found = membership.member(namespace, tenancy)
        for policy in (found.policy,) if found.policy else found.rivals:
            if policy.quota is not None and (found.policy or namespace in self._wanted.get(policy.name, ())):
                return policy.name
        return None
