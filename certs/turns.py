"""One turn after the other: each duty of this program reads what there is, and does what is next."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Final, NamedTuple, Protocol

from certs.api import ApiError, ConflictError
from certs.problem import Problem

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

    async def attempt(self, action: str, why: str, doing: Awaitable[Sequence[Problem]]) -> Sequence[Problem]:
        """Do an action, and count it; returns what is in its way, or nothing if it is done."""
        try:
            blocked = await doing
        except ApiError as error:
            self.actions[action, "conflict" if isinstance(error, ConflictError) else "failed"] += 1
            return [Problem("write", action, f"{action} ({why}): {error}")]
        if not blocked:
            self.actions[action, "done"] += 1
            log.info("%s: %s", action, why)
        return blocked


class Turn(NamedTuple):
    """What came of one turn."""

    problems: Sequence[Problem] = ()
    acted: bool = False
    """Whether something was written."""


class Duty(Protocol):
    """Something that this program keeps as it should be: `rotator.Rotator`, `activator.Activator`."""

    async def turn(self) -> Turn:
        """Do one thing, if there is one that can be done; raises ApiError if the cluster cannot be read."""


class Turns:
    """Gives each duty its turns, and tells what came of them."""

    def __init__(self, status: Status, duties: Sequence[Duty]) -> None:
        self.status = status
        self._duties = duties
        self._said: dict[tuple[str, str], float] = {}

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
        """One turn of each duty. Returns whether something was written."""
        turns = [await _taken(duty) for duty in self._duties]
        problems = dict[tuple[str, str], Problem]()
        for each in (each for turn in turns for each in turn.problems):
            problems.setdefault(each[:2], each)  # two duties may find the same one
        self._tell([*problems.values()])
        return any(turn.acted for turn in turns)

    def _tell(self, problems: Sequence[Problem]) -> None:
        """Log what is new, and what is still there after a while."""
        now = monotonic()
        if self.status.problems and not problems:
            log.info("all is well again")
        for each in problems:
            if now - self._said.get(each[:2], -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._said[each[:2]] = now
                log.warning("%s", each.why)
        present = {each[:2] for each in problems}
        self._said = {key: at for key, at in self._said.items() if key in present}
        self.status.problems = problems


async def _taken(duty: Duty) -> Turn:
    """What cannot be read for one duty, such as a Secret, keeps no other from its turn."""
    try:
        return await duty.turn()
    except ApiError as error:
        return Turn([Problem("cluster", "", str(error))])
