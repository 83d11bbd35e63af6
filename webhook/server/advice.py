"""The one door from the admission server to the words of `webhook.cli`: what /templates and /policies answer.

Both only warn. What they say is loaded when it is first asked for, so a server that answers nothing but pods has none
of it in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.core.decision import Decision
from webhook.core.quota.ledger import Ledger
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook


def of_workload(request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger]) -> Decision:
    """What is wrong with the pods that a workload would make, as warnings."""
    from webhook.cli import workload_advice  # noqa: PLC0415 - when it is first asked for

    return workload_advice.warn(request, rulebook, ledgers)


def of_policy(request: AdmissionRequest, rulebook: Rulebook, ledgers: Mapping[str, Ledger] | None = None) -> Decision:
    """What a TenantPolicy or an Exemption would do that its author may not mean, as warnings."""
    from webhook.cli import policy_advice  # noqa: PLC0415 - when it is first asked for

    return policy_advice.warn(request, rulebook, ledgers or {})
