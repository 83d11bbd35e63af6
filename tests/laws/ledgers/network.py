"""What is sent to the API server, until somebody has its answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Call:
    """Something that was sent: `run` does it, `done` gets the answer, `unknown` is told when none comes.

    `held`: nothing becomes of it before.
    """

    run: Callable[[], Any]
    done: Callable[[Any], None]
    unknown: Callable[[], None] = lambda: None
    answer: list[Any] = field(default_factory=list)
    waiting: bool = True
    held: int = 0


@dataclass(slots=True)
class Network:
    """All calls under way, in any order."""

    calls: list[Call] = field(default_factory=list)

    def send(self, call: Call) -> None:
        self.calls.append(call)

    def deliver(self, call: Call) -> None:
        """Do it, or do it once more: only the first answer counts."""
        call.answer.append(call.run())

    def finish(self, call: Call) -> None:
        """Do it if that was not done, and answer."""
        self.calls.remove(call)
        if not call.answer:
            self.deliver(call)
        if call.waiting:
            call.done(call.answer[0])

    def give_up(self, call: Call) -> None:
        """Wait no longer; it may be done later all the same."""
        if call.waiting:
            call.waiting = False
            call.unknown()

    def lose(self, call: Call) -> None:
        """Never do it, or lose its answer."""
        self.calls.remove(call)
        self.give_up(call)
