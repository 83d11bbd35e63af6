"""Labels and annotations as Kubernetes takes them, and the expressions that select by them.

The forms are those of apimachinery (pkg/util/validation: IsQualifiedName, IsValidLabelValue); a policy
must not hold what the API server would refuse later, in a tenant's pod.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from webhook.core.forms import forms
from webhook.core.forms.forms import list_of, map_of, optional, required, word

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


def keys(schema: forms.Schema, spelled: Callable[[str], str] = str) -> forms.Shape[str]:
    """Keys of labels or annotations; `spelled` is what counts of a text."""
    mistake = f"is no key of a label or annotation; write team or example.com/team: {RULE}"
    return forms.fitting(lambda text: is_key(spelled(text)), mistake, schema)


def values(schema: forms.Schema, spelled: Callable[[str], str] = str) -> forms.Shape[str]:
    """Values of labels, as `keys`."""
    return forms.fitting(lambda text: is_value(spelled(text)), f"is no value of a label; write {RULE}", schema)


_MOST: Final = f"(?=.{{1,{MAX_NAME}}}$){NAME}"
_DOMAIN: Final = f"(?:(?=.{{1,{MAX_PREFIX}}}/){SUBDOMAIN}/)?"
_KEYS: Final = f"^{_DOMAIN}{_MOST}$"
_ANY_CASE: Final = f"^{_DOMAIN.replace('a-z', 'A-Za-z')}{_MOST}$"
KEYS: Final = keys({"pattern": _KEYS})
ANNOTATION_KEYS: Final = keys({"pattern": _ANY_CASE}, str.lower)
"""The keys of a mapping of labels, and those of annotations, whose prefix may have capitals."""

KEY: Final = keys(forms.pattern(_KEYS, "write the key of a label, as team or example.com/team").schema)
VALUE: Final = values(forms.pattern(f"^(?:{_MOST})?$", "write the value of a label, of at most 63 characters").schema)

_VALUES: Final = (
    (("In", "NotIn"), {"required": ["values"], "properties": {"values": {"minItems": 1}}}),
    (("Exists", "DoesNotExist"), {"properties": {"values": {"maxItems": 0}}}),
    (("Gt", "Lt"), {"required": ["values"], "properties": {"values": _ONE_NUMBER}}),
)
"""What operators want as values, as JSON Schema."""


def _comparison(operators: Collection[str], made: Callable[..., T]) -> forms.Shape[T]:
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

    comparison: forms.Shape[Any] = forms.unspoilt(forms.mapping(keys, forms.Rule({"allOf": wanted})), wrong)
    return comparison.reading(lambda node, scope: made(**comparison.read(node, scope)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One line of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


EXPRESSION: Final = _comparison(SELECTING, Expression)
COMPARISON: Final[forms.Shape[Mapping[str, Any]]] = _comparison(
    COMPARING, lambda values, **read: {**read, **({"values": [*values]} if values else {})}
)
"""A line of a node affinity, as a pod has it."""

_SELECTORS: Final = {
    "matchLabels": optional(map_of(VALUE, KEYS), "Labels with their values.", {"team": "vision"}),
    "matchExpressions": optional(list_of(EXPRESSION), "Labels with several values, or any."),
}
SELECTOR: Final[forms.Shape[Sequence[Expression]]] = forms.mapping(
    _SELECTORS,
    complete=lambda read, *_: [
        *(Expression(key=key, operator="In", values=(value,)) for key, value in read["matchLabels"].items()),
        *read["matchExpressions"],
    ],
)
"""A label selector as one list all of which has to hold."""
