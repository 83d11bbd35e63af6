"""The `Cluster` document: which back ends there are, in what order, and what is exempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Problem, Section
from webhook.core.forms.forms import FLAG, TEXT, derived, form, list_of, map_of, optional, required, word
from webhook.core.forms.inheritance import Parameters
from webhook.core.rules.catalog import BACKEND, MODEL, PARAMETRISED, enabled_by
from webhook.core.rules.protection import ACCESS, FATE, Access


def _ranks(node: Node, scope: forms.Scope) -> Mapping[str, int]:
    """The rank of each name, in order of preference; those of an inner list are as good as each other."""
    ranks: dict[str, int] = {}
    for rank, tier in enumerate(node.elements()):
        for name in tier.elements() if isinstance(tier.value, list) else [tier]:
            if BACKEND.read_or_report(name, scope) in ranks:
                scope.problems.append(Problem(name.at, name.path, f'"{name.text()}" stands here a second time'))
            ranks.setdefault(name.text(), rank)
    return ranks


def _parameters(node: Node, scope: forms.Scope) -> Mapping[str, Parameters]:
    for name, values in node.items():
        PARAMETRISED.read_or_report(replace(values, value=name), scope)
    return {name: dict(values.items()) for name, values in node.items()}


_RANKS: Final = forms.Shape(_ranks, {"type": "array", "items": forms.any_schema(TEXT, list_of(TEXT))}, {})
_PARAMETERS: Final = map_of(map_of(forms.ANYTHING)).reading(_parameters)
_DEVICE: Final = TEXT.reading(lambda node, scope: str(MODEL.read(node, scope) and node.value))
_DEFAULT: Final = enabled_by("spec.backends")

KUBERNETES: Final = "kube-system"
OWN: Final = "gpu-webhook-system"
"""The namespaces of Kubernetes, and of the webhook unless it is installed elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one cluster has: its `backends` in order of preference, the defaults, the exempt namespaces.

    `tiers` is the rank of each back end: of those that share one, the first with nodes is preferred. `provisioners`
    are the back ends that serve claims of a class, by its provisioner. `without_policy` is what a namespace may do
    that no policy selects, None: everything, until there is a policy. `observe`: see `Tenancy.observing`.
    """

    name: str = derived(forms.document)
    at: Location = derived(forms.place)
    exempt_at: Location = derived(lambda spec, _: spec.keys.get("systemNamespaces", spec.at), default=Location("", 0))
    backends: tuple[str, ...] = ()
    tiers: Mapping[str, int] = required(
        _RANKS,
        "Names of back ends, the preferred ones first. A back end that is not listed serves no pod. Of an inner"
        " list the first one that has nodes is taken. `[]` is a cluster without GPUs.",
        ["nvidia-gpu", "hami-vgpu"],
        key="backends",
        default_factory=dict,
    )
    whole: str | None = optional(TEXT, "For whole devices.", key="defaults.whole")
    part: str | None = optional(TEXT, "For shares and sizes.", key="defaults.part")
    device: str | None = optional(
        _DEVICE,
        "The model of the card, if all nodes have the same: shares become sizes without `gpu-model`.",
        "A100-80GB",
    )
    parameters: Mapping[str, Parameters] = optional(
        _PARAMETERS,
        "By back end, values for the parameters that it declares.",
        {"nvidia-gpu": {"runtimeClassName": "nvidia"}},
    )
    unknown_value: Literal["warn", "refuse"] = optional(
        word(("warn", "refuse")),
        'What `gpu: "true"` or another value that is no request means: `warn` (the default) leaves it alone.',
        default="warn",
    )
    unknown_devices: Literal["warn", "deny"] | None = optional(
        word(("warn", "deny")),
        "What becomes of a pod with a resource that looks like a GPU and that no rule knows: it is admitted with"
        " a warning (`warn`), or refused (`deny`). If left out, it is refused in namespaces that have a quota,"
        " and in those that may not use GPUs.",
    )
    device_access: Access | None = optional(word(ACCESS), f"{FATE} If left out, what policies say.")
    other_devices: tuple[str, ...] = optional(
        list_of(TEXT),
        "Resources, as globs, that look like GPUs and are none. Each back end lists those of its vendor. Also"
        " templates of resource claims without GPUs, which no quota counts then.",
        ["acme.example/nic*", "acme.example/gpu-licence"],
        ["resourceclaimtemplates/channel-*"],
    )
    system_namespaces: frozenset[str] = optional(
        forms.set_of(TEXT),
        "Namespaces of device plugins and the like. Their pods are neither changed nor judged.",
        [KUBERNETES, "gpu-operator"],
    )
    provisioners: Mapping[str, str] = optional(
        map_of(TEXT),
        "Which back end serves the claims of a class, by the provisioner that the class names.",
    )
    without_policy: Literal["allow", "deny"] | None = optional(
        word(("allow", "deny")),
        "What may ask for GPUs in a namespace that no TenantPolicy selects: everything (`allow`) or nothing"
        " (`deny`). If left out, everything until there is a policy.",
        key="namespacesWithoutPolicy",
    )
    observe: bool = optional(
        FLAG, "`true`: pods are neither changed nor refused. Users get warnings that tell what would happen."
    )

    def exempts(self, namespace: str) -> bool:
        """Whether it is a namespace of GPU infrastructure, whose pods are never changed or refused."""
        return namespace in self.system_namespaces

    def unlisted(self, *namespaces: str, fix: str = "add it") -> Iterator[Problem]:
        """A problem for each of these namespaces, which have to be exempt, that the document does not list."""
        for name in namespaces:
            if not self.exempts(name):
                what = "the cluster" if name == KUBERNETES else "this webhook"
                text = f"has no {name}: while no replica answers reviews, {what} could not start; {fix}"
                yield Problem(self.exempt_at, "spec.systemNamespaces", text)


def _ordered(cluster: Cluster, section: Section, scope: forms.Scope) -> Cluster:
    enabled = replace(scope, known=replace(scope.known, enabled=cluster.tiers.keys()))
    for key in ("defaults", "provisioners"):
        for _, node in Section(section.node, []).optional(key, lambda node: list(node.items()), []):
            _DEFAULT.read_or_report(node, enabled)
    return replace(cluster, backends=tuple(cluster.tiers))


_DEFAULTS: Final = forms.Group("Which back end is tried first.", ({"whole": "nvidia-gpu", "part": "hami-vgpu"},))
CLUSTER: Final = form(Cluster, groups={"defaults": _DEFAULTS}, complete=_ordered)
