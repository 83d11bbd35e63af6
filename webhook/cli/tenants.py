"""All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon."""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from webhook.cli import options, snapshot
from webhook.cli.snapshot import Problem, Snapshot
from webhook.cli.table import gib, short, table
from webhook.core.kube.quantity import Fraction, duration
from webhook.core.policy import membership
from webhook.core.policy.judge import SOON
from webhook.core.quota import tally
from webhook.core.quota.ledger import PART, Ledger, namespaces
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.violations import Action
from webhook.files import rule_files


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook tenants` takes."""
    what = "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML"
    options.objects_option(command, what)


def run(arguments: argparse.Namespace) -> int:
    """Print the view."""
    rulebook = rule_files.load_cached(arguments.rules)
    files = arguments.file
    objects = snapshot.read_files(snapshot.TENANTS, files) if files else snapshot.read_tenants()
    view = overview(objects, rulebook, time.time(), live=not arguments.file)
    options.print_json(contract(view)) if arguments.output == "json" else print("\n".join(lines(view)))
    return options.FINE


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
class Tenant:
    """One tenant; `of` and `places` say it in the words of `contract`, with exact amounts.

    A place is a namespace; one that is not counted yet admits no GPU pod until it is.
    """

    of: Mapping[str, Any]
    selection: str  # which namespaces its policy selects
    totals: Totals
    models: Mapping[str, Totals]  # those of each card model
    places: Sequence[Mapping[str, Any]]

    @property
    def every(self) -> list[Total]:
        """All of its totals, those of card models last."""
        return [total for totals in (self.totals, *self.models.values()) for total in totals.values()]


class Lapse(NamedTuple):
    """An exemption in the words of `contract`; `ends`: when, or how long ago; `seconds` are those to its end."""

    of: Mapping[str, Any]
    ends: str
    seconds: float


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
        problems += (Problem(name, text) for text in _wrong(tenant, policy, ledger, live=live))
        tenants.append(tenant)
    lapses = []
    for exemption in tenancy.exemptions:
        seconds = exemption.expires - at
        when, state = duration(abs(seconds)), "holds"
        if seconds <= 0:
            state, text = "ended", f"ended {when} ago and lifts nothing: delete or renew it"
        elif seconds < SOON:
            state, text = "ends", f"ends in {when}: ask {exemption.owner} whether it is still needed"
        if state != "holds":
            problems.append(Problem("", f"the exemption {exemption.name} {text}"))
        of = {
            "name": exemption.name,
            "namespaces": list(exemption.namespaces),
            "users": list(exemption.users),
            "lifts": sorted(exemption.lifts),
            "owner": exemption.owner,
            "reason": exemption.reason,
            "expires": datetime.fromtimestamp(exemption.expires, UTC).isoformat().replace("+00:00", "Z"),
            "state": state,
        }
        lapses.append(Lapse(of, f"ended {when} ago" if state == "ended" else f"in {when}", seconds))

    tenants.sort(key=lambda tenant: -1 if tenant.of["percent"] is None else tenant.of["percent"], reverse=True)
    return Tenants(
        tenants=tenants,
        problems=list(dict.fromkeys(problems)),
        exemptions=sorted(lapses, key=lambda lapse: lapse.seconds),
    )


def _tenant(name: str, policy: TenantPolicy | None, ledger: Ledger, namespaces: Sequence[str]) -> Tenant:
    quota, used, held = policy.quota if policy else None, ledger.used, ledger.by_namespace
    hard = ledger.hard or (quota.hard if quota else {})

    def totals(model: str = "") -> Totals:
        keys = {what: tally.key(what, model) for what in (tally.DEVICES, tally.MEMORY)}
        return {what: Total(key=key, used=used.get(key, _NONE), limit=hard.get(key)) for what, key in keys.items()}

    # How full it is, by what comes nearest to its limit; None without a limit, or where nothing is counted.
    percent = tally.percent(used, hard) if hard and ledger.view > 0 else None
    by_label = ["by label"] if policy and policy.namespaces.selector is not None else []
    return Tenant(
        of={
            "name": name,
            "policy": policy.rule if policy else None,  # None: its ledger is left over
            "priority": policy.priority if policy else None,
            "enforcementAction": quota.action if quota else None,
            "percent": percent,
            "counted": ledger.view > 0,  # the settler has counted what it uses
            "pending": len(ledger.pending),  # pods on their way into the cluster
        },
        selection=", ".join([*policy.namespaces.names, *by_label]) if policy else "-",
        totals=totals(),
        models={model: totals(model) for model in tally.models((*used, *hard))},
        places=[
            {
                "name": namespace,
                "devices": held.get(namespace, tally.NOTHING).get(tally.DEVICES, _NONE),
                "memoryBytes": held.get(namespace, tally.NOTHING).get(tally.MEMORY, _NONE),
                "counted": namespace in ledger.held,
            }
            for namespace in sorted({*held, *namespaces})
        ],
    )


def _wrong(tenant: Tenant, policy: TenantPolicy | None, ledger: Ledger | None, *, live: bool) -> Iterator[str]:
    """What is wrong with a tenant, in sentences that follow its name."""
    quota, counted = policy.quota if policy else None, tenant.of["counted"]
    if policy is None:
        yield "no policy has this name any more; its TenantUsage counts for nothing"
    elif quota is not None and not counted and live:
        yield "has a quota, and nobody counts what it uses: GPU pods wait for the settler (gpu-webhook settle)"
    elif quota is not None and ledger is not None and ledger.hard != quota.hard:
        yield "its ledger still has another limit than its policy; the settler writes it there"
    new = [place["name"] for place in tenant.places if not place["counted"]]
    if quota is not None and counted and new:
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
        yield from (f"  {f'{whose}: ' if whose else ''}{message}" for whose, message in view.problems)
    tenants, cards, places = [], [], []
    for tenant in view.tenants:
        name, percent, counted = tenant.of["name"], tenant.of["percent"], tenant.of["counted"]
        full = ("-", "") if percent is None else (f"{percent}%".rjust(4), bar(percent))
        over = OVER.get(tenant.of["enforcementAction"], "-")
        pairs, pending = _pairs(tenant.totals, counted=counted), str(tenant.of["pending"] or "-")
        tenants.append((name, tenant.selection, *full, *pairs, pending, over))
        cards += [(model, name, *_pairs(totals)) for model, totals in tenant.models.items()]
        for place in tenant.places:
            amounts = short(place["devices"]), gib(place["memoryBytes"])
            places.append((place["name"], name, *(amounts if counted and place["counted"] else ("?", "?"))))
    yield from table(TENANT, tenants, texts=4)
    yield from table(CARD, sorted(cards), texts=2)
    yield from table(NAMESPACE, sorted(places), texts=2)
    exemptions = []
    for of, ends, _ in view.exemptions:
        lifts, selected, users = (", ".join(of[key]) for key in ("lifts", "namespaces", "users"))
        exemptions.append((of["name"], ends, lifts, selected, users or "everybody", of["owner"], of["reason"]))
    yield from table(EXEMPTION, exemptions, texts=len(EXEMPTION))


def _summary(view: Tenants) -> str:
    if not view.tenants:
        return "no tenants: there is neither a TenantPolicy nor a TenantUsage"
    number = len(view.tenants)
    silent = sum(bool(tenant.of["enforcementAction"]) and not tenant.of["counted"] for tenant in view.tenants)
    if silent == number:
        what = "; no TenantUsage says what it holds" if number == 1 else "s; no TenantUsage says what they hold"
        return f"{number} tenant{what}"
    held = sum((tenant.totals[tally.DEVICES].used for tenant in view.tenants), _NONE)
    pending = sum(tenant.of["pending"] for tenant in view.tenants)
    way = f"; {pending} pod{' is' if pending == 1 else 's are'} on the way into the cluster" if pending else ""
    unsaid = f", and of {silent} no TenantUsage says what is held" if silent else ""
    return f"{number} tenant{' holds' if number == 1 else 's hold'} {short(held)} devices{unsaid}{way}"


def bar(percent: int) -> str:
    """`########..`: a bar that is whole only where nothing is left."""
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


def contract(view: Tenants) -> dict[str, Any]:
    """The form of `tenants -o json`."""

    def plain(amounts: Mapping[str, Any]) -> dict[str, Any]:
        return {key: tally.plain(raw) if isinstance(raw, Fraction) else raw for key, raw in amounts.items()}

    def measures(totals: Totals) -> dict[str, Any]:
        return {
            name: plain({"used": total.used, "limit": total.limit, "left": total.left})
            for name, total in (("devices", totals[tally.DEVICES]), ("memoryBytes", totals[tally.MEMORY]))
        }

    return {
        "tenants": [
            {
                **tenant.of,
                **measures(tenant.totals),
                "models": {model: measures(totals) for model, totals in tenant.models.items()},
                "namespaces": [plain(place) for place in tenant.places],
            }
            for tenant in view.tenants
        ],
        "problems": [{"tenant": problem.tenant or None, "message": problem.message} for problem in view.problems],
        "exemptions": [lapse.of for lapse in view.exemptions],
    }
