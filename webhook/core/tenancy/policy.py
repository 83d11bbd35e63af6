"""Tenant policies and exemptions as frozen values, whoever read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

from webhook.core.tenancy.tally import Tally

Action = Literal["deny", "warn", "dryrun"]
ACTIONS: Final = ("deny", "warn", "dryrun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One line of a label selector: `In`, `NotIn`, `Exists` or `DoesNotExist`."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespaces:
    """Which namespaces: those whose name matches one of the globs, and those with the labels of the selector."""

    names: tuple[str, ...] = ()
    selector: Sequence[Expression] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that one container, or one pod, may ask; None: anything.

    `devices` counts shares as fractions, `memory` is bytes of all its devices together, `cores` percent of a device
    (100 is all of one), of all together. `rule` is `name (file:line)` of the lines that say so.
    """

    devices: Fraction | None = None
    memory: int | None = None
    cores: Fraction | None = None
    action: Action = "deny"
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """A list of what may, or may not, be used, in each respect that it names (an empty set: says nothing)."""

    backends: frozenset[str] = frozenset()
    vendors: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    sharing: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    action: Action = "deny"
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What is meant where a pod does not say; `memory` is that of a bare `gpu: 1`."""

    backend: str | None = None
    model: str | None = None
    sharing: str | None = None
    memory: int | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What all live pods of the tenant may hold together."""

    hard: Tally
    action: Action = "deny"
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPolicy:
    """What one tenant may do. Its name is the tenant's. `broken`: why it cannot be used, and nobody gets a GPU.

    `affinity` are the match expressions (as in a nodeSelectorTerm) that all of its GPU pods are confined by; `labels`
    and `annotations` are put on them. `action` is what becomes of a pod that contradicts these; the rules have their
    own. With `dryrun` nothing is put on any pod, and no default holds.
    """

    name: str
    rule: str
    namespaces: Namespaces
    priority: int = 0
    action: Action = "deny"
    container: Ceiling | None = None
    pod: Ceiling | None = None
    allowed: Kinds | None = None
    forbidden: Kinds | None = None
    defaults: Defaults = field(default_factory=Defaults)
    affinity: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    quota: Quota | None = None
    broken: str = ""


RULES: Final = ("container", "pod", "allowed", "forbidden", "quota")
"""The rules of a policy that an exemption can lift."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """Who is spared some rules of policies until a time.

    namespaces  globs; users: globs of user names, empty for everybody who may create pods there
    lifts       which of RULES; of several exemptions that hold for one pod, only what all of them lift is lifted
    expires     seconds since 1970 (UTC)
    """

    name: str
    rule: str
    namespaces: tuple[str, ...]
    users: tuple[str, ...] = ()
    lifts: frozenset[str]
    owner: str
    reason: str
    expires: float


UNREADABLE: Final = "the policies of this cluster cannot be read now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """All policies and exemptions, and what is known of namespaces.

    `labels` are those of each namespace; `without_policy`: what a namespace may do that no policy selects; None:
    anything as long as there is no policy at all.
    `watched`: every namespace of the cluster is in `labels`; who is not was made a moment ago.
    `observing`: nothing is changed or refused, and users are told what would be. `unknown`: why none of this can be
    relied on now, if so; who asks for a GPU has to come again.
    """

    policies: Sequence[TenantPolicy] = ()
    exemptions: Sequence[Exemption] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    without_policy: Literal["allow", "deny"] | None = None
    observing: bool = False
    unknown: str = ""
    watched: bool = False
    memory: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What `membership` has found out, for as long as this is in force."""

    @property
    def closed(self) -> bool:
        """Whether a namespace that no policy selects may not use GPUs."""
        return bool(self.policies) if self.without_policy is None else self.without_policy == "deny"

    @property
    def silent(self) -> bool:
        """Whether all of this has nothing to say about any pod."""
        return not (self.policies or self.unknown or self.without_policy == "deny")
