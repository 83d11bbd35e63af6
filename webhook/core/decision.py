"""The answer to one review, before it becomes bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from webhook.core.tenancy.ledger import Ask
from webhook.core.tenancy.policy import Action
from webhook.core.violations import LATER, Violation

Operation = Mapping[str, Any]
"""One JSON Patch operation (RFC 6902): `{"op": "add", "path": "/spec/...", "value": ...}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What the ledger of a tenant has to hold before a pod may be admitted.

    `path` is the field that a refusal points at, `rule` the line of the policy that sets the limit.
    """

    tenant: str
    ask: Ask
    path: str
    rule: str
    action: Action = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a pod is admitted, and with what changes.

    `backends` maps container names to the back end that serves each; `code` is the HTTP status inside the
    answer (200, 422 for what cannot be understood or satisfied, 403 for policy, 503 for "try again"). What is
    allowed with a `reservation` is so only once the ledger holds it.
    """

    allowed: bool
    code: int = HTTPStatus.OK
    violations: Sequence[Violation] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[Operation] = ()
    backends: Mapping[str, str] = field(default_factory=dict)
    audit: Mapping[str, str] = field(default_factory=dict)
    reservation: Reservation | None = None


def denied(violations: Sequence[Violation], warnings: Sequence[str] = ()) -> Decision:
    """A denial that names every violation: the request cannot be understood or satisfied, or not yet."""
    later = all(violation.code in LATER for violation in violations)
    code = HTTPStatus.SERVICE_UNAVAILABLE if later else HTTPStatus.UNPROCESSABLE_ENTITY
    return Decision(allowed=False, code=code, violations=violations, warnings=warnings)
