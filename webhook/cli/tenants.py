"""All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon."""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from webhook.cli import options, snapshot
from webhook.cli.snapshot import Snapshot
from webhook.cli.table import contract, gib, short, table
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

Record = dict[str, Any]
"""What the table, the page and scripts are told, in the words of `-o json`; amounts are exact, memory is in bytes."""


def overview(objects: Snapshot, rulebook: Rulebook, at: float, *, live: bool) -> Record:
    """Bring policies and ledgers together, at a time in seconds since 1970; the fullest tenant comes first.

    `live`: all ledgers should be among the objects, so one that is not there is a problem.
    """
    tenancy, broken = objects.tenancy(rulebook)
    ledgers, unread = objects.ledgers()
    live = live or bool(objects.of("TenantUsage"))
    counted = {name: {membership.NAME_LABEL: name} for ledger in ledgers.values() for name in ledger.held}
    tenancy = replace(tenancy, labels={**counted, **tenancy.labels})
    policies = {policy.name: policy for policy in tenancy.policies}
    problems: list[tuple[str, str]] = [*broken, *unread]
    namespaces_of: dict[str, list[str]] = {}
    for namespace in sorted(tenancy.labels):
        members = membership.member(namespace, tenancy)
        if members.policy is not None:
            namespaces_of.setdefault(members.policy.name, []).append(namespace)
        if rivals := members.rivals:
            names = " and ".join(rival.rule for rival in rivals)
            same = f"both of priority {rivals[0].priority}: its GPU pods are refused until one has another priority"
            problems.append(("", f"the namespace {namespace} is selected by {names}, {same}"))
    tenants = []
    for name in sorted({*policies, *ledgers}):
        policy, ledger = policies.get(name), ledgers.get(name)
        tenants.append(_tenant(name, policy, ledger or Ledger(), namespaces_of.get(name, ())))
        problems += ((name, text) for text in _wrong(tenants[-1], policy, ledger, live=live))
    exemptions = []
    for exemption in sorted(tenancy.exemptions, key=lambda exemption: exemption.expires):
        seconds = exemption.expires - at
        when, state = duration(abs(seconds)), "holds"
        if seconds <= 0:
            state, text = "ended", f"ended {when} ago and lifts nothing: delete or renew it"
        elif seconds < SOON:
            state, text = "ends", f"ends in {when}: ask {exemption.owner} whether it is still needed"
        if state != "holds":
            problems.append(("", f"the exemption {exemption.name} {text}"))
        exemptions.append(
            {
                "name": exemption.name,
                "namespaces": list(exemption.namespaces),
                "users": list(exemption.users),
                "lifts": sorted(exemption.lifts),
                "owner": exemption.owner,
                "reason": exemption.reason,
                "expires": datetime.fromtimestamp(exemption.expires, UTC).isoformat().replace("+00:00", "Z"),
                "state": state,
                "ends": f"ended {when} ago" if state == "ended" else f"in {when}",
            }
        )
    tenants.sort(key=lambda tenant: -1 if tenant["percent"] is None else tenant["percent"], reverse=True)
    told = [{"tenant": whose or None, "message": message} for whose, message in dict.fromkeys(problems)]
    return {"tenants": tenants, "problems": told, "exemptions": exemptions}


def _tenant(name: str, policy: TenantPolicy | None, ledger: Ledger, namespaces: Sequence[str]) -> Record:
    quota, used, held = policy.quota if policy else None, ledger.used, ledger.by_namespace
    hard = ledger.hard or (quota.hard if quota else {})

    def totals(model: str = "") -> Record:
        record = {}
        for title, what in (("devices", tally.DEVICES), ("memoryBytes", tally.MEMORY)):
            amount, limit = (amounts.get(tally.key(what, model)) for amounts in (used, hard))
            left = None if limit is None else max(_NONE, limit - (amount or _NONE))
            record[title] = {"used": amount or _NONE, "limit": limit, "left": left}
        return record

    by_label = ["by label"] if policy and policy.namespaces.selector is not None else []
    return {
        "name": name,
        "policy": policy.rule if policy else None,  # None: its ledger is left over
        "priority": policy.priority if policy else None,
        "enforcementAction": quota.action if quota else None,
        # How full it is, by what comes nearest to its limit; None without a limit, or where nothing is counted.
        "percent": tally.percent(used, hard) if hard and ledger.view > 0 else None,
        "counted": ledger.view > 0,  # the settler has counted what it uses
        "pending": len(ledger.pending),  # pods on their way into the cluster
        **totals(),
        "models": {model: totals(model) for model in tally.models((*used, *hard))},
        "namespaces": [
            {
                "name": namespace,
                "devices": held.get(namespace, tally.NOTHING).get(tally.DEVICES, _NONE),
                "memoryBytes": held.get(namespace, tally.NOTHING).get(tally.MEMORY, _NONE),
                "counted": namespace in ledger.held,  # one that is not counted yet admits no GPU pod until it is
            }
            for namespace in sorted({*held, *namespaces})
        ],
        "selection": ", ".join([*policy.namespaces.names, *by_label]) if policy else "-",
    }


def _wrong(tenant: Record, policy: TenantPolicy | None, ledger: Ledger | None, *, live: bool) -> Iterator[str]:
    """What is wrong with a tenant, in sentences that follow its name."""
    quota, counted = policy.quota if policy else None, tenant["counted"]
    if policy is None:
        yield "no policy has this name any more; its TenantUsage counts for nothing"
    elif quota is not None and not counted and live:
        yield "has a quota, and nobody counts what it uses: GPU pods wait for the settler (gpu-webhook settle)"
    elif quota is not None and ledger is not None and ledger.hard != quota.hard:
        yield "its ledger still has another limit than its policy; the settler writes it there"
    new = [place["name"] for place in tenant["namespaces"] if not place["counted"]]
    if quota is not None and counted and new:
        yield f"GPU pods have to wait in namespaces that are not counted yet: {', '.join(new)}"
    if ledger is None:
        return
    if suspected := namespaces(ledger.suspects):
        yield (
            f"pods in {', '.join(suspected)} were admitted and never stored, again and again, as their creates were "
            f"refused after the review: their authors may reserve no more than 1/{PART} of the quota at once"
        )
    hard = ledger.hard or (quota.hard if quota else {})
    for key in sorted(tally.over(ledger.used, hard), key=lambda key: tally.parts(key)[::-1]):
        used, limit = tally.text_of(key, ledger.used[key]), tally.text_of(key, hard[key])
        yield f"holds {used} of {limit} {key.replace('/', ' of ')}: {_THEN[quota.action if quota else 'deny']}"


BAR: Final = 10
OVER: Final = {"deny": "refused", "warn": "warned of", "dryrun": "logged"}
"""What becomes of a pod over the limit, by the enforcement action of the quota."""


def lines(view: Record) -> Iterator[str]:
    """The view as aligned tables, what has to be done first."""
    yield _summary(view["tenants"])
    if view["problems"]:
        yield "\nTO DO"
    for problem in view["problems"]:
        yield f"  {problem['tenant']}: {problem['message']}" if problem["tenant"] else f"  {problem['message']}"
    tenants, cards, places = [], [], []
    for tenant in view["tenants"]:
        name, percent, counted = tenant["name"], tenant["percent"], tenant["counted"]
        full = ("-", "")
        if percent is not None:  # a bar is whole only where nothing is left
            full = f"{percent}%".rjust(4), ("#" * min(BAR, percent * BAR // 100)).ljust(BAR, ".")
        over = OVER.get(tenant["enforcementAction"], "-")
        pending = str(tenant["pending"] or "-")
        tenants.append((name, tenant["selection"], *full, *_pairs(tenant, counted=counted), pending, over))
        cards += [(model, name, *_pairs(totals)) for model, totals in tenant["models"].items()]
        for place in tenant["namespaces"]:
            amounts = short(place["devices"]), gib(place["memoryBytes"])
            places.append((place["name"], name, *(amounts if counted and place["counted"] else ("?", "?"))))
    pairs = ("DEVICES", "LEFT", "MEMORY", "LEFT")
    yield from table(("TENANT", "NAMESPACES", "FULL", "", *pairs, "PENDING", "OVER LIMIT"), tenants, texts=4)
    yield from table(("CARD", "TENANT", *pairs), sorted(cards), texts=2)
    yield from table(("NAMESPACE", "TENANT", "DEVICES", "MEMORY"), sorted(places), texts=2)
    exemptions = []
    for of in view["exemptions"]:
        lifts, selected, users = (", ".join(of[key]) for key in ("lifts", "namespaces", "users"))
        exemptions.append((of["name"], of["ends"], lifts, selected, users or "everybody", of["owner"], of["reason"]))
    headings = ("EXEMPTION", "ENDS", "LIFTS", "NAMESPACES", "USERS", "OWNER", "REASON")
    yield from table(headings, exemptions, texts=len(headings))


def _summary(tenants: Sequence[Record]) -> str:
    if not tenants:
        return "no tenants: there is neither a TenantPolicy nor a TenantUsage"
    number = len(tenants)
    silent = sum(bool(tenant["enforcementAction"]) and not tenant["counted"] for tenant in tenants)
    if silent == number:
        what = "; no TenantUsage says what it holds" if number == 1 else "s; no TenantUsage says what they hold"
        return f"{number} tenant{what}"
    held = sum((tenant["devices"]["used"] for tenant in tenants), _NONE)
    pending = sum(tenant["pending"] for tenant in tenants)
    way = f"; {pending} pod{' is' if pending == 1 else 's are'} on the way into the cluster" if pending else ""
    unsaid = f", and of {silent} no TenantUsage says what is held" if silent else ""
    return f"{number} tenant{' holds' if number == 1 else 's hold'} {short(held)} devices{unsaid}{way}"


def _pairs(totals: Record, *, counted: bool = True) -> Sequence[str]:
    """Of devices and memory what is used of what may be, and what is left."""
    cells: list[str] = []
    for what, shown in (("devices", short), ("memoryBytes", gib)):
        used, limit, left = totals[what].values()
        of = "" if limit is None else f" of {shown(limit)}"
        if counted:
            cells += [f"{shown(used)}{of}", "-" if left is None else shown(left)]
        else:
            cells += [f"?{of}", "?"] if of else ["-", "-"]
    return cells
