"""A `Backend`: one way a vendor exposes GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from webhook.core.forms import forms, labels
from webhook.core.forms.document import Location, Node, Problem, Section, nearest
from webhook.core.forms.forms import FLAG, TEXT, derived, form, list_of, map_of, optional, required, whole, word
from webhook.core.request import KEYS, SHARINGS
from webhook.core.rules import modes
from webhook.core.rules.catalog import VENDOR, Card
from webhook.core.rules.modes import COMPANIONS, HOLED, Companions, Constant, Mode, Outputs, constant

# What every pod gets


def _toleration(read: Mapping[str, Any], section: Section, scope: forms.Scope) -> tuple[Mapping[str, Any], str]:
    if read.get("operator") == "Exists" and "value" in read:
        section.complain("a toleration with operator Exists has no value")
    if read.get("operator") != "Exists" and "key" not in read:
        section.complain("a toleration without a key needs operator Exists")
    if "tolerationSeconds" in read and read.get("effect") != "NoExecute":
        section.complain("tolerationSeconds is for effect NoExecute")
    return read, forms.origin(section.node, scope)


_KEY: Final = labels.keys(TEXT.schema)
_NOT_EQUAL: Final = {"required": ["operator"], "properties": {"operator": {"not": {"enum": ["Equal"]}}}}
_NO_SECONDS: Final = {"not": {"type": "object", "required": ["tolerationSeconds"]}}
_OTHER_EFFECTS: Final = {"enum": ["NoSchedule", "PreferNoSchedule"]}
_NO_EXECUTE: Final = {"required": ["effect"], "properties": {"effect": {"not": _OTHER_EFFECTS}}}
_TOLERABLE: Final = [
    {"not": {"type": "object", "required": ["operator", "value"], "properties": {"operator": {"enum": ["Exists"]}}}},
    {"anyOf": [{"required": ["key"]}, _NOT_EQUAL]},
    {"anyOf": [_NO_SECONDS, _NO_EXECUTE]},
]
TOLERATION: Final = forms.mapping(
    {
        "key": optional(_KEY, "The taint's key; left out with `operator: Exists` it is any.", "acme.example/card"),
        "operator": optional(
            word(("Exists", "Equal")), "`Exists` for any value, `Equal` (the default) for this one."
        ),
        "value": optional(labels.values(TEXT.schema), "The taint's value, with `operator: Equal`."),
        "effect": optional(
            word(("NoSchedule", "PreferNoSchedule", "NoExecute")), "The taint's effect; any if left out."
        ),
        "tolerationSeconds": optional(whole(0), "With `effect: NoExecute`, how long it is tolerated."),
    },
    forms.Rule({"allOf": _TOLERABLE}),
    complete=_toleration,
)
_OBJECT: Final = modes.OBJECT_NAME.reading(
    lambda node, scope: constant(modes.OBJECT_NAME.read(node, scope), node, scope)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """What every pod that the back end serves gets once; a toleration comes with the rule line it stands on."""

    runtime_class: Constant | None = optional(
        _OBJECT,
        "The pod's runtime class. A pod that names one keeps it. An empty text sets none.",
        key="runtimeClassName",
    )
    scheduler: Constant | None = optional(
        _OBJECT,
        "The pod's scheduler. A pod that names another one than this and the default one is refused.",
        key="schedulerName",
    )
    tolerations: Sequence[tuple[Mapping[str, Any], str]] = optional(
        list_of(forms.defined("toleration", TOLERATION)),
        "Tolerations of the pod.",
        [{"key": "acme.example/card", "operator": "Exists", "effect": "NoSchedule"}],
    )
    outputs: Outputs = forms.embedded(modes.OUTPUTS, default=Outputs())


# Examples


def _verbatim(description: str, schema: forms.Schema, *examples: Any) -> Any:
    return optional(forms.Shape(forms.ANYTHING.read, schema), description, *examples)


_SCALARS: Final = map_of(replace(forms.ANYTHING, schema={"type": ["string", "integer", "number", "boolean"]})).schema
_LABELS: Final = map_of(list_of(replace(forms.ANYTHING, schema={"type": ["string", "integer", "number"]}))).schema
_EXPECTED: Final = forms.mapping(
    {
        "limits": _verbatim("The container's resources.", _SCALARS, {"acme.example/card": 1}),
        "annotations": _verbatim("Annotations of the pod, without those of the webhook.", _SCALARS),
        "labels": _verbatim("Labels of the pod.", _SCALARS),
        "env": _verbatim("Environment of the container.", _SCALARS),
        "nodeAffinity": _verbatim("Values of each node label.", _LABELS),
        "claims": _verbatim("Names of templates of resource claims.", list_of(TEXT).schema),
        "tolerations": _verbatim("Tolerations of the pod.", {"type": "array", "items": {"type": "object"}}),
        "schedulerName": _verbatim("The pod's scheduler; an empty text for none.", TEXT.schema),
        "runtimeClassName": _verbatim("The pod's runtime class; an empty text for none.", TEXT.schema),
        "charge": _verbatim("What the quota counts, as in a suite.", _SCALARS, {"devices": "0.3"}),
        "warnings": _verbatim("A part of each warning, in their order.", list_of(TEXT).schema),
    },
    complete=lambda read, *_: read or None,
)
EXPECTED: Final = tuple(_EXPECTED.schema["properties"])
"""What an example may expect; each section that is given is compared whole."""

ASK: Final[forms.Schema] = {
    "type": "object",
    "properties": dict.fromkeys(KEYS, TEXT.schema),
    "patternProperties": {"/": TEXT.schema},
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A request and what has to come of it: either `refused`, or `expected` by section (`limits`, ...)."""

    name: str = optional(TEXT, "What messages call it.", default="")
    ask: Mapping[str, str] = required(
        forms.Shape(map_of(TEXT).read, ASK, {}),
        "The shorthand, by the keys of labels, or resources of the container; values are quoted.",
        {"gpu": "0.3", "gpu-model": "T4"},
        {"acme.example/card": "1"},
    )
    pod: Mapping[str, Any] = optional(forms.OBJECT, "What else the pod has.", {"spec": {"hostIPC": True}})
    refused: str | None = optional(forms.FILLED, "A part of the message that refuses it.")
    expected: Mapping[str, Any] | None = forms.embedded(_EXPECTED)
    at: Location = derived(forms.place)

    def titled(self, section: Section, scope: forms.Scope) -> Example:
        """The same with a name; complain of keys that are none, and of no outcome or two."""
        for key in (key for key in self.ask.keys() - {*KEYS} if "/" not in key):
            message = f'"{key}" is no key of the shorthand{nearest(key, KEYS)}'
            scope.problems.append(Problem(section.node.at, f"{section.node.path}.ask", message))
        if (self.refused is None) == (self.expected is None):
            section.complain(f"needs either refused: or one of {', '.join(EXPECTED)}")
        return replace(self, name=self.name or " ".join(f"{key}={value}" for key, value in self.ask.items()))


_ONE_OUTCOME: Final = [
    {"required": ["refused"]},
    {"type": "object", "anyOf": [{"required": [key]} for key in EXPECTED]},
]
EXAMPLE: Final = form(Example, forms.Rule({"oneOf": _ONE_OUTCOME}), complete=Example.titled)


# Its nodes, partitions and parameters


def _values(node: Node, scope: forms.Scope) -> tuple[str, ...]:
    """One value, a list of them, or nothing for any."""
    if node.value is None:
        return ()
    return tuple(HOLED.read(inner, scope) for inner in (node.elements() if isinstance(node.value, list) else [node]))


_LABEL_VALUES: Final[forms.Schema] = {"anyOf": [HOLED.schema, list_of(HOLED).schema, {"type": "null"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How a back end's nodes are recognised; `labels` without values may have any."""

    labels: Mapping[str, tuple[str, ...]] = optional(
        map_of(forms.Shape(_values, _LABEL_VALUES), modes.LABELS),
        "Labels that each of its nodes has: a value, a list of possible values, or nothing for any value.",
        {"acme.example/mode": "shared"},
    )
    annotations: tuple[str, ...] = optional(
        list_of(TEXT),
        "Annotations that its system writes on its nodes. One of them shows `gpu-webhook survey` that it is there.",
        ["acme.example/registered"],
    )
    signs: tuple[str, ...] = optional(
        list_of(TEXT),
        "What else shows `gpu-webhook survey` that it is there: the image of its device plugin, while no node has its"
        " resources, and device classes that claim templates ask for.",
        ["acme/device-plugin", "gpu.acme.example"],
    )
    devices: str | None = optional(
        _KEY, "The label, or the resource, that says how many cards a node has.", "acme.example/cards"
    )
    replicas: int = optional(whole(), "How often its resource counts each card.", 10, default=1)
    required: bool = optional(FLAG, "It serves only if such a node is known. Otherwise nodes may come later.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """Which hardware partitions a back end has: all of its cards', or those that match one of `only`."""

    spelling: Mapping[str, str] = optional(
        map_of(TEXT), "Spellings of profiles that differ from the catalogue's.", key="names"
    )
    only: tuple[str, ...] = optional(
        list_of(TEXT), "The profiles it has, if these are not all. `*` is any text.", ["1g.*"], default=("*",)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A value that a site may change, and by what `gpu-webhook survey` sees it."""

    default: Any = required(forms.ANYTHING, "The value unless the Cluster document sets another.")
    description: Any = optional(forms.ANYTHING, "What for.")
    label: str | None = optional(
        TEXT,
        "A node label with the value. `gpu-webhook survey` sets what it sees there. If the default is empty, it"
        " does so only to keep pods off the nodes of other back ends.",
        "acme.example/replicas",
    )
    also: tuple[str, ...] = optional(
        list_of(TEXT),
        "Other names in use for it. `gpu-webhook survey` sets the resource, the device class or the plugin's"
        " runtime class that it sees.",
        ["acme.example/card.shared"],
    )


def declared_parameters() -> Mapping[str, Parameter]:
    """A field with parameters by name; their values are put in before a document is read, see `forms/inheritance`."""
    return optional(
        map_of(form(Parameter)),
        "Values that a site may change, written as `$(name)` in keys and values.",
        {"resource": {"default": "acme.example/card", "description": "what the device plugin advertises"}},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One way a vendor exposes GPUs. `parametrised`: the cluster sets some of its parameters.

    `card` is the one that its models (in lower case) have in common, `profiles` are all that its cards can have.
    """

    name: str = derived(forms.document)
    at: Location = derived(forms.place)
    rule: str = derived(forms.origin)
    """The back end as messages name it: `hami-vgpu (hami-vgpu.yaml:4)`."""

    description: str = required(TEXT, "One line for people.", "shares of NVIDIA cards, by HAMi")
    extends: str | None = optional(
        TEXT,
        "Another back end, whose spec this one takes over. Mappings are merged, lists (as `modes`) replaced, and"
        " an empty value deletes. Examples are not inherited.",
        "nvidia-gpu",
    )
    vendors: frozenset[str] = optional(
        forms.set_of(VENDOR),
        "Whose cards it serves, as the catalogues spell them. `[]` means any vendor.",
        ["nvidia"],
    )
    models: frozenset[str] = optional(
        modes.MODELS, "The only card models it serves. If they are alike, a share becomes a size without `gpu-model`."
    )
    sharing: frozenset[str] = required(
        forms.set_of(word(SHARINGS)), "What `gpu-sharing` may say.", ["exclusive", "fractional"]
    )
    parameters: Mapping[str, Parameter] = declared_parameters()
    partitions: Partitions | None = optional(
        form(Partitions),
        "`{}` if it serves hardware partitions. A share or a size gets the smallest profile that is large enough.",
        {},
    )
    unenforced: tuple[str, ...] = optional(
        list_of(word(("memory", "compute"))),
        "What the system counts and does not limit. The pod's author is warned.",
        ["memory", "compute"],
    )
    writers: tuple[str, ...] = optional(
        list_of(modes.USERS),
        "Users that belong to the system, as globs. On a running pod only they may change the annotations and"
        " labels that the system reads. They, the platform's other accounts (`platformAccounts` of the Cluster"
        " document) and users of Kubernetes, as `system:kube-scheduler`, may write what it `reserves`.",
        ["system:serviceaccount:kai-scheduler:*"],
    )
    other_devices: tuple[str, ...] = optional(
        list_of(TEXT),
        "Resources of its vendor, as globs, that are no GPUs. Any other resource in the domain of a back end's"
        " resource is taken for a GPU, also if the back end is disabled.",
        ["acme.example/nic*"],
    )
    constraints: tuple[str, ...] = optional(
        list_of(TEXT),
        "Annotations and labels, as globs, that restrict a pod to some devices and that no mode writes.",
    )
    modes: Sequence[Mode] = required(
        list_of(forms.defined("mode", modes.MODE), "needs at least one mode"),
        "Ways to serve a request. The first whose `when` matches is taken. If none matches, the request is refused.",
    )
    inject: Injection = optional(
        form(Injection), "What a pod gets beside resources, whatever the mode.", default=Injection()
    )
    companions: Companions | None = forms.embedded(COMPANIONS)
    nodes: Nodes = optional(form(Nodes), "How its nodes are recognised.", default=Nodes())
    request_only: Literal["repair", "refuse"] = optional(
        word(("repair", "refuse")),
        "A resource in requests without a limit: `repair` (the default) or `refuse`.",
        default="repair",
    )
    examples: Sequence[Example] = required(
        list_of(forms.defined("example", EXAMPLE), "needs at least one example, so that somebody sees the rule work"),
        "Executed by `check`, and by servers whose cluster enables the back end.",
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
    def limits_compute(self) -> bool:
        """Whether it can limit the compute of a part that is no partition."""
        return any("cores" in mode.verbs and mode.when.devices != "profile" for mode in self.modes)

    def consistent(self, section: Section, scope: forms.Scope) -> Backend:
        """The same; complain of modes that serve nothing: for others' cards, for partitions where there are none."""

        def complain_of_others(models: Iterable[str], at: Location, path: str) -> None:
            for card in (scope.known.devices[model] for model in models):
                if self.vendors and card.vendor not in self.vendors:
                    vendors = ", ".join(sorted(self.vendors))
                    message = f"{card.model} is made by {card.vendor}, and the back end serves {vendors}"
                    scope.problems.append(Problem(at, path, message))

        named: dict[str, Mode] = {}
        for number, mode in enumerate(self.modes):
            path = f"spec.modes[{number}].when"
            if (first := named.setdefault(mode.name, mode)).when.devices != mode.when.devices:
                message = f'"{mode.name}" is the name of a mode for other requests, at {first.at.line_only}'
                scope.problems.append(Problem(mode.at, f"spec.modes[{number}].name", message))
            scope.problems.extend(mode.mistaken(f"spec.modes[{number}]", scope.known.devices))
            if both := sorted(mode.when.has & mode.when.lacks):
                scope.problems.append(Problem(mode.at, path, f"no request both has and lacks {' and '.join(both)}"))
            complain_of_others(mode.when.models, mode.at, f"{path}.models")
            cut = mode.when.devices == "profile" or any("{profile}" in name for name in mode.limits)
            if cut and self.partitions is None:
                message = "is for partitions, and the back end has none; add partitions: {} to its spec"
                scope.problems.append(Problem(mode.at, f"{path}.devices", message))
        if self.models:
            models = dict(section.node.items()).get("models")
            complain_of_others(self.models, models.at if models else self.at, "spec.models")
        return self


BACKEND: Final = form(Backend, complete=Backend.consistent)
