"""What editors show of the verbs and texts that a rule writes; read by `webhook.core.schema.outputs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from webhook.core import amounts
from webhook.core.editor.pieces import (
    Schema,
    each,
    either,
    flag,
    form,
    many,
    mapping,
    never,
    says,
    shared,
    text,
    whole,
    word,
)
from webhook.core.schema.outputs import VERBS
from webhook.core.words import HOLES

_KNOWN: Final = ", ".join(f"{{{name}}}" for name in HOLES)
_NO_OTHER_HOLE: Final = rf"(?![\s\S]*\{{(?!({'|'.join(HOLES)})\}})[A-Za-z]+\}})"
_NO_VERB: Final = rf"(?!({'|'.join(VERBS)})$)"

_TEXT_OR_NUMBER: Final = {"type": ["string", "integer"]}

HOLED: Final = form(f"^{_NO_OTHER_HOLE}", f"only these holes are known: {_KNOWN}") | _TEXT_OR_NUMBER
"""Text with holes; a whole number is its text."""

_TEXT: Final = (
    form(
        f"^{_NO_OTHER_HOLE}{_NO_VERB}",
        f"only these holes are known: {_KNOWN}; and a verb is written as {{model: {{}}}}",
    )
    | _TEXT_OR_NUMBER
)

_UNITS: Final[Mapping[str, Schema]] = {
    "memory": either(
        word(amounts.UNITS["memory"]),
        form("^([1-9][0-9]{0,5})?(MiB|GiB)$", "write percent, quantity, bytes, MiB, GiB, or a block, as 256MiB"),
    ),
    "cores": word(amounts.UNITS["cores"]),
    "share": word(amounts.UNITS["share"]),
    "count": word(amounts.UNITS["count"]),
}
_UNIT_OF: Final[Mapping[str, str]] = {
    "memory": "What 1 stands for; `percent` (the default) is of the card's memory. Anything but percent needs to know"
    " the card where a share is asked. `quantity` is text as `8Gi`; blocks are counted as `256MiB`.",
    "cores": "What 1 stands for: `percent` of a device.",
    "share": "What 1 stands for: `percent` of a device.",
    "count": "Devices have no unit.",
}
_UNIT_EXAMPLES: Final[Mapping[str, Iterable[str]]] = {"memory": ("MiB", "GiB", "256MiB")}

_VALUES: Final[Mapping[str, Schema]] = {
    "round": says(
        "`exact` (the default) refuses what does not fit; `up` takes the next legal value, with a warning that shows"
        " both numbers. Never down.",
        word(("exact", "up")),
    ),
    "roundsItself": says(
        "With `round: up`: the system rounds up by itself, so values in between are legal on a container, too.",
        flag(),
    ),
    "step": says("Legal are multiples of it.", whole()),
    "min": says("The least legal value; `round: up` reaches it.", whole()),
    "max": says("The greatest legal value; nothing exceeds it.", whole()),
    "fit": says(
        "The legal values as a list, instead of step, min and max; the smallest that is enough is taken.",
        many(whole(), minItems=1),
        [1, 2, 4, 8],
    ),
}
_PER: Final = says(
    "`device` (the default), or `total`: the value of a device times their number.", word(("device", "total"))
)
_PARTS: Final = says("So many make a device, instead of a unit.", whole(), 16)
_DIGITS: Final = says("Decimals to write, as 2 for `0.25`; for annotations and labels.", whole())
_ABSENT: Final = says(
    "The key may be missing: then `whole`, all of it is meant, or `none`, nothing is limited.",
    word(("whole", "none")),
)
_ABSENT_COUNT: Final = says("The key may be missing: then so many are meant.", whole(), 1)

MEANINGS: Final[Mapping[str, str]] = {
    "count": "How many devices.",
    "memory": "Memory of a device, or of its partition.",
    "cores": "Compute of a device.",
    "share": "The part of a device that has both the memory and the compute asked.",
    "model": "The catalogue's name of each model asked for.",
    "product": "The product names of the models asked for.",
    "lookalikes": "Other models whose product names contain a name of the one asked for.",
    "profile": "The hardware partition asked for.",
    "placement": "`binpack`, `spread` or `topology`, where it is asked for.",
    "container": "The container's name.",
}
_VERB_EXAMPLES: Final[Mapping[str, Iterable[Schema]]] = {
    "count": [{}, {"absent": 1}],
    "memory": [{"unit": "MiB", "round": "up"}],
    "cores": [{"unit": "percent", "round": "up", "step": 5, "min": 5, "max": 100, "absent": "none"}],
    "share": [{"parts": 16}],
    "product": [{"form": "label"}],
    "placement": [{"values": {"topology": "topology-aware"}}],
}


def _number(verb: str, *, digits: bool) -> Schema:
    """The options of a verb that is a number; only text has digits."""
    unit = says(_UNIT_OF[verb], _UNITS[verb], *_UNIT_EXAMPLES.get(verb, ()))
    counted = {"absent": _ABSENT_COUNT} if verb == "count" else {"parts": _PARTS, "per": _PER, "absent": _ABSENT}
    keys = {"unit": unit, **_VALUES, **counted, **({"digits": _DIGITS} if digits else {})}
    rules = [{"dependentRequired": {"roundsItself": ["round"]}}, never("fit", "step", "min", "max")]
    return mapping(keys, allOf=rules, type=["object", "null"])


def _word(*forms: str) -> Schema:
    """The options of a verb that is text, which has these forms."""
    of_product = "Of product names: `label` as node labels have them (the default), `name` as the driver does."
    values = says(
        "Other words to say it in; for node affinity several, as a list.",
        each(either(text(), many(text()))),
        {"topology": "topology-aware"},
    )
    return mapping({"form": says(of_product, word(forms)), "values": values}, type=["object", "null"])


def _one_of(verbs: Mapping[str, Schema]) -> Schema:
    """A mapping with one verb, and its options."""
    return {**_open(verbs), "additionalProperties": False, "minProperties": 1, "maxProperties": 1}


def _open(verbs: Mapping[str, Schema]) -> Schema:
    """A mapping with any of these verbs, and their options."""
    shown = {
        verb: says(MEANINGS.get(verb, ""), options, *_VERB_EXAMPLES.get(verb, ())) for verb, options in verbs.items()
    }
    return {"type": "object", "properties": shown}


_NUMBERS: Final = {verb: shared(f"{verb}Options") for verb in amounts.UNITS}

PARTS: Final[Mapping[str, Schema]] = {
    **{f"{verb}Options": _number(verb, digits=True) for verb in amounts.UNITS},
    "wordOptions": _word("label", "name"),
    "nodeLabelOptions": _word("label"),
    "verb": _one_of({**_NUMBERS, **dict.fromkeys(amounts.WORDS, shared("wordOptions"))}),
    "nodeLabelVerb": _one_of({**_NUMBERS, **dict.fromkeys(amounts.WORDS, shared("nodeLabelOptions"))}),
    # Other verbs are excluded outside of the alternatives: an editor then says of a slip that it is no verb, and not
    # that a number was expected.
    "limit": {
        **either(whole(), word(amounts.UNITS), _open({verb: _number(verb, digits=False) for verb in amounts.UNITS})),
        "propertyNames": word(amounts.UNITS),
        "minProperties": 1,
        "maxProperties": 1,
    },
}
"""The verbs, by the name of their form: those of text, those where spaces cannot stand, and those under `limits`."""

_INSISTING: Final = mapping(
    {
        "value": says("The text, which may have holes.", HOLED),
        "enforce": says(
            "In env it replaces the pod's own value; as an annotation or label, another value is refused.", flag()
        ),
    },
    needs=("value",),
)

WRITTEN: Final = either(_TEXT, shared("verb"), _INSISTING)
"""A value under `annotations`, `labels` and `env`."""

NOT_THERE: Final = mapping(
    {"absent": says("It must not be there.", {"type": "boolean", "enum": [True]})}, needs=("absent",)
)

SELECTED: Final = either(_TEXT, many(HOLED), NOT_THERE, shared("nodeLabelVerb"), _INSISTING)
"""A value under `nodeAffinity`."""

_A_NUMBER: Final = {"type": "object", "anyOf": [{"required": [verb]} for verb in amounts.UNITS]}
ASKING: Final = {"not": {"type": "object", "additionalProperties": {"not": _A_NUMBER}}}
"""Holds for a mapping in which some value is a number that a rule computes."""
