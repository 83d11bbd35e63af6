"""In CEL: which TenantPolicy holds in the namespace of a request, and whom an Exemption spares."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from webhook.core.forms.labels import Expression
from webhook.core.kube.cel import any_of, indented, like, listed, text
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import Namespaces, TenantPolicy


def holding(tenancy: Tenancy) -> str:
    """The name of the policy, as `membership.member` finds it; "" if none holds, or several of one priority do."""
    ordered = sorted(tenancy.policies, key=lambda one: -one.priority)
    levels = ",\n".join(_selecting(level) for _, level in groupby(ordered, lambda one: one.priority))
    return f"""\
[namespaceObject.metadata.?labels.orValue({{}})].map(labels, [
{indented(levels)}
].map(level, level.filter(name, level[name])).filter(names, names.size() > 0)).map(levels,
  levels.size() > 0 && levels[0].size() == 1 ? levels[0][0] : '')[0]"""


def spared(tenancy: Tenancy, lifted: str) -> str:
    """Whether an exemption lifts a rule; CEL has no clock, so one that has ended holds until the next rendering."""
    return any_of(_covers(one) for one in tenancy.exemptions if lifted in one.lifts)


def _selecting(policies: Iterable[TenantPolicy]) -> str:
    """Whether each of these policies selects the namespace, by the policy's name."""
    each = ",\n".join(f"{text(one.name)}: {_selects(one.namespaces)}" for one in policies)
    return f"{{\n{indented(each)}}}"


def _selects(namespaces: Namespaces) -> str:
    """As `membership.selects`."""
    conditions = [like(namespaces.names, "request.namespace")] if namespaces.names else []
    if namespaces.selector is not None:
        conditions.append(" && ".join(map(_matches, namespaces.selector)) or "true")
    return any_of(conditions)


def _matches(expression: Expression) -> str:
    there = f"{text(expression.key)} in labels"
    match expression.operator:
        case "In" | "NotIn":
            there += f" && labels[{text(expression.key)}] in {listed(expression.values)}"
            return f"({there})" if expression.operator == "In" else f"!({there})"
        case "Exists":
            return there
        case _:
            return f"!({there})"


def _covers(exemption: Exemption) -> str:
    users = like(exemption.users, "request.userInfo.username") if exemption.users else "true"
    return f"(({like(exemption.namespaces, 'request.namespace')}) && ({users}))"
