"""One turn after the other: each duty reads what there is and does what is next; the metrics say what came of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple

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


Duty = Callable[[], Awaitable[Sequence[Problem]]]
"""Does what can be done now, and returns what cannot; raises ApiError if the cluster cannot be read."""


@dataclass(slots=True)
class Status:
    """What came of turns, as the page of metrics tells it.

    actions  how many, by action and result: `done`, `conflict` if somebody else wrote first, `failed`
    expiry   by certificate: `authority`, `leaf`
    logged   when a problem was last logged (monotonic)
    acted    whether something was written in this turn
    turned   when the last turn ended (monotonic)
    """

    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    expiry: dict[str, datetime] = field(default_factory=dict)
    problems: Sequence[Problem] = ()
    logged: dict[tuple[str, str], float] = field(default_factory=dict)
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


async def turn(status: Status, duties: Sequence[Duty]) -> None:
    """One turn of each duty. Logs what is new, and what is still there after a while.

    What cannot be read for one duty, such as a Secret, keeps no other from its turn.
    """
    status.acted = False
    problems: dict[tuple[str, str], Problem] = {}
    for duty in duties:
        try:
            left = await duty()
        except ApiError as error:
            left = [Problem("cluster", "", str(error))]
        for problem in left:
            problems.setdefault(problem[:2], problem)  # two duties may find the same one
    now = monotonic()
    if status.problems and not problems:
        log.info("all is well again")
    status.logged = {key: logged for key, logged in status.logged.items() if key in problems}
    for key, problem in problems.items():
        if now - status.logged.get(key, -REPEAT_SECONDS) >= REPEAT_SECONDS:
            status.logged[key] = now
            log.warning("%s", problem.why)
    status.problems = [*problems.values()]
    status.turned = monotonic()


async def run(status: Status, duties: Sequence[Duty], idle_seconds: float) -> None:
    """Take one turn after the other; never returns."""
    while True:
        await turn(status, duties)
        pause = ACTED_SECONDS if status.acted else BLOCKED_SECONDS if status.problems else idle_seconds
        await asyncio.sleep(min(pause, idle_seconds))


async def work(status: Status, duties: Sequence[Duty], bind: Address, idle_seconds: float) -> None:
    """Take turns, and answer `/metrics` for Prometheus and `/healthz` for the kubelet; never returns."""

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
        await run(status, duties, idle_seconds)
    finally:
        await runner.cleanup()
