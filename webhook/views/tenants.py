"""Tenants, what they hold of what they may, and their exemptions: as tables for a terminal, and for scripts.

`contract` is the form of `gpu-webhook tenants -o json`, which scripts rely on:

    tenants     name, policy (where it is written; null: none), priority, enforcementAction and percent (null: no
                quota), counted, pending, devices, memoryBytes, models (devices and memoryBytes by model), namespaces
                (name, devices, memoryBytes, counted)
    problems    tenant (null: nobody's), message
    exemptions  name, namespaces, users, lifts, owner, reason, expires (RFC 3339), state (holds, ends, ended)

The devices and bytes of a tenant and of its models have used, limit and left, null where nothing limits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

from webhook.core.kube.time import duration
from webhook.core.quota import tally
from webhook.core.reports import tenants
from webhook.core.reports.tenants import Lapse, Tenant, Tenants, Totals
from webhook.views.table import gib, short, table

TENANT: Final = ("TENANT", "NAMESPACES", "FULL", "", "DEVICES", "LEFT", "MEMORY", "LEFT", "PENDING", "OVER LIMIT")
CARD: Final = ("CARD", "TENANT", "DEVICES", "LEFT", "MEMORY", "LEFT")
NAMESPACE: Final = ("NAMESPACE", "TENANT", "DEVICES", "MEMORY")
EXEMPTION: Final = ("EXEMPTION", "ENDS", "LIFTS", "NAMESPACES", "USERS", "OWNER", "REASON")

BAR: Final = 10
OVER: Final = {"deny": "refused", "warn": "warned of", "dryrun": "logged"}
"""What becomes of a pod over the limit, by the enforcement action of the quota."""


def lines(view: Tenants) -> Iterator[str]:
    """The view as aligned tables, what has to be done first."""
    yield _summary(view)
    if view.problems:
        yield "\nTO DO"
        yield from (f"  {f'{one.tenant}: ' if one.tenant else ''}{one.message}" for one in view.problems)
    yield from table(TENANT, [_of_tenant(tenant) for tenant in view.tenants], texts=4)
    cards = [(model, one.name, *_pairs(totals)) for one in view.tenants for model, totals in one.models.items()]
    yield from table(CARD, sorted(cards), texts=2)
    places = [
        (place.namespace, tenant.name, *_held(tenant, place)) for tenant in view.tenants for place in tenant.places
    ]
    yield from table(NAMESPACE, sorted(places), texts=2)
    yield from table(EXEMPTION, [_of_exemption(lapse) for lapse in view.exemptions], texts=len(EXEMPTION))


def _summary(view: Tenants) -> str:
    if not view.tenants:
        return "no tenants: there is neither a TenantPolicy nor a TenantUsage"
    number = len(view.tenants)
    silent = sum(tenant.quota is not None and not tenant.known for tenant in view.tenants)
    if silent == number:
        one = number == 1
        return f"{number} tenant{'' if one else 's'}; no TenantUsage says what {'it holds' if one else 'they hold'}"
    held = sum((tenant.totals[tally.DEVICES].used for tenant in view.tenants), Fraction(0))
    pending = sum(tenant.pending for tenant in view.tenants)
    way = f"; {pending} pod{' is' if pending == 1 else 's are'} on the way into the cluster" if pending else ""
    unsaid = f", and of {silent} no TenantUsage says what is held" if silent else ""
    return f"{number} tenant{' holds' if number == 1 else 's hold'} {short(held)} devices{unsaid}{way}"


def _of_tenant(tenant: Tenant) -> Sequence[str]:
    quota = tenant.quota
    return (
        tenant.name,
        selection(tenant),
        "-" if tenant.percent is None else f"{tenant.percent}%".rjust(4),
        bar(tenant.percent),
        *_pairs(tenant.totals, known=tenant.known),
        str(tenant.pending) if tenant.pending else "-",
        OVER[quota.action] if quota else "-",
    )


def selection(tenant: Tenant) -> str:
    """Which namespaces its policy selects."""
    if tenant.policy is None:
        return "-"
    chosen = tenant.policy.namespaces
    return ", ".join([*chosen.names, *(["by label"] if chosen.selector is not None else [])])


def bar(percent: int | None) -> str:
    """`########..`: a bar that is whole only where nothing is left."""
    if percent is None:
        return ""
    full = min(BAR, percent * BAR // 100)
    return "#" * full + "." * (BAR - full)


def _pairs(totals: Totals, *, known: bool = True) -> Sequence[str]:
    """Of devices and memory what is used of what may be, and what is left; `known`: what is used has been counted."""
    cells: list[str] = []
    for what, shown in ((tally.DEVICES, short), (tally.MEMORY, gib)):
        total = totals[what]
        limit = "" if total.limit is None else f" of {shown(total.limit)}"
        if known:
            cells += [f"{shown(total.used)}{limit}", "-" if total.left is None else shown(total.left)]
        else:
            cells += [f"?{limit}", "?"] if limit else ["-", "-"]
    return cells


def _held(tenant: Tenant, place: tenants.Place) -> Sequence[str]:
    if not tenant.known or not place.counted:
        return ("?", "?")
    return (short(place.devices), gib(place.memory))


def _of_exemption(lapse: Lapse) -> Sequence[str]:
    one = lapse.exemption
    return (
        one.name,
        ends(lapse),
        ", ".join(sorted(one.lifts)),
        ", ".join(one.namespaces),
        ", ".join(one.users) or "everybody",
        one.owner,
        one.reason,
    )


def ends(lapse: Lapse) -> str:
    """When an exemption ends, or how long ago it has."""
    when = duration(abs(lapse.seconds))
    return f"ended {when} ago" if lapse.state == "ended" else f"in {when}"


def contract(view: Tenants) -> dict[str, Any]:
    """The form of `tenants -o json`, see above."""
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
