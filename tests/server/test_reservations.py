"""Reservations of one process in a store that others write too, that fails, and that settles late."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from time import monotonic
from typing import Any, TypeVar

import pytest

from webhook.cluster import ledgers as module
from webhook.cluster.client import ApiError, ConflictError
from webhook.cluster.ledgers import Reservations, TenantUsages, Versioned
from webhook.core.quota.ledger import AWAY, DIFFERS, Answered, Ledger, Outcome
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


def ask(name: str, devices: int | Fraction = 1, **more: Any) -> Ask:
    return Ask(namespace="vision", name=name, uid=f"uid-{name}", amount={"devices": Fraction(devices)}, **more)


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await test()

    return asyncio.run(bounded())


def together(reservations: Reservations, *asks: Ask, seconds: float = 10) -> list[Answered]:
    return run(
        lambda: asyncio.gather(*(reservations.reserve("vision", each, monotonic() + seconds) for each in asks))
    )


def verdicts(answers: list[Answered]) -> list[str]:
    return [answered.outcome.verdict for answered in answers]


def test_requests_that_come_at_once_share_one_write() -> None:
    shelf = Shelf()

    answers = together(Reservations(shelf, Metrics([])), ask("a"), ask("b"), ask("c"))

    assert verdicts(answers) == ["admit"] * 3
    assert (shelf.reads, shelf.writes) == (1, 1)
    assert {*shelf.ledger.pending} == {"vision/a", "vision/b", "vision/c"}


def test_what_is_known_from_the_last_write_saves_the_next_read() -> None:
    shelf = Shelf()
    reservations = Reservations(shelf, Metrics([]))

    async def twice() -> None:
        for name in ("a", "b"):
            await reservations.reserve("vision", ask(name), monotonic() + 10)

    run(twice)

    assert (shelf.reads, shelf.writes) == (1, 2)


def test_a_ledger_that_cannot_be_read_is_left_to_the_settler_as_it_is() -> None:
    shelf = Shelf()
    shelf.ledger = replace(shelf.ledger, hard={}, problems=("hard: x",))

    [answered] = together(Reservations(shelf, Metrics([])), ask("a"))

    why = "its TenantUsage was edited; it cannot be read until it is counted anew: hard: x"
    assert answered == Answered(Outcome("again", why=why), shelf.ledger)
    assert shelf.writes == 0


def test_an_escrow_is_not_closed_into_a_ledger_that_cannot_be_read() -> None:
    shelf = Shelf(Ledger(hard={"devices": Fraction(1000)}, held={"vision": {}}, view=1))
    reservations = Reservations(shelf, Metrics([]))

    async def drawn_from() -> None:
        await asyncio.gather(*(reservations.reserve("vision", ask(str(n)), monotonic() + 10) for n in range(8)))
        assert reservations.draw("vision", ask("drawn"))
        shelf.put(replace(shelf.ledger, held={}, problems=("held: x",)))
        writes = shelf.writes
        await asyncio.sleep(3 * module.HOLD_SECONDS)
        assert shelf.writes == writes
        shelf.put(replace(shelf.ledger, held={"vision": {}}, problems=()))
        await reservations.close()

    run(drawn_from)

    assert "vision/drawn" in shelf.ledger.pending


def test_nothing_is_reserved_for_a_name_that_another_pod_has() -> None:
    shelf = Shelf(pods={"vision/a": "uid-of-another", "vision/b": "uid-b"})

    answers = together(Reservations(shelf, Metrics([])), ask("a"), ask("b"), ask("c"))

    assert verdicts(answers) == ["taken", "admit", "admit"]
    assert {*shelf.ledger.pending} == {"vision/b", "vision/c"}


def test_a_pod_is_reserved_for_where_its_name_cannot_be_looked_for() -> None:
    shelf = Shelf(pods={"vision/a": None})

    assert verdicts(together(Reservations(shelf, Metrics([])), ask("a"))) == ["admit"]


def test_a_conflict_is_retried_on_what_the_other_writer_wrote() -> None:
    shelf = Shelf()
    taken = {"vision/other": {"uid-other": {"devices": Fraction(LIMIT)}}}
    shelf.before_writes = [lambda: shelf.put(replace(shelf.ledger, pending=taken)), lambda: None, shelf.recount]
    shelf.after_writes = [shelf.recount]
    metrics = Metrics([])

    answers = together(Reservations(shelf, metrics), ask("a"))

    assert verdicts(answers) == ["over"]
    assert metrics.ledger[("conflict",)] == 1
    assert shelf.ledger.pending == taken


def test_no_request_is_refused_before_the_settler_has_counted_anew() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, held={"vision": {"devices": Fraction(LIMIT)}}))

    def makes_room() -> None:
        shelf.put(replace(shelf.ledger, held={"vision": {}}, recounted=shelf.ledger.recount))

    shelf.after_writes = [makes_room]

    answers = together(Reservations(shelf, Metrics([])), ask("a"))

    assert verdicts(answers) == ["admit"]


def test_a_pod_that_does_not_fit_is_refused_by_the_count_it_asked_for_and_others_are_not_held_up() -> None:
    shelf = Shelf()
    shelf.after_writes = [shelf.recount]

    answers = together(Reservations(shelf, Metrics([])), ask("large", 5), ask("small"))

    assert verdicts(answers) == ["over", "admit"]
    assert answers[0].outcome.exceeded == ("devices",)


def test_without_an_answer_in_time_the_client_is_told_to_retry() -> None:
    shelf = Shelf()

    answers = together(Reservations(shelf, Metrics([])), ask("large", 5), seconds=0.2)

    assert verdicts(answers) == ["again"]
    assert shelf.ledger.recount == 1


def test_a_write_whose_answer_is_lost_is_not_made_twice() -> None:
    shelf = Shelf()

    def lost() -> None:
        raise ApiError("no answer")

    shelf.after_writes = [lost]
    metrics = Metrics([])

    answers = together(Reservations(shelf, metrics), ask("a"))

    assert verdicts(answers) == ["admit"]
    assert (shelf.writes, metrics.ledger[("error",)]) == (1, 1)
    assert shelf.ledger.pending == {"vision/a": {"uid-a": {"devices": Fraction(1)}}}


def test_a_namespace_that_is_not_counted_yet_is_looked_up_once_more_and_then_the_client_retries() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, held={}))

    answers = together(Reservations(shelf, Metrics([])), ask("a"))

    assert verdicts(answers) == ["again"]
    assert answers[0].outcome.why == "the namespace vision is not counted yet"
    assert shelf.writes == 0


def test_a_pod_that_is_not_to_be_refused_is_admitted_with_what_it_exceeds() -> None:
    answers = together(Reservations(Shelf(), Metrics([])), ask("large", 5, enforced=False))

    assert verdicts(answers) == ["admit"]
    assert answers[0].outcome.exceeded == ("devices",)


def roomy() -> Shelf:
    return Shelf(Ledger(hard={"devices": Fraction(1000)}, held={"vision": {}}, view=1))


async def one_after_the_other(reservations: Reservations, *names: str) -> list[str]:
    """The verdicts; `drawn` for those that were admitted at once."""
    found = []
    for name in names:
        if reservations.draw("vision", ask(name)):
            found.append("drawn")
        else:
            found.append((await reservations.reserve("vision", ask(name), monotonic() + 10)).outcome.verdict)
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
    assert reservations.draw("vision", ask("e")) is None


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


def test_no_pod_is_refused_because_of_the_escrow_of_other_replicas() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, advances={"other-1": {"devices": Fraction(3)}}))

    def given_back() -> None:
        shelf.put(replace(shelf.ledger, advances={}, recounted=shelf.ledger.recount))

    shelf.after_writes = [given_back]

    answers = together(Reservations(shelf, Metrics([])), ask("a"))

    assert verdicts(answers) == ["admit"]


def test_what_is_over_the_limit_of_the_policy_is_refused_only_once_the_ledger_has_that_limit_too() -> None:
    shelf, policy = Shelf(), {"devices": Fraction(1)}

    def settle() -> None:
        shelf.put(replace(shelf.ledger, hard=policy, recounted=shelf.ledger.recount))

    shelf.after_writes = [settle]

    [answered] = together(Reservations(shelf, Metrics([])), ask("a", 2, hard=policy))

    assert answered.outcome == Outcome("over", ("devices",))


def test_who_knows_an_older_policy_than_the_settler_refuses_nobody_by_it() -> None:
    shelf = Shelf()
    shelf.after_writes = [shelf.recount] * 100

    [answered] = together(Reservations(shelf, Metrics([])), ask("a", 2, hard={"devices": Fraction(1)}), seconds=0.3)

    assert answered.outcome == Outcome("again", why=DIFFERS)


def looked(shelf: Shelf, *, seconds: float = 10) -> Answered:
    return run(lambda: Reservations(shelf, Metrics([])).preview("vision", ask("a", 2), monotonic() + seconds))


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


def test_a_client_that_waits_for_an_escrow_which_is_not_closed_is_told_to_retry() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, advances={"other-1": {"devices": Fraction(3)}}))

    answers = together(Reservations(shelf, Metrics([])), ask("a"), seconds=0.2)

    assert answers[0].outcome == Outcome("again", why=AWAY)
    assert shelf.ledger.recount == 1


def test_a_pod_over_the_limit_is_refused_though_a_replica_that_is_gone_left_an_escrow() -> None:
    shelf = Shelf()
    shelf.put(replace(shelf.ledger, advances={"gone-1": {"devices": Fraction(1)}}))
    shelf.after_writes = [shelf.recount]

    answers = together(Reservations(shelf, Metrics([])), ask("a", LIMIT + 1))

    assert verdicts(answers) == ["over"]


def test_offline_what_was_admitted_counts_for_good() -> None:
    reservations = OfflineReservations()
    hard = {"devices": Fraction(1)}

    async def both() -> list[Answered]:
        return [await reservations.reserve("vision", ask(name)._replace(hard=hard), 0) for name in ("a", "a", "b")]

    assert verdicts(run(both)) == ["admit", "admit", "over"]
