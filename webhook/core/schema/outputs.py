"""The form of one output of a rule: `count`, `{memory: {unit: MiB, round: up}}`, a constant, a text with holes."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from webhook.core import amounts
from webhook.core.backend import Amount, Constant, Output
from webhook.core.document import DocumentError, Node, Problem, Section, nearest
from webhook.core.words import HOLES, holes

VERBS: Final = (*amounts.UNITS, *amounts.WORDS)


def limit(node: Node) -> Output:
    """An output under `limits`: a verb, or a whole number as it stands."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        return Constant(node.integer(1), node.at)
    if isinstance(node.value, str):
        return _amount(node.word([*amounts.UNITS]), Node({}, node.at, node.path))
    verb, options = _verb(node)
    if verb not in amounts.UNITS:
        raise node.problem(f'"{verb}" is text, and a limit is a number; use one of {", ".join(amounts.UNITS)}')
    made = _amount(verb, options)
    if made.digits:
        raise options.problem("digits are for text: a resource is a whole number")
    return made


def text(node: Node) -> Output:
    """An output under annotations or labels: text with holes, a verb, or `{value: ..., enforce: true}`."""
    if node.value in VERBS:
        raise node.problem(f"is a verb here only as {{{node.value}: {{}}}}")
    if isinstance(node.value, str) or _is_number(node):
        return Constant(holes_of(node), node.at)
    if isinstance(node.value, dict) and "value" in node.value:
        return _enforced(node)
    verb, options = _verb(node)
    return _amount(verb, options)


def _enforced(node: Node) -> Constant:
    problems: list[Problem] = []
    section = Section(node, problems)
    value = section.need("value", holes_of, "")
    enforce = section.take("enforce", Node.boolean, default=False)
    section.done()
    if problems:
        raise DocumentError(*problems)
    return Constant(value, node.at, enforce)


def labels(node: Node) -> Output:
    """An output under nodeAffinity: one text, a list of them, a verb, or `absent`: the label must not be there."""
    if isinstance(node.value, dict) and "absent" in node.value:
        return absent(node)
    if isinstance(node.value, list):
        return Constant(tuple(holes_of(element) for element in node.elements()), node.at)
    read = text(node)
    if isinstance(read, Amount) and read.form == "name":
        raise node.problem("node labels hold no spaces: use form: label")
    return read


def _is_number(node: Node) -> bool:
    """Whether a whole number stands where text belongs, as a parameter that is a number elsewhere may."""
    return isinstance(node.value, int) and not isinstance(node.value, bool)


def absent(node: Node) -> Constant:
    """`{absent: true}`: the label or annotation must not be there."""
    problems: list[Problem] = []
    section = Section(node, problems)
    if not section.take("absent", Node.boolean, default=False):
        section.complain("absent can only be true")
    section.done()
    if problems:
        raise DocumentError(*problems)
    return Constant((), node.at)


def holes_of(node: Node) -> str:
    """A text, whose holes are all of those that there are, or a number as its text; raises DocumentError."""
    if _is_number(node):
        return str(node.value)
    value = node.text()
    for hole in holes(value):
        if hole not in HOLES:
            known = ", ".join(f"{{{name}}}" for name in HOLES)
            raise node.problem(f'unknown hole "{{{hole}}}"{nearest(hole, HOLES)}; there are {known}')
    return value


def _verb(node: Node) -> tuple[str, Node]:
    entries = list(node.items())
    if len(entries) != 1:
        raise node.problem(f"has to be one verb, as {{memory: {{unit: MiB}}}}, not {len(entries)} keys")
    verb, options = entries[0]
    if verb not in VERBS:
        raise node.problem(f'"{verb}" is no verb{nearest(verb, VERBS)}; there are {", ".join(VERBS)}')
    return verb, Node({}, options.at, options.path) if options.value is None else options


def _amount(verb: str, options: Node) -> Amount:
    problems: list[Problem] = []
    section = Section(options, problems)
    made = _number(verb, section) if verb in amounts.UNITS else _word(verb, section)
    section.done()
    if problems:
        raise DocumentError(*problems)
    return made


def _number(verb: str, section: Section) -> Amount:
    name = section.take("unit", lambda node: _unit(verb, node), amounts.PERCENT if verb != "count" else "")
    digits = section.take("digits", lambda node: node.integer(1), 0)
    _consistent(section)
    parts: int | None = section.take("parts", lambda node: node.integer(1), None) if verb in _PARTS else None
    unit = amounts.unit_of(verb, name) if parts is None else Fraction(100, parts)
    return Amount(
        what=verb,
        at=section.node.at,
        unit=unit / 10**digits,
        unit_name=name,
        digits=digits,
        round_up=section.take("round", _one_of("exact", "up"), "exact") == "up",
        lenient=section.take("roundsItself", Node.boolean, default=False),
        step=section.take("step", lambda node: node.integer(1), 1),
        minimum=section.take("min", lambda node: node.integer(1), None),
        maximum=section.take("max", lambda node: node.integer(1), None),
        fit=section.take("fit", _fit, ()),
        per_total=verb != "count" and section.take("per", _one_of("device", "total"), "device") == "total",
        absent=section.take("absent", _ABSENT[verb], None),
    )


def _unit(verb: str, node: Node) -> str:
    known = amounts.UNITS[verb]
    if verb == "memory" and amounts.memory_unit(node.text()) is not None:
        return node.text()
    return node.word(known)


def _fit(node: Node) -> tuple[int, ...]:
    values = tuple(sorted(element.integer(1) for element in node.elements()))
    if not values:
        raise node.problem("needs at least one value")
    return values


def _consistent(section: Section) -> None:
    """Complain of options that cannot hold together: nobody could ever read back what they make."""
    given = section.numbers("step", "min", "max")
    if "roundsItself" in section.given() and "round" not in section.given():
        section.complain("roundsItself is about values in between, so it needs round: up")
    if "fit" in section.given() and given:
        section.complain(f"fit lists every value; remove {', '.join(given)}")
    step, low, high = given.get("step") or 1, given.get("min", 1), given.get("max")
    if "min" in given and low % step:
        section.complain(f"min: {low} is no multiple of step: {step}")
    if high is not None and (high < low or high % step):
        section.complain(f"max: {high} is less than min, or no multiple of step: {step}")


_PARTS: Final = ("cores", "memory", "share")


def _word(verb: str, section: Section) -> Amount:
    form = section.take("form", _one_of("label", "name"), "label")
    return Amount(
        what=verb,
        at=section.node.at,
        unit=Fraction(1),
        form="name" if form == "name" else "label",
        values=section.take("values", _lookup, {}),
    )


def _lookup(node: Node) -> dict[str, tuple[str, ...]]:
    """Other words for some, one or several for each."""
    return {key: tuple(n.texts()) if isinstance(n.value, list) else (n.text(),) for key, n in node.items()}


def _one_of(*words: str) -> Callable[[Node], str]:
    return lambda node: node.word(words)


_ABSENT: Final[dict[str, Callable[[Node], str | int]]] = {
    "count": lambda node: node.integer(1),
    "memory": _one_of("whole", "none"),
    "cores": _one_of("whole", "none"),
    "share": _one_of("whole", "none"),
}
