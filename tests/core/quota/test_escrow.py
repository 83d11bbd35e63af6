"""What one replica sets aside, admits against it, and writes down; tests/laws/test_ledger.py tries it."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from webhook.core.quota import escrow
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Ask, Ledger, reserve
from webhook.core.quota.tally import Tally

MADE = 1_000
"""When the API server begins to create the pods here, and `now` of the replica is 10."""


def devices(count: float) -> Tally:
    return {"devices": Fraction(count)}


def ask(name: str, count: float = 1, **others: Any) -> Ask:
    plain = Ask(namespace="dev", name=name, uid=f"uid-{name}", amount=devices(count), created=MADE)
    return plain._replace(**others)


def ledger(**others: Any) -> Ledger:
    return replace(Ledger(hard=devices(100), held={"dev": {}}, view=7), **others)


def opened(known: Ledger, *first: Ask) -> tuple[Account, Ledger]:
    """An account that has something set aside after the first pods, and the ledger that says so."""
    account = Account("me")
    after, _ = reserve(known, first)
    after = account.open(after, first, now=10)
    account.wrote(after)
    return account, after


def test_twice_as_much_is_set_aside_as_the_largest_of_the_pods_of_late_would_take() -> None:
    _, after = opened(ledger(), ask("a"), ask("b", 0.5))
    assert after == ledger(
        pending={"dev/a": {"uid-a": devices(1)}, "dev/b": {"uid-b": devices(0.5)}}, advances={"me-1": devices(4)}
    )


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(ledger(hard=devices(31)), id="near the limit"),
        pytest.param(ledger(advances={"you-1": devices(69)}), id="where others have set aside the rest"),
        pytest.param(ledger(recount=2, recounted=1), id="while somebody waits for a count"),
        pytest.param(ledger(view=0), id="before anybody has counted"),
        pytest.param(
            ledger(pending={f"dev/{n}": {"u": {}} for n in range(1_001)}), id="while nobody settles what is pending"
        ),
    ],
)
def test_nothing_is_set_aside(known: Ledger) -> None:
    account = Account("me")
    assert account.open(known, [ask("a"), ask("b")], now=10) is known
    assert not account.is_open


def test_no_more_is_set_aside_than_the_policy_has_left_whatever_the_ledger_says() -> None:
    account, known = Account("me"), ledger(hard={})
    assert account.open(known, [ask("a"), ask("b", hard=devices(31))], now=10) is known
    assert account.open(known, [ask("a"), ask("c", hard=devices(32))], now=10).advances == {"me-1": devices(4)}


def test_who_has_waited_looks_first_before_something_is_set_aside_again() -> None:
    account, first = opened(ledger(), ask("a"), ask("b"))
    assert account.draw(ask("c"), now=10.1)
    waited = account.renew(replace(first, recount=1), now=10.2)
    assert waited.advances == {"me-1": {}}
    counted = replace(waited, recounted=1)
    assert account.open(counted, [ask("d"), ask("e")], now=10.6) is counted
    assert account.open(counted, [ask("d"), ask("e")], now=10.7).advances["me-2"]


def test_so_he_does_if_nobody_but_him_has_seen_that_he_waited() -> None:
    account, first = opened(ledger(), ask("a"), ask("b"))
    counted = replace(account.close(first), recount=1, recounted=1)
    assert account.open(counted, [ask("c"), ask("d")], now=10.2) is counted
    assert account.open(counted, [ask("c"), ask("d")], now=10.8).advances


def test_one_pod_by_itself_is_no_reason_to_set_something_aside() -> None:
    account, known = Account("me"), ledger()
    assert account.open(known, [ask("a")], now=10) is known
    assert account.open(known, [ask("b")], now=12) is known


def test_pods_are_admitted_against_it_until_it_is_used_up() -> None:
    account, _ = opened(ledger(), ask("a"), ask("b"))
    assert [account.draw(ask(f"more-{n}", 1.5), now=11) for n in range(3)] == [True, True, False]
    assert account.draw(ask("small"), now=11)


@pytest.mark.parametrize(
    ("asked", "now"),
    [
        pytest.param(ask("c"), 12.1, id="too late by the clock of the replica"),
        pytest.param(ask("c", created=MADE + 4), 11, id="too late by the clock of the API server"),
        pytest.param(ask("a"), 11, id="of a name that has a reservation"),
        pytest.param(ask("c", namespace="ci"), 11, id="of a namespace that is not counted there"),
        pytest.param(ask("c", amount={"memory": Fraction(1)}), 11, id="of something that was not set aside"),
        pytest.param(ask("c", 5, enforced=False), 11, id="that is more, though it would not be refused"),
    ],
)
def test_no_pod_is_admitted_against_it(asked: Ask, now: float) -> None:
    account, _ = opened(ledger(), ask("a"), ask("b"))
    assert not account.draw(asked, now)


def test_nothing_is_used_before_its_write_is_known_to_have_succeeded() -> None:
    account, known = Account("me"), ledger()
    after = account.open(known, [ask("a"), ask("b")], now=10)
    assert not account.draw(ask("c"), now=10)
    account.learn(after)
    assert not account.draw(ask("c"), now=10)
    assert account.close(after) == known


def test_closing_turns_what_was_used_into_reservations_and_nothing_is_used_any_more() -> None:
    account, after = opened(ledger(), ask("a"), ask("b"))
    account.draw(ask("c"), now=11)
    account.draw(ask("c", uid="another"), now=11)
    others = replace(after, advances={**after.advances, "you-1": devices(3)})
    assert account.close(others) == ledger(
        pending={**after.pending, "dev/c": {"uid-c": devices(1), "another": devices(1)}},
        advances={"you-1": devices(3), "me-1": {}},
    )
    assert not account.draw(ask("d"), now=11)


def test_one_write_closes_the_one_before_and_opens_the_next_while_the_present_one_is_used() -> None:
    account, first = opened(ledger(), ask("a"), ask("b"))
    account.draw(ask("c"), now=10.2)
    second = account.renew(first, now=10.5)
    assert second.advances == {"me-1": devices(4), "me-2": devices(6)}
    assert account.draw(ask("d"), now=10.6), "the write is still on its way"
    account.wrote(second)
    account.draw(ask("e"), now=10.7)
    third = account.renew(second, now=10.9)
    assert {*third.pending} == {"dev/a", "dev/b", "dev/c", "dev/d"}
    assert third.advances == {"me-1": {}, "me-2": devices(6), "me-3": devices(10)}
    assert account.close(third).advances == {"me-1": {}, "me-2": {}}, "who was closed is not closed again"


def test_what_nobody_uses_is_given_back() -> None:
    account, first = opened(ledger(), ask("a"), ask("b"))
    after = account.renew(first, now=10.5)
    account.wrote(after)
    assert (after, account.is_open) == (replace(first, advances={}), False)


def test_what_a_settler_has_taken_away_is_forgotten() -> None:
    account, after = opened(ledger(), ask("a"), ask("b"))
    account.draw(ask("c"), now=11)
    gone = replace(after, advances={})
    account.learn(gone)
    assert (account.close(gone), account.is_open) == (gone, False)


def test_one_write_is_for_so_many_pods_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(escrow, "MOST_DRAWN", 4)
    account, _ = opened(ledger(), ask("a"), ask("b"))
    assert not account.is_low
    assert [account.draw(ask(f"more-{n}", 0.1), now=11) for n in range(5)] == [True] * 4 + [False]
    assert account.is_low
