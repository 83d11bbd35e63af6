"""What may happen to a ledger, one thing at a time; tests/laws/test_ledger.py tries all of it against everything."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import tables
from tests.core.quota.steps import ask, fields, tally
from webhook.core.quota import ledger as core
from webhook.core.quota.ledger import MOST_KEYS, MOST_SUSPECTS, Ledger, Seen, blamed, namespaces, reserve, settle

HARD = tally({"devices": 4, "memory": 100})
EMPTY = Ledger(hard=HARD, held={"dev": {}, "ci": {}}, view=7)


@tables.rows
def test_a_ledger_reserves(
    known: Any,
    asks: list[Any],
    outcomes: list[Any],
    after: Any,
    most: Mapping[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An outcome is a verdict, and what is exceeded or why; `most` are constants. `same` is the object itself."""
    for name, value in most.items():
        monkeypatch.setattr(core, name, value)
    ledger = replace(EMPTY, **fields(known))

    written, told = reserve(ledger, [ask(asked) for asked in asks])

    assert [[outcome.verdict, *outcome.exceeded, *filter(None, [outcome.why])] for outcome in told] == outcomes
    assert written == (ledger if after == "same" else replace(EMPTY, **fields(after)))
    assert (written is ledger) == (after == "same")


@pytest.mark.parametrize("name", ["train", "a", "a.b-c.d0", "x" * 253, "a--b"])
def test_a_pod_may_be_called_so(name: str) -> None:
    assert core.is_of_a_pod(ask({"name": name, "uid": "6f0e8b8e-0000-4000-8000-0123456789ab"}))


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("name", name) for name in ("", "../../secrets", "a/log", "a?limit=1", "A", "a\n", "x" * 254)),
        *(("namespace", name) for name in ("", "a.b", "x" * 64)),
        *(("uid", uid) for uid in ("", "x" * 65, "a/b")),
    ],
)
def test_no_pod_is_called_so(field: str, wrong: Any) -> None:
    assert not core.is_of_a_pod(ask("train")._replace(**{field: wrong}))


def test_a_settlement_keeps_what_it_has_not_seen_and_how_namespaces_come_in() -> None:
    pending = {"dev/a": {"seen": tally(1), "new": tally(1)}, "dev/b": {"never": tally(1)}}
    before = Ledger(
        hard=HARD, held={"dev": {}}, view=7, pending=pending, joining={"ci": "token"}, recount=3, recounted=1
    )

    after = settle(before, tally(2), Seen(9, {"dev": tally(1)}, {"seen", "other"}, {"never"}))

    assert after == Ledger(
        hard=tally(2),
        held={"dev": tally(1)},
        view=9,
        pending={"dev/a": {"new": tally(1)}},
        joining={"ci": "token"},
        recount=3,
        recounted=3,
    )


def test_who_has_seen_less_settles_nothing() -> None:
    assert settle(EMPTY, HARD, Seen(6, {}, set())) is None


def test_a_settlement_ends_what_was_closed() -> None:
    settled = settle(replace(EMPTY, advances={"me-1": {}}), HARD, Seen(9, {"dev": tally(3)}, set()))

    assert settled == replace(EMPTY, held={"dev": tally(3)}, view=9)


def test_of_many_users_of_a_namespace_some_are_kept_in_mind_and_for_others_the_namespace_is_blamed() -> None:
    known = {f"dev {number}": 2 for number in range(MOST_SUSPECTS)}

    assert [blamed(known, "dev", author) for author in ("0", "new")] == [["dev 0"], ["dev"]]
    assert blamed(known, "ci", "new") == ["ci new", "ci"]


@pytest.mark.parametrize(
    ("known", "new", "kept"),
    [
        ({"ci x": 1}, {"dev", "ci", *(f"dev {number}" for number in range(100))}, MOST_SUSPECTS + 3),
        ({"dev": 1}, {"ci", "ci ann", *(f"dev@10.9.{number}.9" for number in range(2 * MOST_KEYS))}, MOST_KEYS),
    ],
    ids=["many users at once", "many addresses"],
)
def test_however_many_are_blamed_a_ledger_stays_short(known: dict[str, int], new: set[str], kept: int) -> None:
    after = settle(replace(EMPTY, suspects=known), HARD, Seen(9, {}, set(), blamed=frozenset(new)))

    assert after is not None
    assert len(after.suspects) == kept
    assert {
        **known,
        **{key: 1 for key in new if "@" not in key and key.startswith("ci")},
    }.items() <= after.suspects.items()


def test_the_namespaces_in_which_somebody_is_bounded_are_named_with_the_address() -> None:
    assert namespaces({"dev@10.9.9.9 ann": 2, "dev@10.9.9.9": 4, "dev@10.8.8.8": 3}) == ["dev@10.9.9.9"]


def test_who_comes_from_an_address_is_blamed_there_however_many_come_from_others() -> None:
    others = {f"dev@10.9.9.9 {number}": 2 for number in range(MOST_SUSPECTS)}

    assert blamed(others, "dev", "ann@10.9.9.9") == ["dev@10.9.9.9"]
    assert blamed(others, "dev", "ann@10.0.0.1") == ["dev@10.0.0.1 ann", "dev@10.0.0.1"]
    assert blamed(others, "dev", "ann") == ["dev ann", "dev"]
