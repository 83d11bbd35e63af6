"""What may happen to a ledger, one thing at a time; tests/laws/test_ledger.py tries all of it against everything."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from webhook.core.quota import ledger as core
from webhook.core.quota.ledger import (
    MOST_KEYS,
    MOST_SUSPECTS,
    Ask,
    Ledger,
    Outcome,
    Seen,
    blamed,
    namespaces,
    reserve,
    settle,
)
from webhook.core.quota.tally import Tally

HARD: Tally = {"devices": Fraction(4), "memory": Fraction(100)}
ADMIT = Outcome("admit")


def devices(count: float) -> Tally:
    return {"devices": Fraction(count)}


def ask(name: str, amount: Tally, uid: str = "", *, namespace: str = "dev", **more: Any) -> Ask:
    return Ask(namespace=namespace, name=name, uid=uid or f"uid-{name}", amount=amount, **more)


def holding(count: float, pending: core.Pending | None = None) -> Ledger:
    return Ledger(hard=HARD, held={"dev": devices(count), "ci": {}}, view=7, pending=pending or {})


def test_asks_are_reserved_one_after_the_other_until_the_limit_is_reached_exactly() -> None:
    asks = [
        ask("a", devices(2)),
        ask("b", devices(1)),
        ask("c", devices(0.5), namespace="ci"),
        ask("d", devices(0.5)),
    ]
    after, outcomes = reserve(holding(1), asks)
    assert outcomes == [ADMIT, ADMIT, Outcome("over", ("devices",)), Outcome("over", ("devices",))]
    assert after == holding(1, {"dev/a": {"uid-a": devices(2)}, "dev/b": {"uid-b": devices(1)}})
    assert after.used == devices(4)


def test_who_is_over_the_limit_of_the_policy_only_is_not_refused_but_has_to_wait() -> None:
    asks = [ask("a", devices(2), hard=devices(2)), ask("b", devices(2), hard={"devices": Fraction(9)})]
    after, outcomes = reserve(holding(1), asks)
    assert outcomes == [Outcome("wait", why=core.DIFFERS), ADMIT]
    assert after == holding(1, {"dev/b": {"uid-b": devices(2)}})
    unlimited = replace(holding(1), hard={}, advances={"you-1": devices(1)})
    assert reserve(unlimited, asks[:1])[1] == [Outcome("wait", why=core.DIFFERS)]


def test_a_smaller_ask_still_fits_after_a_larger_one_was_refused() -> None:
    after, outcomes = reserve(holding(3), [ask("large", devices(2)), ask("small", devices(1))])
    assert outcomes == [Outcome("over", ("devices",)), ADMIT]
    assert after.used == devices(4)


def test_what_is_over_already_stands_in_the_way_only_of_those_that_ask_for_it() -> None:
    over = holding(9)
    memory = {"memory": Fraction(1)}
    assert reserve(over, [ask("a", devices(1)), ask("b", memory)])[1] == [Outcome("over", ("devices",)), ADMIT]


def test_who_is_not_held_to_the_limit_is_admitted_and_told_and_counts() -> None:
    after, outcomes = reserve(holding(4), [ask("a", devices(1), enforced=False)])
    assert outcomes == [Outcome("admit", ("devices",))]
    assert after.used == devices(5)


def test_a_review_that_comes_twice_is_reserved_once() -> None:
    once, _ = reserve(holding(0), [ask("a", devices(4))])
    again, outcomes = reserve(once, [ask("a", devices(4))])
    assert again is once
    assert outcomes == [ADMIT]


def test_of_the_reservations_of_one_name_the_largest_counts() -> None:
    first = holding(1, {"dev/a": {"first": devices(2)}})
    after, outcomes = reserve(first, [ask("a", devices(1), "less"), ask("a", devices(3), "more")])
    assert outcomes == [ADMIT, ADMIT]
    assert after.used == devices(4)
    assert reserve(after, [ask("a", devices(3.5), "most")])[1] == [Outcome("over", ("devices",))]


@pytest.mark.parametrize(
    ("ledger", "why"),
    [
        (Ledger(hard=HARD), "nobody has counted yet what the tenant uses"),
        (Ledger(hard=HARD, held={"ci": {}}, view=7), "the namespace dev is not counted yet"),
        (Ledger(hard=HARD, view=7, joining={"dev": "token"}), "the namespace dev is not counted yet"),
        (
            Ledger(hard=HARD, held={"dev": {}}, view=7, unread=("x" * 99,)),
            f"its TenantUsage was edited; it cannot be read until it is counted anew: {'x' * 59}…",
        ),
        (
            Ledger(held={"dev": {}}, view=7, problems=("hard: [] is no map",)),
            "its TenantUsage was edited; it cannot be read until it is counted anew: hard: [] is no map",
        ),
    ],
)
def test_nothing_is_reserved_where_nobody_has_counted(ledger: Ledger, why: str) -> None:
    assert reserve(ledger, [ask("a", devices(1))]) == (ledger, [Outcome("again", why=why)])


def test_no_more_reservations_wait_than_a_ledger_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_PENDING", 2)
    asks = [
        ask("a", devices(1)),
        ask("a", devices(1), "retry"),
        ask("b", devices(1)),
        ask("a", devices(1), "more"),
        ask("a", devices(1)),
    ]
    after, outcomes = reserve(holding(0), asks)
    full = Outcome("again", why="2 pods of the tenant wait to be counted")
    assert outcomes == [ADMIT, ADMIT, full, full, ADMIT]
    assert after.pending == {"dev/a": {"uid-a": devices(1), "retry": devices(1)}}


def test_who_creates_the_same_name_for_ever_fills_only_its_own_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_OF_NAME", 2)
    asks = [ask("a", devices(1), f"{number}") for number in range(3)] + [ask("b", devices(1))]
    after, outcomes = reserve(holding(0), asks)
    assert outcomes == [ADMIT, ADMIT, Outcome("again", why="2 pods of this name wait to be counted"), ADMIT]
    assert after.used == devices(2)


@pytest.mark.parametrize("name", ["train", "a", "a.b-c.d0", "x" * 253, "a--b"])
def test_a_pod_may_be_called_so(name: str) -> None:
    assert core.is_of_a_pod(ask(name, devices(1), "6f0e8b8e-0000-4000-8000-0123456789ab"))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("name", name) for name in ("", "../../secrets", "a/log", "a?limit=1", "A", "a\n", "x" * 254)),
        *(("namespace", name) for name in ("", "a.b", "x" * 64)),
        *(("uid", uid) for uid in ("", "x" * 65, "a/b")),
    ],
)
def test_no_pod_is_called_so(field: str, wrong: Any) -> None:
    assert not core.is_of_a_pod(ask("train", devices(1))._replace(**{field: wrong}))


def test_a_settlement_keeps_what_it_has_not_seen_and_how_namespaces_come_in() -> None:
    pending = {"dev/a": {"seen": devices(1), "new": devices(1)}, "dev/b": {"never": devices(1)}}
    before = Ledger(
        hard=HARD, held={"dev": {}}, view=7, pending=pending, joining={"ci": "token"}, recount=3, recounted=1
    )
    after = settle(before, devices(2), Seen(9, {"dev": devices(1)}, {"seen", "other"}, {"never"}))
    assert after == Ledger(
        hard=devices(2),
        held={"dev": devices(1)},
        view=9,
        pending={"dev/a": {"new": devices(1)}},
        joining={"ci": "token"},
        recount=3,
        recounted=3,
    )


def test_who_has_seen_less_settles_nothing() -> None:
    assert settle(holding(1), HARD, Seen(6, {}, set())) is None


def test_nobody_is_refused_while_pods_may_be_counted_twice() -> None:
    closed = replace(holding(4), advances={"me-1": {}})
    after, outcomes = reserve(closed, [ask("a", devices(1)), ask("b", devices(1), enforced=False)])
    assert outcomes == [Outcome("wait", why=core.TWICE), Outcome("admit", ("devices",))]
    settled = settle(after, HARD, Seen(9, {"dev": devices(3)}, {"uid-b"}))
    assert settled is not None
    assert settled.advances == {}


def test_an_ask_that_only_advances_stand_in_the_way_of_is_not_refused_but_has_to_wait() -> None:
    known = replace(holding(1), advances={"me-1": devices(2), "you-1": devices(0.5)})
    asks = [ask("a", devices(0.5)), ask("b", devices(1)), ask("c", devices(3)), ask("d", devices(1), enforced=False)]
    after, outcomes = reserve(known, asks)
    assert outcomes == [ADMIT, Outcome("wait", why=core.AWAY), Outcome("over", ("devices",)), ADMIT]
    assert (after.used, after.advances) == (devices(2.5), known.advances)


SUSPECT = Outcome(
    "again",
    why="pods of this user were admitted and never stored, again and again, so for a while no more than 1/8 of the "
    "quota is reserved for such pods, until they are stored",
)


@pytest.mark.parametrize("suspects", [{"dev ann": 2}, {"dev": 4}], ids=["a user", "all of a namespace"])
def test_all_suspects_together_reserve_a_part_of_the_limit_and_others_the_rest(suspects: dict[str, int]) -> None:
    known = replace(holding(1, {"dev/z": {"u": devices(0.25)}}), authors={"u": "ann"}, suspects=suspects)
    after, outcomes = reserve(
        known,
        [
            ask("a", devices(0.5), author="ann"),
            ask("b", devices(0.25), author="ann"),
            ask("c", {"memory": Fraction(12)}, author="ann"),
            ask("d", {"memory": Fraction(1)}, author="ann"),
            ask("e", devices(2.5), author="ann", namespace="ci"),
        ],
    )
    assert outcomes == [SUSPECT, ADMIT, ADMIT, SUSPECT, ADMIT]
    assert after.authors == {"u": "ann", "uid-b": "ann", "uid-c": "ann", "uid-e": "ann"}


def test_a_suspect_who_is_not_held_to_the_limit_is_not_held_to_a_part_of_it() -> None:
    known = replace(holding(0), suspects={"dev ann": 2})
    assert reserve(known, [ask("a", devices(4), author="ann", enforced=False)])[1] == [ADMIT]


def test_who_was_unlucky_once_is_no_suspect() -> None:
    unlucky = replace(holding(0), suspects={"dev ann": 1, "dev": 3})
    assert reserve(unlucky, [ask("a", devices(4), author="ann")])[1] == [ADMIT]


def test_suspects_fill_only_a_part_of_the_room_for_reservations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MOST_PENDING", 16)
    known = replace(holding(0), suspects={"dev ann": 2})
    asks = [ask(name, devices(0.01), author="ann") for name in "abc"]
    assert reserve(known, asks)[1] == [ADMIT, ADMIT, SUSPECT]


def test_of_many_users_of_a_namespace_some_are_kept_in_mind_and_for_others_the_namespace_is_blamed() -> None:
    known = {f"dev {number}": 2 for number in range(MOST_SUSPECTS)}
    assert [blamed(known, "dev", author) for author in ("0", "new")] == [["dev 0"], ["dev"]]
    assert blamed(known, "ci", "new") == ["ci new", "ci"]


def test_many_who_are_blamed_at_once_are_not_all_kept_in_mind() -> None:
    many = frozenset({"dev", "ci", *(f"dev {number}" for number in range(100))})
    after = settle(replace(holding(0), suspects={"ci x": 1}), HARD, Seen(9, {}, set(), blamed=many))
    assert after is not None
    assert len(after.suspects) == MOST_SUSPECTS + 3


def test_what_comes_from_one_address_counts_against_nobody_at_another() -> None:
    suspects = {"dev@10.9.9.9 ann": 2, "dev@10.9.9.9": 4, "dev@10.8.8.8": 3}
    asks = [ask(f"a{number}", devices(1), author=author) for number, author in enumerate(AUTHORS)]
    assert reserve(replace(holding(0), suspects=suspects), asks)[1] == [ADMIT, ADMIT, ADMIT, SUSPECT, SUSPECT]
    assert namespaces(suspects) == ["dev@10.9.9.9"]


AUTHORS = ["ann", "ann@10.0.0.1", "ann@10.8.8.8", "ann@10.9.9.9", "bob@10.9.9.9"]


def test_who_comes_from_an_address_is_blamed_there_however_many_come_from_others() -> None:
    others = {f"dev@10.9.9.9 {number}": 2 for number in range(MOST_SUSPECTS)}
    assert blamed(others, "dev", "ann@10.9.9.9") == ["dev@10.9.9.9"]
    assert blamed(others, "dev", "ann@10.0.0.1") == ["dev@10.0.0.1 ann", "dev@10.0.0.1"]
    assert blamed(others, "dev", "ann") == ["dev ann", "dev"]


def test_whoever_has_many_addresses_does_not_make_a_ledger_long() -> None:
    many = frozenset({"ci", "ci ann", *(f"dev@10.9.{number}.9" for number in range(2 * MOST_KEYS))})
    after = settle(replace(holding(0), suspects={"dev": 1}), HARD, Seen(9, {}, set(), blamed=many))
    assert after is not None
    assert len(after.suspects) == MOST_KEYS
    assert {"dev": 1, "ci": 1, "ci ann": 1}.items() <= after.suspects.items()
