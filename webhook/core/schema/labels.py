"""Labels and annotations as Kubernetes takes them, and the expressions that select by them.

The forms are those of apimachinery (pkg/util/validation: IsQualifiedName, IsValidLabelValue); nothing may stand in a
policy that the API server refuses later, in a pod of somebody who cannot know why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from webhook.core.document import DocumentError, Node, Problem, Section

MAX_NAME: Final = 63
MAX_PREFIX: Final = 253
NAME: Final = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
SUBDOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
SELECTING: Final = ("In", "NotIn", "Exists", "DoesNotExist")
COMPARING: Final = (*SELECTING, "Gt", "Lt")
"""Operators of node affinity; of label selectors just the first four."""

_NAME = re.compile(NAME)
_SUBDOMAIN = re.compile(SUBDOMAIN)
_WHOLE = re.compile("[0-9]{1,18}")
_RULE: Final = 'at most 63 letters, digits, "-", "_" and ".", that begin and end with a letter or digit'


class Requirement(NamedTuple):
    """One line of a selector."""

    key: str
    operator: str
    values: tuple[str, ...]


def is_key(text: str) -> bool:
    """Whether a label can be called so: `team`, `example.com/team`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= MAX_PREFIX and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def is_value(text: str) -> bool:
    """Whether a label can have the value."""
    return not text or (len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None)


def is_subdomain(text: str, most: int = MAX_PREFIX) -> bool:
    """Whether an object can be called so."""
    return len(text) <= most and _SUBDOMAIN.fullmatch(text) is not None


def read_labels(node: Node) -> dict[str, str]:
    """Labels by key; raises DocumentError with all that is wrong."""
    return _texts(node, is_key, value)


def read_annotations(node: Node) -> dict[str, str]:
    """Annotations by key, whose prefix may have capitals; raises DocumentError with all that is wrong."""
    return _texts(node, lambda key: is_key(key.lower()), Node.text)


def _texts(node: Node, fits: Callable[[str], bool], read: Callable[[Node], str]) -> dict[str, str]:
    problems: list[Problem] = []
    found: dict[str, str] = {}
    for key, child in node.items():
        if not fits(key):
            problems.append(Problem(node.keys.get(key, child.at), node.path, _no_key(key)))
        try:
            found[key] = read(child)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(*problems)
    return found


def _no_key(text: str) -> str:
    return f'"{text}" is no key of a label or annotation; write team or example.com/team: {_RULE}'


def key(node: Node) -> str:
    """The key of a label; raises DocumentError."""
    if not is_key(node.text()):
        raise node.problem(_no_key(node.text()))
    return node.text()


def value(node: Node) -> str:
    """The value of a label; raises DocumentError."""
    if not is_value(node.text()):
        raise node.problem(f'"{node.text()}" is no value of a label; write {_RULE}')
    return node.text()


def requirements(node: Node, operators: Collection[str], problems: list[Problem]) -> list[Requirement]:
    """A list of match expressions; those that cannot be read are left out."""
    read = (_requirement(element, operators, problems) for element in node.elements())
    return [requirement for requirement in read if requirement is not None]


def _requirement(node: Node, operators: Collection[str], problems: list[Problem]) -> Requirement | None:
    found: list[Problem] = []
    section = Section(node, found)
    name = section.need("key", key, "")
    operator = section.need("operator", lambda n: n.word(operators), "")
    values = section.take("values", lambda n: tuple(value(element) for element in n.elements()), ())
    section.done()
    if operator and not found and (complaint := _wrong(operator, values)):
        section.complain(complaint)
    problems += found
    return None if found else Requirement(name, operator, values)


def _wrong(operator: str, values: tuple[str, ...]) -> str:
    """What is wrong with the number of values, if anything is."""
    match operator:
        case "In" | "NotIn":
            return "" if values else f"{operator} needs values: [...], at least one"
        case "Exists" | "DoesNotExist":
            return f"{operator} takes no values; leave them out" if values else ""
        case _:
            fits = len(values) == 1 and _WHOLE.fullmatch(values[0])
            return "" if fits else f'{operator} needs one whole number in quotes, as values: ["4"]'


def selector(node: Node, problems: list[Problem]) -> list[Requirement]:
    """A label selector, `matchLabels` and `matchExpressions`, as one list all of which has to hold."""
    section = Section(node, problems)
    same: Mapping[str, str] = section.take("matchLabels", read_labels, {})
    others = section.take("matchExpressions", lambda n: requirements(n, SELECTING, problems), [])
    section.done()
    return [*(Requirement(name, "In", (text,)) for name, text in same.items()), *others]
