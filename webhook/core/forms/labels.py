"""Labels and annotations as Kubernetes takes them, and the expressions that select by them.

The forms are those of apimachinery (pkg/util/validation: IsQualifiedName, IsValidLabelValue); a policy
must not hold what the API server would refuse later, in a tenant's pod.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from webhook.core.forms.document import Node
from webhook.core.forms.forms import (
    Rule,
    Shape,
    list_of,
    map_of,
    mapping,
    optional,
    pattern,
    required,
    unspoilt,
    word,
)

T = TypeVar("T")

MAX_NAME: Final = 63
MAX_PREFIX: Final = 253
NAME: Final = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
SUBDOMAIN: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
SELECTING: Final = ("In", "NotIn", "Exists", "DoesNotExist")
COMPARING: Final = (*SELECTING, "Gt", "Lt")
"""Operators of node affinity; of label selectors just the first four."""

_NAME = re.compile(NAME)
_SUBDOMAIN = re.compile(SUBDOMAIN)
_DNS_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_WHOLE = re.compile("[0-9]{1,18}")
_ONE_NUMBER: Final = {"minItems": 1, "maxItems": 1, "items": {"pattern": "^[0-9]{1,18}$"}}
RULE: Final = 'at most 63 letters, digits, "-", "_" and ".", that begin and end with a letter or digit'


def is_key(text: str) -> bool:
    """Whether a label can be called so: `team`, `example.com/team`."""
    prefix, slash, name = text.rpartition("/")
    if slash and not (len(prefix) <= MAX_PREFIX and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def is_value(text: str) -> bool:
    """Whether a label can have the value."""
    return not text or (len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None)


def is_dns_label(text: str) -> bool:
    """Whether a namespace or a container can be called so."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_subdomain(text: str, most: int = MAX_PREFIX) -> bool:
    """Whether an object can be called so."""
    return len(text) <= most and _SUBDOMAIN.fullmatch(text) is not None


def key(node: Node, spelled: Callable[[str], str] = str) -> str:
    """The key of a label or annotation; raises DocumentError for another text. `spelled` is what counts of it."""
    if not is_key(spelled(node.text())):
        hint = f"write team or example.com/team: {RULE}"
        raise node.problem(f'"{node.text()}" is no key of a label or annotation; {hint}')
    return node.text()


def value(node: Node, spelled: Callable[[str], str] = str) -> str:
    """The value of a label, as `key`."""
    if not is_value(spelled(node.text())):
        raise node.problem(f'"{node.text()}" is no value of a label; write {RULE}')
    return node.text()


_MOST: Final = f"(?=.{{1,{MAX_NAME}}}$){NAME}"
_DOMAIN: Final = f"(?:(?=.{{1,{MAX_PREFIX}}}/){SUBDOMAIN}/)?"
_KEYS: Final = f"^{_DOMAIN}{_MOST}$"
_ANY_CASE: Final = f"^{_DOMAIN.replace('a-z', 'A-Za-z')}{_MOST}$"
KEYS: Final = Shape(lambda node, _: key(node), {"pattern": _KEYS})
ANNOTATION_KEYS: Final = Shape(lambda node, _: key(node, str.lower), {"pattern": _ANY_CASE})
"""The keys of a mapping of labels, and those of annotations, whose prefix may have capitals."""

KEY: Final = pattern(_KEYS, "write the key of a label, as team or example.com/team", key)
VALUE: Final = pattern(f"^(?:{_MOST})?$", "write the value of a label, of at most 63 characters", value)


_VALUES: Final = (
    (("In", "NotIn"), {"required": ["values"], "properties": {"values": {"minItems": 1}}}),
    (("Exists", "DoesNotExist"), {"properties": {"values": {"maxItems": 0}}}),
    (("Gt", "Lt"), {"required": ["values"], "properties": {"values": _ONE_NUMBER}}),
)
"""What operators want as values, as JSON Schema."""


def _comparison(operators: Collection[str], made: Callable[..., T]) -> Shape[T]:
    """A label, how it is compared, and with what values; `made` takes these three by name."""
    keys = {
        "key": required(KEY, "The label.", "team"),
        "operator": required(word(operators), "How the label is compared."),
        "values": optional(list_of(VALUE), "What it is compared with.", ["vision"]),
    }
    wanted = [
        {"if": {"required": ["operator"], "properties": {"operator": {"enum": [*words]}}}, "then": then}
        for words, then in _VALUES
        if {*words} <= {*operators}
    ]

    def wrong(read: Mapping[str, Any]) -> str:
        operator, values = read["operator"], read["values"]
        match operator:
            case "In" | "NotIn":
                return "" if values else f"{operator} needs values: [...], at least one"
            case "Exists" | "DoesNotExist":
                return f"{operator} takes no values; leave them out" if values else ""
            case _:
                fits = len(values) == 1 and _WHOLE.fullmatch(values[0])
                return "" if fits else f'{operator} needs one whole number in quotes, as values: ["4"]'

    comparison: Shape[Any] = unspoilt(mapping(keys, Rule({"allOf": wanted})), wrong)
    return comparison.reading(lambda node, scope: made(**comparison.read(node, scope)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One line of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


EXPRESSION: Final = _comparison(SELECTING, Expression)
COMPARISON: Final[Shape[Mapping[str, Any]]] = _comparison(
    COMPARING, lambda values, **read: {**read, **({"values": [*values]} if values else {})}
)
"""A line of a node affinity, as a pod has it."""

_SELECTORS: Final = {
    "matchLabels": optional(map_of(VALUE, KEYS), "Labels with their values.", {"team": "vision"}),
    "matchExpressions": optional(list_of(EXPRESSION), "Labels with several values, or any."),
}
SELECTOR: Final[Shape[Sequence[Expression]]] = mapping(
    _SELECTORS,
    complete=lambda read, *_: [
        *(Expression(key=key, operator="In", values=(value,)) for key, value in read["matchLabels"].items()),
        *read["matchExpressions"],
    ],
)
"""A label selector as one list all of which has to hold."""
