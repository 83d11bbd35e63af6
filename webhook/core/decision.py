"""The answer to one review, before it becomes bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from webhook.core.quota.tally import Ask
from webhook.core.violations import LATER, TAKEN, Action, Violation

_NONE: Final[Mapping[str, str]] = MappingProxyType({})

Form = Literal["", "partition of any card", "partition", "whole"]


class Finding(NamedTuple):
    """One breach of a policy, for logs and metrics; `action` is what became of the pod.

    `exemption` is the name of that which lifts the rule, or several joined with `and`; the pod is admitted then.
    """

    policy: str
    rule: str
    code: str
    action: Action
    exemption: str = ""

    def __str__(self) -> str:
        by = f" by exemption {self.exemption}" if self.exemption else ""
        return f"{self.policy}: {self.code} {self.action}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What the ledger of a tenant has to reserve before a pod may be admitted.

    `path` is the field that a refusal points at, `rule` the line of the policy that sets the limit. `count` is the
    number of equal devices, 1 if they differ, and `form` what they are, as a refusal's fix depends on it. `gaps` are
    those of a `Holding`. `exemption` is the name of that which lifts the quota.
    """

    tenant: str
    ask: Ask
    path: str
    rule: str
    action: Action = "deny"
    count: int = 1
    form: Form = ""
    gaps: Mapping[str, str] = field(default_factory=dict)
    exemption: str = ""


class Decision(NamedTuple):
    """Whether a pod is admitted, and with what changes: `patch` is a JSON Patch (RFC 6902).

    `backends` maps container names to the back end that serves each. `code` is the HTTP status inside the answer:
    200, 422 if a request cannot be understood or satisfied, 403 for policy, 503 if the client should retry. With a
    `reservation` the pod is admitted only after the ledger has made it. `findings` are all breaches of policies.
    """

    allowed: bool
    code: int = HTTPStatus.OK
    violations: Sequence[Violation] = ()
    warnings: Sequence[str] = ()
    patch: Sequence[Mapping[str, Any]] = ()
    backends: Mapping[str, str] = _NONE
    audit: Mapping[str, str] = _NONE
    reservation: Reservation | None = None
    findings: Sequence[Finding] = ()


UNTOUCHED: Final = Decision(allowed=True)
"""The pod is admitted as it is, without a warning."""

POLICY: Final = "GPU1"
"""The beginning of every code of policy and quota."""


def pinged(path: str) -> Decision:
    """The answer to a ping that came by a path: the API server hands its warning on (`certs/activation.py`)."""
    return Decision(allowed=True, warnings=[f"gpu-webhook answers /{path}"])


def denied(
    violations: Sequence[Violation], warnings: Sequence[str] = (), findings: Sequence[Finding] = ()
) -> Decision:
    """A denial that names every violation.

    Its code is 503 if all violations are in LATER, 409 if the name is taken, 403 if all are of policy and quota, else
    422: a request that cannot be understood or satisfied has to be fixed whatever a policy says.
    """
    codes = {violation.code for violation in violations}
    if codes <= LATER:
        code = HTTPStatus.SERVICE_UNAVAILABLE
    elif codes == {TAKEN}:
        code = HTTPStatus.CONFLICT
    elif all(name.startswith(POLICY) for name in codes):
        code = HTTPStatus.FORBIDDEN
    else:
        code = HTTPStatus.UNPROCESSABLE_ENTITY
    return Decision(allowed=False, code=code, violations=violations, warnings=warnings, findings=findings)
