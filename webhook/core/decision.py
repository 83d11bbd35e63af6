"""The answer to one review, before it becomes bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

from webhook.core.tenancy.ledger import Ask
from webhook.core.tenancy.policy import Action
from webhook.core.violations import LATER, Violation

Operation = Mapping[str, Any]
"""One JSON Patch operation (RFC 6902): `{"op": "add", "path": "/spec/...", "value": ...}`."""


Form = Literal["", "size of any card", "partition of any card", "partition", "whole"]


class Finding(NamedTuple):
    """What a policy has to say about a pod, for logs and metrics; `action` is what came of it."""

    policy: str
    rule: str
    code: str
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What the ledger of a tenant has to hold before a pod may be admitted.

    `path` is the field that a refusal points at, `rule` the line of the policy that sets the limit. `count` says of
    how many equal devices the ask consists, 1 where they are not, and `form` what they are, as far as it matters for
    what else to ask.
    """

    tenant: str
    ask: Ask
    path: str
    rule: str
    action: Action = "deny"
    count: int = 1
    form: Form = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a pod is admitted, and with what changes.

    `backends` maps container names to the back end that serves each; `code` is the HTTP status inside the
    answer (200, 422 for what cannot be understood or satisfied, 403 for policy, 503 for "try again"). What is
    allowed with a `reservation` is so only once the ledger holds it. `findings` are what policies had to say,
    whatever came of it.
    """

    allowed: bool
    code: int = HTTPStatus.OK
    violations: Sequence[Violation] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[Operation] = ()
    backends: Mapping[str, str] = field(default_factory=dict)
    audit: Mapping[str, str] = field(default_factory=dict)
    reservation: Reservation | None = None
    findings: Sequence[Finding] = ()


POLICY: Final = "GPU1"
"""How the codes begin of what is refused though it is understood."""


def denied(
    violations: Sequence[Violation], warnings: Sequence[str] = (), findings: Sequence[Finding] = ()
) -> Decision:
    """A denial that names every violation.

    It is one of policy (403) if nothing else is wrong, and 503 if all of it may be so no more in a second; what
    cannot be understood or satisfied (422) has to be mended whatever a policy says.
    """
    code = HTTPStatus.UNPROCESSABLE_ENTITY
    if all(violation.code in LATER for violation in violations):
        code = HTTPStatus.SERVICE_UNAVAILABLE
    elif all(violation.code.startswith(POLICY) for violation in violations):
        code = HTTPStatus.FORBIDDEN
    return Decision(allowed=False, code=code, violations=violations, warnings=warnings, findings=findings)
