"""The form of a `ClaimSource` document: objects that pods name instead of asking themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.core.backend import Backend, Injection, Mode, Output, When
from webhook.core.document import Node, Problem, Section, nearest
from webhook.core.rulebook import ClaimExample, ClaimSource, ObjectKind, Rulebook
from webhook.core.schema import outputs
from webhook.core.shorthand import KEYS

CONTAINER: Final = "{container}"

Field = tuple[str, ...]
"""Where something stands in an object: `("spec", "resources")`, written `spec.resources`."""


def source(name: str, spec: Node, words: Callable[[Backend], Rulebook], problems: list[Problem]) -> ClaimSource:
    """Read the spec of a source of claims; `words` makes a rulebook of the back end that reads them."""
    section = Section(Node(spec.value, spec.at, "spec", spec.keys), problems)
    section.take("parameters", lambda node: node, spec)
    description = section.need("description", Node.text, "")
    prefixes = section.need("annotations", lambda node: tuple(map(_prefix, _several(node))), ())
    claims, resources, classed = section.need("claims", lambda node: _claims(node, problems), _NOTHING)
    classes, provisioned = section.take("classes", lambda node: _classes(node, problems), (None, []))
    modes = section.need("reads", lambda node: [_mode(element, problems) for element in _several(node)], [])
    owned = frozenset(name for mode in modes for name in mode.amounts)
    read = ClaimSource(
        name=name,
        at=spec.at,
        prefixes=prefixes,
        claims=claims,
        resources=resources,
        classed=classed,
        classes=classes,
        provisioned=provisioned,
        aliases=section.take("names", lambda node: _aliases(node, owned), {}),
        words=words(_reader(name, spec, description, modes, owned)),
        examples=section.need("examples", lambda node: [_example(each, problems) for each in _several(node)], []),
    )
    section.done()
    return read


def _reader(name: str, spec: Node, description: str, modes: list[Mode], owned: frozenset[str]) -> Backend:
    """Nobody's back end, which knows what stands in a claim."""
    return Backend(
        name=name,
        at=spec.at,
        description=description,
        vendors=frozenset(),
        sharing=frozenset(),
        modes=modes,
        inject=Injection(),
        owns=owned,
    )


def _several(node: Node) -> list[Node]:
    if not node.elements():
        raise node.problem("needs at least one entry")
    return node.elements()


def _prefix(node: Node) -> str:
    """An annotation that names a claim, without its hole."""
    text = node.text()
    prefix = text.removesuffix(CONTAINER)
    if prefix == text or len(prefix) < 2 or "{" in prefix:
        raise node.problem(f"has to end in {CONTAINER}, as vendor.example/claim-{CONTAINER}")
    return prefix


_NOTHING: Final[tuple[ObjectKind, Field, list[Field]]] = (
    ObjectKind(kind="", group="", versions=(), plural=""),
    (),
    [],
)


def _claims(node: Node, problems: list[Problem]) -> tuple[ObjectKind, Field, list[Field]]:
    section = Section(node, problems)
    read = (
        _kind(section),
        section.need("resources", _field, ()),
        section.take("class", lambda n: [_field(element) for element in n.elements()], []),
    )
    section.done()
    return read


def _classes(node: Node, problems: list[Problem]) -> tuple[ObjectKind, list[Field]]:
    section = Section(node, problems)
    read = _kind(section), section.need("provisioner", lambda n: [_field(each) for each in _several(n)], [])
    section.done()
    return read


def _kind(section: Section) -> ObjectKind:
    return ObjectKind(
        kind=section.need("kind", Node.filled, ""),
        group=section.need("group", Node.filled, ""),
        versions=tuple(section.need("versions", lambda node: [each.filled() for each in _several(node)], [])),
        plural=section.need("plural", Node.filled, ""),
    )


def _field(node: Node) -> Field:
    return tuple(node.filled().split("."))


def _mode(node: Node, problems: list[Problem]) -> Mode:
    """One way to ask."""
    section = Section(node, problems)
    devices = section.need("devices", lambda n: n.word(("whole", "part")), "part")
    amounts = section.need("resources", lambda n: _amounts(n, problems), {})
    section.done()
    return Mode(name=devices, when=When(devices=devices), at=node.at, limits=amounts, amounts=amounts)


def _amounts(node: Node, problems: list[Problem]) -> Mapping[str, Output]:
    section = Section(node, problems)
    read = {key: section.take(key, outputs.limit, None) for key in section.given()}
    return {key: output for key, output in read.items() if output is not None}


def _aliases(node: Node, owned: frozenset[str]) -> Mapping[str, str]:
    """The name that `reads` has for each other name of a resource."""
    found: dict[str, str] = {}
    for name, others in node.items():
        if name not in owned:
            raise others.problem(f'nothing under reads is called "{name}"{nearest(name, owned)}')
        for other in others.elements():
            if other.text() in owned or other.text() in found:
                raise other.problem(f'"{other.text()}" has a meaning already')
            found[other.text()] = name
    return found


def _example(node: Node, problems: list[Problem]) -> ClaimExample:
    section = Section(node, problems)
    resources: dict[str, Any] = section.need(
        "resources", lambda n: {key: each.plain() for key, each in n.items()}, {}
    )
    asks: dict[str, str] | None = section.take("asks", _words, None)
    refused: str | None = section.take("refused", Node.filled, None)
    if (asks is None) == (refused is None):
        problems.append(Problem(node.at, node.path, "needs either asks: or refused:"))
    name = section.take("name", Node.text, " ".join(f"{key}={value}" for key, value in resources.items()))
    section.done()
    return ClaimExample(name=name, resources=resources, asks=asks, refused=refused, at=node.at)


def _words(node: Node) -> dict[str, str]:
    for key, value in node.items():
        if key not in KEYS:
            raise value.problem(f'"{key}" is no key of the shorthand{nearest(key, KEYS)}')
    return {key: value.text() for key, value in node.items()}
