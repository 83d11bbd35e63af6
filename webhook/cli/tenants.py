"""All tenants at a glance: what each has used of what it may, in which namespaces, and what is wrong or ends soon."""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from webhook.cli import options, snapshot
from webhook.cli.snapshot import Snapshot
from webhook.cli.table import contract, gib, short, table
from webhook.core.forms.labels import is_dns_label
from webhook.core.kube.quantity import Fraction, duration, show, show_size
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
    what = (
        "what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML; or the name of"
    )
    options.objects_option(command, f"{what} a namespace or a tenant, of which all is told")
    command.add_argument("--user", default="", metavar="NAME", help="with a name: the exemptions of this user")
    at = "when exemptions hold, as 2027-01-31T00:00:00Z; default: now"
    command.add_argument("--at", type=options.time_of, metavar="TIME", help=at)


def run(arguments: argparse.Namespace) -> int:
    """Print the view, or what is for one name."""
    rulebook = rule_files.load_cached(arguments.rules)
    names = [name for name in arguments.file if is_dns_label(name) and not Path(name).exists()]
    files, at = [file for file in arguments.file if file not in names], arguments.at or time.time()
    objects = snapshot.read_files(snapshot.TENANTS, files) if files else snapshot.read_tenants()
    view = overview(objects, rulebook, at, live=not files)
    if not names:
        options.print_json(contract(view)) if arguments.output == "json" else print("\n".join(lines(view)))
        return options.FINE
    tenancy = objects.tenancy(rulebook)[0]
    records = [about(name, view, replace(rulebook, tenancy=tenancy), arguments.user, at) for name in names]
    if arguments.output == "json":
        options.print_json(contract(records[0] if len(records) == 1 else records))
    else:
        print("\n\n".join("\n".join(lines_about(record)) for record in records))
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
    listed = [{"tenant": whose or None, "message": message} for whose, message in dict.fromkeys(problems)]
    return {"tenants": tenants, "problems": listed, "exemptions": exemptions}


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


# What is for one namespace, or for all of a tenant: who it is, what may be asked, and what is left.


def about(name: str, view: Record, rulebook: Rulebook, user: str, at: float) -> Record:
    """Which policies select a namespace and which of them holds, or what a tenant is; what it may ask and still hold.

    A name that neither is known as is that of a namespace.
    """
    tenancy = rulebook.tenancy
    tenants = {tenant["name"]: tenant for tenant in view["tenants"]}
    is_tenant = name in tenants and name not in tenancy.labels
    labels = tenancy.labels.get(name, {membership.NAME_LABEL: name})
    members = membership.member(name, tenancy)
    policies = {policy.name: policy for policy in tenancy.policies}
    policy = policies.get(name) if is_tenant else members.policy
    selecting = [
        other
        for other in (() if is_tenant else tenancy.policies)
        if membership.selects(other.namespaces, name, labels)
    ]
    exemptions = [
        {**shown, "applies": exemption.holds(name, user, at)}
        for exemption in tenancy.exemptions
        for shown in view["exemptions"]
        if shown["name"] == exemption.name and not is_tenant and exemption.covers(name)
    ]
    return {
        "name": name,
        "kind": "tenant" if is_tenant else "namespace",
        "exempt": not is_tenant and rulebook.cluster.exempts(name),
        "closed": tenancy.closed,
        "policies": [
            {"name": other.name, "priority": other.priority, "holds": other is policy} for other in selecting
        ],
        "rivals": [rival.name for rival in members.rivals] if not is_tenant else [],
        "limits": dict(_limits(policy)) if policy else {},
        "tenant": tenants.get(policy.name if policy else ""),
        "exemptions": exemptions,
    }


def _limits(policy: TenantPolicy) -> Iterator[tuple[str, str]]:
    """What a policy lets its pods ask, and what it puts in where they do not say, in words of its document."""
    for of in ("container", "pod"):
        if ceiling := getattr(policy, of):
            most = {key: getattr(ceiling, key) for key in ("devices", "memory", "cores")}
            amounts = (f"{key} {_shown(key, amount)}" for key, amount in most.items() if amount is not None)
            yield f"a {of}", f"at most {', '.join(amounts)}"
    for rule in ("allowed", "forbidden"):
        if kinds := getattr(policy, rule):
            listed = {
                key: sorted(getattr(kinds, key)) for key in ("backends", "vendors", "models", "sharing", "profiles")
            }
            yield rule, "; ".join(f"{key} {', '.join(words)}" for key, words in listed.items() if words)
    defaults = {key: getattr(policy.defaults, key) for key in ("backend", "model", "sharing", "memory")}
    if texts := [f"gpu-{key}: {_shown(key, value)}" for key, value in defaults.items() if value is not None]:
        yield "default", ", ".join(texts)


def _shown(key: str, value: Any) -> str:
    return show_size(value) if key == "memory" else show(value) if isinstance(value, Fraction) else str(value)


def lines_about(record: Record) -> Iterator[str]:
    """What is for one name, a fact a line."""
    facts = [*_facts(record)]
    width = max(len(title) for title, _ in facts)
    yield f"{record['kind']} {record['name']}"
    yield from (f"  {title.ljust(width)}  {text}" for title, text in facts)


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    tenant, holding = record["tenant"], [policy for policy in record["policies"] if policy["holds"]]
    if record["exempt"]:
        yield "exempt", "its pods are neither changed nor judged, as the Cluster document lists it"
        return
    if rivals := record["rivals"]:
        yield "tenant", f"{' and '.join(rivals)} have the same priority: no pod gets a GPU until one has another"
    elif tenant is None:
        fate = "no pod gets a GPU there" if record["closed"] else "nothing is limited there"
        yield "tenant", f"no TenantPolicy selects it: {fate}"
    elif record["kind"] == "tenant":
        yield "namespaces", ", ".join(place["name"] for place in tenant["namespaces"]) or tenant["selection"]
    else:
        why = f"of priority {holding[0]['priority']}" if holding else "as no other policy selects the namespace"
        yield "tenant", f"{tenant['name']}, by {tenant['policy']}, {why}"
    for policy in record["policies"]:
        if not policy["holds"] and policy["name"] not in rivals:
            yield "also", f"{policy['name']} selects it, of priority {policy['priority']}, and does not hold"
    yield from record["limits"].items()
    for model, totals in {"": tenant, **tenant["models"]}.items() if tenant else ():
        devices, left, memory, room = _pairs(totals, counted=tenant["counted"])
        for title, used, free in (("devices", devices, left), ("memory", memory, room)):
            if free != "-" or (not model and used not in {"-", "0Gi"}):
                text = f"{used} used, {free} left" if free not in {"-", "?"} else f"{used} used"
                yield (f"{title} of {model}" if model else title), text
    if tenant and tenant["enforcementAction"] in {"warn", "dryrun"}:
        yield "over it", f"what is more is {OVER[tenant['enforcementAction']]}"
    for exemption in record["exemptions"]:
        whom, lifts = ", ".join(exemption["users"]) or "everybody", ", ".join(exemption["lifts"])
        state = f"until {exemption['expires']}" if exemption["state"] != "ended" else exemption["ends"]
        unasked = "" if exemption["applies"] or exemption["state"] == "ended" else " (--user says who asks)"
        yield "exemption", f"{exemption['name']} lifts {lifts} for {whom} {state}{unasked}"


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
