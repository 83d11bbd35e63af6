"""All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from webhook.cli.table import gib, short, table
from webhook.core.kube.fields import duration
from webhook.core.kube.quantity import Fraction
from webhook.core.policy import membership
from webhook.core.policy.judge import SOON
from webhook.core.quota import tally
from webhook.core.quota.ledger import PART, Ledger, namespaces
from webhook.core.rules.tenant_policy import Exemption, Quota, Tenancy, TenantPolicy
from webhook.core.violations import Action

# All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon.

_THEN: Final[Mapping[Action, str]] = {
    "deny": "what runs stays, and nothing more is admitted",
    "warn": "more is admitted, as its policy only warns",
    "dryrun": "more is admitted, as its policy is only tried",
}
"""What it means for a tenant that it holds more than its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One thing that is counted. `limit` is None where nothing limits it; memory is in bytes."""

    key: str
    used: Fraction
    limit: Fraction | None

    @property
    def left(self) -> Fraction | None:
        """What may still be asked, at least nothing; None for anything."""
        return None if self.limit is None else max(Fraction(0), self.limit - self.used)

    @property
    def percent(self) -> int | None:
        """How much of the limit is used, rounded down; more than 100 where the limit was lowered below it."""
        return None if self.limit is None else tally.percent({self.key: self.used}, {self.key: self.limit})


Totals = Mapping[str, Total]
"""Those of devices and of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One namespace of a tenant; one that is not `counted` yet admits no GPU pod until it is."""

    namespace: str
    devices: Fraction
    memory: Fraction
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """What is known of one tenant.

    `policy` is None for a ledger that is left over. `known`: the settler has counted what it uses. `totals` are its
    devices and memory, `models` those of each card model. `pending` are pods on their way into the cluster.
    """

    name: str
    policy: TenantPolicy | None
    known: bool
    totals: Totals
    models: Mapping[str, Totals]
    places: Sequence[Place]
    pending: int

    @property
    def quota(self) -> Quota | None:
        """What its policy lets it hold."""
        return self.policy.quota if self.policy else None

    @property
    def percent(self) -> int | None:
        """How full it is, by what comes nearest to its limit; None without a limit, or where nothing is counted."""
        if not self.known:
            return None
        return max((total.percent for total in self.every if total.percent is not None), default=None)

    @property
    def every(self) -> list[Total]:
        """All of its totals, those of card models last."""
        return [total for totals in (self.totals, *self.models.values()) for total in totals.values()]


class Problem(NamedTuple):
    """Something that has to be done; `tenant` is empty where it concerns no tenant."""

    tenant: str
    message: str


class Lapse(NamedTuple):
    """An exemption; `seconds` are those to its end."""

    exemption: Exemption
    seconds: float

    @property
    def state(self) -> Literal["holds", "ends", "ended"]:
        """Whether it holds, ends soon, or has ended."""
        if self.seconds <= 0:
            return "ended"
        return "ends" if self.seconds < SOON else "holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """All of it, as rows; the fullest tenant comes first."""

    tenants: Sequence[Tenant]
    problems: Sequence[Problem]
    exemptions: Sequence[Lapse]


def overview(
    tenancy: Tenancy, ledgers: Mapping[str, Ledger], at: float, found: Iterable[Problem] = (), *, live: bool = True
) -> Tenants:
    """Bring policies and ledgers together, at a time in seconds since 1970.

    `found` are problems that were seen before; `live`: ledgers are where all of them should be, so one that is not
    there is a problem.
    """
    policies = {policy.name: policy for policy in tenancy.policies}
    namespaces = _namespaces(tenancy)
    tenants = [
        _tenant(name, policies.get(name), ledgers.get(name), namespaces.get(name, ()))
        for name in sorted({*policies, *ledgers})
    ]
    problems = [*found, *_ambiguous(tenancy)]
    for tenant in tenants:
        problems += (Problem(tenant.name, text) for text in _wrong(tenant, ledgers.get(tenant.name), live=live))
    lapses = [Lapse(exemption, exemption.expires - at) for exemption in tenancy.exemptions]
    problems += (Problem("", _ended(lapse)) for lapse in lapses if lapse.state != "holds")
    return Tenants(
        tenants=sorted(tenants, key=lambda tenant: -1 if tenant.percent is None else tenant.percent, reverse=True),
        problems=list(dict.fromkeys(problems)),
        exemptions=sorted(lapses, key=lambda lapse: lapse.seconds),
    )


def _namespaces(tenancy: Tenancy) -> Mapping[str, Sequence[str]]:
    """Of each tenant the namespaces that are known to exist."""
    found: dict[str, list[str]] = {}
    for namespace in sorted(tenancy.labels):
        policy = membership.member(namespace, tenancy).policy
        if policy is not None:
            found.setdefault(policy.name, []).append(namespace)
    return found


def _tenant(name: str, policy: TenantPolicy | None, ledger: Ledger | None, namespaces: Sequence[str]) -> Tenant:
    known = ledger is not None and ledger.view > 0
    ledger = ledger or Ledger()
    hard = ledger.hard or (policy.quota.hard if policy and policy.quota else {})
    held = ledger.by_namespace
    models = tally.models((*ledger.used, *hard))
    return Tenant(
        name=name,
        policy=policy,
        known=known,
        totals=_totals(ledger.used, hard),
        models={model: _totals(ledger.used, hard, model) for model in models},
        places=[
            Place(
                namespace=each,
                devices=held.get(each, tally.NOTHING).get(tally.DEVICES, Fraction(0)),
                memory=held.get(each, tally.NOTHING).get(tally.MEMORY, Fraction(0)),
                counted=each in ledger.held,
            )
            for each in sorted({*held, *namespaces})
        ],
        pending=len(ledger.pending),
    )


def _totals(used: tally.Tally, hard: tally.Tally, model: str = "") -> Totals:
    keys = {what: tally.key(what, model) for what in (tally.DEVICES, tally.MEMORY)}
    return {what: Total(key=key, used=used.get(key, Fraction(0)), limit=hard.get(key)) for what, key in keys.items()}


def _ambiguous(tenancy: Tenancy) -> Iterator[Problem]:
    for namespace in sorted(tenancy.labels):
        rivals = membership.member(namespace, tenancy).rivals
        if rivals:
            names = " and ".join(rival.rule for rival in rivals)
            yield Problem(
                "",
                f"the namespace {namespace} is selected by {names}, both of priority {rivals[0].priority}: "
                "its GPU pods are refused until one has another priority",
            )


def _wrong(tenant: Tenant, ledger: Ledger | None, *, live: bool) -> Iterator[str]:
    quota = tenant.quota
    if tenant.policy is None:
        yield "no policy has this name any more; its TenantUsage counts for nothing"
    elif quota is not None and not tenant.known and live:
        yield "has a quota, and nobody counts what it uses: GPU pods wait for the settler (gpu-webhook settle)"
    elif quota is not None and ledger is not None and ledger.hard != quota.hard:
        yield "its ledger still has another limit than its policy; the settler writes it there"
    if quota is not None and tenant.known and (new := [one.namespace for one in tenant.places if not one.counted]):
        yield f"GPU pods have to wait in namespaces that are not counted yet: {', '.join(new)}"
    if ledger is not None and (suspected := namespaces(ledger.suspects)):
        yield (
            f"pods in {', '.join(suspected)} were admitted and never stored, again and again, as their creates were "
            f"refused after the review: their authors may reserve no more than 1/{PART} of the quota at once"
        )
    for total in tenant.every:
        if total.limit is not None and total.used > total.limit:
            used, limit = tally.text_of(total.key, total.used), tally.text_of(total.key, total.limit)
            what = total.key.replace("/", " of ")
            yield f"holds {used} of {limit} {what}: {_THEN[quota.action if quota else 'deny']}"


def _ended(lapse: Lapse) -> str:
    one = lapse.exemption
    if lapse.state == "ended":
        return f"the exemption {one.name} ended {duration(-lapse.seconds)} ago and lifts nothing: delete or renew it"
    return f"the exemption {one.name} ends in {duration(lapse.seconds)}: ask {one.owner} whether it is still needed"


# Tenants, what they hold of what they may, and their exemptions: as tables for a terminal, and for scripts.

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


def _held(tenant: Tenant, place: Place) -> Sequence[str]:
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
