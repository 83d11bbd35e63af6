"""A mode of a `Backend`: which requests it is for, what it writes, and what it needs of the rest of the pod."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import ClassVar, Final

from webhook.core.forms import forms, labels
from webhook.core.forms.document import Location, Node, Section, inside, nearest
from webhook.core.request import DEVICES, PREFIX, SHARINGS
from webhook.core.rules import verbs
from webhook.core.rules.catalog import MODEL
from webhook.core.rules.verbs import (
    EXCLUSIONS,
    HOLES,
    LABEL_VERB,
    NUMBERS,
    UNITS,
    VERB,
    VERBS,
    WORDS,
    Amount,
    Slot,
    SlotKind,
    any_verb,
    computed,
    filled,
    holes,
    memory_unit,
    number,
)

# What a rule writes: numbers under limits, text in annotations, labels, env and node affinity.


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


# Names that Kubernetes takes


def _legal_name(node: Node, _: forms.Scope) -> str:
    if node.text() and not labels.is_subdomain(filled(node.text())):
        raise node.problem(f'"{node.text()}" is no name of an object; write a-z, 0-9, - and dots, as gpu-scheduler')
    return node.text()


def _legal_variable(node: Node, _: forms.Scope) -> str:
    if not _VARIABLE.fullmatch(filled(node.text())):
        raise node.problem(f'"{node.text()}" is no name of a variable; write letters, digits and _, as GPU_MODE')
    return node.text()


_VARIABLE: Final = re.compile("[-._a-zA-Z][-._a-zA-Z0-9]*")
OBJECT: Final = forms.TEXT.reading(_legal_name)
VARIABLES: Final = forms.Shape(_legal_variable, {})
LABELS: Final = forms.Shape(lambda node, _: labels.key(node, filled), {})
ANNOTATIONS: Final = forms.Shape(lambda node, _: labels.key(node, lambda text: filled(text).lower()), {})
"""The names of objects and variables, and the keys of labels and annotations, with holes."""


def values_of_labels(outputs: Mapping[str, Output], path: str, scope: forms.Scope) -> None:
    """Complain of texts that no label can have as its value."""
    for key, output in outputs.items():
        for text in output.texts if isinstance(output, Constant) else ():
            scope.try_read(partial(labels.value, Node(text, output.at, inside(path, key)), filled), "")


# Constants, and text with holes


def _outputs_holed(node: Node, _: forms.Scope) -> str:
    """A text, whose holes are all of those that there are, or a number as its text."""
    if _is_number(node):
        return str(node.value)
    value = node.text()
    for hole in holes(value):
        if hole not in HOLES:
            names = ", ".join(f"{{{name}}}" for name in HOLES)
            raise node.problem(f'unknown hole "{{{hole}}}"{nearest(hole, HOLES)}; there are {names}')
    return value


def _is_number(node: Node) -> bool:
    """Whether a whole number stands where text belongs, as a parameter that is a number elsewhere may."""
    return isinstance(node.value, int) and not isinstance(node.value, bool)


def _text_schema(form: str, mistake: str) -> forms.Schema:
    return forms.pattern(form, mistake).schema | {"type": ["string", "integer"]}


_KNOWN: Final = f"only these holes are known: {', '.join(f'{{{name}}}' for name in HOLES)}"
_NO_OTHER_HOLE: Final = rf"(?![\s\S]*\{{(?!({'|'.join(HOLES)})\}})[A-Za-z]+\}})"
_NO_VERB: Final = rf"(?!({'|'.join(VERBS)})$)"

HOLED: Final = forms.Shape(_outputs_holed, _text_schema(f"^{_NO_OTHER_HOLE}", _KNOWN), "")
"""Text with holes; a whole number is its text."""

_TEXT: Final = _text_schema(f"^{_NO_OTHER_HOLE}{_NO_VERB}", f"{_KNOWN}; and a verb is written as {{model: {{}}}}")


@dataclass(frozen=True, kw_only=True)
class _Enforced:
    value: str = forms.required(HOLED, "The text, which may have holes.")
    enforce: bool = forms.optional(
        forms.FLAG, "In env it replaces the pod's own value; as an annotation or label, another value is refused."
    )


def constant(value: str | int | tuple[str, ...], node: Node, scope: forms.Scope) -> Constant:
    """The value that stands at a node."""
    return Constant(value, node.at, rule=forms.origin(node, scope))


def _enforced(read: _Enforced, section: Section, scope: forms.Scope) -> Constant:
    return replace(constant(read.value, section.node, scope), enforce=read.enforce)


@dataclass(frozen=True, kw_only=True)
class _Absent:
    absent: bool = forms.required(
        forms.Shape(forms.FLAG.read, {"type": "boolean", "enum": [True]}, fallback=False), "It must not be there."
    )


def _none(read: _Absent, section: Section, scope: forms.Scope) -> Constant:
    if not read.absent:
        section.complain("absent can only be true")
    return constant((), section.node, scope)


_ENFORCED: Final = forms.unspoilt(forms.form(_Enforced, complete=_enforced))
ABSENT: Final = forms.unspoilt(forms.form(_Absent, complete=_none))
"""`{absent: true}`: the label or annotation must not be there."""


# What stands under limits, annotations, labels, env and nodeAffinity


def _limit(node: Node, scope: forms.Scope) -> Output:
    if _is_number(node):
        return constant(node.integer(1), node, scope)
    if isinstance(node.value, str):
        return NUMBERS[node.word([*UNITS])].read(replace(node, value={}, keys={}), scope)
    verb = next(iter(node.value)) if isinstance(node.value, dict) and len(node.value) == 1 else ""
    if verb in WORDS:
        raise node.problem(f'"{verb}" is text, and a limit is a number; use one of {", ".join(UNITS)}')
    made = computed(node, scope)
    if made.digits:
        raise dict(node.items())[verb].problem("digits are for text: a resource is a whole number")
    return made


def _written(node: Node, scope: forms.Scope) -> Output:
    if node.value in VERBS:
        raise node.problem(f"is a verb here only as {{{node.value}: {{}}}}")
    if isinstance(node.value, str) or _is_number(node):
        return constant(_outputs_holed(node, scope), node, scope)
    if isinstance(node.value, dict) and "value" in node.value:
        return _ENFORCED.read(node, scope)
    return computed(node, scope)


def _selected(node: Node, scope: forms.Scope) -> Output:
    if isinstance(node.value, dict) and "absent" in node.value:
        return ABSENT.read(node, scope)
    if isinstance(node.value, list):
        return constant(tuple(_outputs_holed(element, scope) for element in node.elements()), node, scope)
    read = _written(node, scope)
    if isinstance(read, Amount) and read.form == "name":
        raise node.problem("node labels hold no spaces: use form: label")
    return read


# Other verbs are excluded outside of the alternatives: an editor then says of a slip that it is no verb, and not that
# a number was expected.
_LIMIT: Final[forms.Schema] = {
    "anyOf": [
        forms.whole().schema,
        forms.word(UNITS).schema,
        any_verb({verb: number(verb, digits=False) for verb in UNITS}),
    ],
    "propertyNames": forms.word(UNITS).schema,
    "minProperties": 1,
    "maxProperties": 1,
}
LIMIT: Final[forms.Shape[Output]] = forms.defined("limit", forms.Shape(_limit, {}))
"""A number: a verb, or a whole number as it stands."""

WRITTEN: Final[forms.Shape[Output]] = forms.Shape(
    _written, {"anyOf": [_TEXT, forms.defined("verb", VERB).schema, _ENFORCED.schema]}
)
"""A value under `annotations`, `labels` and `env`: text with holes, a verb, or `{value: ..., enforce: true}`."""

SELECTED: Final[forms.Shape[Output]] = forms.Shape(
    _selected,
    {
        "anyOf": [
            _TEXT,
            forms.list_of(HOLED).schema,
            ABSENT.schema,
            forms.defined("nodeLabelVerb", LABEL_VERB).schema,
            _ENFORCED.schema,
        ]
    },
)
"""A value under `nodeAffinity`: one text, a list of them, a verb, or `{absent: true}`."""


# What a mode, or a back end whatever the mode, writes beside limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What is written beside limits, by key."""

    annotations: Mapping[str, Output] = forms.optional(
        forms.map_of(WRITTEN, ANNOTATIONS),
        "Annotations of the pod: text, which may have holes as `{model}`, or a verb. In a mode the key of a"
        " number may have the hole `{container}`, the container's name.",
        {"acme.example/placement": {"placement": {}}},
    )
    labels: Mapping[str, Output] = forms.optional(
        forms.map_of(WRITTEN, LABELS), "Labels of the pod: text, which may have holes as `{model}`, or a verb."
    )
    env: Mapping[str, Output] = forms.optional(
        forms.map_of(WRITTEN, VARIABLES),
        "Environment of the container: text, a verb, or `{value: ..., enforce: true}`.",
        {"NVIDIA_VISIBLE_DEVICES": {"value": "void", "enforce": True}},
    )
    node_affinity: Mapping[str, Output] = forms.optional(
        forms.map_of(SELECTED, LABELS),
        "Labels that the node has to have: a text, a list of texts of which one is enough, a verb, or `{absent:"
        " true}`.",
        {"acme.example/model": {"product": {}}},
    )

    def over(self, general: Outputs) -> Outputs:
        """These and the general ones, without those that write nothing, as a parameter that is empty makes them."""
        joined = {field.name: {**getattr(general, field.name), **getattr(self, field.name)} for field in fields(self)}
        return Outputs(**{section: _writing(outputs) for section, outputs in joined.items()})


def _writing(outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {key: output for key, output in outputs.items() if not isinstance(output, Constant) or output.value != ""}


def _legal(outputs: Outputs, section: Section, scope: forms.Scope) -> Outputs:
    values_of_labels(outputs.labels, f"{section.node.path}.labels", scope)
    values_of_labels(outputs.node_affinity, f"{section.node.path}.nodeAffinity", scope)
    return outputs


OUTPUTS: Final = forms.form(Outputs, complete=_legal)


SHARED_BY_OUTPUTS: Final[Mapping[str, forms.Schema]] = {**verbs.SHARED, "limit": _LIMIT}

_A_NUMBER: Final = {"type": "object", "anyOf": [{"required": [verb]} for verb in UNITS]}
ASKING: Final[forms.Schema] = {"not": {"type": "object", "additionalProperties": {"not": _A_NUMBER}}}
"""Holds for a mapping in which some value is a number that a rule computes."""


# A mode of a `Backend`: which requests it is for, what it writes, and what it needs of the rest of the pod.

# Which requests


def _count(node: Node, scope: forms.Scope) -> tuple[int, int | None]:
    if isinstance(node.value, int | str):
        return node.integer(1), node.integer(1)
    low, high = _RANGE.read(node, scope)
    if high is not None and high < low:
        raise node.problem(f"no number is from {low} to {high}")
    return low, high


@dataclass(frozen=True, kw_only=True)
class _Range:
    low: int = forms.optional(forms.whole(), "At least so many.", key="min", default=1)
    high: int | None = forms.optional(forms.whole(), "At most so many.", key="max")


_RANGE: Final = forms.form(_Range, complete=lambda read, *_: (read.low, read.high))
_COUNT: Final = forms.Shape(_count, forms.any_schema(forms.whole(), _RANGE))
_DIMENSIONS: Final = forms.set_of(forms.word(("share", "memory", "cores", "profile", "model")))
MODELS: Final = forms.set_of(MODEL.reading(lambda node, scope: MODEL.read(node, scope).lower()))
"""Card models by the names of the catalogue, in lower case."""


class Unless(str):
    """A value that an annotation must not have."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class _Unless:
    value: str = forms.required(
        forms.TEXT, "The value that it must not have; without the annotation the mode is meant.", key="not"
    )


_UNLESS: Final = forms.unspoilt(forms.form(_Unless, complete=lambda read, *_: Unless(read.value)))


def _annotation(node: Node, scope: forms.Scope) -> str | None:
    """The value that an annotation has to have, or must not have; None if it must be absent."""
    if isinstance(node.value, dict) and "not" in node.value:
        return _UNLESS.read(node, scope)
    if isinstance(node.value, dict):
        ABSENT.read(node, scope)
        return None
    return node.text()


_ANNOTATION: Final[forms.Shape[str | None]] = forms.Shape(_annotation, forms.any_schema(forms.TEXT, ABSENT, _UNLESS))


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The requests that a mode is for; every condition given has to hold.

    `annotated` are annotations that the pod has, as `key=value`, and `unannotated` those that it must not have, as
    `key` for whatever value.
    """

    devices: str | None = forms.optional(
        forms.word(DEVICES), "`whole` devices, a `part` of each, a `profile` (a hardware partition), or a `claim`."
    )
    count: tuple[int, int | None] = forms.optional(
        _COUNT, "The number of devices, or `{min: 2, max: 4}`.", 1, {"min": 2}, default=(1, None)
    )
    has: frozenset[str] = forms.optional(_DIMENSIONS, "Requests that say all of these.", ["memory"])
    lacks: frozenset[str] = forms.optional(_DIMENSIONS, "Requests that say none of these.", ["cores"])
    models: frozenset[str] = forms.optional(MODELS, "Requests for one of these card models.", ["A100-80GB"])
    sharing: str | None = forms.optional(forms.word(SHARINGS), "Requests that say this with `gpu-sharing`.")
    annotations: Mapping[str, str | None] = forms.optional(
        forms.map_of(_ANNOTATION).reading(
            lambda node, scope: {key: _annotation(one, scope) for key, one in node.items()}
        ),
        "Pods with these annotations. `{absent: true}`: without it. `{not: a}`: without it, or with another value.",
    )
    annotated: frozenset[str] = frozenset()
    unannotated: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """The condition in words: `a part of 1 device, given memory`."""
        count = _devices(*self.count)
        kinds = {
            "whole": "whole cards",
            "part": "a part of each of",
            "profile": "partitions of",
            "claim": "claims for",
        }
        kind = kinds.get(self.devices or "", "")
        text = count if self.devices is None else f"{kind}, {count}" if self.devices == "whole" else f"{kind} {count}"
        text += f", given {' and '.join(sorted(self.has))}" if self.has else ""
        text += f", without {' and '.join(sorted(self.lacks))}" if self.lacks else ""
        text += f", {self.sharing}" if self.sharing else ""
        return text + "".join(f", annotated {mark}" for mark in sorted(self.annotated))


def _devices(low: int, high: int | None) -> str:
    if (low, high) == (1, None):
        return "any number of devices"
    if low == high:
        return f"{low} device{'' if low == 1 else 's'}"
    return f"{low} or more devices" if high is None else f"{low} to {high} devices"


def _with_annotations(when: When, _: Section, __: forms.Scope) -> When:
    annotations = when.annotations.items()
    annotated = frozenset(
        f"{key}={text}" for key, text in annotations if text is not None and not isinstance(text, Unless)
    )
    absent = {key for key, text in annotations if text is None}
    unannotated = absent | {f"{key}={text}" for key, text in annotations if isinstance(text, Unless)}
    return replace(when, annotated=annotated, unannotated=frozenset(unannotated))


WHEN: Final = forms.form(When, complete=_with_annotations)


# What it needs of the rest of the pod


@dataclass(frozen=True, kw_only=True)
class _Requires:
    host_ipc: bool = forms.optional(forms.FLAG, "The pod has to have `hostIPC: true`.", key="hostIPC")
    run_as_user: int | None = forms.optional(forms.whole(0), "The container has to run as this user.", 1000)
    host_path: str | None = forms.optional(
        forms.FILLED, "The container has to mount a volume with this path of the host."
    )


def _required(read: _Requires, _: Section, __: forms.Scope) -> Mapping[str, str]:
    wanted = {"hostIPC": "true" if read.host_ipc else None, "runAsUser": read.run_as_user, "hostPath": read.host_path}
    return {key: str(value) for key, value in wanted.items() if value is not None}


REQUIRES: Final = forms.form(_Requires, complete=_required)


def _all_on_one(section: Section) -> None:
    if section.integers("devices").get("devices", 1) > 1:
        section.complain("devices can only be 1: all containers of the pod share one device")


_ONE: Final = forms.whole(1, 1).reading(lambda node, _: node.integer(1) == 1)


_GLOB: Final = re.compile(r"[A-Za-z0-9._/*?!\[\]-]*[A-Za-z0-9._/-][A-Za-z0-9._/*?!\[\]-]*")


def _glob(node: Node, _: forms.Scope) -> str:
    if not _GLOB.fullmatch(node.text()):
        raise node.problem(f'"{node.text()}" is no glob for keys of annotations; write one, as acme.example/*')
    return node.text()


_KEYS_OF_OTHERS: Final = forms.TEXT.reading(_glob)


def _users(node: Node, _: forms.Scope) -> str:
    if not node.text().strip("*?") or any(map(str.isspace, node.text())):
        hint = "write some users, as system:serviceaccount:acme:*"
        raise node.problem(f'"{node.text()}" is no glob for users of the back end; {hint}')
    return node.text()


USERS: Final = forms.TEXT.reading(_users)


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """What has to be true of a pod beside its request; `rule` is the line that says so.

    `requires` is by the words of `plan.pod_requirements.REQUIRABLE`, `forbids` has those of `vocabulary.EXCLUSIONS`.
    """

    requires: Mapping[str, str] = forms.optional(
        REQUIRES,
        "What the pod's author has to write. The webhook does not add it, because it lowers security.",
        default={},
    )
    forbids: tuple[str, ...] = forms.optional(
        forms.list_of(forms.word(EXCLUSIONS)), "What the pod must not have.", ["privileged"]
    )
    reserved: tuple[str, ...] = forms.optional(
        forms.list_of(_KEYS_OF_OTHERS),
        "Annotations, as globs, that only the system's own scheduler may write.",
        ["ALIYUN_COM_GPU_MEM_*"],
        key="reserves",
    )
    containers: int | None = forms.optional(
        forms.whole(), "How many containers of a pod are served.", key="perPod.containers"
    )
    one_device: bool = forms.optional(
        _ONE,
        "1: all containers of a pod share one device, and have to fit on it.",
        key="perPod.devices",
        default=False,
    )
    rule: str = forms.derived(forms.origin, default="")

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


_PER_POD: Final = forms.Group(
    "What holds for the containers of a pod together.",
    ({"containers": 1}, {"devices": 1}),
    (forms.Rule({}, _all_on_one),),
)
COMPANIONS: Final = forms.form(
    Companions,
    groups={"perPod": _PER_POD},
    complete=lambda read, *_: None if read == Companions(rule=read.rule) else read,
)


# The mode itself

_NAME = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9]|\{profile\}|\{memory\})([A-Za-z0-9._-]|\{profile\}|\{memory\}){0,62}"
)


def _resource(node: Node) -> str:
    if not _NAME.fullmatch(node.text()) or node.text().startswith(PREFIX):
        raise node.problem(f'"{node.text()}" is not the name of an extended resource (domain/name)')
    return node.text()


_RESOURCE: Final = forms.pattern(
    rf"^(?!{PREFIX.replace('.', '[.]')}){_NAME.pattern}$",
    "write the name of an extended resource, as vendor.example/gpu",
    _resource,
)


def _bytes(node: Node) -> int:
    if (size := memory_unit(str(node.value))) is None:
        raise node.problem("has to be MiB or GiB, or so many of them, as 512MiB")
    return size


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    unit: int = forms.required(
        forms.pattern("^([1-9][0-9]{0,5})?(MiB|GiB)$", "write MiB or GiB", _bytes), "The unit of the size."
    )
    most: int = forms.required(forms.whole(), "The largest size.", key="max")


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

    name: str = forms.optional(forms.TEXT, "What messages call it.", "whole cards", default="")
    when: When = forms.optional(
        WHEN, "Which requests it is for. If left out, all.", {"devices": "part", "count": 1}, default=When()
    )
    limits: Mapping[str, Output] = forms.optional(
        forms.map_of(LIMIT, _RESOURCE),
        "Extended resources of the container: a whole number, or a verb. `{profile}` in a name stands for each"
        " partition of the catalogue, `{memory}` for each of `sizes`.",
        {"acme.example/memory": {"memory": {"unit": "MiB", "round": "up"}}},
    )
    outputs: Outputs = forms.embedded(OUTPUTS, default=Outputs())
    claims: Sequence[Constant] = forms.optional(
        forms.list_of(HOLED.reading(lambda node, scope: constant(HOLED.read(node, scope), node, scope))),
        "Names of templates of resource claims (DRA). The container gets a claim of each.",
        ["gpu-{profile}"],
    )
    sizes: Sequence[tuple[int, int]] = forms.optional(
        forms.form(
            _Sizes, complete=lambda read, *_: [(each, each * (read.unit or 1)) for each in range(1, read.most + 1)]
        ),
        "The mode stands for one mode of each size up to `max`. `{memory}` in the name of a resource is the size.",
        {"unit": "GiB", "max": 96},
        default=(),
    )
    companions: Companions | None = forms.embedded(COMPANIONS)
    at: Location = forms.derived(forms.place)
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


def _holed(own: Outputs, section: Section) -> None:
    """Complain of a hole in a key, unless it is `{container}`, once, in that of an annotation with a number."""
    for name in ("annotations", "labels", "env", "node_affinity"):
        for key, output in getattr(own, name).items():
            fits = holes(key) == ["container"] and name == "annotations" and output.is_number
            if holes(key) and not fits:
                section.complain(f'"{key}": in a key only {{container}} can be left open, once, of an annotation')


def _numbers(kind: SlotKind, outputs: Mapping[str, Output]) -> dict[str, Output]:
    return {Slot(kind, key): output for key, output in outputs.items() if output.is_number}


def _complete(mode: Mode, section: Section, _: forms.Scope) -> Mode:
    own = mode.outputs
    _holed(own, section)
    amounts = {**mode.limits, **_numbers("annotation", own.annotations), **_numbers("label", own.labels)}
    if not amounts and not mode.claims and {"limits", "claims"}.isdisjoint(section.present()):
        section.complain('asks for no device: it needs the key "limits", "claims", or a number under annotations')
    constants = {key: text for key, text in own.annotations.items() if isinstance(text, Constant) and text.enforce}
    enforced = frozenset(f"{key}={output.value}" for key, output in constants.items())
    return replace(mode, name=mode.name or str(mode.when), amounts=amounts, enforced=enforced)


_ASKS: Final = {
    "anyOf": [
        {"required": ["limits"]},
        {"required": ["claims"]},
        {"required": ["annotations"], "properties": {"annotations": ASKING}},
        {"required": ["labels"], "properties": {"labels": ASKING}},
    ]
}
_MODE: Final[forms.Form[Mode]] = forms.form(Mode, forms.Rule({"allOf": [_ASKS]}), complete=_complete)
SHARED: Final = {"mode": _MODE.schema}
MODE: Final[forms.Shape[Mode]] = forms.defined("mode", _MODE)
