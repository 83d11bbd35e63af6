"""What a settler knows and may write, step by step; tests/laws/test_ledger.py tries it against everything at once."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from webhook.core.quota.ledger import FORGET, UNKNOWN_VIEW, Ledger
from webhook.core.quota.settlement import Settlement, Step, ViewedPod
from webhook.core.quota.tally import Tally

GRACE = 10.0
ONE: Tally = {"devices": Fraction(1)}
HARD: Tally = {"devices": Fraction(4)}


def pod(uid: str, amount: Tally = ONE, namespace: str = "dev") -> ViewedPod:
    return ViewedPod(uid, namespace, f"pod-of-{uid}", amount)


def settler(*pods: ViewedPod, version: int = 5) -> Settlement:
    made = Settlement("me", GRACE)
    made.view.listed(pods, version)
    return made


def counted(**others: Any) -> Ledger:
    """A ledger that counts the namespace `dev`."""
    return replace(Ledger(hard=HARD, held={"dev": {}}, view=3), **others)


def test_a_reservation_ends_when_its_pod_was_seen_or_came_and_went() -> None:
    me = settler(pod("live"))
    me.view.saw(pod("short"), 6)
    me.view.lost("short", 7)
    pending = {"dev/one": {"live": ONE, "before": ONE}, "dev/two": {"short": ONE}}
    me.read("vision", counted(pending=pending), now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(
        counted(held={"dev": ONE}, view=7, pending={"dev/one": {"before": ONE}}), wake=100 + GRACE
    )


def test_a_reservation_of_a_pod_that_never_came_ends_after_a_read_that_was_sent_after_the_grace() -> None:
    me = settler()
    ledger = counted(pending={"dev/one": {"never": ONE}})
    me.read("vision", ledger, now=100)
    assert me.step("vision", HARD, ["dev"], now=110) == Step(wake=110)
    assert me.step("vision", HARD, ["dev"], now=111) == Step(get=frozenset({"dev/one"}))
    me.found("vision", "dev/one", None, asked=110)
    me.found("vision", "dev/one", "never", asked=111)
    assert me.step("vision", HARD, ["dev"], now=112) == Step(get=frozenset({"dev/one"}))
    me.found("vision", "dev/one", "of another pod", asked=111)
    blamed = {"dev": 1, "dev ": 1}
    assert me.step("vision", HARD, ["dev"], now=112) == Step(counted(view=5, suspects=blamed))


def came_to_nothing(me: Settlement, ledger: Ledger, now: float) -> Ledger:
    """The ledger after all that is pending in it was found to have no pod, a grace after `now`."""
    me.read("vision", ledger, now)
    for name in ledger.pending:
        me.found("vision", name, None, asked=now + GRACE + 1)
    written = me.step("vision", HARD, ["dev"], now + GRACE + 1).ledger
    assert written is not None
    me.read("vision", written, now + GRACE + 1)
    return written


def test_reservations_that_come_to_nothing_count_once_against_their_author_and_the_namespace() -> None:
    me = settler()
    pending = {"dev/one": {"u-1": ONE, "u-2": ONE}, "dev/two": {"u-3": ONE}}
    authors = {"u-1": "ann", "u-2": "ann", "u-3": "bob"}
    after = came_to_nothing(me, counted(pending=pending, authors=authors), 100)
    assert after == counted(view=5, suspects={"dev": 1, "dev ann": 1, "dev bob": 1})


def test_only_reservations_that_were_made_after_the_last_ones_came_to_nothing_count_again() -> None:
    me = settler()
    first = counted(pending={"dev/one": {"u-1": ONE}}, authors={"u-1": "ann", "u-2": "ann"})
    me.read("vision", first, 100)
    me.read("vision", replace(first, pending={**first.pending, "dev/two": {"u-2": ONE}}), 105)
    me.found("vision", "dev/one", None, asked=111)
    after = me.step("vision", HARD, ["dev"], 111).ledger
    assert after is not None
    me.read("vision", after, 111)
    me.found("vision", "dev/two", None, asked=116)
    before = me.step("vision", HARD, ["dev"], 116).ledger
    assert before == counted(view=5, suspects={"dev": 1, "dev ann": 1})
    later = came_to_nothing(me, replace(before, pending={"dev/one": {"u-3": ONE}}, authors={"u-3": "ann"}), 120)
    assert later.suspects == {"dev": 2, "dev ann": 2}
    last = came_to_nothing(me, replace(later, pending={"dev/one": {"u-4": ONE}}, authors={"u-4": "ann"}), 140)
    assert last.suspects == {"dev": 2, "dev ann": 3}


def test_what_came_to_nothing_is_forgotten_after_a_while() -> None:
    me = settler()
    ledger = counted(view=5, suspects={"dev": 1, "dev ann": 2})
    me.read("vision", ledger, 100)
    me.read("vision", replace(ledger, suspects={"dev": 1, "dev ann": 3}), 150)
    due = 100 + FORGET * GRACE
    assert me.step("vision", HARD, ["dev"], due) == Step(wake=due)
    assert me.step("vision", HARD, ["dev"], due + 1) == Step(
        replace(ledger, suspects={"dev ann": 3}), wake=150 + FORGET * GRACE
    )


def test_an_advance_is_taken_away_after_the_grace_and_a_look_at_the_pods_that_may_be_of_it() -> None:
    me = settler()
    ledger = counted(advances={"you-1": ONE})
    me.read("vision", ledger, now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(wake=110)
    me.looked("dev", [], asked=110)
    assert me.step("vision", HARD, ["dev"], now=111) == Step(look=frozenset({"dev"}))
    me.looked("dev", [("late", 9)], asked=111)
    assert me.step("vision", HARD, ["dev"], now=112) == Step(look=frozenset({"dev"}))
    me.view.saw(pod("late"), 9)
    assert me.step("vision", HARD, ["dev"], now=112) == Step(counted(held={"dev": ONE}, view=9))


def test_who_wants_a_count_gets_it_whatever_is_set_aside() -> None:
    me = settler(pod("live"))
    waiting = counted(advances={"you-1": ONE, "me-1": {}}, recount=1)
    me.read("vision", waiting, now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(
        counted(held={"dev": ONE}, view=5, advances={"you-1": ONE}, recount=1, recounted=1), wake=110
    )


def test_a_namespace_does_not_leave_while_something_is_set_aside_for_its_pods() -> None:
    me = settler()
    advanced = counted(held={"dev": {}, "ci": {}}, advances={"you-1": ONE})
    me.read("vision", advanced, now=100)
    recalled = replace(advanced, view=5, recount=1)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(recalled, wake=110)
    me.read("vision", recalled, now=101)
    assert me.step("vision", HARD, ["dev"], now=101) == Step(wake=110)
    me.read("vision", replace(recalled, advances={"you-1": {}}), now=102)
    assert me.step("vision", HARD, ["dev"], now=102).ledger == counted(view=5, recount=1, recounted=1)


def test_nothing_is_written_over_what_somebody_has_settled_who_has_seen_more() -> None:
    me = settler(version=5)
    me.read("vision", counted(view=6, pending={"dev/one": {"new": ONE}}), now=100)
    assert me.step("vision", {}, [], now=100) == Step(newest=True, wake=110)
    me.newest("vision", 6, 7)
    assert me.step("vision", {}, [], now=100) == Step(wake=110)


def test_a_view_that_is_later_than_the_cluster_is_no_fence_for_who_has_seen_as_much_as_a_list_after_it() -> None:
    me = settler(pod("live"), version=5)
    ledger = counted(view=1000, pending={"dev/one": {"new": ONE}})
    me.read("vision", ledger, now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(newest=True, wake=110)
    me.newest("vision", 1000, 6)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(wake=110)
    me.view.reached(6)
    said = "view: 1000 is later than the version of the cluster, 6"
    assert me.step("vision", HARD, ["dev"], now=100) == Step(
        replace(ledger, held={"dev": ONE}, view=6, repaired=said), wake=110
    )


def test_the_list_after_another_view_says_nothing_of_this_one() -> None:
    me = settler(version=5)
    me.read("vision", counted(view=1000), now=100)
    me.newest("vision", 900, 5)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(newest=True)


def test_what_a_settler_knows_better_is_written_anew_where_it_cannot_be_read() -> None:
    me = settler(pod("live"), version=5)
    me.read("vision", counted(hard={}, view=UNKNOWN_VIEW, problems=("hard: x", "view: y")), now=100)
    me.newest("vision", UNKNOWN_VIEW, 5)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(
        counted(held={"dev": ONE}, view=5, repaired="hard: x; view: y")
    )


def test_a_line_that_cannot_be_read_is_removed_when_no_pod_of_it_can_appear_any_more() -> None:
    me = settler()
    ledger = counted(unread=("dev/one u devices=?",))
    me.read("vision", ledger, now=100)
    assert me.step("vision", HARD, ["dev"], now=110) == Step(wake=110)
    assert me.step("vision", HARD, ["dev"], now=111) == Step(look=frozenset({"dev"}))
    me.looked("dev", [("late", 9)], asked=111)
    assert me.step("vision", HARD, ["dev"], now=112) == Step(look=frozenset({"dev"}))
    me.view.saw(pod("late"), 9)
    assert me.step("vision", HARD, ["dev"], now=112) == Step(counted(held={"dev": ONE}, view=9))


def test_a_ledger_that_cannot_be_read_keeps_only_the_namespaces_waiting_that_it_names() -> None:
    me = settler()
    me.born("ci", 99)
    joining = {"ci": "me-1", "other": "me-2"}
    broken = counted(held={"other": {}}, view=UNKNOWN_VIEW, problems=("held.other: x",))
    me.roll({"vision": counted(joining=joining), "audio": broken}, now=100)
    assert me.step("vision", HARD, ["dev", *joining], now=100) == Step(roll=True, look=frozenset({"ci"}))


def test_a_line_that_cannot_be_read_may_be_of_any_namespace() -> None:
    me = settler()
    me.born("ci", 99)
    me.roll({"vision": counted(joining={"ci": "me-1"}), "audio": Ledger(unread=("x",))}, now=100)
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(wake=110)


def test_a_newer_view_alone_is_no_reason_to_write_but_a_wish_to_be_counted_anew_is() -> None:
    me = settler(version=5)
    me.read("vision", counted(), now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step()
    me.read("vision", counted(recount=2, recounted=1), now=100)
    assert me.step("vision", HARD, ["dev"], now=100) == Step(counted(view=5, recount=2, recounted=2))


def test_a_tenant_without_a_ledger_gets_one_that_counts_nothing_yet() -> None:
    assert settler().step("vision", HARD, ["dev"], now=100) == Step(Ledger(hard=HARD, view=5))
    assert Settlement("me").step("vision", HARD, ["dev"], now=100) == Step()


def test_a_namespace_comes_in_after_the_ledgers_the_grace_and_a_look_at_its_pods() -> None:
    me = settler(pod("old", ONE, "ci"))
    me.read("vision", counted(), now=100)
    joining = counted(view=5, joining={"ci": "me-1"})
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(joining)
    me.read("vision", joining, now=101)
    assert me.step("vision", HARD, ["dev", "ci"], now=101) == Step(roll=True)
    me.roll({"vision": joining}, now=102)
    assert me.step("vision", HARD, ["dev", "ci"], now=102) == Step(wake=112)
    me.looked("ci", [("old", 5)], asked=111)
    assert me.step("vision", HARD, ["dev", "ci"], now=112) == Step(look=frozenset({"ci"}))
    me.looked("ci", [("old", 5), ("late", 9)], asked=112)
    assert me.step("vision", HARD, ["dev", "ci"], now=113) == Step(look=frozenset({"ci"}))
    me.view.saw(pod("late", ONE, "ci"), 9)
    both = {"dev": {}, "ci": {"devices": Fraction(2)}}
    assert me.step("vision", HARD, ["dev", "ci"], now=113) == Step(counted(view=9, held=both))


def test_a_pod_that_was_seen_before_it_changed_was_not_seen_as_it_came_in() -> None:
    me = settler(pod("grown", ONE, "ci"))
    me.born("ci", 99)
    me.roll({"vision": counted(joining={"ci": "me-1"})}, now=100)
    me.looked("ci", [("grown", 7)], asked=100)
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(look=frozenset({"ci"}))
    me.view.reached(6)
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(look=frozenset({"ci"}))
    larger = {"devices": Fraction(3)}
    me.view.saw(pod("grown", larger, "ci"), 7)
    both = {"dev": {}, "ci": larger}
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(counted(view=7, held=both))


def test_a_namespace_waits_until_no_other_ledger_has_it_and_leaves_the_one_it_does_not_belong_to() -> None:
    me = settler()
    other = counted(held={"ci": {}})
    me.read("vision", counted(), now=100)
    me.read("audio", other, now=100)
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step()
    assert me.step("audio", HARD, [], now=100) == Step(counted(view=5, held={}))


def test_a_namespace_that_joins_elsewhere_too_is_not_clear_and_another_token_waits_anew() -> None:
    me = settler()
    mine, theirs = counted(joining={"ci": "me-1"}), counted(held={}, joining={"ci": "you-1"})
    me.roll({"vision": mine, "audio": theirs}, now=100)
    assert me.step("vision", HARD, ["dev", "ci"], now=150) == Step(roll=True)
    me.roll({"vision": mine, "audio": counted(held={})}, now=150)
    assert me.step("vision", HARD, ["dev", "ci"], now=150) == Step(wake=160)
    me.read("vision", counted(joining={"ci": "you-2"}), now=170)
    assert me.step("vision", HARD, ["dev", "ci"], now=170) == Step(roll=True)


@pytest.mark.parametrize(
    ("pending", "opened", "clear"),
    [
        pytest.param({}, None, 100.0, id="a new one waits for nothing"),
        pytest.param({"ci/one": {"u": ONE}}, None, 110.0, id="one with a reservation in any ledger waits"),
        pytest.param({}, 95.0, 110.0, id="one that was there a moment ago waits"),
        pytest.param({}, 80.0, 100.0, id="one that was there long ago does not"),
    ],
)
def test_the_grace_is_waited_where_somebody_can_have_been_admitted(
    pending: dict[str, dict[str, Tally]], opened: float | None, clear: float
) -> None:
    me = settler()
    if opened is not None:
        me.open("ci", opened)
    me.born("ci", 99)
    ledger = counted(joining={"ci": "me-1"})
    me.roll({"vision": ledger, "audio": counted(held={}, pending=pending)}, now=100)
    step = me.step("vision", HARD, ["dev", "ci"], now=100)
    assert step == (Step(look=frozenset({"ci"})) if clear == 100 else Step(wake=clear))


def test_a_namespace_that_is_new_has_to_wait_if_policies_change_before_it_is_counted() -> None:
    me = settler()
    me.born("ci", 99)
    me.changed()
    me.roll({"vision": counted(joining={"ci": "me-1"})}, now=100)
    assert me.step("vision", HARD, ["dev", "ci"], now=100) == Step(wake=110)


def test_a_namespace_that_was_opened_or_counted_is_not_new_any_more() -> None:
    me = settler()
    for namespace in ("open", "counted"):
        me.born(namespace, 50)
    me.open("open", 60)
    me.read("audio", counted(held={"counted": {}}), now=60)
    ledger = counted(joining={"open": "me-1", "counted": "me-2"})
    me.roll({"vision": ledger}, now=100)
    assert me.step("vision", HARD, ["dev", "open", "counted"], now=100) == Step(wake=110)
