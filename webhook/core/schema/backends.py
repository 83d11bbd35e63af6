"""The form of a `Backend` document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

from webhook.core.document import Node, Problem, Section, nearest
from webhook.core.request import PREFIX
from webhook.core.rulebook import Amount, Backend, Constant, Example, Injection, Mode, Nodes, Output, Outputs, When
from webhook.core.schema import outputs
from webhook.core.shorthand import KEYS, SHARINGS
from webhook.core.translate import describe
from webhook.core.words import holes

T = TypeVar("T")

EXPECTED = ("limits", "annotations", "labels", "env", "nodeAffinity", "schedulerName", "runtimeClassName")
"""What an example may expect; each section that is given is compared whole."""


def backend(name: str, spec: Node, problems: list[Problem]) -> Backend:
    """Read the spec of a back end, its inheritance and parameters resolved; complaints go to `problems`."""
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), problems)
    section.take("parameters", lambda node: node, spec)
    modes = section.need("modes", lambda node: _modes(node, problems), [])
    inject = section.take("inject", lambda node: _injection(node, problems), (Injection(), Outputs()))
    modes = [_named(name, _with_injected(mode, inject[1])) for mode in modes]
    read = Backend(
        name=name,
        at=spec.at,
        description=section.need("description", Node.text, ""),
        vendors=frozenset(section.take("vendors", Node.texts, [])),
        sharing=frozenset(section.need("sharing", lambda node: [n.word(SHARINGS) for n in node.elements()], [])),
        modes=modes,
        partitions=section.take("partitions", lambda node: _partitions(node, problems), None),
        inject=_named_injection(name, inject[0]),
        owns=frozenset(resource for mode in modes for resource in mode.limits),
        request_only=section.take("requestOnly", _request_only, "repair"),
        nodes=section.take("nodes", lambda node: _nodes(node, problems), Nodes()),
        examples=section.need("examples", lambda node: _examples(node, problems), []),
    )
    section.done()
    return read


def _modes(node: Node, problems: list[Problem]) -> list[Mode]:
    if not node.elements():
        raise node.problem("needs at least one mode")
    return [_mode(element, problems) for element in node.elements()]


def _with_injected(mode: Mode, injected: Outputs) -> Mode:
    own = mode.outputs
    outputs = Outputs(
        annotations={**injected.annotations, **own.annotations},
        labels={**injected.labels, **own.labels},
        env={**injected.env, **own.env},
        node_affinity={**injected.node_affinity, **own.node_affinity},
    )
    return replace(mode, outputs=outputs, selects=_selects(mode, outputs))


def _named(name: str, mode: Mode) -> Mode:
    """The mode with every output knowing the rule line it stands on."""

    def each(outputs: Mapping[str, Output]) -> dict[str, Output]:
        return {key: replace(output, rule=output.at.of(name)) for key, output in outputs.items()}

    own = mode.outputs
    outputs = Outputs(
        annotations=each(own.annotations),
        labels=each(own.labels),
        env=each(own.env),
        node_affinity=each(own.node_affinity),
    )
    return replace(mode, limits=each(mode.limits), outputs=outputs)


def _named_injection(name: str, injection: Injection) -> Injection:
    runtime, scheduler = injection.runtime_class, injection.scheduler
    return Injection(
        runtime_class=runtime and replace(runtime, rule=runtime.at.of(name)),
        scheduler=scheduler and replace(scheduler, rule=scheduler.at.of(name)),
        tolerations=[(toleration, f"{name} ({at})") for toleration, at in injection.tolerations],
    )


def _selects(mode: Mode, outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values(), *outputs.node_affinity.values()]
    words = {word for output in written for word in _told(output)}
    return next((word for word in ("product", "model") if word in words), "model" if mode.when.models else None)


def _told(output: Output) -> list[str]:
    if isinstance(output, Amount):
        return [output.what]
    texts = output.value if isinstance(output.value, tuple) else (str(output.value),)
    return [hole for text in texts for hole in holes(text)]


def _partitions(node: Node, problems: list[Problem]) -> Mapping[str, str]:
    section = Section(node, problems)
    names = section.take("names", lambda n: {key: entry.text() for key, entry in n.items()}, {})
    section.done()
    return names


def _request_only(node: Node) -> Literal["repair", "refuse"]:
    return "refuse" if node.word(("repair", "refuse")) == "refuse" else "repair"


def _mode(node: Node, problems: list[Problem]) -> Mode:
    section = Section(node, problems)
    when = section.take("when", lambda n: _when(n, problems), When())
    mode = Mode(
        name=section.take("name", Node.text, describe(when)),
        when=when,
        at=node.at,
        limits=section.need("limits", lambda n: _limits(n, problems), {}),
        outputs=_outputs(section, problems),
    )
    section.done()
    return mode


def _outputs(section: Section, problems: list[Problem]) -> Outputs:
    return Outputs(
        annotations=section.take("annotations", lambda n: _each(n, outputs.text, problems), {}),
        labels=section.take("labels", lambda n: _each(n, outputs.text, problems), {}),
        env=section.take("env", lambda n: _each(n, outputs.variable, problems), {}),
        node_affinity=section.take("nodeAffinity", lambda n: _each(n, outputs.labels, problems), {}),
    )


def _limits(node: Node, problems: list[Problem]) -> Mapping[str, Output]:
    read = _each(node, outputs.limit, problems)
    for name in read:
        if not _RESOURCE.fullmatch(name) or name.startswith(PREFIX):
            at = node.keys.get(name, node.at)
            problems.append(Problem(at, node.path, f'"{name}" is not the name of an extended resource (domain/name)'))
    return read


_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9]|\{profile\})([A-Za-z0-9._-]|\{profile\}){0,62}")


def _each(node: Node, read: Callable[[Node], T], problems: list[Problem]) -> dict[str, T]:
    """A mapping whose keys are free and whose values all have one form."""
    section = Section(node, problems)
    found: dict[str, T] = {}
    for key in section.given():
        value: T | None = section.take(key, read, None)
        if value is not None:
            found[key] = value
    return found


def _when(node: Node, problems: list[Problem]) -> When:
    section = Section(node, problems)
    when = When(
        devices=section.take("devices", lambda n: n.word(("whole", "part", "profile")), None),
        count=section.take("count", lambda n: _range(n, problems), (1, None)),
        has=frozenset(section.take("has", lambda n: [e.word(_DIMENSIONS) for e in n.elements()], [])),
        models=frozenset(model.lower() for model in section.take("models", Node.texts, [])),
    )
    section.done()
    return when


_DIMENSIONS = ("share", "memory", "cores", "profile", "model")


def _range(node: Node, problems: list[Problem]) -> tuple[int, int | None]:
    if isinstance(node.value, int):
        return node.integer(1), node.integer(1)
    section = Section(node, problems)
    low = section.take("min", lambda n: n.integer(1), 1)
    high: int | None = section.take("max", lambda n: n.integer(1), None)
    section.done()
    if high is not None and high < low:
        raise node.problem(f"no number is from {low} to {high}")
    return low, high


def _injection(node: Node, problems: list[Problem]) -> tuple[Injection, Outputs]:
    section = Section(node, problems)
    injection = Injection(
        runtime_class=section.take("runtimeClassName", lambda n: Constant(n.text(), n.at), None),
        scheduler=section.take("schedulerName", lambda n: Constant(n.text(), n.at), None),
        tolerations=section.take("tolerations", lambda n: [_toleration(e, problems) for e in n.elements()], []),
    )
    read = injection, _outputs(section, problems)
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
        required=section.take("required", Node.boolean, default=False),
    )
    section.done()
    return nodes


def _values(node: Node) -> tuple[str, ...]:
    """One value, a list of them, or nothing for any."""
    if node.value is None:
        return ()
    return tuple(node.texts()) if isinstance(node.value, list) else (node.text(),)


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
    name = section.take("name", Node.text, " ".join(f"{key}={value}" for key, value in ask.items()))
    section.done()
    return Example(name=name, ask=ask, expected=given or None, refused=refused, at=node.at)
