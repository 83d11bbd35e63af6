"""The form of `gpu-webhook tenants -o json`, which scripts rely on.

    tenants     name, policy (where it is written; null: none), priority, enforcementAction and percent (null: no
                quota), counted, pending, devices, memoryBytes, models (devices and memoryBytes by model), namespaces
                (name, devices, memoryBytes, counted)
    problems    tenant (null: nobody's), message
    exemptions  name, namespaces, users, lifts, owner, reason, expires (RFC 3339), state (holds, ends, ended)

The devices and bytes of a tenant and of its models have used, limit and left, null where nothing limits them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from webhook.core.quota import tally
from webhook.core.reports.tenants import Lapse, Tenant, Tenants, Totals


def contract(view: Tenants) -> dict[str, Any]:
    """The form of `tenants -o json`."""
    return {
        "tenants": [_tenant_contract(tenant) for tenant in view.tenants],
        "problems": [{"tenant": one.tenant or None, "message": one.message} for one in view.problems],
        "exemptions": [_exemption_contract(lapse) for lapse in view.exemptions],
    }


def _tenant_contract(tenant: Tenant) -> dict[str, Any]:
    policy = tenant.policy
    return {
        "name": tenant.name,
        "policy": policy.rule if policy else None,
        "priority": policy.priority if policy else None,
        "enforcementAction": tenant.quota.action if tenant.quota else None,
        "percent": tenant.percent,
        "counted": tenant.known,
        "pending": tenant.pending,
        **_measures(tenant.totals),
        "models": {model: _measures(totals) for model, totals in tenant.models.items()},
        "namespaces": [
            {
                "name": place.namespace,
                "devices": tally.plain(place.devices),
                "memoryBytes": tally.plain(place.memory),
                "counted": place.counted,
            }
            for place in tenant.places
        ],
    }


def _measures(totals: Totals) -> dict[str, Any]:
    found = {}
    for what, name in ((tally.DEVICES, "devices"), (tally.MEMORY, "memoryBytes")):
        total = totals[what]
        amounts = {"used": total.used, "limit": total.limit, "left": total.left}
        found[name] = {key: None if each is None else tally.plain(each) for key, each in amounts.items()}
    return found


def _exemption_contract(lapse: Lapse) -> dict[str, Any]:
    one = lapse.exemption
    return {
        "name": one.name,
        "namespaces": list(one.namespaces),
        "users": list(one.users),
        "lifts": sorted(one.lifts),
        "owner": one.owner,
        "reason": one.reason,
        "expires": datetime.fromtimestamp(one.expires, UTC).isoformat().replace("+00:00", "Z"),
        "state": lapse.state,
    }
