"""One turn after the other: each duty reads what there is and does what is next; the metrics say what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple, Protocol

from certs.api import ApiError, ConflictError

IDLE_SECONDS: Final = 15.0
"""Between two turns while all is well. Clocks that jump, machines that were suspended, and objects that somebody
changed or deleted are seen at the next one."""

BLOCKED_SECONDS: Final = 2.0
"""Between two turns while something cannot be done yet."""

ACTED_SECONDS: Final = 0.5
"""After a write: if somebody else undoes it again and again, the API server is not flooded."""

REPEAT_SECONDS: Final = 60.0
"""After this, a problem that is still there is logged again."""

log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """What keeps an action from being done, or is not as it should be, for the log and the metrics.

    It is the same as long as `what` and `whose` are; `why` may change with every look.
    """

    what: str
    """`cluster`, `configuration`, `write`, `inactive` or `rollout`."""

    whose: str
    why: str


class Turn(NamedTuple):
    """What came of one turn."""

    problems: Sequence[Problem] = ()
    acted: bool = False
    """Whether something was written."""


class Duty(Protocol):
    """Something that this program keeps as it should be: `rotator.Rotator`, `activation.Activator`."""

    async def turn(self) -> Turn:
        """Do what can be done now; raises ApiError if the cluster cannot be read."""


@dataclass(slots=True)
class Status:
    """What the page of metrics tells."""

    actions: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By action and result: `done`, `conflict` if somebody else wrote first, `failed`."""

    expiry: dict[str, datetime] = field(default_factory=dict)
    """By certificate: `authority`, `leaf`."""

    problems: Sequence[Problem] = ()
    turned: float = field(default_factory=monotonic)
    """When the last turn ended (monotonic)."""

    async def attempt(self, action: str, why: str, write: Awaitable[object]) -> Problem | None:
        """Do an action, and count it; returns what is in its way, or None if it is done."""
        try:
            await write
        except ApiError as error:
            self.actions[action, "conflict" if isinstance(error, ConflictError) else "failed"] += 1
            return Problem("write", action, f"{action} ({why}): {error}")
        self.actions[action, "done"] += 1
        log.info("%s: %s", action, why)
        return None

    def metrics(self) -> Iterator[str]:
        """The page in the text format of Prometheus."""
        families: Mapping[tuple[str, str, str], Mapping[str, object]] = {
            ("expiry_timestamp_seconds", "gauge", "When certificates end."): {
                f'{{certificate="{certificate}"}}': f"{end.timestamp():.0f}"
                for certificate, end in sorted(self.expiry.items())
            },
            ("actions_total", "counter", "Writes, and attempts at them."): {
                f'{{action="{action}",result="{result}"}}': count
                for (action, result), count in sorted(self.actions.items())
            },
            ("problems", "gauge", "What is not as it should be, or keeps an action from being done."): {
                f'{{what="{what}"}}': count
                for what, count in sorted(Counter(problem.what for problem in self.problems).items())
            },
            ("turn_age_seconds", "gauge", "Since the last turn."): {"": f"{monotonic() - self.turned:.3f}"},
        }
        for (name, kind, text), values in families.items():
            yield f"# HELP gpu_webhook_certs_{name} {text}"
            yield f"# TYPE gpu_webhook_certs_{name} {kind}"
            for labels, value in values.items():
                yield f"gpu_webhook_certs_{name}{labels} {value}"


class Turns:
    """Gives each duty its turns, and tells what came of them."""

    def __init__(self, status: Status, duties: Sequence[Duty]) -> None:
        self.status = status
        self._duties = duties
        self._logged: dict[tuple[str, str], float] = {}

    async def run(self, leading: asyncio.Event, idle_seconds: float = IDLE_SECONDS) -> None:
        """Take turns while `leading` is set; never returns."""
        while True:
            pause = BLOCKED_SECONDS
            if leading.is_set():
                acted = await self.turn()
                pause = ACTED_SECONDS if acted else BLOCKED_SECONDS if self.status.problems else idle_seconds
            self.status.turned = monotonic()
            await asyncio.sleep(min(pause, idle_seconds))

    async def turn(self) -> bool:
        """One turn of each duty. Logs what is new, and what is still there after a while.

        What cannot be read for one duty, such as a Secret, keeps no other from its turn.
        Returns whether something was written.
        """
        acted, problems = False, dict[tuple[str, str], Problem]()
        for duty in self._duties:
            try:
                turn = await duty.turn()
            except ApiError as error:
                turn = Turn([Problem("cluster", "", str(error))])
            acted |= turn.acted
            for problem in turn.problems:
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
        return acted
