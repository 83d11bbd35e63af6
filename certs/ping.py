"""Whether replicas answer every API server, with the bundle and the Service of a configuration.

Both of our configurations have a webhook `ping.gpu-webhook.io`. It goes to the replicas, by the path that pods go to,
for Leases of our namespace with a label that only this program writes. A replica admits such a Lease with a warning,
which the API server hands on to us: so it has reached a replica that has its rules.

The mutating one has `active.gpu-webhook.io`, too, for the order of the two: a pod that is validated and was not
mutated is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from certs import servers
from certs.api import Api, ApiError
from certs.problem import Problem

PING: Final = "ping"
ACTIVE: Final = "active"
"""The two webhooks by the first word of their names: `active` is in the mutating configuration only, and has no rules
before that is active. An API server that calls it brings pods to /mutate, too."""

ANSWERS: Final[Mapping[str, str]] = {
    "mutating": "gpu-webhook answers /mutate",
    "validating": "gpu-webhook answers /validate",
}
"""By configuration: the warning of a replica (webhook/core/decision.py:pinged)."""


async def unanswered(api: Api, webhook: str, configuration: str, namespace: str) -> Sequence[Problem]:
    """Which API servers get no answer from a replica by a webhook, and why; empty if all do. Raises ApiError."""

    async def why_not(there: Api) -> str:
        try:
            warnings = await servers.dry_run(there, namespace, {f"gpu-webhook.io/{webhook}": configuration})
        except ApiError as error:
            return f"gets no answer from a replica, so our webhooks stay inactive: {error}"
        if any(ANSWERS[configuration] in each for each in warnings):
            return ""
        called = f"{webhook}.gpu-webhook.io of our {configuration} configuration"
        return f"has not called {called}: our webhooks stay inactive"

    found = await servers.ask(api, await servers.addresses(api), why_not)
    return [each._replace(what="inactive") for each in found]
