"""The form of a `Backend` document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from webhook.core.backend import Backend, Constant, Example, Injection, Nodes, Outputs, Partitions
from webhook.core.document import Node, Problem, Section, nearest
from webhook.core.schema import modes, outputs
from webhook.core.shorthand import KEYS, SHARINGS

EXPECTED = ("limits", "annotations", "labels", "env", "nodeAffinity", "claims", "schedulerName", "runtimeClassName")
"""What an example may expect; each section that is given is compared whole."""


def backend(name: str, spec: Node, problems: list[Problem]) -> Backend:
    """Read the spec of a back end, its inheritance and parameters resolved; complaints go to `problems`."""
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), problems)
    section.take("parameters", lambda node: node, spec)
    served = section.need("modes", lambda node: modes.modes(node, problems), [])
    inject = section.take("inject", lambda node: _injection(node, problems), (Injection(), Outputs()))
    companions = modes.companions(section, problems)
    served = [modes.completed(name, mode, inject[1], companions) for mode in served]
    read = Backend(
        name=name,
        at=spec.at,
        description=section.need("description", Node.text, ""),
        vendors=frozenset(section.take("vendors", Node.texts, [])),
        models=frozenset(model.lower() for model in section.take("models", Node.texts, [])),
        sharing=frozenset(section.need("sharing", lambda node: [n.word(SHARINGS) for n in node.elements()], [])),
        modes=served,
        partitions=section.take("partitions", lambda node: _partitions(node, problems), None),
        unenforced=tuple(section.take("unenforced", _dimensions, [])),
        writers=tuple(section.take("writers", Node.texts, [])),
        inject=_named_injection(name, inject[0]),
        owns=frozenset(name for mode in served for name in mode.amounts),
        request_only=section.take("requestOnly", _request_only, "repair"),
        nodes=section.take("nodes", lambda node: _nodes(node, problems), Nodes()),
        examples=section.need("examples", lambda node: _examples(node, problems), []),
    )
    section.done()
    return read


def _named_injection(name: str, injection: Injection) -> Injection:
    runtime, scheduler = injection.runtime_class, injection.scheduler
    return Injection(
        runtime_class=runtime and replace(runtime, rule=runtime.at.of(name)),
        scheduler=scheduler and replace(scheduler, rule=scheduler.at.of(name)),
        tolerations=[(toleration, f"{name} ({at})") for toleration, at in injection.tolerations],
    )


def _partitions(node: Node, problems: list[Problem]) -> Partitions:
    section = Section(node, problems)
    partitions = Partitions(
        spelling=section.take("names", lambda n: {key: entry.text() for key, entry in n.items()}, {}),
        only=tuple(section.take("only", Node.texts, ["*"])),
    )
    section.done()
    return partitions


def _dimensions(node: Node) -> list[str]:
    return [element.word(("memory", "compute")) for element in node.elements()]


def _request_only(node: Node) -> Literal["repair", "refuse"]:
    return "refuse" if node.word(("repair", "refuse")) == "refuse" else "repair"


def _injection(node: Node, problems: list[Problem]) -> tuple[Injection, Outputs]:
    section = Section(node, problems)
    injection = Injection(
        runtime_class=section.take("runtimeClassName", lambda n: Constant(n.text(), n.at), None),
        scheduler=section.take("schedulerName", lambda n: Constant(n.text(), n.at), None),
        tolerations=section.take("tolerations", lambda n: [_toleration(e, problems) for e in n.elements()], []),
    )
    read = injection, modes.written_outputs(section, problems)
    section.done()
    return read


def _toleration(node: Node, problems: list[Problem]) -> tuple[Mapping[str, Any], str]:
    section = Section(node, problems)
    fields: dict[str, Any] = {
        "key": section.take("key", Node.text, None),
        "operator": section.take("operator", lambda n: n.word(("Exists", "Equal")), None),
        "value": section.take("value", Node.text, None),
        "effect": section.take("effect", lambda n: n.word(("NoSchedule", "PreferNoSchedule", "NoExecute")), None),
        "tolerationSeconds": section.take("tolerationSeconds", Node.integer, None),
    }
    section.done()
    given = {key: value for key, value in fields.items() if value is not None}
    if fields["operator"] == "Exists" and "value" in given:
        section.complain("a toleration with operator Exists has no value")
    if fields["operator"] != "Exists" and "key" not in given:
        section.complain("a toleration without a key needs operator Exists")
    if "tolerationSeconds" in given and fields["effect"] != "NoExecute":
        section.complain("tolerationSeconds is for effect NoExecute")
    return given, node.at.line_only


def _nodes(node: Node, problems: list[Problem]) -> Nodes:
    section = Section(node, problems)
    nodes = Nodes(
        labels=section.take("labels", lambda n: {key: _values(value) for key, value in n.items()}, {}),
        devices=section.take("devices", Node.text, None),
        replicas=section.take("replicas", lambda n: n.integer(1), 1),
        required=section.take("required", Node.boolean, default=False),
    )
    section.done()
    return nodes


def _values(node: Node) -> tuple[str, ...]:
    """One value, a list of them, or nothing for any."""
    if node.value is None:
        return ()
    return tuple(map(outputs.holes_of, node.elements() if isinstance(node.value, list) else [node]))


def _examples(node: Node, problems: list[Problem]) -> list[Example]:
    examples = [_example(element, problems) for element in node.elements()]
    if not examples:
        raise node.problem("needs at least one example, so that somebody sees the rule work")
    return examples


def _example(node: Node, problems: list[Problem]) -> Example:
    section = Section(node, problems)
    ask = section.need("ask", lambda n: {key: v.text() for key, v in n.items()}, {})
    path = f"{node.path}.ask"
    problems += [
        Problem(node.at, path, f'"{key}" is no key of the shorthand{nearest(key, KEYS)}')
        for key in ask
        if key not in KEYS
    ]
    refused: str | None = section.take("refused", Node.filled, None)
    expected = {key: section.take(key, Node.plain, None) for key in EXPECTED}
    given = {key: value for key, value in expected.items() if value is not None}
    if (refused is None) == (not given):
        problems.append(Problem(node.at, node.path, f"needs either refused: or one of {', '.join(EXPECTED)}"))
    pod: dict[str, Any] = section.take("pod", lambda n: {key: entry.plain() for key, entry in n.items()}, {})
    name = section.take("name", Node.text, " ".join(f"{key}={value}" for key, value in ask.items()))
    section.done()
    return Example(name=name, ask=ask, expected=given or None, refused=refused, at=node.at, pod=pod)
