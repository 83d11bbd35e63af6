"""A `ClaimSource`: objects that pods name instead of asking themselves, and what stands in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Section, nearest
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, word
from webhook.core.request import KEYS
from webhook.core.rules.backend import ASK, Backend, Parameter, declared_parameters
from webhook.core.rules.modes import LIMIT, Mode, Output, When
from webhook.core.rules.verbs import CONTAINER

Field = tuple[str, ...]
"""Where something stands in an object: `("spec", "resources")`, written `spec.resources`."""

_NO_ADDRESS: Final = f"has to end in {CONTAINER}, as vendor.example/claim-{CONTAINER}"


def _prefix(node: Node) -> str:
    """An annotation that names a claim, without its hole."""
    prefix = node.text().removesuffix(CONTAINER)
    if prefix == node.value or len(prefix) < 2 or "{" in prefix:
        raise node.problem(_NO_ADDRESS)
    return prefix


_ADDRESS: Final = forms.pattern(r"^[^{]{2,}\{container\}$", _NO_ADDRESS, _prefix)
_FIELD: Final[forms.Shape[Field]] = forms.Shape(lambda node, _: tuple(node.filled().split(".")), FILLED.schema, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectKind:
    """A kind of object in the Kubernetes API, in whichever of its versions a cluster has it."""

    kind: str = required(FILLED, "The kind of the objects.", "ElasticGPUClaim")
    group: str = required(FILLED, "Their API group.", "acme.example")
    versions: tuple[str, ...] = required(
        list_of(FILLED, forms.EMPTY), "Versions of it, the preferred one first.", ["v1alpha1"]
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

    def mode(self, section: Section, _: forms.Scope) -> Mode:
        """A mode that these resources mean."""
        when, at = When(devices=self.devices), section.node.at
        return Mode(name=self.devices, when=when, at=at, limits=self.resources, amounts=self.resources)


_READ: Final[forms.Form[Any]] = form(_Read, complete=_Read.mode)


def _read_asks(node: Node, scope: forms.Scope) -> Mapping[str, str]:
    for key, value in node.items():
        if key not in KEYS:
            raise value.problem(f'"{key}" is no key of the shorthand{nearest(key, KEYS)}')
    return map_of(TEXT).read(node, scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExample:
    """What a claim's resources have to mean: the shorthand that they are, or a part of why they are refused."""

    name: str = optional(TEXT, "What messages call it.", default="")
    resources: Mapping[str, Any] = required(forms.OBJECT, "The resources of the claim.", {"acme.example/compute": 50})
    asks: Mapping[str, str] | None = optional(
        forms.Shape(_read_asks, ASK), "What it means in the shorthand, by the keys of labels."
    )
    refused: str | None = optional(FILLED, "A part of the message that refuses it.")
    at: Location = derived(forms.place)

    def titled(self, _: Section, __: forms.Scope) -> ClaimExample:
        """The same with a name."""
        return replace(self, name=self.name or " ".join(f"{key}={value}" for key, value in self.resources.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSource:
    """Objects that say what a container asks, and that a pod only names.

    `prefixes` are annotations without the name of the container, which follows. `resources` is the field of a claim
    with its `limits` and `requests`. `aliases` are `names` the other way round: by the other name of a resource.
    `words` is the rulebook of its `reader` alone, by which a claim is read.
    """

    name: str = derived(forms.document)
    at: Location = derived(forms.place)
    description: str = required(TEXT, "One line for people.")
    parameters: Mapping[str, Parameter] = declared_parameters()
    prefixes: tuple[str, ...] = required(
        list_of(_ADDRESS, forms.EMPTY),
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
        list_of(_FIELD, forms.EMPTY),
        "Fields that may name the provisioner.",
        ["provisioner"],
        key="classes.provisioner",
        default=(),
    )
    reads: Sequence[Mode] = required(
        list_of(_READ, forms.EMPTY),
        "What resources of a claim mean. The first that fits is taken.",
    )
    names: Mapping[str, tuple[str, ...]] = optional(
        map_of(list_of(TEXT)), "Other spellings of resources, by the one under `reads`."
    )
    examples: Sequence[ClaimExample] = required(
        list_of(form(ClaimExample, forms.either("asks", "refused"), complete=ClaimExample.titled), forms.EMPTY),
        "Executed whenever the rules are loaded.",
        default=(),
    )
    aliases: Mapping[str, str] = field(default_factory=dict)
    words: Any = None

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
            rule=self.rule,
            description=self.description,
            sharing=frozenset(),
            modes=self.reads,
            owns=frozenset(name for mode in self.reads for name in mode.amounts),
        )

    def aliased(self, section: Section, scope: forms.Scope) -> ClaimSource:
        """The same with its names the other way round; none if one of them has another meaning already."""
        owned = self.reader.owns

        def aliases(names: Node) -> Mapping[str, str]:
            aliases: dict[str, str] = {}
            for name, others in names.items():
                if name not in owned:
                    raise others.problem(f'nothing under reads is called "{name}"{nearest(name, owned)}')
                for other in others.elements():
                    if other.text() in owned or other.text() in aliases:
                        raise other.problem(f'"{other.text()}" has a meaning already')
                    aliases[other.text()] = name
            return aliases

        names = section.entries.get("names")
        return replace(self, aliases=scope.try_read(partial(aliases, names), {})) if names else self


_CLAIM_GROUPS: Final = {
    "claims": forms.Group("The objects that pods name, and the fields of a request.", required=True),
    "classes": forms.Group("The objects that say who provides for a claim."),
}
CLAIM_SOURCE: Final = form(ClaimSource, groups=_CLAIM_GROUPS, complete=ClaimSource.aliased)
