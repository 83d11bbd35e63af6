"""The form of an `Exemption`: who is spared which rules of policies, until when, and who answers for it."""

from __future__ import annotations

from collections.abc import Callable

from webhook.core import instant
from webhook.core.document import Node, Problem, Section
from webhook.core.schema.tenantpolicies import globs, rule
from webhook.core.tenancy.policy import RULES, Exemption


def exemption(name: str, spec: Node, problems: list[Problem]) -> Exemption:
    """Read the spec of an exemption."""
    spec = Node(spec.value, spec.at, "spec", spec.keys)
    section = Section(spec, problems)
    read = Exemption(
        name=name,
        rule=rule(name, spec),
        namespaces=section.need("namespaces", lambda node: globs(node, problems), ()),
        users=section.take("users", lambda node: _several(node, Node.filled), ()),
        lifts=frozenset(section.need("lifts", lambda node: _several(node, lambda each: each.word(RULES)), ())),
        owner=section.need("owner", Node.filled, ""),
        reason=section.need("reason", Node.filled, ""),
        expires=section.need("expires", time, 0.0),
    )
    section.done()
    return read


def _several(node: Node, read: Callable[[Node], str]) -> tuple[str, ...]:
    if not node.elements():
        raise node.problem("has to name something")
    return tuple(map(read, node.elements()))


def time(node: Node) -> float:
    """Seconds since 1970 of a time with its zone (RFC 3339), from the year 2000 on; raises DocumentError."""
    try:
        return instant.seconds(node.text())
    except ValueError as error:
        raise node.problem(str(error)) from None
