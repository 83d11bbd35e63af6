"""A mode of a `Backend`: which requests it is for, what it writes, and what it needs of the rest of the pod."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Final

from webhook.core.forms import forms, labels
from webhook.core.forms.document import Location, Node, Problem, Section, inside, nearest
from webhook.core.forms.forms import FLAG, TEXT, derived, form, list_of, map_of, optional, required, whole, word
from webhook.core.request import DEVICES, PLACEMENTS, PREFIX, SHARINGS, is_key
from webhook.core.rules import verbs
from webhook.core.rules.catalog import MODEL, Cards, plain
from webhook.core.rules.verbs import HOLES, UNITS, VERBS, Amount, Slot, computed, filled, holes, memory_unit

# Text and numbers as they stand


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that a rule writes as it stands; strings may have holes (`{model}`).

    Several for node affinity: the label has one of them, or where there is none, it must not be there.
    """

    value: str | int | tuple[str, ...]
    at: Location
    enforce: bool = False
    rule: str = ""
    what: ClassVar = ""
    unit_name: ClassVar = ""
    digits: ClassVar = 0
    fixed: ClassVar = False
    absent: ClassVar = None
    most: ClassVar = False
    is_number: ClassVar = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, with their holes."""
        return self.value if isinstance(self.value, tuple) else (str(self.value),)

    @property
    def words(self) -> tuple[str, ...]:
        """What of the request it says: the holes in it."""
        return tuple(hole for text in self.texts for hole in holes(text))

    def wrote(self, value: object) -> bool:
        """Whether it is a value of this rule, as it stands."""
        return value in self.texts

    @property
    def number(self) -> int:
        """The value of a limit, where the form of rules lets nothing but whole numbers pass."""
        if not isinstance(self.value, int):
            raise TypeError(f"{self.at}: {self.value!r} is no number")
        return self.value


Output = Amount | Constant
"""Both have the same properties, as far as they mean something of either: a constant computes nothing (`what`)."""


def constant(value: str | int | tuple[str, ...], node: Node, scope: forms.Scope) -> Constant:
    """The value that stands at a node."""
    return Constant(value, node.at, rule=forms.origin(node, scope))


# What stands under limits, annotations, labels, env and nodeAffinity: a verb, or a text, which may have holes


def _is_number(node: Node) -> bool:
    """Whether a whole number stands where text belongs, as a parameter that is a number elsewhere may."""
    return isinstance(node.value, int) and not isinstance(node.value, bool)


def _holed(node: Node, _: forms.Scope) -> str:
    """A text, whose holes are all of those that there are, or a number as its text."""
    if _is_number(node):
        return str(node.value)
    for hole in holes(node.text()):
        if hole not in HOLES:
            names = ", ".join(f"{{{name}}}" for name in HOLES)
            raise node.problem(f'unknown hole "{{{hole}}}"{nearest(hole, HOLES)}; there are {names}')
    return node.text()


def _limit(node: Node, scope: forms.Scope) -> Output:
    if _is_number(node):
        return constant(node.integer(1), node, scope)
    if isinstance(node.value, str):
        return verbs.READERS[node.word([*UNITS])].read(replace(node, value={}, keys={}), scope)
    verb = next(iter(node.value)) if isinstance(node.value, dict) and len(node.value) == 1 else ""
    if verb in verbs.WORDS:
        raise node.problem(f'"{verb}" is text, and a limit is a number; use one of {", ".join(UNITS)}')
    amount = computed(node, scope)
    if amount.digits:
        raise dict(node.items())[verb].problem("digits are for text: a resource is a whole number")
    return amount


def _written(node: Node, scope: forms.Scope) -> Output:
    value = node.value
    if value in VERBS:
        raise node.problem(f"is a verb here only as {{{value}: {{}}}}")
    if isinstance(value, str) or _is_number(node):
        return constant(_holed(node, scope), node, scope)
    return (_ENFORCED.read if isinstance(value, dict) and "value" in value else computed)(node, scope)


def _selected(node: Node, scope: forms.Scope) -> Output:
    if isinstance(node.value, dict) and "absent" in node.value:
        return ABSENT.read(node, scope)
    if isinstance(node.value, list):
        return constant(tuple(_holed(element, scope) for element in node.elements()), node, scope)
    output = _written(node, scope)
    if isinstance(output, Amount) and output.form == "name":
        raise node.problem("node labels hold no spaces: use form: label")
    return output


def _absent(read: Mapping[str, Any], section: Section, scope: forms.Scope) -> Constant:
    if not read["absent"]:
        section.complain("absent can only be true")
    return constant((), section.node, scope)


def _text_schema(form: str, mistake: str) -> forms.Schema:
    return forms.pattern(form, mistake).schema | {"type": ["string", "integer"]}


_KNOWN: Final = f"only these holes are known: {', '.join(f'{{{name}}}' for name in HOLES)}"
_NO_OTHER_HOLE: Final = rf"(?![\s\S]*\{{(?!({'|'.join(HOLES)})\}})[A-Za-z]+\}})"
_NO_VERB: Final = rf"(?!({'|'.join(VERBS)})$)"
_TEXT: Final = _text_schema(f"^{_NO_OTHER_HOLE}{_NO_VERB}", f"{_KNOWN}; and a verb is written as {{model: {{}}}}")

HOLED: Final = forms.Shape(_holed, _text_schema(f"^{_NO_OTHER_HOLE}", _KNOWN), "")
"""Text with holes; a whole number is its text."""

ABSENT: Final = forms.unspoilt(
    forms.mapping(
        {"absent": required(replace(FLAG, schema={"type": "boolean", "enum": [True]}), "It must not be there.")},
        complete=_absent,
    )
)
"""`{absent: true}`: the label or annotation must not be there."""

_ENFORCED: Final = forms.unspoilt(
    forms.mapping(
        {
            "value": required(HOLED, "The text, which may have holes."),
            "enforce": optional(
                FLAG, "In env it replaces the pod's own value; as an annotation or label, another value is refused."
            ),
        },
        complete=lambda read, section, scope: Constant(
            read["value"], section.node.at, read["enforce"], forms.origin(section.node, scope)
        ),
    )
)

LIMIT: Final[forms.Shape[Output]] = forms.defined("limit", forms.Shape(_limit, {}))
"""A number: a verb, or a whole number as it stands."""

_OF_TEXT: Final = {"anyOf": [_TEXT, forms.reference("verb"), _ENFORCED.schema]}
_WRITTEN: Final[forms.Shape[Output]] = forms.Shape(_written, _OF_TEXT)
_OF_NODES: Final = (list_of(HOLED).schema, ABSENT.schema, forms.reference("nodeLabelVerb"), _ENFORCED.schema)
_SELECTED: Final[forms.Shape[Output]] = forms.Shape(_selected, {"anyOf": [_TEXT, *_OF_NODES]})

# What a mode, or a back end whatever the mode, writes beside limits

_VARIABLE: Final = re.compile("[-._a-zA-Z][-._a-zA-Z0-9]*")
OBJECT_NAME: Final = forms.fitting(
    lambda text: not text or labels.is_subdomain(filled(text)),
    "is no name of an object; write a-z, 0-9, - and dots, as gpu-scheduler",
)
LABELS: Final = labels.keys({}, filled)
"""The names of objects, and the keys of labels, with holes."""

_ANNOTATIONS: Final = labels.keys({}, lambda text: filled(text).lower())
_VARIABLES: Final = forms.fitting(
    lambda text: _VARIABLE.fullmatch(filled(text)),
    "is no name of a variable; write letters, digits and _, as GPU_MODE",
    {},
)
_LABEL_VALUE: Final = labels.values({}, filled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written beside limits, by key."""

    annotations: Mapping[str, Output] = optional(
        map_of(_WRITTEN, _ANNOTATIONS),
        "Annotations of the pod: text, which may have holes as `{model}`, or a verb. In a mode the key of a"
        " number may have the hole `{container}`, the container's name.",
        {"acme.example/placement": {"placement": {}}},
    )
    labels: Mapping[str, Output] = optional(
        map_of(_WRITTEN, LABELS), "Labels of the pod: text, which may have holes as `{model}`, or a verb."
    )
    env: Mapping[str, Output] = optional(
        map_of(_WRITTEN, _VARIABLES),
        "Environment of the container: text, a verb, or `{value: ..., enforce: true}`.",
        {"NVIDIA_VISIBLE_DEVICES": {"value": "void", "enforce": True}},
    )
    node_affinity: Mapping[str, Output] = optional(
        map_of(_SELECTED, LABELS),
        "Labels that the node has to have: a text, a list of texts of which one is enough, a verb, or `{absent:"
        " true}`.",
        {"acme.example/model": {"product": {}}},
    )

    def over(self, general: Outputs) -> Outputs:
        """These and the general ones, without those that write nothing, as a parameter that is empty makes them."""
        joined = {field.name: {**getattr(general, field.name), **getattr(self, field.name)} for field in fields(self)}
        for section, outputs in joined.items():
            empty = {key for key, line in outputs.items() if isinstance(line, Constant) and line.value == ""}
            joined[section] = {key: line for key, line in outputs.items() if key not in empty}
        return Outputs(**joined)

    def legal(self, section: Section, scope: forms.Scope) -> Outputs:
        """The same; complain of keys of the shorthand, and of texts that no label can have as its value."""
        for name, kind in (("annotations", "annotation"), ("labels", "label")):
            for key in (key for key in getattr(self, name) if is_key(kind, key)):
                section.complain(f'{name}: "{key}" is for requests of authors of pods; write a key of your system')
        for name, lines in (("labels", self.labels), ("nodeAffinity", self.node_affinity)):
            for key, line in lines.items():
                for text in line.texts if isinstance(line, Constant) else ():
                    path = inside(f"{section.node.path}.{name}", key)
                    _LABEL_VALUE.read_or_report(Node(text, line.at, path), scope)
        return self


OUTPUTS: Final = form(Outputs, complete=Outputs.legal)


# Which requests a mode is for

_RANGE: Final = forms.mapping(
    {"min": optional(whole(), "At least so many.", default=1), "max": optional(whole(), "At most so many.")},
    complete=lambda read, *_: (read["min"], read.get("max")),
)
_UNLESS: Final = forms.unspoilt(
    forms.mapping(
        {"not": required(TEXT, "The value that it must not have; without the annotation the mode is meant.")},
        complete=lambda read, *_: read["not"],
    )
)
MODELS: Final = forms.set_of(MODEL.reading(lambda node, scope: MODEL.read(node, scope).lower()))
"""Card models by the names of the catalogue, in lower case."""


def _count(node: Node, scope: forms.Scope) -> tuple[int, int | None]:
    if isinstance(node.value, int | str):
        return node.integer(1), node.integer(1)
    low, high = _RANGE.read(node, scope)
    if high is not None and high < low:
        raise node.problem(f"no number is from {low} to {high}")
    return low, high


def _condition(node: Node, scope: forms.Scope) -> tuple[bool, str]:
    """Whether an annotation has to be there, or must not, and which, as `key=value` or `key`."""
    if not isinstance(node.value, dict):
        return True, f"{node.key}={node.text()}"
    if "not" in node.value:
        return False, f"{node.key}={_UNLESS.read(node, scope)}"
    ABSENT.read(node, scope)
    return False, node.key


_COUNT: Final = forms.Shape(_count, forms.any_schema(whole(), _RANGE))
_CONDITIONS: Final = forms.Shape(
    lambda node, scope: {key: _condition(value, scope) for key, value in node.items()},
    map_of(forms.Shape(_condition, forms.any_schema(TEXT, ABSENT, _UNLESS))).schema,
    dict[str, tuple[bool, str]](),
)
_DIMENSIONS: Final = forms.set_of(word(("share", "memory", "cores", "profile", "model")))


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The requests that a mode is for; every condition given has to hold.

    `annotated` are annotations that the pod has, as `key=value`, and `unannotated` those that it must not have, as
    `key` for whatever value.
    """

    devices: str | None = optional(
        word(DEVICES), "`whole` devices, a `part` of each, a `profile` (a hardware partition), or a `claim`."
    )
    count: tuple[int, int | None] = optional(
        _COUNT, "The number of devices, or `{min: 2, max: 4}`.", 1, {"min": 2}, default=(1, None)
    )
    has: frozenset[str] = optional(_DIMENSIONS, "Requests that say all of these.", ["memory"])
    lacks: frozenset[str] = optional(_DIMENSIONS, "Requests that say none of these.", ["cores"])
    models: frozenset[str] = optional(MODELS, "Requests for one of these card models.", ["A100-80GB"])
    sharing: str | None = optional(word(SHARINGS), "Requests that say this with `gpu-sharing`.")
    annotations: Mapping[str, tuple[bool, str]] = optional(
        _CONDITIONS,
        "Pods with these annotations. `{absent: true}`: without it. `{not: a}`: without it, or with another value.",
    )
    annotated: frozenset[str] = frozenset()
    unannotated: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The condition in words: `a part of 1 device, given memory`."""
        low, high = self.count
        if (low, high) == (1, None):
            text = "any number of devices"
        elif low == high:
            text = f"{low} device{'' if low == 1 else 's'}"
        else:
            text = f"{low} or more devices" if high is None else f"{low} to {high} devices"
        kinds = {
            "whole": "whole cards,",
            "part": "a part of each of",
            "profile": "partitions of",
            "claim": "claims for",
        }
        text = f"{kinds[self.devices]} {text}" if self.devices else text
        text += f", given {' and '.join(sorted(self.has))}" if self.has else ""
        text += f", without {' and '.join(sorted(self.lacks))}" if self.lacks else ""
        text += f", {self.sharing}" if self.sharing else ""
        return text + "".join(f", annotated {mark}" for mark in sorted(self.annotated))

    def with_marks(self, _: Section, __: forms.Scope) -> When:
        """The same with what it wants and does not want of annotations."""
        wanted = frozenset(mark for is_there, mark in self.annotations.values() if is_there)
        unwanted = frozenset(mark for is_there, mark in self.annotations.values() if not is_there)
        return replace(self, annotated=wanted, unannotated=unwanted)


# What a mode needs of the rest of the pod

_GLOB: Final = re.compile(r"[A-Za-z0-9._/*?!\[\]-]*[A-Za-z0-9._/-][A-Za-z0-9._/*?!\[\]-]*")
_KEYS_OF_OTHERS: Final = forms.fitting(
    _GLOB.fullmatch, "is no glob for keys of annotations; write one, as acme.example/*"
)
USERS: Final = forms.fitting(
    lambda text: text.strip("*?") and not any(letter.isspace() or letter == "[" for letter in text),
    "is no glob for some users; write one, as system:serviceaccount:acme:*",
)
REQUIRES: Final = forms.mapping(
    {
        "hostIPC": optional(
            FLAG.reading(lambda node, _: "true" if node.boolean() else None),
            "The pod has to have `hostIPC: true`.",
            default=None,
        ),
        "runAsUser": optional(whole(0), "The container has to run as this user.", 1000),
        "hostPath": optional(forms.FILLED, "The container has to mount a volume with this path of the host."),
    },
    complete=lambda read, *_: {key: str(value) for key, value in read.items()},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """What has to be true of a pod beside its request; `rule` is the line that says so."""

    requires: Mapping[str, str] = optional(
        REQUIRES,
        "What the pod's author has to write. The webhook does not add it, because it lowers security.",
        default={},
    )
    forbids: tuple[str, ...] = optional(
        list_of(word(verbs.EXCLUSIONS)), "What the pod must not have.", ["privileged"]
    )
    reserved: tuple[str, ...] = optional(
        list_of(_KEYS_OF_OTHERS),
        "Annotations, as globs, that only the system's own scheduler may write.",
        ["ALIYUN_COM_GPU_MEM_*"],
        key="reserves",
    )
    containers: int | None = optional(whole(), "How many containers of a pod are served.", key="perPod.containers")
    one_device: bool = optional(
        whole(1, 1).reading(lambda node, _: node.integer(1) == 1),
        "1: all containers of a pod share one device, and have to fit on it.",
        key="perPod.devices",
        default=False,
    )
    rule: str = derived(forms.origin, default="")

    def reserves(self, key: str) -> bool:
        """Whether only the back end's own scheduler may write an annotation."""
        return any(fnmatchcase(key, word) for word in self.reserved)

    def over(self, general: Companions | None) -> Companions:
        """These and the general ones."""
        if general is None:
            return self
        return Companions(
            requires={**general.requires, **self.requires},
            forbids=tuple(dict.fromkeys((*general.forbids, *self.forbids))),
            reserved=(*general.reserved, *self.reserved),
            containers=self.containers or general.containers,
            one_device=self.one_device or general.one_device,
            rule=self.rule,
        )


def _all_on_one(section: Section) -> None:
    if section.integers("devices").get("devices", 1) > 1:
        section.complain("devices can only be 1: all containers of the pod share one device")


_PER_POD: Final = forms.Group(
    "What holds for the containers of a pod together.",
    ({"containers": 1}, {"devices": 1}),
    (forms.Rule({}, _all_on_one),),
)
COMPANIONS: Final = form(
    Companions,
    groups={"perPod": _PER_POD},
    complete=lambda read, *_: None if read == Companions(rule=read.rule) else read,
)


# The mode itself

_HOLE: Final = r"\{profile\}|\{memory\}"
_RESOURCE: Final = rf"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9]|{_HOLE})([A-Za-z0-9._-]|{_HOLE}){{0,62}}"
_NAME: Final = forms.fitting(
    lambda text: re.fullmatch(_RESOURCE, text) and not text.startswith(PREFIX),
    "is not the name of an extended resource (domain/name)",
    forms.pattern(
        rf"^(?!{PREFIX.replace('.', '[.]')}){_RESOURCE}$",
        "write the name of an extended resource, as vendor.example/gpu",
    ).schema,
)


def _bytes(node: Node) -> int:
    if (size := memory_unit(str(node.value))) is None:
        raise node.problem("has to be MiB or GiB, or so many of them, as 512MiB")
    return size


_SIZES: Final[forms.Shape[Sequence[tuple[int, int]]]] = forms.mapping(
    {
        "unit": required(
            forms.pattern("^([1-9][0-9]{0,5})?(MiB|GiB)$", "write MiB or GiB", _bytes), "The unit of the size."
        ),
        "max": required(whole(), "The largest size."),
    },
    complete=lambda read, *_: [(size, size * (read["unit"] or 1)) for size in range(1, read["max"] + 1)],
)


SECTIONS: Final = ("annotations", "labels", "env", "nodeAffinity")
_NEVER: Final[Mapping[str, set[str]]] = {
    "whole": {"memory", "profile", "claim"},
    "part": {"profile", "claim"},
    "profile": {"memory", "claim"},
    "claim": {"memory", "profile"},
}
"""The holes that requests of each kind never fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way in which a back end serves a request: the first whose `when` matches is taken.

    A mode whose resources are named after a profile stands for just that one, in `profile`; one whose resources are
    named after a size, for that of `size` bytes. `outputs` are its own and those that the back end injects whatever
    the mode. `amounts` is everything the request can be read from again: the limits, and under `annotation KEY` and
    `label KEY` the numbers there. `claims` are templates of resource claims. `enforced` are the annotations, as
    `key=value`, without which resources are not meant for it. `selects` is how it steers a pod to a card model: by
    `model` or `product` name, or not at all, None. `node_numbers` are numbers among the labels of its nodes, `verbs`
    all that numbers are computed from, and `all_cores`: it gives all compute where none is asked. `pool` are the
    lines of node affinity that tell its nodes from those of other back ends; the rest only name the card.
    `loosely` is `selects` if the system also takes cards whose names only contain the text.
    """

    name: str = optional(TEXT, "What messages call it.", "whole cards", default="")
    when: When = optional(
        form(When, complete=When.with_marks),
        "Which requests it is for. If left out, all.",
        {"devices": "part", "count": 1},
        default=When(),
    )
    limits: Mapping[str, Output] = optional(
        map_of(LIMIT, _NAME),
        "Extended resources of the container: a whole number, or a verb. `{profile}` in a name stands for each"
        " partition of the catalogue, `{memory}` for each of `sizes`.",
        {"acme.example/memory": {"memory": {"unit": "MiB", "round": "up"}}},
    )
    outputs: Outputs = forms.embedded(OUTPUTS, default=Outputs())
    claims: Sequence[Constant] = optional(
        list_of(HOLED.reading(lambda node, scope: constant(HOLED.read(node, scope), node, scope))),
        "Names of templates of resource claims (DRA). The container gets a claim of each.",
        ["gpu-{profile}"],
    )
    sizes: Sequence[tuple[int, int]] = optional(
        _SIZES,
        "The mode stands for one mode of each size up to `max`. `{memory}` in the name of a resource is the size.",
        {"unit": "GiB", "max": 96},
        default=(),
    )
    companions: Companions | None = forms.embedded(COMPANIONS)
    at: Location = derived(forms.place)
    profile: str | None = None
    size: int | None = None
    amounts: Mapping[str, Output] = field(default_factory=dict)
    enforced: frozenset[str] = frozenset()
    selects: str | None = None
    node_numbers: Mapping[str, Output] = field(default_factory=dict)
    pool: Mapping[str, Output] = field(default_factory=dict)
    verbs: frozenset[str] = frozenset()
    all_cores: bool = False
    loosely: str | None = None

    def with_amounts(self, section: Section, _: forms.Scope) -> Mode:
        """The same with everything that it can be read from, and with what it enforces."""
        own = self.outputs
        amounts = dict(self.limits)
        for name in ("annotations", "labels", "env", "node_affinity"):
            for key, output in getattr(own, name).items():
                if holes(key) and not (holes(key) == ["container"] and name == "annotations" and output.is_number):
                    section.complain(f'"{key}": in a key only {{container}} can be left open, once, of an annotation')
        amounts |= {Slot("annotation", key): output for key, output in own.annotations.items() if output.is_number}
        amounts |= {Slot("label", key): output for key, output in own.labels.items() if output.is_number}
        if not amounts and not self.claims and {"limits", "claims"}.isdisjoint(section.present()):
            section.complain('asks for no device: it needs the key "limits", "claims", or a number under annotations')
        enforced = frozenset(
            f"{key}={output.value}"
            for key, output in own.annotations.items()
            if isinstance(output, Constant) and output.enforce
        )
        return replace(self, name=self.name or str(self.when), amounts=amounts, enforced=enforced)

    def mistaken(self, path: str, devices: Cards) -> Iterator[Problem]:
        """A problem for each hole that no request of the mode fills, and each word that means nothing in `values`."""
        fillable = {*HOLES} - (_NEVER[self.when.devices] if self.when.devices else set())
        for name, section in zip(("annotations", "labels", "env", "node_affinity"), SECTIONS, strict=True):
            for key, output in getattr(self.outputs, name).items():
                where = inside(f"{path}.{section}", key)
                if isinstance(output, Constant):
                    for hole in sorted({*output.words} & {*HOLES} - fillable):
                        kind = self.when.devices
                        yield Problem(
                            output.at, where, f"nothing fills {{{hole}}}: no request of devices: {kind} has it"
                        )
                    continue
                words: Collection[str] = PLACEMENTS
                if output.what in {"model", "product"}:
                    words = {name for card in devices.values() for name in (card.model, *card.names)}
                elif output.what == "profile":
                    words = {profile for card in devices.values() for profile in card.profiles}
                for meant in output.values if output.what != "container" else ():
                    if meant not in words and plain(meant) not in devices.by_plain_name:
                        message = f'"{meant}" is no {output.what}{nearest(meant, words)}'
                        yield Problem(output.at, f"{where}.values", message)


_A_NUMBER: Final = {"type": "object", "anyOf": [{"required": [verb]} for verb in UNITS]}
_SOME_NUMBER: Final[forms.Schema] = {"not": {"type": "object", "additionalProperties": {"not": _A_NUMBER}}}
_NUMBERS: Final = [{"required": [key], "properties": {key: _SOME_NUMBER}} for key in ("annotations", "labels")]
_ASKS: Final = {"anyOf": [{"required": ["limits"]}, {"required": ["claims"]}, *_NUMBERS]}
MODE: Final = form(Mode, forms.Rule({"allOf": [_ASKS]}), complete=Mode.with_amounts)
