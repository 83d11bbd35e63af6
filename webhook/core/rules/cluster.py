"""What holds in one cluster: the `Cluster` document, and `Protection`s.

A `Cluster` says which back ends there are, in what order, and what is exempt. A `Protection` says what of a pod gives
devices that it does not ask for, or lifts a limit on those that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node, Parameters, Problem, Section
from webhook.core.forms.forms import FILLED, FLAG, TEXT, derived, form, list_of, map_of, optional, required, word
from webhook.core.rules.catalog import BACKEND, MODEL, PARAMETRISED, VENDOR, enabled_by
from webhook.core.rules.modes import USERS

Access = Literal["warn", "deny", "remove"]
"""What becomes of a pod that would get by a protected name what it does not ask for."""

ACCESS: Final[tuple[Access, ...]] = get_args(Access)
ANY: Final = "*"
FATE: Final = (
    "What becomes of a pod that would reach devices which it does not ask for, as a Protection says: it is admitted"
    " with a warning (`warn`), refused (`deny`), or loses the variable, label or annotation and is refused for"
    " anything else (`remove`)."
)


def matches(glob: str, text: str) -> bool:
    """Whether a text is what the glob says; one that ends in `*` says how the text begins."""
    return text.startswith(glob[:-1]) if glob.endswith(ANY) else text == glob


def _glob(node: Node, _: forms.Scope) -> str:
    if ANY in node.text()[:-1]:
        raise node.problem("may have * at its end only")
    return node.text()


_VALUES: Final = list_of(forms.Shape(_glob, {"type": "string", "pattern": r"^[^*]*\*?$"}, ""))
_NAME: Final = forms.Shape(lambda node, _: node.filled() and _glob(node, _), {"pattern": r"^[^*]+\*?$"}, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """One name, or all that begin as it says, and the values with which it gives nothing.

    A value that is taken from elsewhere is compared as `fieldRef PATH`, `configMapKeyRef NAME` and the like.
    """

    name: str = derived(forms.key)
    rule: str = derived(forms.line)
    at: Location = derived(forms.place)
    gives: str = required(
        FILLED, "What a pod gets by it. Messages name the field of the pod before it.", "gives any card"
    )
    harmless: tuple[str, ...] = optional(
        _VALUES,
        "Values with which it gives nothing. A `*` at the end is any text. If a policy says `remove`, the first"
        " one replaces the value of a container without a GPU.",
        ["void", "none"],
    )
    backends: Mapping[str, tuple[str, ...]] = optional(
        map_of(_VALUES, BACKEND),
        "Values that a container may have if this back end serves it.",
        {"acme": ["configMapKeyRef *"]},
    )

    def allows(self, value: str, backends: Iterable[str]) -> bool:
        """Whether it gives nothing with a value, in a pod or a container that these back ends serve."""
        globs = [*self.harmless, *(glob for backend in backends for glob in self.backends.get(backend, ()))]
        return any(matches(glob, value) for glob in globs)


_BY_NAME: Final = map_of(form(Protected), _NAME)
Entries = Mapping[str, Protected]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What of a pod gives devices, of one vendor or of all, or lifts limits."""

    name: str = derived(forms.document)
    description: str = optional(TEXT, "One line for people.", default="")
    source: str = optional(FILLED, "Where it is described.", default="")
    vendors: tuple[str, ...] = optional(
        list_of(VENDOR), "Whose runtime reads the variables, as catalogues name vendors.", ["nvidia"]
    )
    env: Entries = optional(
        _BY_NAME,
        "Environment variables of containers. A `*` at the end of a name is any text.",
        {"ACME_VISIBLE_DEVICES": {"gives": "gives any card of the node", "harmless": ["none"]}},
    )
    annotations: Entries = optional(_BY_NAME, "Annotations of pods.")
    labels: Entries = optional(_BY_NAME, "Labels of pods.")
    resources: Entries = optional(
        _BY_NAME,
        "Extended resources of containers that are no GPUs to count, as those of a device plugin for its monitors.",
    )
    runtime_classes: Entries = optional(
        _BY_NAME, "Runtime classes, or handlers, that a pod without a GPU may not name."
    )
    mount_paths: Entries = optional(_BY_NAME, "Paths at which, and below which, a container may mount nothing.")
    host_paths: Entries = optional(
        _BY_NAME, "Paths of a node that no volume may have, with the paths below them and their parent directories."
    )
    capabilities: Entries = optional(
        _BY_NAME,
        "Capabilities that no container may add, without `CAP_`; a value is the pod's `hostPID: true` or `false`.",
    )
    flags: Entries = optional(
        map_of(form(Protected), word(("privileged", "hostProcess", "hostPID", "procMount"))),
        "Settings that may not be `true`: `privileged`, `hostProcess`, and in a pod with a runtime class `hostPID`;"
        " and `procMount`, which may not be `Unmasked`.",
    )

    def protected(self) -> Iterator[tuple[str, Protected]]:
        """Every entry with the name of its section."""
        yield from ((section, protected) for section in SECTIONS for protected in getattr(self, section).values())


PROTECTION: Final = form(Protection)

SECTIONS: Final = tuple(
    field.name for field in fields(Protection) if field.name not in {"name", "description", "source", "vendors"}
)
"""The fields with protected names."""


class ProtectedNames:
    """The protected names of one section, of all Protections: which entry a name, or a path, falls under."""

    def __init__(self, entries: Mapping[str, Protected]) -> None:
        self.exact: Final = {name: protected for name, protected in entries.items() if not name.endswith(ANY)}
        self.heads: Final = [protected for name, protected in entries.items() if name.endswith(ANY)]
        self.beginnings: Final = tuple(protected.name[:-1] for protected in self.heads)
        self._starts: Final = (*self.exact, *self.beginnings)
        self._depth: Final = max((name.count("/") for name in entries), default=0)
        self._inside: Final[dict[str, list[Protected]]] = {}
        for name, protected in entries.items():
            for parent in parents(name):
                self._inside.setdefault(parent, []).append(protected)

    @property
    def every(self) -> list[str]:
        """All names, as Protections have them."""
        return [*self.exact, *(protected.name for protected in self.heads)]

    def find(self, name: str) -> Protected | None:
        """The entry for a name, or None."""
        if name in self.exact:
            return self.exact[name]
        if not name.startswith(self.beginnings):
            return None
        return next(protected for protected in self.heads if matches(protected.name, name))

    def may_hold(self, path: str) -> bool:
        """Whether a path, in any spelling, may be one of the names, or below one. It is quick; its no is sure."""
        odd = "//" in path or "/." in path or not path.startswith("/")
        return path.startswith(self._starts) or (odd and bool(self._starts))

    def below(self, path: str) -> Iterator[Protected]:
        """The entries for a path that it is, or is below."""
        steps = path.split("/", self._depth + 1)[: self._depth + 1]
        upward = ("/".join(steps[:count]) for count in range(len(steps), 1, -1))
        yield from (self.exact[path] for path in upward if path in self.exact)
        if path.startswith(self.beginnings):
            yield from (protected for protected in self.heads if matches(protected.name, path))

    def at_path(self, path: str) -> Iterator[Protected]:
        """The same, and those that are below the path."""
        yield from self.below(path)
        yield from self._inside.get(path, ())


def protected_names(
    protections: Sequence[Protection], handlers: Mapping[str, str] = {}
) -> Mapping[str, ProtectedNames]:
    """The protected names by section; no two Protections have the same. `handlers` are those of RuntimeClasses."""
    names: dict[str, dict[str, Protected]] = {section: {} for section in SECTIONS}
    for protection in protections:
        for section in SECTIONS:
            names[section] |= getattr(protection, section)
    classes = ProtectedNames(names["runtime_classes"])
    handled = {name: classes.find(name) or classes.find(handler) for name, handler in handlers.items()}
    names["runtime_classes"] |= {name: protected for name, protected in handled.items() if protected}
    return {section: ProtectedNames(entries) for section, entries in names.items()}


def parents(path: str) -> list[str]:
    """The folders that an absolute path is in."""
    steps = path.split("/")
    return ["/".join(steps[:count]) or "/" for count in range(len(steps) - 1, 0, -1)]


# The `Cluster` document


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


WithoutPolicy = Literal["open", "no-devices"] | Mapping[str, str] | None
_WORD: Final = word(("open", "no-devices"))
_NAMED: Final = {"default": required(FILLED, "The TenantPolicy that holds there.", "everybody")}
_DEFAULT: Final[forms.Shape[Mapping[str, str]]] = forms.mapping(_NAMED)
_WITHOUT_POLICY: Final[forms.Shape[Any]] = forms.Shape(
    lambda node, scope: (_DEFAULT if isinstance(node.value, dict) else _WORD).read(node, scope),
    forms.any_schema(_WORD, _DEFAULT),
)

KUBERNETES: Final = "kube-system"
OWN: Final = "gpu-webhook-system"
"""The namespaces of Kubernetes, and of the webhook unless it is installed elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one cluster has: its `backends` in order of preference, the defaults, the exempt namespaces.

    `tiers` is the rank of each back end: of those that share one, the first with nodes is preferred. `provisioners`
    are the back ends that serve claims of a class, by its provisioner. `without_policy` and `observe`: see `Tenancy`.
    """

    name: str = derived(forms.document)
    at: Location = derived(forms.place)
    exempt_at: Location = derived(lambda spec, _: spec.keys.get("systemNamespaces", spec.at), default=Location("", 0))
    backends: tuple[str, ...] = ()
    tiers: Mapping[str, int] = required(
        forms.Shape(_ranks, list_of(forms.one_or_more(BACKEND)).schema, {}),
        "Names of back ends, the preferred ones first. A back end that is not listed serves no pod. Of an inner"
        " list the first one that has nodes is taken. `[]` is a cluster without GPUs.",
        ["nvidia-gpu", "hami-vgpu"],
        key="backends",
        default_factory=dict,
    )
    whole: str | None = optional(BACKEND.reading(TEXT.read), "For whole devices.", key="defaults.whole")
    part: str | None = optional(BACKEND.reading(TEXT.read), "For shares and sizes.", key="defaults.part")
    device: str | None = optional(
        MODEL.reading(lambda node, scope: str(MODEL.read(node, scope) and node.value)),
        "The model of the card, if all nodes have the same: shares become sizes without `gpu-model`.",
        "A100-80GB",
    )
    parameters: Mapping[str, Parameters] = optional(
        map_of(map_of(forms.ANYTHING)).reading(_parameters),
        "By back end, values for the parameters that it declares.",
        {"nvidia-gpu": {"runtimeClassName": "nvidia"}},
    )
    unknown_value: Literal["warn", "refuse"] = optional(
        word(("warn", "refuse")),
        'What `gpu: "true"` or another value that is no request means: `warn` (the default) leaves it alone. Under a'
        " TenantPolicy a pod is refused that asks for nothing else.",
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
        "Resources, as globs, that look like GPUs and are none. Each back end lists those of its vendor. Claims of"
        " device classes, which are listed by their names as resources, are then admitted, and no quota counts them.",
        ["acme.example/nic*", "acme.example/gpu-licence"],
        ["deviceclass.resource.kubernetes.io/channel-*"],
    )
    system_namespaces: frozenset[str] = optional(
        forms.set_of(TEXT),
        "Namespaces of device plugins and the like. Their pods are neither changed nor judged.",
        [KUBERNETES, "gpu-operator"],
    )
    platform_accounts: tuple[str, ...] = optional(
        list_of(USERS),
        "Users, as globs, that may write into pods what gives devices: GPU schedulers and device plugins. Kubernetes,"
        " service accounts of `systemNamespaces` and the `writers` of enabled back ends may anyway.",
        ["system:serviceaccount:hami-system:*"],
    )
    provisioners: Mapping[str, str] = optional(
        map_of(TEXT),
        "Which back end serves the claims of a class, by the provisioner that the class names.",
    )
    without_policy: WithoutPolicy = optional(
        _WITHOUT_POLICY,
        "What a namespace gets that no TenantPolicy selects: whatever it asks for (`open`), no GPU (`no-devices`), or"
        " what the policy of this name allows all of them together. If left out, `open` until there is a policy.",
        {"default": "everybody"},
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

    def ordered(self, section: Section, scope: forms.Scope) -> Cluster:
        """The same with its back ends in order, of which its defaults and provisioners have to be."""
        default = enabled_by("spec.backends")
        enabled = replace(scope, known=replace(scope.known, enabled=self.tiers.keys()))
        for key in ("defaults", "provisioners"):
            holder = section.entries.get(key)
            for _, node in holder.items() if holder and isinstance(holder.value, dict) else ():
                default.read_or_report(node, enabled)
        return replace(self, backends=tuple(self.tiers))


_DEFAULTS: Final = forms.Group("Which back end is tried first.", ({"whole": "nvidia-gpu", "part": "hami-vgpu"},))
CLUSTER: Final = form(Cluster, groups={"defaults": _DEFAULTS}, complete=Cluster.ordered)
