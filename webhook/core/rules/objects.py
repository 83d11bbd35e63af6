"""A `Workload`: where objects of a kind keep the templates of their pods, and how many pods each template makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.core.forms import forms
from webhook.core.forms.document import API_VERSION, Location, Node, Section
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, whole
from webhook.core.kube.fields import Path

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
_ALTERNATIVES: Final = forms.one_or_more(PATH, forms.EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """Which elements of a list a number is of: those that list the name of the pods."""

    names: Path = required(PATH, "The field of an element with the names.", "memberNames")
    name: Path = required(PATH, "The field with the name of the pods.", "spec.groups[].name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A number of an object: the first of the fields that is there, else `absent`; `over` another, `less` so many."""

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
    """Where an object keeps the pods of one kind, whole (`template`) or in parts (`spec` and the fields after it)."""

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
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExample:
    """What an object has to make: pods by the field path of their template, or a part of why it cannot be read.

    `limits` are those of all containers of a pod together.
    """

    name: str = optional(TEXT, "What messages call it.", default="an object")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Kinds of objects in one API group, in versions that are alike; in every version, if none is named."""

    group: str = required(FILLED, "Their API group.", "acme.example")
    kinds: tuple[str, ...] = required(
        list_of(FILLED, forms.EMPTY),
        "The kinds. `*` is every other kind of the group, for kinds without pods.",
        ["Training"],
    )
    versions: tuple[str, ...] = optional(list_of(FILLED), "The versions with these fields. If left out, all.", ["v1"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Kinds of objects, and the pods that they hold: none, if there are no `pods`."""

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
        list_of(form(PodPlace, forms.either("spec", "template"), complete=PodPlace.checked)),
        "Where their pods are. `[]`: they hold none.",
    )
    examples: Sequence[WorkloadExample] = optional(
        list_of(form(WorkloadExample, forms.either("pods", "refused"))), "Executed whenever the rules are loaded."
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


def _built_in(group: str, kind: str, *pods: PodPlace, controller: str = "") -> Workload:
    user = f"system:serviceaccount:kube-system:{controller}-controller" if controller else ""
    return Workload(objects=Kinds(group=group, kinds=(kind,)), created_by=user, pods=pods)


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

BUILT_IN: Final[Workloads] = {
    (workload.objects.group, workload.objects.kinds[0]): workload
    for workload in (
        _built_in("", "Pod", PodPlace(template=((),))),
        _built_in("", "PodTemplate", PodPlace(template=(steps("template"),))),
        _built_in("", "ReplicationController", _REPLICATED, controller="replication"),
        _built_in("apps", "Deployment", _REPLICATED, controller="replicaset"),
        _built_in("apps", "StatefulSet", _REPLICATED, controller="statefulset"),
        _built_in("apps", "DaemonSet", _ON_EACH_NODE, controller="daemon-set"),
        _built_in("apps", "ReplicaSet", _REPLICATED, controller="replicaset"),
        _built_in("batch", "Job", _job("spec"), controller="job"),
        _built_in("batch", "CronJob", _job("spec.jobTemplate.spec"), controller="job"),
        *(_built_in("", kind) for kind in _CORE),
        _built_in("apps", "ControllerRevision"),
        *(_built_in(group, ANY) for group in _GROUPS),
    )
}
