"""A `ClaimSource`: objects that pods name instead of asking themselves, and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Section, nearest
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, word
from webhook.core.request import KEYS
from webhook.core.rules.backend import ASK, Backend, Parameter, declared_parameters
from webhook.core.rules.modes import LIMIT, Mode, Output, When

CONTAINER: Final = "{container}"
_EMPTY: Final = "needs at least one entry"

Field = tuple[str, ...]
"""Where something stands in an object: `("spec", "resources")`, written `spec.resources`."""


def _prefix(node: Node) -> str:
    """An annotation that names a claim, without its hole."""
    text = node.text()
    prefix = text.removesuffix(CONTAINER)
    if prefix == text or len(prefix) < 2 or "{" in prefix:
        raise node.problem(f"has to end in {CONTAINER}, as vendor.example/claim-{CONTAINER}")
    return prefix


_ADDRESS: Final = forms.pattern(
    r"^[^{]{2,}\{container\}$", f"has to end in {CONTAINER}, as vendor.example/claim-{CONTAINER}", _prefix
)
_FIELD: Final[forms.Shape[Field]] = replace(
    FILLED.reading(lambda node, _: tuple(node.filled().split("."))), fallback=()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of object in the Kubernetes API, in whichever of its versions a cluster has it."""

    kind: str = required(FILLED, "The kind of the objects.", "ElasticGPUClaim")
    group: str = required(FILLED, "Their API group.", "acme.example")
    versions: tuple[str, ...] = required(
        list_of(FILLED, _EMPTY), "Versions of it, the preferred one first.", ["v1alpha1"]
    )
    plural: str = required(FILLED, "Their name in URLs.", "elasticgpuclaims")

    @property
    def name(self) -> str:
        """The kind as Kubernetes names its definition: `plural.group`."""
        return f"{self.plural}.{self.group}"


_KIND: Final = form(ObjectKind)


@dataclass(frozen=True, kw_only=True)
class _Read:
    devices: str = required(
        word(("whole", "part")), "What these resources ask for: `whole` devices, or a `part` of each."
    )
    resources: Mapping[str, Output] = required(
        map_of(LIMIT), "The resources of a claim. A verb of `limits` says what each means."
    )


def _mode(read: _Read, section: Section, _: forms.Scope) -> Mode:
    when = When(devices=read.devices)
    return Mode(name=read.devices, when=when, at=section.node.at, limits=read.resources, amounts=read.resources)


def _read_asks(node: Node, scope: forms.Scope) -> Mapping[str, str]:
    for key, value in node.items():
        if key not in KEYS:
            raise value.problem(f'"{key}" is no key of the shorthand{nearest(key, KEYS)}')
    return map_of(TEXT).read(node, scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExample:
    """What a claim's resources have to mean: the shorthand that they are, or a part of why they are refused."""

    name: str = optional(TEXT, "What messages call it.", default="")
    resources: Mapping[str, Any] = required(
        forms.Shape(lambda node, _: {key: one.plain() for key, one in node.items()}, {"type": "object"}, {}),
        "The resources of the claim.",
        {"acme.example/compute": 50},
    )
    asks: Mapping[str, str] | None = optional(
        forms.Shape(_read_asks, ASK), "What it means in the shorthand, by the keys of labels."
    )
    refused: str | None = optional(FILLED, "A part of the message that refuses it.")
    at: Location = derived(forms.place)


def _titled(example: ClaimExample, section: Section, _: forms.Scope) -> ClaimExample:
    if (example.asks is None) == (example.refused is None):
        section.complain("needs either asks: or refused:")
    name = example.name or " ".join(f"{key}={value}" for key, value in example.resources.items())
    return replace(example, name=name)


_ONE_OUTCOME: Final = forms.Rule({"oneOf": [{"required": ["refused"]}, {"type": "object", "required": ["asks"]}]})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSourceSpec:
    """Objects that say what a container asks, and that a pod only names.

    `prefixes` are annotations without the name of the container, which follows. `resources` is the field of a claim
    with its `limits` and `requests`. `aliases` are `names` the other way round: by the other name of a resource.
    """

    name: str = derived(forms.document)
    at: Location = derived(forms.place)
    description: str = required(TEXT, "One line for people.")
    parameters: Mapping[str, Parameter] = declared_parameters()
    prefixes: tuple[str, ...] = required(
        list_of(_ADDRESS, _EMPTY),
        "Annotations of pods that name a claim for a container.",
        ["acme.example/claim-{container}"],
        key="annotations",
    )
    claims: ObjectKind = forms.embedded(
        _KIND, "claims", default=ObjectKind(kind="", group="", versions=(), plural="")
    )
    resources: Field = required(
        _FIELD, "The field with what is asked for.", "spec.resources", key="claims.resources", default=()
    )
    classed: Sequence[Field] = optional(
        list_of(_FIELD), "Fields that may name the class. The first that is there counts.", key="claims.class"
    )
    classes: ObjectKind | None = forms.embedded(_KIND, "classes")
    provisioned: Sequence[Field] = required(
        list_of(_FIELD, _EMPTY),
        "Fields that may name the provisioner.",
        ["provisioner"],
        key="classes.provisioner",
        default=(),
    )
    reads: Sequence[Mode] = required(
        list_of(form(_Read, complete=_mode), _EMPTY),
        "What resources of a claim mean. The first that fits is taken.",
    )
    names: Mapping[str, tuple[str, ...]] = optional(
        map_of(list_of(TEXT)), "Other spellings of resources, by the one under `reads`."
    )
    examples: Sequence[ClaimExample] = required(
        list_of(form(ClaimExample, _ONE_OUTCOME, complete=_titled), _EMPTY),
        "Executed whenever the rules are loaded.",
        default=(),
    )
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def rule(self) -> str:
        """The source as messages name it."""
        return self.at.of(self.name)

    @property
    def kinds(self) -> Sequence[ObjectKind]:
        """Everything that has to be known to read a claim."""
        return (self.claims,) if self.classes is None else (self.claims, self.classes)

    @property
    def reader(self) -> Backend:
        """A back end that serves no pod and reads what stands in a claim."""
        return Backend(
            name=self.name,
            at=self.at,
            description=self.description,
            sharing=frozenset(),
            modes=self.reads,
            owns=frozenset(name for mode in self.reads for name in mode.amounts),
        )


def _aliased(source: ClaimSourceSpec, section: Section, scope: forms.Scope) -> ClaimSourceSpec:
    names = Section(section.node, []).optional("names", lambda node: node, None)
    owned = source.reader.owns
    return replace(source, aliases=scope.try_read(lambda: _aliases(names, owned), {}) if names else {})


def _aliases(names: Node, owned: frozenset[str]) -> Mapping[str, str]:
    aliases: dict[str, str] = {}
    for name, others in names.items():
        if name not in owned:
            raise others.problem(f'nothing under reads is called "{name}"{nearest(name, owned)}')
        for other in others.elements():
            if other.text() in owned or other.text() in aliases:
                raise other.problem(f'"{other.text()}" has a meaning already')
            aliases[other.text()] = name
    return aliases


_GROUPS: Final = {
    "claims": forms.Group("The objects that pods name, and the fields of a request.", required=True),
    "classes": forms.Group("The objects that say who provides for a claim."),
}
CLAIM_SOURCE: Final = form(ClaimSourceSpec, groups=_GROUPS, complete=_aliased)
