"""The `Cluster` document: which back ends there are, in what order, and what is exempt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from webhook.core.forms.document import Location, Node, Problem, Section, nearest
from webhook.core.forms.form import Group, document, form, found, need, place, take
from webhook.core.forms.inheritance import Parameters
from webhook.core.forms.shape import ANYTHING, FLAG, TEXT, Scope, Shape, each, either, many, some, word
from webhook.core.rules.catalog import Card


def _ranks(node: Node, _: Scope) -> Mapping[str, int]:
    """The rank of each name, in order of preference; those of an inner list are as good as each other."""
    if not node.elements():
        raise node.problem("needs at least one back end: a cluster without any would refuse every GPU")
    tiers = [each.texts() if isinstance(each.value, list) else [each.text()] for each in node.elements()]
    ranks: dict[str, int] = {}
    for rank, tier in enumerate(tiers):
        for name in tier:
            ranks.setdefault(name, rank)
    return ranks


_RANKS: Final = Shape(_ranks, {"type": "array", "items": either(TEXT, many(TEXT)), "minItems": 1}, {})
_PARAMETERS: Final = each(each(ANYTHING)).reading(lambda node, _: {key: dict(of.items()) for key, of in node.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one cluster has: its `backends` in order of preference, the defaults, the exempt namespaces.

    `tiers` is the rank of each back end: of those that share one, the first with nodes is preferred. `provisioners`
    are the back ends that serve claims of a class, by its provisioner. `without_policy` is what a namespace may do
    that no policy selects, None: everything, until there is a policy. `observe`: see `Tenancy.observing`.
    """

    name: str = found(document)
    at: Location = found(place)
    backends: tuple[str, ...] = ()
    tiers: Mapping[str, int] = need(
        _RANKS,
        "Names of back ends, the preferred ones first; one that is not listed serves nobody. Those of an inner"
        " list are as good as each other: the first that has nodes is taken.",
        ["nvidia-gpu", "hami-vgpu"],
        key="backends",
        default_factory=dict,
    )
    whole: str | None = take(TEXT, "For whole devices.", key="defaults.whole")
    part: str | None = take(TEXT, "For shares and sizes.", key="defaults.part")
    device: str | None = take(
        TEXT,
        "The model of the card, if all nodes have the same: shares become sizes without `gpu-model`.",
        "A100-80GB",
    )
    parameters: Mapping[str, Parameters] = take(
        _PARAMETERS,
        "By back end, values for the parameters that it declares.",
        {"nvidia-gpu": {"runtimeClassName": "nvidia"}},
    )
    unknown_value: Literal["warn", "refuse"] = take(
        word(("warn", "refuse")),
        'What `gpu: "true"` or another value that is no request means: `warn` (the default) leaves it alone.',
        default="warn",
    )
    unknown_devices: Literal["warn", "deny"] | None = take(
        word(("warn", "deny")),
        "What becomes of a pod with a resource that looks like a GPU and that no rule knows: it is admitted with a"
        " warning (`warn`), or refused (`deny`). If left out, it is refused where a quota would have to count it and"
        " where no GPU may be used.",
    )
    other_devices: tuple[str, ...] = take(
        many(TEXT),
        "Resources, as globs, that look like GPUs and are none, beside those that the back ends list.",
        ["acme.example/nic*", "acme.example/gpu-licence"],
    )
    system_namespaces: frozenset[str] = take(
        some(TEXT),
        "Namespaces of device plugins and their kin, whose pods are neither changed nor judged.",
        ["kube-system", "gpu-operator"],
    )
    provisioners: Mapping[str, str] = take(
        each(TEXT), "Which back end serves the claims of a class, by the provisioner that the class names."
    )
    without_policy: Literal["allow", "deny"] | None = take(
        word(("allow", "deny")),
        "What may ask for GPUs in a namespace that no TenantPolicy selects: everything (`allow`) or nothing"
        " (`deny`). If left out, everything until there is a policy.",
        key="namespacesWithoutPolicy",
    )
    observe: bool = take(
        FLAG, "`true`: pods are neither changed nor refused; users are warned of what would become of them."
    )

    def exempts(self, namespace: str) -> bool:
        """Whether it is a namespace of GPU infrastructure, whose pods are never changed or refused."""
        return namespace in self.system_namespaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a Cluster document can name: back ends, all rules that may have parameters, and cards."""

    backends: Collection[str]
    parametrised: Collection[str]
    devices: Mapping[str, Card]


def _ordered(cluster: Cluster, section: Section, scope: Scope) -> Cluster:
    if isinstance(scope.known, Names):
        _check_names(cluster, section, scope.known)
    return replace(cluster, backends=tuple(cluster.tiers))


def _check_names(cluster: Cluster, section: Section, names: Names) -> None:
    """Complain of every name in the document that is not defined, and of defaults that are not enabled."""
    again, problems = Section(section.node, []), section.problems
    for node in again.take("backends", Node.elements, []):
        for element in node.elements() if isinstance(node.value, list) else [node]:
            _check(element, names.backends, "no rule defines the back end", problems)
    for key in ("defaults", "provisioners"):
        for _, node in again.take(key, lambda n: list(n.items()), []):
            _check(node, cluster.tiers, "spec.backends does not enable", problems)
    device = again.take("device", lambda node: node, None)
    if device is not None and str(device.value).lower() not in names.devices:
        models = {known.model for known in names.devices.values()}
        message = f'no catalogue knows the model "{device.value}"{nearest(str(device.value), models)}'
        problems.append(Problem(device.at, device.path, message))
    for name, node in again.take("parameters", lambda n: list(n.items()), []):
        _check(Node(name, node.at, node.path), names.parametrised, "no rule defines the back end", problems)


def _check(node: Node, known: Collection[str], complaint: str, problems: list[Problem]) -> None:
    if isinstance(node.value, str) and node.value not in known:
        problems.append(Problem(node.at, node.path, f'{complaint} "{node.value}"{nearest(str(node.value), known)}'))


_DEFAULTS: Final = Group("Which back end is tried first.", ({"whole": "nvidia-gpu", "part": "hami-vgpu"},))
CLUSTER: Final = form(Cluster, groups={"defaults": _DEFAULTS}, after=_ordered)
