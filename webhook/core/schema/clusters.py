"""The form of the `Cluster` document: which back ends there are, in what order, and what is exempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from webhook.core.device import Device
from webhook.core.document import Node, Problem, Section, nearest
from webhook.core.rulebook import Cluster
from webhook.core.schema.inheritance import Parameters


def cluster(name: str, spec: Node, problems: list[Problem]) -> tuple[Cluster, Mapping[str, Parameters]]:
    """Read the spec of a cluster, and the parameters it sets, by back end."""
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), problems)
    tiers = section.need("backends", _tiers, [])
    backends = [name for tier in tiers for name in tier]
    default = section.take("defaults", lambda node: _defaults(node, problems), {})
    parameters = section.take("parameters", _parameters, {})
    read = Cluster(
        name=name,
        at=spec.at,
        backends=tuple(dict.fromkeys(backends)),
        tiers={name: rank for rank, tier in reversed([*enumerate(tiers)]) for name in tier},
        whole=default.get("whole"),
        part=default.get("part"),
        device=section.take("device", Node.text, None),
        unknown_value=section.take("unknownValue", _unknown_value, "warn"),
        system_namespaces=frozenset(section.take("systemNamespaces", Node.texts, [])),
        provisioners=section.take("provisioners", _provisioners, {}),
        without_policy=section.take("namespacesWithoutPolicy", _without_policy, None),
        observe=section.take("observe", Node.boolean, default=False),
    )
    section.done()
    return read, parameters


def _tiers(node: Node) -> list[list[str]]:
    """Names in order of preference; those of an inner list are as good as each other."""
    if not node.elements():
        raise node.problem("needs at least one back end: a cluster without any would refuse every GPU")
    return [element.texts() if isinstance(element.value, list) else [element.text()] for element in node.elements()]


def _defaults(node: Node, problems: list[Problem]) -> dict[str, str]:
    section = Section(node, problems)
    found = {key: section.take(key, Node.text, None) for key in ("whole", "part")}
    section.done()
    return {key: value for key, value in found.items() if value is not None}


def _parameters(node: Node) -> dict[str, Parameters]:
    return {backend: dict(values.items()) for backend, values in node.items()}


def _provisioners(node: Node) -> dict[str, str]:
    return {provisioner: backend.text() for provisioner, backend in node.items()}


def _unknown_value(node: Node) -> Literal["warn", "refuse"]:
    return "refuse" if node.word(("warn", "refuse")) == "refuse" else "warn"


def _without_policy(node: Node) -> Literal["allow", "deny"]:
    return "allow" if node.word(("allow", "deny")) == "allow" else "deny"


def check_names(
    spec: Node,
    known: Collection[str],
    parametrised: Collection[str],
    cluster: Cluster,
    devices: Mapping[str, Device],
    problems: list[Problem],
) -> None:
    """Complain of every name in the document that nobody defines, and of defaults that are not enabled.

    `known` are all back ends, `parametrised` all rules that may have parameters.
    """
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), [])
    enabled = cluster.backends
    for node in section.take("backends", Node.elements, []):
        for element in node.elements() if isinstance(node.value, list) else [node]:
            _known(element, known, "no rule defines the back end", problems)
    for _, node in section.take("defaults", lambda n: list(n.items()), []):
        _known(node, enabled, "spec.backends does not enable", problems)
    device = section.take("device", lambda node: node, None)
    if device is not None and str(device.value).lower() not in devices:
        hint = nearest(str(device.value), {known.model for known in devices.values()})
        problems.append(Problem(device.at, device.path, f'no catalogue knows the model "{device.value}"{hint}'))
    for _, node in section.take("provisioners", lambda n: list(n.items()), []):
        _known(node, enabled, "spec.backends does not enable", problems)
    for name, node in section.take("parameters", lambda n: list(n.items()), []):
        _known(Node(name, node.at, node.path), parametrised, "no rule defines the back end", problems)


def _known(node: Node, known: Collection[str], complaint: str, problems: list[Problem]) -> None:
    if isinstance(node.value, str) and node.value not in known:
        problems.append(Problem(node.at, node.path, f'{complaint} "{node.value}"{nearest(str(node.value), known)}'))
