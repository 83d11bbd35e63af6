"""Reservations of one process in a store that others write too, that fails, and that settles late."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import monotonic
from typing import Any, TypeVar

import pytest

from tests import tables
from tests.core.quota.steps import ask, fields
from webhook.cluster import ledgers as module
from webhook.cluster.client import ApiError, ConflictError
from webhook.cluster.ledgers import Reservations, TenantUsages, Versioned
from webhook.core.quota.ledger import Answered, Ledger
from webhook.core.quota.tally import Ask
from webhook.server.handler import OfflineReservations
from webhook.telemetry import Metrics

T = TypeVar("T")
LIMIT = 3


@dataclass
class Shelf(TenantUsages):
    """A store in memory that counts, and does before each write what a test has planned."""

    ledger: Ledger = field(
        default_factory=lambda: Ledger(hard={"devices": Fraction(LIMIT)}, held={"vision": {}}, view=1)
    )
    version: int = 1
    reads: int = 0
    writes: int = 0
    before_writes: list[Callable[[], None]] = field(default_factory=list)
    after_writes: list[Callable[[], None]] = field(default_factory=list)
    given_back: asyncio.Event = field(default_factory=asyncio.Event)
    pods: dict[str, str | None] = field(default_factory=dict)

    async def read(self, tenant: str) -> Versioned:
        assert tenant == "vision"
        self.reads += 1
        await asyncio.sleep(0)
        return Versioned(self.ledger, str(self.version))

    async def uid(self, name: str) -> str | None:
        if name in self.pods and self.pods[name] is None:
            raise ApiError("the pods cannot be read")
        return self.pods.get(name)

    async def write(self, tenant: str, ledger: Ledger, version: str) -> Versioned:
        assert tenant == "vision"
        await asyncio.sleep(0)
        if self.before_writes:
            self.before_writes.pop(0)()
        if version != str(self.version):
            raise ConflictError(version)
        self.put(ledger)
        self.writes += 1
        if self.after_writes:
            self.after_writes.pop(0)()
        return Versioned(self.ledger, str(self.version))

    def put(self, ledger: Ledger) -> None:
        if any(self.ledger.advances.values()) and not any(ledger.advances.values()):
            self.given_back.set()
        self.ledger = ledger
        self.version += 1

    def recount(self) -> None:
        """As the settler does."""
        self.put(replace(self.ledger, recounted=self.ledger.recount))


def pod(written: Any) -> Ask:
    return ask(written, namespace="vision")


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await test()

    return asyncio.run(bounded())


def _planned(shelf: Shelf, change: Any) -> Callable[[], None]:
    """What somebody else does to the ledger meanwhile; `counted`: as the settler writes it. Or the write fails."""

    def act() -> None:
        if change == "fails":
            raise ApiError("no answer")
        if change:
            counted = {"recounted": shelf.ledger.recount} if "counted" in change else {}
            others = {key: value for key, value in change.items() if key != "counted"}
            shelf.put(replace(shelf.ledger, **fields({**others, **counted})))

    return act


@tables.rows
def test_a_process(asks: list[list[Any]], given: Mapping[str, Any], told: list[list[str]], then: Any) -> None:
    """Asks come at once or one after the other. What is told is a verdict, and what is exceeded, or why."""
    shelf, metrics = Shelf(pods=given.get("pods", {})), Metrics([])
    shelf.ledger = replace(shelf.ledger, **fields(given.get("ledger", {})))
    shelf.before_writes = [_planned(shelf, change) for change in given.get("before", [])]
    shelf.after_writes = [_planned(shelf, change) for change in given.get("after", [])]
    reservations = Reservations(shelf, metrics)

    async def asked() -> list[Answered]:
        answers = []
        for together in asks:
            until = monotonic() + given.get("seconds", 10)
            reserving = (reservations.reserve("vision", pod(each), until) for each in together)
            answers += await asyncio.gather(*reserving)
        return answers

    answers = run(asked)
    outcomes = [answered.outcome for answered in answers]
    assert [[said.verdict, *said.exceeded, *filter(None, [said.why])] for said in outcomes] == told
    assert "seconds" in given or answers[-1].ledger == shelf.ledger, "who is not in time knows an older one"
    counts = {
        "reads": shelf.reads,
        "writes": shelf.writes,
        **{key: count for (key,), count in metrics.ledger.items()},
    }
    stored = fields({key: value for key, value in then.items() if key not in counts})
    assert {key: counts.get(key, 0) for key in then.keys() - stored.keys()} == {
        key: value for key, value in then.items() if key not in stored
    }
    assert {key: getattr(shelf.ledger, key) for key in stored} == stored


def test_an_escrow_is_not_closed_into_a_ledger_that_cannot_be_read() -> None:
    shelf = Shelf(Ledger(hard={"devices": Fraction(1000)}, held={"vision": {}}, view=1))
    reservations = Reservations(shelf, Metrics([]))

    async def drawn_from() -> None:
        await asyncio.gather(*(reservations.reserve("vision", pod(str(n)), monotonic() + 10) for n in range(8)))
        assert reservations.draw("vision", pod("drawn"))
        shelf.put(replace(shelf.ledger, held={}, problems=("held: x",)))
        writes = shelf.writes
        await asyncio.sleep(3 * module.HOLD_SECONDS)
        assert shelf.writes == writes
        shelf.put(replace(shelf.ledger, held={"vision": {}}, problems=()))
        await reservations.close()

    run(drawn_from)

    assert "vision/drawn" in shelf.ledger.pending


def roomy() -> Shelf:
    return Shelf(Ledger(hard={"devices": Fraction(1000)}, held={"vision": {}}, view=1))


async def one_after_the_other(reservations: Reservations, *names: str) -> list[str]:
    """The verdicts; `drawn` for those that were admitted at once."""
    found = []
    for name in names:
        if reservations.draw("vision", pod(name)):
            found.append("drawn")
        else:
            found.append((await reservations.reserve("vision", pod(name), monotonic() + 10)).outcome.verdict)
    return found


def test_far_from_the_limit_one_write_pays_for_the_pods_of_the_next_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLD_SECONDS", 0.01)
    shelf = roomy()
    reservations = Reservations(shelf, Metrics([]))

    async def many() -> Ledger:
        assert await one_after_the_other(reservations, "a", "b", "c", "d") == ["admit", "admit", "drawn", "drawn"]
        assert (shelf.writes, shelf.ledger.used) == (2, {"devices": Fraction(2)})
        await shelf.given_back.wait()
        return shelf.ledger

    assert run(many).used == {"devices": Fraction(4)}
    assert reservations.draw("vision", pod("e")) is None


def test_a_replica_that_ends_closes_its_escrow() -> None:
    shelf = roomy()
    reservations = Reservations(shelf, Metrics([]))

    async def leaving() -> None:
        assert await one_after_the_other(reservations, "a", "b", "c") == ["admit", "admit", "drawn"]
        await reservations.close()
        assert await one_after_the_other(reservations, "d", "e", "f") == ["admit"] * 3

    run(leaving)
    assert (any(shelf.ledger.advances.values()), shelf.ledger.used) == (False, {"devices": Fraction(6)})


def test_a_write_that_fails_is_retried_until_every_admitted_pod_is_in_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HOLD_SECONDS", 0.01)
    shelf = roomy()
    reservations = Reservations(shelf, Metrics([]))

    def fails() -> None:
        raise ApiError("no answer")

    async def many() -> Ledger:
        await one_after_the_other(reservations, "a", "b", "c")
        shelf.before_writes = [fails, fails, lambda: shelf.put(replace(shelf.ledger, view=2))]
        await shelf.given_back.wait()
        return shelf.ledger

    assert run(many).used == {"devices": Fraction(3)}


def looked(shelf: Shelf, *, seconds: float = 10) -> Answered:
    return run(
        lambda: Reservations(shelf, Metrics([])).preview(
            "vision", pod({"name": "a", "amount": 2}), monotonic() + seconds
        )
    )


def test_a_dry_run_is_answered_as_if_every_escrow_were_closed() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, advances={"other-1": {"devices": Fraction(LIMIT)}}))

    assert looked(shelf).outcome.verdict == "admit"
    assert shelf.writes == 0


def test_a_dry_run_is_not_refused_while_pods_may_be_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.01)
    shelf = Shelf()
    counted = {"devices": Fraction(LIMIT - 1)}
    shelf.put(
        replace(
            shelf.ledger, held={"vision": counted}, pending={"vision/b": {"uid-b": counted}}, advances={"other-1": {}}
        )
    )

    assert looked(shelf, seconds=0.1).outcome.verdict == "again"
    shelf.put(replace(shelf.ledger, pending={}, advances={}))
    assert looked(shelf).outcome.verdict == "over"


def test_offline_what_was_admitted_counts_for_good() -> None:
    reservations = OfflineReservations()
    hard = {"devices": Fraction(1)}

    async def both() -> list[Answered]:
        return [await reservations.reserve("vision", pod(name)._replace(hard=hard), 0) for name in ("a", "a", "b")]

    assert [answered.outcome.verdict for answered in run(both)] == ["admit", "admit", "over"]
