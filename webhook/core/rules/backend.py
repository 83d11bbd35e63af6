"""A `Backend`: one way a vendor exposes GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import ceil
from typing import Any, Final, Literal

from webhook.core.forms import forms, labels
from webhook.core.forms.document import Location, Node, Problem, Section, nearest
from webhook.core.request import KEYS, SHARINGS
from webhook.core.rules import modes
from webhook.core.rules.catalog import VENDOR, Card, Known, Profile
from webhook.core.rules.modes import (
    COMPANIONS,
    HOLED,
    LABELS,
    MODE,
    MODELS,
    OUTPUTS,
    USERS,
    Companions,
    Constant,
    Mode,
    Output,
    Outputs,
    constant,
)
from webhook.core.rules.verbs import Amount, Slot

# A `Backend`: one way a vendor exposes GPUs.

# What every pod gets

_KEY: Final = forms.TEXT.reading(lambda node, _: labels.key(node))
_VALUE: Final = forms.TEXT.reading(lambda node, _: labels.value(node))


@dataclass(frozen=True, kw_only=True)
class _Toleration:
    key: str | None = forms.optional(
        _KEY, "The taint's key; left out with `operator: Exists` it is any.", "acme.example/card"
    )
    operator: str | None = forms.optional(
        forms.word(("Exists", "Equal")), "`Exists` for any value, `Equal` (the default) for this one."
    )
    value: str | None = forms.optional(_VALUE, "The taint's value, with `operator: Equal`.")
    effect: str | None = forms.optional(
        forms.word(("NoSchedule", "PreferNoSchedule", "NoExecute")), "The taint's effect; any if left out."
    )
    seconds: int | None = forms.optional(
        forms.whole(0), "With `effect: NoExecute`, how long it is tolerated.", key="tolerationSeconds"
    )


def _toleration(read: _Toleration, section: Section, scope: forms.Scope) -> tuple[Mapping[str, Any], str]:
    fields = {"key": read.key, "operator": read.operator, "value": read.value, "effect": read.effect}
    given = {key: value for key, value in {**fields, "tolerationSeconds": read.seconds}.items() if value is not None}
    if read.operator == "Exists" and "value" in given:
        section.complain("a toleration with operator Exists has no value")
    if read.operator != "Exists" and "key" not in given:
        section.complain("a toleration without a key needs operator Exists")
    if "tolerationSeconds" in given and read.effect != "NoExecute":
        section.complain("tolerationSeconds is for effect NoExecute")
    return given, forms.origin(section.node, scope)


_EQUAL: Final = {"enum": ["Equal"]}
_EXISTS: Final = {"enum": ["Exists"]}
_OTHER_EFFECTS: Final = {"enum": ["NoSchedule", "PreferNoSchedule"]}
_TOLERABLE: Final = [
    {"not": {"type": "object", "required": ["operator", "value"], "properties": {"operator": _EXISTS}}},
    {"anyOf": [{"required": ["key"]}, {"required": ["operator"], "properties": {"operator": {"not": _EQUAL}}}]},
    {
        "anyOf": [
            {"not": {"type": "object", "required": ["tolerationSeconds"]}},
            {"required": ["effect"], "properties": {"effect": {"not": _OTHER_EFFECTS}}},
        ]
    },
]
_TOLERATION: Final = forms.form(_Toleration, forms.Rule({"allOf": _TOLERABLE}), complete=_toleration)


_NAME: Final = modes.OBJECT.reading(lambda node, scope: constant(modes.OBJECT.read(node, scope), node, scope))


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What every pod that the back end serves gets once; a toleration comes with the rule line it stands on.

    `outputs` are part of those of each mode.
    """

    runtime_class: Constant | None = forms.optional(
        _NAME,
        "The pod's runtime class. A pod that names one keeps it. An empty text sets none.",
        key="runtimeClassName",
    )
    scheduler: Constant | None = forms.optional(
        _NAME,
        "The pod's scheduler. A pod that names another one than this and the default one is refused.",
        key="schedulerName",
    )
    tolerations: Sequence[tuple[Mapping[str, Any], str]] = forms.optional(
        forms.list_of(forms.defined("toleration", _TOLERATION)),
        "Tolerations of the pod.",
        [{"key": "acme.example/card", "operator": "Exists", "effect": "NoSchedule"}],
    )
    outputs: Outputs = forms.embedded(OUTPUTS, default=Outputs())


# Examples

_SCALARS: Final = forms.map_of(
    forms.Shape(forms.ANYTHING.read, {"type": ["string", "integer", "number", "boolean"]})
).schema
_OBJECTS: Final[forms.Schema] = {"type": "array", "items": {"type": "object"}}
_LABELS: Final = forms.map_of(
    forms.list_of(forms.Shape(forms.ANYTHING.read, {"type": ["string", "integer", "number"]}))
).schema


def _as_it_stands(schema: forms.Schema) -> forms.Shape[Any]:
    return forms.Shape(forms.ANYTHING.read, schema)


@dataclass(frozen=True, kw_only=True)
class _Expected:
    limits: Any = forms.optional(_as_it_stands(_SCALARS), "The container's resources.", {"acme.example/card": 1})
    annotations: Any = forms.optional(
        _as_it_stands(_SCALARS), "Annotations of the pod, without those of the webhook."
    )
    labels: Any = forms.optional(_as_it_stands(_SCALARS), "Labels of the pod.")
    env: Any = forms.optional(_as_it_stands(_SCALARS), "Environment of the container.")
    node_affinity: Any = forms.optional(_as_it_stands(_LABELS), "Values of each node label.")
    claims: Any = forms.optional(
        _as_it_stands(forms.list_of(forms.TEXT).schema), "Names of templates of resource claims."
    )
    tolerations: Any = forms.optional(_as_it_stands(_OBJECTS), "Tolerations of the pod.")
    scheduler: Any = forms.optional(_as_it_stands(forms.TEXT.schema), "The pod's scheduler.", key="schedulerName")
    runtime_class: Any = forms.optional(
        _as_it_stands(forms.TEXT.schema), "The pod's runtime class.", key="runtimeClassName"
    )


def _expected(read: _Expected, _: Section, __: forms.Scope) -> Mapping[str, Any] | None:
    values = zip(EXPECTED, vars(read).values(), strict=True)
    return {key: value for key, value in values if value is not None} or None


_EXPECTATIONS: Final = forms.form(_Expected, complete=_expected)
EXPECTED: Final = tuple(_EXPECTATIONS.schema["properties"])
"""What an example may expect; each section that is given is compared whole."""

ASK: Final[forms.Schema] = {
    "type": "object",
    "properties": dict.fromkeys(KEYS, forms.TEXT.schema),
    "additionalProperties": False,
}
_POD: Final = forms.Shape(
    lambda node, _: {key: entry.plain() for key, entry in node.items()}, {"type": "object"}, dict[str, Any]()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request and what has to come of it: either `refused`, or `expected` by section (`limits`, ...)."""

    name: str = forms.optional(forms.TEXT, "What messages call it.", default="")
    ask: Mapping[str, str] = forms.required(
        forms.Shape(forms.map_of(forms.TEXT).read, ASK, {}),
        "The shorthand, by the keys of labels; values are quoted.",
        {"gpu": "0.3", "gpu-model": "T4"},
    )
    pod: Mapping[str, Any] = forms.optional(_POD, "What else the pod has.", {"spec": {"hostIPC": True}})
    refused: str | None = forms.optional(forms.FILLED, "A part of the message that refuses it.")
    expected: Mapping[str, Any] | None = forms.embedded(_EXPECTATIONS)
    at: Location = forms.derived(forms.place)


def _titled(example: Example, section: Section, scope: forms.Scope) -> Example:
    at, path = section.node.at, f"{section.node.path}.ask"
    unknown = [key for key in example.ask if key not in KEYS]
    scope.problems.extend(
        Problem(at, path, f'"{key}" is no key of the shorthand{nearest(key, KEYS)}') for key in unknown
    )
    if (example.refused is None) == (example.expected is None):
        section.complain(f"needs either refused: or one of {', '.join(EXPECTED)}")
    name = example.name or " ".join(f"{key}={value}" for key, value in example.ask.items())
    return replace(example, name=name)


_ONE_OUTCOME: Final = [
    {"required": ["refused"]},
    {"type": "object", "anyOf": [{"required": [key]} for key in EXPECTED]},
]
_EXAMPLE: Final = forms.form(Example, forms.Rule({"oneOf": _ONE_OUTCOME}), complete=_titled)


# Its nodes, partitions and parameters


def _values(node: Node, scope: forms.Scope) -> tuple[str, ...]:
    """One value, a list of them, or nothing for any."""
    if node.value is None:
        return ()
    return tuple(HOLED.read(inner, scope) for inner in (node.elements() if isinstance(node.value, list) else [node]))


_LABEL_VALUES: Final[forms.Schema] = {"anyOf": [HOLED.schema, forms.list_of(HOLED).schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How a back end's nodes are recognised; `labels` without values may have any."""

    labels: Mapping[str, tuple[str, ...]] = forms.optional(
        forms.map_of(forms.Shape(_values, _LABEL_VALUES), LABELS),
        "Labels that each of its nodes has: a value, a list of possible values, or nothing for any value.",
        {"acme.example/mode": "shared"},
    )
    annotations: tuple[str, ...] = forms.optional(
        forms.list_of(forms.TEXT),
        "Annotations that its system writes on its nodes. One of them shows `gpu-webhook survey` that it is there.",
        ["acme.example/registered"],
    )
    devices: str | None = forms.optional(
        _KEY, "The label, or the resource, that says how many cards a node has.", "acme.example/cards"
    )
    replicas: int = forms.optional(forms.whole(), "How often its resource counts each card.", 10, default=1)
    required: bool = forms.optional(
        forms.FLAG, "It serves only if such a node is known. Otherwise nodes may come later."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Which hardware partitions a back end has: all of its cards', or those that match one of `only`."""

    spelling: Mapping[str, str] = forms.optional(
        forms.map_of(forms.TEXT), "Spellings of profiles that differ from the catalogue's.", key="names"
    )
    only: tuple[str, ...] = forms.optional(
        forms.list_of(forms.TEXT),
        "The profiles it has, if these are not all. `*` is any text.",
        ["1g.*"],
        default=("*",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that a site may change, and by what `gpu-webhook survey` sees it."""

    default: Any = forms.required(forms.ANYTHING, "The value unless the Cluster document sets another.")
    description: Any = forms.optional(forms.ANYTHING, "What for.")
    label: str | None = forms.optional(
        forms.TEXT,
        "A node label with the value. `gpu-webhook survey` sets what it sees there. If the default is empty, it"
        " does so only to keep pods off the nodes of other back ends.",
        "acme.example/replicas",
    )
    also: tuple[str, ...] = forms.optional(
        forms.list_of(forms.TEXT),
        "Other names in use for it. `gpu-webhook survey` sets the resource, the device class or the plugin's"
        " runtime class that it sees.",
        ["acme.example/card.shared"],
    )


def _parameter(node: Node) -> Parameter:
    fields = dict(node.items())
    also = tuple(inner.text() for inner in fields["also"].elements()) if "also" in fields else ()
    label = fields["label"].text() if "label" in fields else None
    return Parameter(default=fields["default"].plain(), label=label, also=also)


PARAMETERS: Final = forms.Shape(
    lambda node, _: {name: _parameter(one) for name, one in node.items()},
    forms.map_of(forms.form(Parameter)).schema,
    dict[str, Parameter](),
)
"""Parameters by name; their values are put in before a document is read, see `forms/inheritance`."""

PARAMETERS_ARE: Final = "Values that a site may change, written as `$(name)` in keys and values."
A_PARAMETER: Final = {
    "resource": {"default": "acme.example/card", "description": "what the device plugin advertises"}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way a vendor exposes GPUs. `parametrised`: the cluster sets some of its parameters.

    `card` is the one that its models (in lower case) have in common, `profiles` are all that its cards can have.
    """

    name: str = forms.derived(forms.document)
    at: Location = forms.derived(forms.place)
    description: str = forms.required(forms.TEXT, "One line for people.", "shares of NVIDIA cards, by HAMi")
    extends: str | None = forms.optional(
        forms.TEXT,
        "Another back end, whose spec this one takes over. Mappings are merged, lists (as `modes`) replaced, and"
        " an empty value deletes. Examples are not inherited.",
        "nvidia-gpu",
    )
    vendors: frozenset[str] = forms.optional(
        forms.set_of(VENDOR),
        "Whose cards it serves, as the catalogues spell them. `[]` means any vendor.",
        ["nvidia"],
    )
    models: frozenset[str] = forms.optional(
        MODELS, "The only card models it serves. If they are alike, a share becomes a size without `gpu-model`."
    )
    sharing: frozenset[str] = forms.required(
        forms.set_of(forms.word(SHARINGS)), "What `gpu-sharing` may say.", ["exclusive", "fractional"]
    )
    parameters: Mapping[str, Parameter] = forms.optional(PARAMETERS, PARAMETERS_ARE, A_PARAMETER)
    partitions: Partitions | None = forms.optional(
        forms.form(Partitions),
        "`{}` if it serves hardware partitions. A share or a size gets the smallest profile that is large enough.",
        {},
    )
    unenforced: tuple[str, ...] = forms.optional(
        forms.list_of(forms.word(("memory", "compute"))),
        "What the system counts and does not limit. The pod's author is warned.",
        ["memory", "compute"],
    )
    writers: tuple[str, ...] = forms.optional(
        forms.list_of(USERS),
        "Users that belong to the system, as globs. On a running pod only they may change the annotations and"
        " labels that the system reads or `reserves`. If none are listed, service accounts outside of tenants'"
        " namespaces may write what it `reserves`. Users of Kubernetes, as `system:kube-scheduler`, always may.",
        ["system:serviceaccount:kai-scheduler:*"],
    )
    other_devices: tuple[str, ...] = forms.optional(
        forms.list_of(forms.TEXT),
        "Resources of its vendor, as globs, that are no GPUs. Any other resource in the domain of a back end's"
        " resource is taken for a GPU, also if the back end is disabled.",
        ["acme.example/nic*"],
    )
    constraints: tuple[str, ...] = forms.optional(
        forms.list_of(forms.TEXT),
        "Annotations and labels, as globs, that restrict a pod to some devices and that no mode writes.",
    )
    modes: Sequence[Mode] = forms.required(
        forms.list_of(MODE, "needs at least one mode"),
        "Ways to serve a request. The first whose `when` matches is taken. If none matches, the request is refused.",
    )
    inject: Injection = forms.optional(
        forms.form(Injection), "What a pod gets beside resources, whatever the mode.", default=Injection()
    )
    companions: Companions | None = forms.embedded(COMPANIONS)
    nodes: Nodes = forms.optional(forms.form(Nodes), "How its nodes are recognised.", default=Nodes())
    request_only: Literal["repair", "refuse"] = forms.optional(
        forms.word(("repair", "refuse")),
        "A resource in requests without a limit: `repair` (the default) or `refuse`.",
        default="repair",
    )
    examples: Sequence[Example] = forms.required(
        forms.list_of(
            forms.defined("example", _EXAMPLE), "needs at least one example, so that somebody sees the rule work"
        ),
        "Executed whenever the rules are loaded.",
        [{"ask": {"gpu": "1"}, "limits": {"acme.example/card": 1}}],
        default=(),
    )
    card: Card | None = None
    profiles: frozenset[str] = frozenset()
    owns: frozenset[str] = frozenset()
    parametrised: bool = False

    def serves(self, card: Card) -> bool:
        """Whether a card is one of its own: of its models, or where it names none of its vendors."""
        if self.models:
            return card.model.lower() in self.models
        return not self.vendors or card.vendor in self.vendors

    @property
    def shares(self) -> bool:
        """Whether it serves parts of devices; partitions are parts, too."""
        return self.partitions is not None or any(mode.when.devices in {None, "part"} for mode in self.modes)

    @property
    def rule(self) -> str:
        """The back end as messages name it: `hami-vgpu (hami-vgpu.yaml:4)`."""
        return self.at.of(self.name)


def _consistent(backend: Backend, section: Section, scope: forms.Scope) -> Backend:
    """Complain of modes that can serve nothing: for cards of others, for partitions where there are none."""
    for number, mode in enumerate(backend.modes):
        for key, message in _impossible(mode, backend, scope.known):
            scope.problems.append(Problem(mode.at, f"spec.modes[{number}].{key}", message))
    models = dict(section.node.items()).get("models") if backend.models else None
    for message in _of_others(backend.models, backend, scope.known):
        scope.problems.append(Problem(models.at if models else backend.at, "spec.models", message))
    return backend


def _impossible(mode: Mode, backend: Backend, context: Known) -> Iterator[tuple[str, str]]:
    both = sorted(mode.when.has & mode.when.lacks)
    if both:
        yield "when", f"no request both has and lacks {' and '.join(both)}"
    yield from (("when.models", message) for message in _of_others(mode.when.models, backend, context))
    cut = mode.when.devices == "profile" or any("{profile}" in name for name in mode.limits)
    if cut and backend.partitions is None:
        yield "when.devices", "is for partitions, and the back end has none; add partitions: {} to its spec"


def _of_others(models: Iterable[str], backend: Backend, context: Known) -> Iterator[str]:
    """What is wrong with models of vendors whose cards the back end does not serve."""
    for card in (context.devices[model] for model in sorted(models)):
        if backend.vendors and card.vendor not in backend.vendors:
            vendors = ", ".join(sorted(backend.vendors))
            yield f"{card.model} is made by {card.vendor}, and the back end serves {vendors}"


BACKEND: Final = forms.form(Backend, complete=_consistent)
SHARED: Final[Mapping[str, forms.Schema]] = {
    **modes.SHARED,
    "example": _EXAMPLE.schema,
    "toleration": _TOLERATION.schema,
    **modes.SHARED_BY_OUTPUTS,
}
"""What a back end has often, by the name of its schema."""


# A back end beside the catalogues: its cards, and its modes with what they inherit, some of them many times over.

_PROFILE: Final = "{profile}"
_MEMORY: Final = "{memory}"
_CARD: Final = frozenset({"product", "model"})
"""Words that name a card."""


def complete(backend: Backend, devices: Mapping[str, Card]) -> Backend:
    """The back end with its cards and all of its modes."""
    modes: Sequence[Mode] = [_inheriting(sized, backend) for mode in backend.modes for sized in _of_sizes(mode)]
    backend = _with_cards(backend, devices)
    profiles: frozenset[str] = frozenset()
    if backend.partitions is not None:
        cards = [card for card in {card.model: card for card in devices.values()}.values() if backend.serves(card)]
        modes = list(_of_profiles(modes, cards, backend.partitions))
        profiles = frozenset(name for card in cards for name in card.profiles if _among(backend.partitions, name))
    owns = frozenset(name for mode in modes for name in mode.amounts)
    return replace(backend, modes=modes, profiles=profiles, owns=owns)


def _with_cards(backend: Backend, devices: Mapping[str, Card]) -> Backend:
    """The back end with the card that its models have in common."""
    cards = [devices[model] for model in sorted(backend.models)]
    alike = {(card.memory, card.tflops, tuple(card.profiles)) for card in cards}
    return replace(backend, card=cards[0] if len(alike) == 1 else None)


def _inheriting(mode: Mode, backend: Backend) -> Mode:
    """The mode with what its back end injects and demands whatever the mode, and what is known of its numbers."""
    outputs = mode.outputs.over(backend.inject.outputs)
    numbers = {key: output for key, output in outputs.node_affinity.items() if output.is_number}
    inherited = [output for output in (*mode.amounts.values(), *numbers.values()) if output.what]
    return replace(
        mode,
        outputs=outputs,
        companions=mode.companions.over(backend.companions) if mode.companions else backend.companions,
        selects=_selects(mode, outputs),
        node_numbers=numbers,
        pool={
            key: output
            for key, output in outputs.node_affinity.items()
            if not (output.words and _CARD.issuperset(output.words))
        },
        verbs=frozenset(output.what for output in inherited),
        loosely=_loosely(outputs),
        all_cores=any((output.what, output.absent) == ("cores", "whole") for output in inherited),
    )


def _selects(mode: Mode, outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values(), *outputs.node_affinity.values(), *mode.claims]
    words = {word for output in written for word in output.words}
    return next((word for word in ("product", "model") if word in words), "model" if mode.when.models else None)


def _loosely(outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values()]
    if any("lookalikes" in output.words for output in written):
        return None
    return next((output.what for output in written if isinstance(output, Amount) and output.substring), None)


def _of_sizes(mode: Mode) -> Iterator[Mode]:
    """The mode once for each of its sizes, or as it is."""
    if not mode.sizes:
        yield mode
    for number, size in mode.sizes:
        limits = {name.replace(_MEMORY, str(number)): output for name, output in mode.limits.items()}
        yield replace(mode, size=size, sizes=(), limits=limits, amounts={**limits, **_slots(mode)})


def _slots(mode: Mode) -> Mapping[str, Output]:
    return {name: output for name, output in mode.amounts.items() if isinstance(name, Slot)}


def _among(partitions: Partitions, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in partitions.only)


def _of_profiles(modes: Iterable[Mode], devices: Sequence[Card], partitions: Partitions) -> Iterator[Mode]:
    """The modes, each that differs from profile to profile once for every profile of the devices.

    That is one whose resources or claims are named after it, or, where the back end has only one kind of card,
    whose amounts are the profile's.
    """
    profiles = {name: profile for device in devices for name, profile in device.profiles.items()}
    cut_profiles = [profile for name, profile in profiles.items() if _among(partitions, name)]
    for mode in modes:
        sized = any(output.what == "memory" for output in mode.amounts.values())
        if any(_PROFILE in name for name in (*mode.limits, *(str(claim.value) for claim in mode.claims))):
            yield from (_named(mode, profile.name, partitions.spelling) for profile in cut_profiles)
        elif mode.when.devices == "profile" and len(devices) == 1 and sized:
            yield from (_sized(mode, profile) for profile in cut_profiles)
        else:
            yield mode


def _named(mode: Mode, name: str, spelling: Mapping[str, str]) -> Mode:
    # A resource name holds no plus sign: 1g.10gb+me is 1g.10gb.me there [NVIDIA/k8s-device-plugin internal/rm/rm.go].
    written = spelling.get(name, name).replace("+", ".")
    limits = {resource.replace(_PROFILE, written): output for resource, output in mode.limits.items()}
    amounts = {**limits, **_slots(mode)}
    claims = [replace(claim, value=str(claim.value).replace(_PROFILE, written)) for claim in mode.claims]
    return replace(mode, profile=name, limits=limits, amounts=amounts, claims=claims)


def _sized(mode: Mode, profile: Profile) -> Mode:
    """The mode with the amount of memory that a profile's template has."""

    def fixed(output: Output) -> Output:
        if not isinstance(output, Amount) or output.what != "memory":
            return output
        return replace(output, fit=(ceil(profile.memory / output.unit),), step=1, minimum=None, maximum=None)

    limits = {name: fixed(output) for name, output in mode.limits.items()}
    amounts = {name: fixed(output) for name, output in mode.amounts.items()}
    return replace(mode, profile=profile.name, limits=limits, amounts=amounts)
