"""Objects beside pods: those that hold pods, by a `Workload`, and those that pods name, by a `ClaimSource`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.core.forms import forms
from webhook.core.forms.document import API_VERSION, Location, Node, Section, nearest, with_one_outcome
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, whole, word
from webhook.core.kube.fields import Path
from webhook.core.request import KEYS
from webhook.core.rules.backend import ASK, Backend, Parameter, declared_parameters
from webhook.core.rules.modes import LIMIT, Mode, Output, When
from webhook.core.rules.verbs import CONTAINER

_EMPTY: Final = "needs at least one entry"


def _either(key: str) -> forms.Rule:
    """An example has just one outcome: what stands at the key, or that it is refused."""
    return forms.Rule({"oneOf": [{"required": ["refused"]}, {"type": "object", "required": [key]}]})


# A `Workload`: where objects of a kind keep the templates of their pods, and how many pods each template makes

EACH: Final = "[]"
"""The step to each element of a list."""

ANY: Final = "*"
"""The step to each value of a mapping, whose keys are free; as a kind, every kind of a group."""


def steps(text: str) -> Path:
    """The steps of a path: `("spec", "groups", "[]", "template")` of `spec.groups[].template`."""
    return tuple(re.findall(r"\[\]|[^.\[\]]+", text))


def text(path: Path) -> str:
    """The path as its author writes it."""
    return "".join(EACH if step == EACH else f".{step}" for step in path).removeprefix(".")


_STEP: Final = r"(\*|[A-Za-z0-9_-]+(\[\])*)"
_FORM: Final = rf"^{_STEP}(\.{_STEP})*$"
_MISTAKE: Final = (
    "write keys with dots between them, [] for each element of a list and * for each key: spec.groups[].pod"
)


def _path(node: Node) -> Path:
    if not re.fullmatch(_FORM, node.text()):
        raise node.problem(_MISTAKE)
    return steps(node.text())


PATH: Final[forms.Shape[Path]] = replace(forms.pattern(_FORM, _MISTAKE, _path), fallback=())
_PATHS: Final = list_of(PATH)
_ALTERNATIVES: Final = forms.one_or_more(PATH, _EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """Which elements of a list a number is of: those that list the name of the pods."""

    names: Path = required(PATH, "The field of an element with the names.", "memberNames")
    name: Path = required(PATH, "The field with the name of the pods.", "spec.groups[].name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A number of an object: the first of the fields that is there, else `absent`; `over` another, `less` so many.

    `most` limits it. With `among` the fields are in a list of their own.
    """

    fields: tuple[Path, ...] = required(
        _ALTERNATIVES, "The field with the number. Of several fields the first that is there.", "spec.replicas"
    )
    absent: int = optional(whole(0), "The number if no field is there. 1 if left out.", default=1)
    over: Path = optional(PATH, "A field with a divisor. The result is rounded down.", "spec.perNode")
    less: int = optional(whole(0), "What is then subtracted, such as the leader of a group.", default=0)
    most: Path = optional(PATH, "A field with the maximum.", "spec.completions")
    among: Among | None = optional(
        form(Among), "The number is in another list, in the elements that name these pods."
    )

    @property
    def paths(self) -> Iterable[Path]:
        """Every field of the pods' own elements that it reads."""
        return [path for path in (*(() if self.among else self.fields), self.over, self.most) if path]


FACTOR_KEYS: Final = form(Factor)
_FIELD_ALONE: Final = PATH.reading(lambda node, scope: Factor(fields=(PATH.read(node, scope),)))
_FACTOR: Final[forms.Shape[Factor]] = forms.Shape(
    lambda node, scope: (FACTOR_KEYS if isinstance(node.value, dict) else _FIELD_ALONE).read(node, scope),
    forms.any_schema(PATH, FACTOR_KEYS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An extended resource of a container, told by two fields of it."""

    name: Path = required(PATH, "The field with its name.", "gpu.name")
    quantity: Path = required(PATH, "The field with its amount.", "gpu.quantity")
    default: str = optional(FILLED, "The resource if the field with its name is not there.", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Where an object keeps the pods of one kind, whole (`template`) or in parts (`spec` and the fields after it).

    `times` are multiplied with each other; what `note` says is told with the number.
    """

    template: tuple[Path, ...] = optional(
        _ALTERNATIVES,
        "The field with the pod template. Of several fields the first that is there.",
        "spec.groups[].template",
    )
    spec: tuple[Path, ...] = optional(
        _ALTERNATIVES, "Instead of a template: the field with the fields of a pod's spec.", "spec.pod"
    )
    defaults: tuple[Path, ...] = optional(_PATHS, "Fields with defaults for the pod's spec.", ["spec.podDefaults"])
    metadata: tuple[Path, ...] = optional(
        _PATHS, "Fields with further labels and annotations of the pods. The first wins.", ["metadata"]
    )
    containers: tuple[Path, ...] = optional(
        _PATHS,
        "Fields with a container or a list of them, if not `containers` of the spec. Without a container there is"
        " no pod.",
    )
    unnamed: str = optional(FILLED, "The name of a container that has none.", default="main")
    resources: Path = optional(
        PATH, "The field of a container with its resources.", "computeResources", default=("resources",)
    )
    device: Quantity | None = optional(form(Quantity), "Fields of a container that name a resource and its amount.")
    times: tuple[Factor, ...] = optional(
        list_of(_FACTOR), "Numbers whose product is the number of pods at a time.", ["spec.replicas"]
    )
    makes: int = optional(
        whole(0), "The number of pods before it is multiplied. 0 for a template that other objects use.", default=1
    )
    note: str = optional(FILLED, "What the number leaves out, in a sentence.", default="")

    @property
    def roots(self) -> tuple[Path, ...]:
        """Where a pod begins; the first that is there."""
        return self.template or self.spec

    @property
    def beside(self) -> Iterable[Path]:
        """The fields outside of the pod that tell something of it."""
        return (*self.defaults, *self.metadata, *(path for factor in self.times for path in factor.paths))

    def checked(self, section: Section, _: forms.Scope) -> PodPlace:
        """The same. Each [] and * of a field has to be one of the pod's: then it is known which element is meant."""
        for root in self.roots:
            pod = text(root)
            for path in (*self.beside, *(factor.among.name for factor in self.times if factor.among)):
                last = max((index for index, step in enumerate(path) if step in {EACH, ANY}), default=-1)
                if path[: last + 1] != root[: last + 1]:
                    section.complain(f"{text(path)} is in another list than {pod}, so which element is not known")
            for path in self.containers:
                if path[: len(root)] != root:
                    section.complain(f"{text(path)} is not within {pod}, where the pod is")
        if isinstance(section.node.value, dict) and len({"template", "spec"} & set(section.present())) != 1:
            section.complain("needs either template: or spec:")
        return self


_ONE_ROOT: Final = forms.Rule({"oneOf": [{"required": ["template"]}, {"type": "object", "required": ["spec"]}]})


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExample:
    """What an object has to make: pods by the field path of their template, or a part of why it cannot be read.

    `limits` are those of all containers of a pod together.
    """

    name: str = optional(TEXT, "What messages call it.", default="")
    object: Mapping[str, Any] = required(
        forms.OBJECT,
        "The object, without its apiVersion and kind.",
        {"spec": {"replicas": 2, "template": {"spec": {}}}},
    )
    pods: Mapping[str, int] | None = optional(
        map_of(whole(0)), "How many pods each template makes, by its field path.", {"spec.template": 2}, default=None
    )
    limits: Mapping[str, Mapping[str, Any]] = optional(
        map_of(forms.OBJECT),
        "Limits of the containers, by the same field path.",
        {"spec.template": {"acme.example/card": 1}},
    )
    refused: str | None = optional(FILLED, "A part of the message that says what cannot be read.")
    at: Location = derived(forms.place)


_WORKLOAD_EXAMPLE: Final[forms.Shape[WorkloadExample]] = form(
    WorkloadExample,
    _either("pods"),
    complete=lambda example, section, _: with_one_outcome(example, section, example.pods, "pods", "an object"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Kinds of objects in one API group, in versions that are alike; in every version, if none is named."""

    group: str = required(FILLED, "Their API group.", "acme.example")
    kinds: tuple[str, ...] = required(
        list_of(FILLED, _EMPTY),
        "The kinds. `*` is every other kind of the group, for kinds without pods.",
        ["Training"],
    )
    versions: tuple[str, ...] = optional(list_of(FILLED), "The versions with these fields. If left out, all.", ["v1"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Kinds of objects, and the pods that they hold: none, if there are no `pods`.

    `created_by` is the user who creates the pods, if it is always the same.
    """

    name: str = derived(forms.document, default="")
    at: Location = derived(forms.place, default=Location("Kubernetes", 0))
    description: str = optional(TEXT, "One line for people.", default="")
    source: str = optional(FILLED, "Where the kinds are defined, at a version.", default="")
    objects: Kinds = required(
        form(Kinds, fallback=Kinds(group="", kinds=())),
        "Which objects.",
        {"group": "acme.example", "kinds": ["Training"]},
    )
    created_by: str = optional(
        FILLED, "The user who creates the pods.", "system:serviceaccount:kube-system:job-controller", default=""
    )
    pods: Sequence[PodPlace] = required(
        list_of(form(PodPlace, _ONE_ROOT, complete=PodPlace.checked)), "Where their pods are. `[]`: they hold none."
    )
    examples: Sequence[WorkloadExample] = optional(
        list_of(_WORKLOAD_EXAMPLE), "Executed whenever the rules are loaded."
    )

    @property
    def rule(self) -> str:
        """The document as messages name it."""
        return self.at.of(self.name)

    def checked(self, section: Section, _: forms.Scope) -> Workload:
        """The same; where it has pods, examples have to show that they are found."""
        pods = section.node.value.get("pods") if section.present() else None
        if pods is not None and pods.value and "examples" not in section.present():
            section.complain('says where pods are, and needs the key "examples"')
        return self


_EXAMPLES: Final = [{"properties": {"pods": {"maxItems": 0}}}, {"type": "object", "required": ["examples"]}]
WORKLOAD: Final = form(Workload, forms.Rule({"anyOf": _EXAMPLES}), complete=Workload.checked)

Workloads = Mapping[tuple[str, str], Workload]
"""By API group and kind."""


def resource(kind: str) -> str:
    """The name of a kind in URLs, as Kubernetes forms it where a definition says no other."""
    lower = kind.lower()
    if lower.endswith(("s", "x", "ch", "sh")):
        return f"{lower}es"
    return f"{lower.removesuffix('y')}ies" if lower.endswith("y") else f"{lower}s"


def find(workloads: Workloads, api_version: str, kind: str) -> Workload | None:
    """What is known of objects of a kind; None if nothing is. Without an apiVersion the first of that kind counts."""
    group, _, version = api_version.rpartition("/")
    if not api_version:
        return next((workload for (_, name), workload in workloads.items() if name == kind), None)
    workload = workloads.get((group, kind)) or workloads.get((group, ANY))
    versions = workload.objects.versions if workload else ()
    return workload if not versions or version in versions else None


# The kinds of Kubernetes itself, as `Workload` documents would say them: those that make pods, and all others.

_REPLICATED: Final = PodPlace(template=(steps("spec.template"),), times=(Factor(fields=(steps("spec.replicas"),)),))
_ON_EACH_NODE: Final = replace(_REPLICATED, times=(), note="counted once; there is one on each node that it fits")


def _job(spec: str) -> PodPlace:
    at_most = Factor(fields=(steps(f"{spec}.parallelism"),), most=steps(f"{spec}.completions"))
    return PodPlace(template=(steps(f"{spec}.template"),), times=(at_most,))


_WITH_PODS: Final = (
    ("", "Pod", "", PodPlace(template=((),))),
    ("", "PodTemplate", "", PodPlace(template=(steps("template"),))),
    ("", "ReplicationController", "replication", _REPLICATED),
    ("apps", "Deployment", "replicaset", _REPLICATED),
    ("apps", "StatefulSet", "statefulset", _REPLICATED),
    ("apps", "DaemonSet", "daemon-set", _ON_EACH_NODE),
    ("apps", "ReplicaSet", "replicaset", _REPLICATED),
    ("batch", "Job", "job", _job("spec")),
    ("batch", "CronJob", "job", _job("spec.jobTemplate.spec")),
)

_CORE: Final = (
    "Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node",
    "PersistentVolume", "PersistentVolumeClaim", "ResourceQuota", "Secret", "Service", "ServiceAccount",
)  # fmt: skip
"""The kinds of the core group without pods, by name: an object that says no group is one of these, or is unknown."""

_GROUPS: Final = (
    "admission.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
    "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "certificates.k8s.io",
    "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io",
    "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
    API_VERSION.partition("/")[0],
)  # fmt: skip
"""The other API groups of Kubernetes 1.36, and ours: their kinds hold no pods."""


_WITHOUT_PODS: Final = (
    *(("", kind) for kind in _CORE),
    ("apps", "ControllerRevision"),
    *((group, ANY) for group in _GROUPS),
)

BUILT_IN: Final[Workloads] = {
    (group, kind): Workload(
        objects=Kinds(group=group, kinds=(kind,)),
        created_by=f"system:serviceaccount:kube-system:{controller}-controller" if controller else "",
        pods=(place,),
    )
    for group, kind, controller, place in _WITH_PODS
} | {(group, kind): Workload(objects=Kinds(group=group, kinds=(kind,)), pods=()) for group, kind in _WITHOUT_PODS}


# A `ClaimSource`: objects that pods name instead of asking themselves, and what stands in them

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

    def titled(self, section: Section, _: forms.Scope) -> ClaimExample:
        """The same with a name."""
        title = " ".join(f"{key}={value}" for key, value in self.resources.items())
        titled: ClaimExample = with_one_outcome(self, section, self.asks, "asks", title)
        return titled


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
        list_of(_READ, _EMPTY),
        "What resources of a claim mean. The first that fits is taken.",
    )
    names: Mapping[str, tuple[str, ...]] = optional(
        map_of(list_of(TEXT)), "Other spellings of resources, by the one under `reads`."
    )
    examples: Sequence[ClaimExample] = required(
        list_of(form(ClaimExample, _either("asks"), complete=ClaimExample.titled), _EMPTY),
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
            rule=self.rule,
            description=self.description,
            sharing=frozenset(),
            modes=self.reads,
            owns=frozenset(name for mode in self.reads for name in mode.amounts),
        )

    def aliased(self, section: Section, scope: forms.Scope) -> ClaimSourceSpec:
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

        return replace(self, aliases=Section(section.node, scope.problems).optional("names", aliases, {}))


_CLAIM_GROUPS: Final = {
    "claims": forms.Group("The objects that pods name, and the fields of a request.", required=True),
    "classes": forms.Group("The objects that say who provides for a claim."),
}
CLAIM_SOURCE: Final = form(ClaimSourceSpec, groups=_CLAIM_GROUPS, complete=ClaimSourceSpec.aliased)
