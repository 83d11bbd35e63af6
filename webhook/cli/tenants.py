"""All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from webhook.cli import options, snapshot
from webhook.cli.options import FINE
from webhook.cli.snapshot import Problem, Snapshot
from webhook.cli.table import gib, short, table
from webhook.core.kube.quantity import Fraction, duration
from webhook.core.policy import membership
from webhook.core.policy.judge import SOON
from webhook.core.quota import tally
from webhook.core.quota.ledger import PART, Ledger, namespaces
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Exemption, Quota, TenantPolicy
from webhook.core.violations import Action
from webhook.files import rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    what = "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML"
    options.objects_option(command, what)


def run(arguments: argparse.Namespace) -> int:
    """Print the view."""
    rulebook = rule_files.load_cached(arguments.rules)
    objects = Snapshot(snapshot.TENANTS)
    for file in arguments.file:
        objects.parse(*options.read_content(file))
    objects = objects if arguments.file else snapshot.read_tenants()
    view = overview(objects, rulebook, time.time(), live=not arguments.file)
    options.print_json(contract(view)) if arguments.output == "json" else print("\n".join(lines(view)))
    return FINE


_THEN: Final[Mapping[Action, str]] = {
    "deny": "what runs stays, and nothing more is admitted",
    "warn": "more is admitted, as its policy only warns",
    "dryrun": "more is admitted, as its policy is only tried",
}
"""What it means for a tenant that it holds more than its limit."""

_NONE: Final = Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One thing that is counted. `limit` is None where nothing limits it; memory is in bytes."""

    key: str
    used: Fraction
    limit: Fraction | None

    @property
    def left(self) -> Fraction | None:
        """What may still be asked, at least nothing; None for anything."""
        return None if self.limit is None else max(_NONE, self.limit - self.used)

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
    """What is known of one tenant."""

    name: str
    policy: TenantPolicy | None  # None: its ledger is left over
    quota: Quota | None  # what its policy lets it hold
    known: bool  # the settler has counted what it uses
    totals: Totals  # its devices and memory
    models: Mapping[str, Totals]  # those of each card model
    places: Sequence[Place]
    pending: int  # pods on their way into the cluster

    @property
    def every(self) -> list[Total]:
        """All of its totals, those of card models last."""
        return [total for totals in (self.totals, *self.models.values()) for total in totals.values()]

    @property
    def percent(self) -> int | None:
        """How full it is, by what comes nearest to its limit; None without a limit, or where nothing is counted."""
        percents = [total.percent for total in self.every if total.percent is not None]
        return max(percents, default=None) if self.known else None


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


def overview(objects: Snapshot, rulebook: Rulebook, at: float, *, live: bool) -> Tenants:
    """Bring policies and ledgers together, at a time in seconds since 1970.

    `live`: all ledgers should be among the objects, so one that is not there is a problem.
    """
    tenancy, broken = objects.tenancy(rulebook)
    ledgers, unread = objects.ledgers()
    live = live or bool(objects.of("TenantUsage"))
    counted = {name: {membership.NAME_LABEL: name} for ledger in ledgers.values() for name in ledger.held}
    tenancy = replace(tenancy, labels={**counted, **tenancy.labels})
    policies = {policy.name: policy for policy in tenancy.policies}
    problems = [*broken, *unread]
    namespaces_of: dict[str, list[str]] = {}
    for namespace in sorted(tenancy.labels):
        members = membership.member(namespace, tenancy)
        if members.policy is not None:
            namespaces_of.setdefault(members.policy.name, []).append(namespace)
        if rivals := members.rivals:
            names = " and ".join(rival.rule for rival in rivals)
            same = f"both of priority {rivals[0].priority}: its GPU pods are refused until one has another priority"
            problems.append(Problem("", f"the namespace {namespace} is selected by {names}, {same}"))
    tenants = []
    for name in sorted({*policies, *ledgers}):
        policy, ledger = policies.get(name), ledgers.get(name)
        tenant = _tenant(name, policy, ledger or Ledger(), namespaces_of.get(name, ()))
        problems += (Problem(name, text) for text in _wrong(tenant, ledger, live=live))
        tenants.append(tenant)
    lapses = [Lapse(exemption, exemption.expires - at) for exemption in tenancy.exemptions]
    for lapse in (lapse for lapse in lapses if lapse.state != "holds"):
        name, owner = lapse.exemption.name, lapse.exemption.owner
        text = f"ends in {duration(lapse.seconds)}: ask {owner} whether it is still needed"
        if lapse.state == "ended":
            text = f"ended {duration(-lapse.seconds)} ago and lifts nothing: delete or renew it"
        problems.append(Problem("", f"the exemption {name} {text}"))
    return Tenants(
        tenants=sorted(tenants, key=lambda tenant: -1 if tenant.percent is None else tenant.percent, reverse=True),
        problems=list(dict.fromkeys(problems)),
        exemptions=sorted(lapses, key=lambda lapse: lapse.seconds),
    )


def _tenant(name: str, policy: TenantPolicy | None, ledger: Ledger, namespaces: Sequence[str]) -> Tenant:
    quota, used, held = policy.quota if policy else None, ledger.used, ledger.by_namespace
    hard = ledger.hard or (quota.hard if quota else {})

    def totals(model: str = "") -> Totals:
        keys = {what: tally.key(what, model) for what in (tally.DEVICES, tally.MEMORY)}
        return {what: Total(key=key, used=used.get(key, _NONE), limit=hard.get(key)) for what, key in keys.items()}

    return Tenant(
        name=name,
        policy=policy,
        quota=quota,
        known=ledger.view > 0,
        totals=totals(),
        models={model: totals(model) for model in tally.models((*used, *hard))},
        places=[
            Place(
                namespace=namespace,
                devices=held.get(namespace, tally.NOTHING).get(tally.DEVICES, _NONE),
                memory=held.get(namespace, tally.NOTHING).get(tally.MEMORY, _NONE),
                counted=namespace in ledger.held,
            )
            for namespace in sorted({*held, *namespaces})
        ],
        pending=len(ledger.pending),
    )


def _wrong(tenant: Tenant, ledger: Ledger | None, *, live: bool) -> Iterator[str]:
    """What is wrong with a tenant, in sentences that follow its name."""
    quota = tenant.quota
    if tenant.policy is None:
        yield "no policy has this name any more; its TenantUsage counts for nothing"
    elif quota is not None and not tenant.known and live:
        yield "has a quota, and nobody counts what it uses: GPU pods wait for the settler (gpu-webhook settle)"
    elif quota is not None and ledger is not None and ledger.hard != quota.hard:
        yield "its ledger still has another limit than its policy; the settler writes it there"
    new = [place.namespace for place in tenant.places if not place.counted]
    if quota is not None and tenant.known and new:
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


# Tenants, what they hold of what they may, and their exemptions: as tables for a terminal, and for scripts

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
        yield from (
            f"  {f'{problem.tenant}: ' if problem.tenant else ''}{problem.message}" for problem in view.problems
        )
    tenants = [
        (
            tenant.name,
            selection(tenant),
            "-" if tenant.percent is None else f"{tenant.percent}%".rjust(4),
            bar(tenant.percent),
            *_pairs(tenant.totals, counted=tenant.known),
            str(tenant.pending or "-"),
            OVER[tenant.quota.action] if tenant.quota else "-",
        )
        for tenant in view.tenants
    ]
    yield from table(TENANT, tenants, texts=4)
    cards = [(m, tenant.name, *_pairs(totals)) for tenant in view.tenants for m, totals in tenant.models.items()]
    yield from table(CARD, sorted(cards), texts=2)
    places = []
    for tenant in view.tenants:
        for place in tenant.places:
            counted = tenant.known and place.counted
            amounts = (short(place.devices), gib(place.memory)) if counted else ("?", "?")
            places.append((place.namespace, tenant.name, *amounts))
    yield from table(NAMESPACE, sorted(places), texts=2)
    exemptions = [
        (
            exemption.name,
            ends(lapse),
            ", ".join(sorted(exemption.lifts)),
            ", ".join(exemption.namespaces),
            ", ".join(exemption.users) or "everybody",
            exemption.owner,
            exemption.reason,
        )
        for lapse in view.exemptions
        for exemption in [lapse.exemption]
    ]
    yield from table(EXEMPTION, exemptions, texts=len(EXEMPTION))


def _summary(view: Tenants) -> str:
    if not view.tenants:
        return "no tenants: there is neither a TenantPolicy nor a TenantUsage"
    number = len(view.tenants)
    silent = sum(tenant.quota is not None and not tenant.known for tenant in view.tenants)
    if silent == number:
        what = "; no TenantUsage says what it holds" if number == 1 else "s; no TenantUsage says what they hold"
        return f"{number} tenant{what}"
    held = sum((tenant.totals[tally.DEVICES].used for tenant in view.tenants), _NONE)
    pending = sum(tenant.pending for tenant in view.tenants)
    way = f"; {pending} pod{' is' if pending == 1 else 's are'} on the way into the cluster" if pending else ""
    unsaid = f", and of {silent} no TenantUsage says what is held" if silent else ""
    return f"{number} tenant{' holds' if number == 1 else 's hold'} {short(held)} devices{unsaid}{way}"


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


def _pairs(totals: Totals, *, counted: bool = True) -> Sequence[str]:
    """Of devices and memory what is used of what may be, and what is left."""
    cells: list[str] = []
    for what, shown in ((tally.DEVICES, short), (tally.MEMORY, gib)):
        total = totals[what]
        limit = "" if total.limit is None else f" of {shown(total.limit)}"
        if counted:
            cells += [f"{shown(total.used)}{limit}", "-" if total.left is None else shown(total.left)]
        else:
            cells += [f"?{limit}", "?"] if limit else ["-", "-"]
    return cells


def ends(lapse: Lapse) -> str:
    """When an exemption ends, or how long ago it has."""
    when = duration(abs(lapse.seconds))
    return f"ended {when} ago" if lapse.state == "ended" else f"in {when}"


def contract(view: Tenants) -> dict[str, Any]:
    """The form of `tenants -o json`."""

    def measures(totals: Totals) -> dict[str, Any]:
        def plain(amount: Fraction | None) -> Any:
            return None if amount is None else tally.plain(amount)

        return {
            name: {"used": plain(total.used), "limit": plain(total.limit), "left": plain(total.left)}
            for name, total in (("devices", totals[tally.DEVICES]), ("memoryBytes", totals[tally.MEMORY]))
        }

    return {
        "tenants": [
            {
                "name": tenant.name,
                "policy": tenant.policy.rule if tenant.policy else None,
                "priority": tenant.policy.priority if tenant.policy else None,
                "enforcementAction": tenant.quota.action if tenant.quota else None,
                "percent": tenant.percent,
                "counted": tenant.known,
                "pending": tenant.pending,
                **measures(tenant.totals),
                "models": {model: measures(totals) for model, totals in tenant.models.items()},
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
            for tenant in view.tenants
        ],
        "problems": [{"tenant": problem.tenant or None, "message": problem.message} for problem in view.problems],
        "exemptions": [
            {
                "name": exemption.name,
                "namespaces": list(exemption.namespaces),
                "users": list(exemption.users),
                "lifts": sorted(exemption.lifts),
                "owner": exemption.owner,
                "reason": exemption.reason,
                "expires": datetime.fromtimestamp(exemption.expires, UTC).isoformat().replace("+00:00", "Z"),
                "state": lapse.state,
            }
            for lapse in view.exemptions
            for exemption in [lapse.exemption]
        ],
    }
