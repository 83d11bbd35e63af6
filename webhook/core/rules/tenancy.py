"""All tenant policies and exemptions that are in force together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from webhook.core.rules.exemption import Exemption
from webhook.core.rules.tenant_policy import TenantPolicy

UNREADABLE: Final = "the policies of this cluster cannot be read now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """All policies and exemptions, and what is known of namespaces.

    `labels` are those of each namespace; `without_policy`: what a namespace may do that no policy selects; None:
    anything as long as there is no policy at all.
    `watched`: every namespace of the cluster is in `labels`; a namespace that is missing was created a moment ago.
    `observing`: nothing is changed or refused, and users are told what would be. `unknown`: why none of this can be
    relied on now, if so; clients that ask for a GPU are told to retry.
    """

    policies: Sequence[TenantPolicy] = ()
    exemptions: Sequence[Exemption] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    without_policy: Literal["allow", "deny"] | None = None
    observing: bool = False
    unknown: str = ""
    watched: bool = False
    cache: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What `membership` has found out, for as long as this is in force."""

    @property
    def closed(self) -> bool:
        """Whether a namespace that no policy selects may not use GPUs."""
        return bool(self.policies) if self.without_policy is None else self.without_policy == "deny"

    @property
    def silent(self) -> bool:
        """Whether all of this has nothing to say about any pod."""
        return not (self.policies or self.unknown or self.without_policy == "deny")
