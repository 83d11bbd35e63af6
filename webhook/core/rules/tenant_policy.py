"""A `TenantPolicy`: whom it is for, what they may ask, and how much they may hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, TypeVar

from webhook.core import request
from webhook.core.forms import forms
from webhook.core.forms.document import Node, Problem, Section
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, whole, word
from webhook.core.forms.labels import ANNOTATION_KEYS, COMPARISON, KEYS, SELECTOR, VALUE, Expression
from webhook.core.kube import quantity
from webhook.core.kube.quantity import Fraction
from webhook.core.quota import tally
from webhook.core.quota.tally import Tally
from webhook.core.rules.catalog import BACKEND, FAMILY, PROFILE, SINGLE, VENDOR, enabled_by
from webhook.core.rules.cluster import ACCESS, FATE, Access, WithoutPolicy
from webhook.core.violations import ACTIONS, Action

T = TypeVar("T")

RULES: Final = ("container", "pod", "allowed", "forbidden", "quota")
"""The rules of a policy, each with an action of its own."""

LIFTED: Final = (*RULES, "deviceAccess")
"""What of a policy an exemption can lift."""

MAX_PRIORITY: Final = 1_000_000
_EMPTY: Final = "has to name something"
_GLOB = re.compile("[a-z0-9*?](?:[a-z0-9*?-]{0,61}[a-z0-9*?])?")
_NAMED: Final = forms.pattern(
    f"^{_GLOB.pattern}$", 'write the name of a namespace, or a pattern with * or ?, as "vision-*"'
)
_NOT_NAMED: Final = (
    'is no name of a namespace; write the name of one, or a pattern with * or ?, as vision-dev or "vision-*"'
)
GLOBS: Final = list_of(forms.fitting(_GLOB.fullmatch, _NOT_NAMED, _NAMED.schema), _EMPTY)
"""Names of namespaces, with `*` and `?`."""

_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def _number(node: Node, _: forms.Scope) -> Fraction:
    if isinstance(node.value, float):
        raise node.problem(f'has to be in quotes: "{node.value}"')
    text = str(node.value) if isinstance(node.value, int) and not isinstance(node.value, bool) else node.text()
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]):
        if node.key == "cores":
            raise node.problem(f'"{text}" has a sign too many; write {text[:-1]}, which is percent of one device')
        part = quantity.show(quantity.exact(text[:-1]) / 100)
        raise node.problem(f'"{text}" is no number of devices; write "{part}" for that part of one')
    if not _NUMBER.fullmatch(text):
        raise node.problem(f'"{text}" is no number that can be asked for; write 2, or "0.5" in quotes')
    return quantity.exact(text)


def _some(node: Node, scope: forms.Scope) -> int:
    _SIZE.read(node, scope)
    return node.parsed(request.memory)


def _lifted(node: Node, _: forms.Scope) -> str:
    if node.value in ("ceilings", "devices", "memory", "cores", "models"):
        raise node.problem(f'"{node.value}" is no rule; write container or pod for a ceiling, or quota')
    return node.word(LIFTED)


def _of_pods(value: forms.Shape[str], keys: forms.Shape[str]) -> forms.Shape[Mapping[str, str]]:
    """Labels or annotations, none of which asks for devices, in the shorthand or in words of a back end."""

    def harmless(node: Node, scope: forms.Scope) -> str:
        key = keys.read(node, scope)
        is_ours = re.search(request.LIKE_A_KEY, key) is not None
        if is_ours or key in scope.known.asking:
            hint = "what is meant where a pod does not say stands in defaults"
            raise node.problem(f'"{key}" asks for devices; {hint}', unknown=not is_ours)
        return key

    return map_of(value, forms.Shape(harmless, {**keys.schema, "not": {"pattern": request.LIKE_A_KEY}}))


_PART: Final = forms.pattern(f"^{_NUMBER.pattern}$", 'write 2, or "0.5" in quotes')
_AMOUNT: Final = forms.Shape(_number, forms.any_schema(whole(0, 999_999_999), _PART))
_ENABLED: Final = enabled_by("spec.backends of the Cluster document")
_SIZE: Final = forms.size(("Gi", "Mi"), "40Gi or 40960Mi")
_ACTION: Final[forms.Shape[Action]] = word(ACTIONS)
_OWN: Final = "What becomes of a pod that breaks this rule, if not what the policy says."
_SHARING: Final = word(request.SHARINGS)


def _listed(element: forms.Shape[T]) -> forms.Shape[frozenset[T]]:
    return forms.set_of(element, f"{_EMPTY}; leave it out to say nothing")


_FAMILIES: Final = _listed(FAMILY)
_MODELS: Final = _FAMILIES.reading(lambda node, scope: frozenset(chain(*_FAMILIES.read(node, scope))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """Which namespaces: those whose name matches one of the globs, and those with the labels of the selector."""

    names: tuple[str, ...] = optional(
        GLOBS, "Names, where * stands for any characters and ? for one.", ["vision-dev", "vision-*"]
    )
    selector: Sequence[Expression] | None = optional(
        SELECTOR, "Labels of the namespaces; all of it has to hold. `{}` selects all."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    devices: Fraction | None = optional(_AMOUNT, "How many devices; a share counts as a fraction.", 2, "0.5")
    memory: int | None = optional(_SIZE, "Memory of all the devices together, with its unit.", "40Gi")

    def amounts(self, _: Section, __: forms.Scope) -> Tally:
        """What may be held, by the key under which it is counted."""
        memory = None if self.memory is None else Fraction(self.memory)
        amounts = {tally.DEVICES: self.devices, tally.MEMORY: memory}
        return {key: amount for key, amount in amounts.items() if amount is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling(_Limits):
    """The most that one container, or one pod, may ask; None: anything. `memory` is in bytes."""

    cores: Fraction | None = optional(
        _AMOUNT, "Percent of a device's compute, of all devices together; 100 is all of one.", 100, 200
    )
    action: Action = optional(_ACTION, _OWN, key="enforcementAction", default="deny", unset=None)
    rule: str = derived(forms.line, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """A list of what may, or may not, be used, in each respect that it names (an empty set: says nothing)."""

    backends: frozenset[str] = optional(_listed(BACKEND), "Back ends, by name.", ["hami-vgpu"])
    vendors: frozenset[str] = optional(_listed(VENDOR), "Vendors, as catalogues name them.", ["nvidia"])
    models: frozenset[str] = optional(
        _MODELS, "Card models; the name of a family, as A100, stands for all of it.", ["A100-80GB"]
    )
    sharing: frozenset[str] = optional(_listed(_SHARING), "Ways of sharing a device.", ["fractional"])
    profiles: frozenset[str] = optional(_listed(PROFILE), "Partitions, by name.", ["1g.10gb"])
    action: Action = optional(_ACTION, _OWN, key="enforcementAction", default="deny", unset=None)
    rule: str = derived(forms.line, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What is meant where a pod does not say; `memory` is that of a bare `gpu: 1`."""

    backend: str | None = optional(
        BACKEND.reading(lambda node, scope: BACKEND.read(node, scope) and _ENABLED.read(node, scope)),
        "The back end that serves them.",
        "hami-vgpu",
    )
    model: str | None = optional(SINGLE, "The card model.", "A100-80GB")
    sharing: str | None = optional(_SHARING, "The way of sharing a device.")
    memory: int | None = optional(_SIZE.reading(_some), "The memory of a bare `gpu: 1`.", "8Gi")
    rule: str = derived(forms.line, default="")


def _models(node: Node, scope: forms.Scope) -> Tally:
    """What may be held of each card model, by the key under which it is counted."""
    if not dict(node.items()):
        raise node.problem("has to name a model; leave it out to limit none")
    held: dict[str, Fraction] = {}
    spelled: dict[str, str] = {}
    for name, amounts in _OF_MODELS.read(node, scope).items():
        at = Node(name, node.keys.get(name, node.at), node.path)
        model = scope.try_read(partial(SINGLE.read, at, scope), "")
        if model and spelled.setdefault(model, name) != name:
            message = f'"{name}" and "{spelled[model]}" are the same model, {model}'
            scope.problems.append(Problem(at.at, at.path, message))
        held |= {tally.key(what, model): amount for what, amount in amounts.items()}
    return held


_AMOUNTS: Final[forms.Form[Any]] = form(_Limits, forms.any_of("devices", "memory"), complete=_Limits.amounts)
_OF_MODELS: Final = map_of(_AMOUNTS, minProperties=1, propertyNames=SINGLE.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hard(_Limits):
    models: Tally = optional(
        _OF_MODELS.reading(_models),
        "The same of each of some card models.",
        {"A100-80GB": {"devices": 4, "memory": "320Gi"}},
    )


_HARD: Final[forms.Form[Any]] = form(_Hard, complete=lambda hard, *at: {**hard.amounts(*at), **hard.models})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What all live pods of the tenant may hold together."""

    hard: Tally = forms.embedded(_HARD)
    action: Action = optional(_ACTION, _OWN, key="enforcementAction", default="deny", unset=None)
    rule: str = derived(forms.line, default="")


_CEILING: Final = form(Ceiling, forms.any_of("devices", "memory", "cores"))
_KINDS: Final = form(Kinds, forms.any_of("backends", "vendors", "models", "sharing", "profiles"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicy:
    """What one tenant may do. Its name is the tenant's. `broken`: why it cannot be used; no pod gets a GPU then.

    `affinity` is as in a nodeSelectorTerm. `action` is what becomes of a pod that contradicts it, or has other
    labels or annotations; rules have their own. With `dryrun` nothing is put on any pod, and no default holds.
    """

    name: str = derived(forms.document)
    rule: str = derived(forms.line)
    broken: str = ""
    priority: int = optional(
        whole(-MAX_PRIORITY, MAX_PRIORITY),
        "Of several policies that select a namespace the one with the highest priority holds; where two are as"
        " high, no GPU pod is admitted there. 0 if left out.",
        default=0,
    )
    action: Action = optional(
        _ACTION,
        "What becomes of a pod that breaks a rule: it is refused (`deny`, the default), admitted with a warning"
        " to its user (`warn`), or only logged and counted (`dryrun`).",
        key="enforcementAction",
        default="deny",
    )
    namespaces: Namespaces = required(
        form(Namespaces, forms.any_of("names", "selector"), fallback=Namespaces()),
        "Which namespaces the tenant has, by name, by label, or by either.",
    )
    container: Ceiling | None = optional(_CEILING, "Of each container.", key="ceilings.container")
    pod: Ceiling | None = optional(_CEILING, "Of all containers together.", key="ceilings.pod")
    allowed: Kinds | None = optional(
        _KINDS, "What may be used; a list that is not there allows all.", {"models": ["A100-80GB"]}
    )
    forbidden: Kinds | None = optional(
        _KINDS, "What may not be used, even if it is allowed.", {"sharing": ["time-sliced"]}
    )
    defaults: Defaults = optional(
        form(Defaults, forms.any_of("backend", "model", "sharing", "memory")),
        "What is meant where a pod does not say.",
        {"backend": "hami-vgpu"},
        default=Defaults(),
    )
    affinity: Sequence[Mapping[str, Any]] = optional(
        list_of(COMPARISON),
        "Labels of the nodes that the tenant's GPU pods may run on; all of it has to hold.",
        [{"key": "pool", "operator": "In", "values": ["vision"]}],
    )
    labels: Mapping[str, str] = optional(
        _of_pods(VALUE, KEYS),
        "Labels that the tenant's GPU pods get.",
        {"scheduler.example/queue": "vision"},
    )
    annotations: Mapping[str, str] = optional(
        _of_pods(TEXT, ANNOTATION_KEYS),
        "Annotations that the tenant's GPU pods get.",
        {"scheduler.example/queue-name": "vision"},
    )
    unknown_devices: Literal["warn", "deny"] | None = optional(
        word(("warn", "deny")),
        "What becomes of a pod with a resource that looks like a GPU and that no rule knows, or, under a quota, with"
        " a resource claim: it is admitted with a warning (`warn`), or refused (`deny`). If left out, what the"
        " Cluster document says, and else what becomes of a pod that is over the quota.",
    )
    device_access: Access | None = optional(
        word(ACCESS),
        f"{FATE} If left out, what the Cluster document says, and else what becomes of a pod that is over the quota.",
    )
    max_termination_grace_period_seconds: int = optional(
        whole(1, 999_999_999),
        "Under a quota, the longest terminationGracePeriodSeconds of a GPU pod. So long may a pod run uncounted after"
        " Kubernetes or an operator has deleted it by force. 3600 if left out.",
        600,
        default=3600,
    )
    quota: Quota | None = optional(
        form(Quota, forms.any_of("devices", "memory", "models")),
        "The most that all live pods of the tenant may hold together.",
        {"devices": 16, "memory": "640Gi"},
    )

    def with_action(self, _: Section, __: forms.Scope) -> TenantPolicy:
        """The same, whose rules do what it does where they do not say."""
        rules = {name: getattr(self, name) for name in RULES}
        own = {name: rule and replace(rule, action=rule.action or self.action) for name, rule in rules.items()}
        return replace(self, **own)


_CEILINGS: Final = forms.Group(
    "The most that one container, and one pod, may ask.",
    ({"container": {"devices": 2, "memory": "40Gi"}},),
    (forms.any_of("container", "pod"),),
)
TENANT_POLICY: Final = form(TenantPolicy, groups={"ceilings": _CEILINGS}, complete=TenantPolicy.with_action)


TIME: Final[forms.Shape[float]] = forms.pattern(
    f"^{quantity.TIME_FORM}$",
    "write day, time and zone, as 2027-01-31T00:00:00Z",
    lambda node: node.parsed(quantity.parse_time),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """Who is spared some rules of policies until a time: `expires`, in seconds since 1970 (UTC)."""

    name: str = derived(forms.document)
    rule: str = derived(forms.line)
    namespaces: tuple[str, ...] = required(
        GLOBS, "Names, where * stands for any characters and ? for one.", ["vision-dev"]
    )
    users: tuple[str, ...] = optional(
        list_of(FILLED, _EMPTY),
        "Names of users, where * stands for any characters; if left out, everybody who may create pods there.",
        ["system:serviceaccount:ci:*"],
    )
    lifts: frozenset[str] = required(
        forms.set_of(word(LIFTED).reading(_lifted), _EMPTY),
        "Which rules are lifted. Where several exemptions hold for a pod, only what all of them lift.",
        ["quota"],
    )
    owner: str = required(FILLED, "Whom to ask about it.", "ml-platform@example.com")
    reason: str = required(FILLED, "Why it is there.", "the yearly retraining")
    expires: float = required(TIME, "Until when it holds, with the zone.", "2027-01-31T00:00:00Z")

    def covers(self, namespace: str) -> bool:
        """Whether it is for pods of a namespace."""
        return any(fnmatchcase(namespace, glob) for glob in self.namespaces)

    def holds(self, namespace: str, user: str, at: float) -> bool:
        """Whether it is for a pod that a user creates in a namespace at a time."""
        of_user = not self.users or any(fnmatchcase(user, glob) for glob in self.users)
        return of_user and self.covers(namespace) and at < self.expires


EXEMPTION: Final = form(Exemption)


UNREADABLE: Final = "the policies of this cluster cannot be read now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """All policies and exemptions, and what is known of namespaces.

    `labels` are those of each namespace, `handlers` that of each RuntimeClass; `without_policy`: what a namespace has
    that no policy selects, a word or `{"default": NAME}`; None: anything as long as there is no policy at all.
    `watched`: every namespace of the cluster is in `labels`; a namespace that is missing was created a moment ago.
    `observing`: nothing is changed or refused, and users are told what would be. `unknown`: why none of this can be
    relied on now, if so; clients that ask for a GPU are told to retry.
    """

    policies: Sequence[TenantPolicy] = ()
    exemptions: Sequence[Exemption] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    handlers: Mapping[str, str] = field(default_factory=dict)
    without_policy: WithoutPolicy = None
    observing: bool = False
    unknown: str = ""
    watched: bool = False
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What `membership` has found out, for as long as this is in force."""

    @property
    def closed(self) -> bool:
        """Whether a namespace that no policy selects may not use GPUs."""
        return bool(self.policies) if self.without_policy is None else self.without_policy != "open"

    @property
    def default(self) -> TenantPolicy | None:
        """The policy that holds where none selects the namespace; None if there is none of its name."""
        name = self.without_policy["default"] if isinstance(self.without_policy, Mapping) else None
        return next((policy for policy in self.policies if policy.name == name), None)

    @property
    def silent(self) -> bool:
        """Whether all of this has nothing to say about any pod."""
        return not (self.policies or self.unknown or self.without_policy not in (None, "open"))
