"""One turn after the other: each duty reads what there is and does what is next; the metrics say what came of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple, Protocol

from aiohttp import web

from certs.api import Address, ApiError, ConflictError

IDLE_SECONDS: Final = 15.0
"""Between two turns while all is well. Clocks that jump, machines that were suspended, and objects that somebody
changed or deleted are seen at the next one."""

BLOCKED_SECONDS: Final = 2.0
"""Between two turns while something cannot be done yet."""

ACTED_SECONDS: Final = 0.5
"""After a write: if somebody else undoes it again and again, the API server is not flooded."""

REPEAT_SECONDS: Final = 60.0
"""After this, a problem that is still there is logged again."""

STALLED_SECONDS: Final = 120.0
"""Without a turn for so long the program hangs; a restart does no harm."""

log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """What keeps an action from being done, or is not as it should be, for the log and the metrics.

    It is the same as long as `what` (`cluster`, `configuration`, `write`, `inactive` or `rollout`) and `whose` are.
    """

    what: str
    whose: str
    why: str


class Duty(Protocol):
    """Something that this program keeps as it should be: `rotation.Rotator`, `activation.Activator`."""

    async def turn(self) -> Sequence[Problem]:
        """Do what can be done now, and return what cannot; raises ApiError if the cluster cannot be read."""


@dataclass(slots=True)
class Status:
    """What the page of metrics tells.

    actions  how many, by action and result: `done`, `conflict` if somebody else wrote first, `failed`
    expiry   by certificate: `authority`, `leaf`
    acted    whether something was written in this turn
    turned   when the last turn ended (monotonic)
    """

    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    expiry: dict[str, datetime] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    acted: bool = False
    turned: float = field(default_factory=monotonic)

    async def attempt(self, action: str, why: str, write: Awaitable[object]) -> list[Problem]:
        """Do an action, and count it; returns what is in its way."""
        try:
            await write
        except ApiError as error:
            self.actions[action, "conflict" if isinstance(error, ConflictError) else "failed"] += 1
            return [Problem("write", action, f"{action} ({why}): {error}")]
        self.actions[action, "done"] += 1
        self.acted = True
        log.info("%s: %s", action, why)
        return []

    def metrics(self) -> Iterator[str]:
        """The page in the text format of Prometheus."""
        problems = Counter(problem.what for problem in self.problems)
        expiry = {f'{{certificate="{name}"}}': f"{end.timestamp():.0f}" for name, end in sorted(self.expiry.items())}
        actions = {
            f'{{action="{action}",result="{result}"}}': str(count)
            for (action, result), count in sorted(self.actions.items())
        }
        present = {f'{{what="{what}"}}': str(count) for what, count in sorted(problems.items())}
        for name, kind, text, values in (
            ("expiry_timestamp_seconds", "gauge", "When certificates end.", expiry),
            ("actions_total", "counter", "Writes, and attempts at them.", actions),
            ("problems", "gauge", "What is not as it should be, or keeps an action from being done.", present),
            ("turn_age_seconds", "gauge", "Since the last turn.", {"": f"{monotonic() - self.turned:.3f}"}),
        ):
            yield f"# HELP gpu_webhook_certs_{name} {text}"
            yield f"# TYPE gpu_webhook_certs_{name} {kind}"
            for labels, value in values.items():
                yield f"gpu_webhook_certs_{name}{labels} {value}"


class Turns:
    """Gives each duty its turns, and tells what came of them."""

    def __init__(self, status: Status, duties: Sequence[Duty]) -> None:
        self.status, self._duties = status, duties
        self._logged: dict[tuple[str, str], float] = {}

    async def run(self, idle_seconds: float) -> None:
        """Take one turn after the other; never returns."""
        while True:
            acted = await self.turn()
            pause = ACTED_SECONDS if acted else BLOCKED_SECONDS if self.status.problems else idle_seconds
            self.status.turned = monotonic()
            await asyncio.sleep(min(pause, idle_seconds))

    async def turn(self) -> bool:
        """One turn of each duty. Logs what is new, and what is still there after a while.

        What cannot be read for one duty, such as a Secret, keeps no other from its turn.
        Returns whether something was written.
        """
        self.status.acted = False
        problems: dict[tuple[str, str], Problem] = {}
        for duty in self._duties:
            try:
                left = await duty.turn()
            except ApiError as error:
                left = [Problem("cluster", "", str(error))]
            for problem in left:
                problems.setdefault(problem[:2], problem)  # two duties may find the same one
        now = monotonic()
        if self.status.problems and not problems:
            log.info("all is well again")
        self._logged = {key: logged for key, logged in self._logged.items() if key in problems}
        for key, problem in problems.items():
            if now - self._logged.get(key, -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._logged[key] = now
                log.warning("%s", problem.why)
        self.status.problems = [*problems.values()]
        return self.status.acted


async def work(turns: Turns, bind: Address, idle_seconds: float) -> None:
    """Take turns, and answer `/metrics` for Prometheus and `/healthz` for the kubelet; never returns."""
    status = turns.status

    async def metrics(_: web.Request) -> web.Response:
        headers = {"Content-Type": "text/plain; version=0.0.4"}
        return web.Response(text="\n".join(status.metrics()) + "\n", headers=headers)

    async def healthz(_: web.Request) -> web.Response:
        if monotonic() - status.turned > STALLED_SECONDS:
            return web.Response(status=503, text="no turn was taken for too long\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, *bind).start()
        await turns.run(idle_seconds)
    finally:
        await runner.cleanup()
