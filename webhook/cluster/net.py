"""What the API server refuses by itself, kept in step with rules and TenantPolicies.

The manifests have two admission policies, one that refuses and one that warns, without their expressions. The settler
fills them in, as it knows the TenantPolicies. Then a pod that reaches a device without asking is refused whether a
replica answers or not. Any number of settlers may write.
"""

import asyncio
import contextlib
import logging
from time import time
from typing import Final

from webhook.cluster.client import Api, ApiError
from webhook.core.registration import policies
from webhook.core.rules.rulebook import Rulebook

POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

LOOK_SECONDS: Final = 10.0
"""Between two looks at what is there: so long an edited policy, or an exemption that has ended, may stand. As long
goes by after a failure, as where an older cluster has no such policies."""

PAUSE_SECONDS: Final = 0.5
"""Between two writes: settlers of two versions may disagree, and overwrite each other no faster."""

log = logging.getLogger(__name__)


class Net:
    """Writes into the policies and their bindings what the API server has otherwise."""

    def __init__(self, cluster: Api) -> None:
        self._api = cluster
        self._rulebook: Rulebook | None = None
        self._changed = asyncio.Event()

    def changed(self, rulebook: Rulebook) -> None:
        """Take over rules, with the tenancy that holds now; `run` writes what they come to."""
        self._rulebook = rulebook
        self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        await self._changed.wait()
        while self._rulebook is not None:
            self._changed.clear()
            try:
                await self._write(self._rulebook)
            except ApiError as error:
                log.warning("what the API server refuses by itself is written later: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_SECONDS)

    async def _write(self, rulebook: Rulebook) -> None:
        """Fill in all that differs, each policy before its binding; raises ApiError."""
        for name, policy, binding in policies.filled_in(rulebook, time()):
            for path, wanted in ((f"{POLICIES}/{name}", policy), (f"{BINDINGS}/{name}", binding)):
                there = await self._api.get(path)
                if wanted.items() <= there["spec"].items():
                    continue
                await self._api.replace(path, {**there, "spec": {**there["spec"], **wanted}})
                log.info("%s is what rules and policies say", path)
