"""`gpu-webhook tenants`: policies, ledgers and exemptions from files or from a cluster, as tables for people.

`contract` is the form of `gpu-webhook tenants -o json`, which scripts rely on:

    tenants     name, policy (where it is written; null: none), priority, enforcementAction and percent (null: no
                quota), counted, pending, devices, memoryBytes, models (devices and memoryBytes by model), namespaces
                (name, devices, memoryBytes, counted)
    problems    tenant (null: nobody's), message
    exemptions  name, namespaces, users, lifts, owner, reason, expires (RFC 3339), state (holds, ends, ended)

The devices and bytes of a tenant and of its models have used, limit and left, null where nothing limits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

from webhook import inventory
from webhook.core.quantity import GIB
from webhook.core.rulebook import Rulebook
from webhook.core.schema import tenants as documents
from webhook.core.tenancy import overview, stored, tally
from webhook.core.tenancy.ledger import Ledger
from webhook.core.tenancy.overview import Lapse, Problem, Tenant, Tenants, Total
from webhook.core.tenancy.policy import Tenancy
from webhook.inventory import UnreadableError, short, table

__all__ = ["Objects", "UnreadableError", "contract", "lines", "live"]

Object = Mapping[str, Any]

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that Kubernetes puts on every namespace."""


@dataclass(slots=True)
class Objects:
    """What is known of tenants, as objects."""

    policies: list[Object] = field(default_factory=list)
    exemptions: list[Object] = field(default_factory=list)
    usages: list[Object] = field(default_factory=list)
    namespaces: list[Object] = field(default_factory=list)

    def add(self, document: Object, kind: str = "") -> None:
        """Add an object, or those of a list; other kinds are left out.

        Raises UnreadableError for one without a name.
        """
        kind = str(document.get("kind") or kind)
        kinds = {
            "TenantPolicy": self.policies,
            "Exemption": self.exemptions,
            "TenantUsage": self.usages,
            "Namespace": self.namespaces,
        }
        if kind in kinds:
            if not _name(document):
                raise UnreadableError(f"there is a {kind} without a name")
            kinds[kind].append(document)
        elif kind.endswith("List") and isinstance(document.get("items"), list):
            for item in document["items"]:
                if isinstance(item, Mapping):
                    self.add(item, kind.removesuffix("List"))

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML or JSON; raises UnreadableError."""
        for document in inventory.contents(content, name):
            if not isinstance(document, Mapping):
                raise UnreadableError(f"{name} holds something that is not an object")
            self.add(document)

    def tenancy(self, rulebook: Rulebook) -> tuple[Tenancy, list[Problem]]:
        """The policies and exemptions of the rule files and of these objects, and what is wrong with the latter."""
        policies = documents.policies_from(self.policies, rulebook)
        exemptions = documents.exemptions_from(self.exemptions, rulebook)
        problems = [
            Problem(name, f"its policy cannot be used: {problem}")
            for name, broken in policies.broken.items()
            for problem in broken.problems
        ]
        problems += [
            Problem("", f"the exemption {name} cannot be used: {problem}")
            for name, broken in exemptions.broken.items()
            for problem in broken.problems
        ]
        offline = rulebook.tenancy
        replaced = [broken.instead for broken in policies.broken.values() if broken.instead is not None]
        tenancy = replace(
            offline,
            policies=[*offline.policies, *policies.read.values(), *replaced],
            exemptions=[*offline.exemptions, *exemptions.read.values()],
            labels={**offline.labels, **dict(map(_labelled, self.namespaces))},
        )
        return tenancy, [*problems, *self._conditions()]

    def _conditions(self) -> Iterator[Problem]:
        """What the cluster says of its policies: it may know namespaces that are not among these objects."""
        for policy in self.policies if not self.namespaces else ():
            for condition in _list(policy, "status", "conditions"):
                if condition.get("type") == "Ambiguous" and condition.get("status") == "True":
                    yield Problem(_name(policy), str(condition.get("message", "")))

    def ledgers(self) -> tuple[dict[str, Ledger], list[Problem]]:
        """The ledger of each tenant, and those that nobody can read."""
        found: dict[str, Ledger] = {}
        problems = []
        for raw in self.usages:
            status = raw.get("status")
            try:
                found[_name(raw)] = stored.read(status if isinstance(status, Mapping) else {})
            except (ValueError, TypeError, AttributeError) as error:
                problems.append(Problem(_name(raw), f"its TenantUsage holds what nobody can read: {error}"))
        return found, problems

    def view(self, rulebook: Rulebook, at: float, *, live: bool) -> Tenants:
        """All of it at a time; `live`: the ledgers are all that there are."""
        tenancy, broken = self.tenancy(rulebook)
        ledgers, unread = self.ledgers()
        seen = {name: {NAME_LABEL: name} for ledger in ledgers.values() for name in ledger.held}
        tenancy = replace(tenancy, labels={**seen, **tenancy.labels})
        return overview.overview(tenancy, ledgers, at, [*broken, *unread], live=live or bool(self.usages))


def _name(raw: Object) -> str:
    metadata = raw.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _labelled(namespace: Object) -> tuple[str, Mapping[str, str]]:
    metadata = namespace.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    name = _name(namespace)
    return name, {NAME_LABEL: name, **(labels if isinstance(labels, Mapping) else {})}


def _list(raw: Any, *path: str) -> Iterator[Object]:
    for step in path:
        raw = raw.get(step) if isinstance(raw, Mapping) else None
    return (each for each in raw if isinstance(each, Mapping)) if isinstance(raw, list) else iter(())


def live() -> Objects:
    """All of it as it is in the current cluster; raises UnreadableError."""
    from webhook import cluster  # noqa: PLC0415 - 55 MiB, and files need none of it

    try:
        return Objects(*cluster.Cluster().tenants())
    except cluster.AbsentError:
        reason = "the cluster knows no tenants: its custom resources (manifests/base/crds) are not installed"
        raise UnreadableError(reason) from None
    except cluster.ClusterError as error:
        files = "kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json"
        raise UnreadableError(f"{error}; or give files, from: {files}") from None


# As text

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
    held = sum((of(tenant.totals, tally.DEVICES).used for tenant in view.tenants), Fraction(0))
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
        *(_pairs(tenant.totals) if tenant.known else _unknown(tenant.totals)),
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


def _pairs(totals: Sequence[Total]) -> Sequence[str]:
    """Of devices and memory what is used of what may be, and what is left."""
    cells: list[str] = []
    for what, shown in ((tally.DEVICES, short), (tally.MEMORY, gib)):
        total = of(totals, what)
        limit = "" if total.limit is None else f" of {shown(total.limit)}"
        cells += [f"{shown(total.used)}{limit}", "-" if total.left is None else shown(total.left)]
    return cells


def _unknown(totals: Sequence[Total]) -> Sequence[str]:
    devices, memory = of(totals, tally.DEVICES).limit, of(totals, tally.MEMORY).limit
    return (
        *(("-", "-") if devices is None else (f"? of {short(devices)}", "?")),
        *(("-", "-") if memory is None else (f"? of {gib(memory)}", "?")),
    )


def of(totals: Sequence[Total], what: str) -> Total:
    """The total of devices or of memory; nothing, where only the other is counted."""
    found = [total for total in totals if total.key.partition("/")[0] == what]
    return found[0] if found else Total(key=what, used=Fraction(0), limit=None)


def _held(tenant: Tenant, place: overview.Place) -> Sequence[str]:
    if not tenant.known or not place.counted:
        return ("?", "?")
    return (short(place.devices), gib(place.memory))


def gib(amount: Fraction) -> str:
    """Memory in one unit, so that columns compare."""
    return f"{float(amount / GIB):.1f}".removesuffix(".0") + "Gi"


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
    when = overview.duration(abs(lapse.seconds))
    return f"ended {when} ago" if lapse.state == "ended" else f"in {when}"


# For scripts


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


def measures(totals: Sequence[Total]) -> dict[str, Any]:
    """Devices and memory as scripts read them."""
    found = {}
    for what, name in ((tally.DEVICES, "devices"), (tally.MEMORY, "memoryBytes")):
        total = of(totals, what)
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
