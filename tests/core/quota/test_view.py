"""Pods as one watcher has seen them."""

from fractions import Fraction

import pytest

from webhook.core.quota import settlement as module
from webhook.core.quota.settlement import View, ViewedPod
from webhook.core.quota.tally import Tally

ONE: Tally = {"devices": Fraction(1)}
THIRD: Tally = {"devices": Fraction(1, 3), "memory": Fraction(8)}


def pod(uid: str, amount: Tally = ONE, namespace: str = "dev") -> ViewedPod:
    return ViewedPod(uid, namespace, f"pod-of-{uid}", amount)


def test_a_view_sums_what_live_pods_hold_in_each_namespace() -> None:
    view = View()
    view.listed([pod("a"), pod("b", THIRD), pod("c", namespace="ci")], 5)
    view.saw(pod("d", THIRD), 6)
    view.saw(pod("a", {}), 7)
    view.lost("c", 8)
    assert {namespace: view.held(namespace) for namespace in ("dev", "ci", "other")} == {
        "dev": {"devices": Fraction(2, 3), "memory": Fraction(16)},
        "ci": {},
        "other": {},
    }


def test_a_view_never_goes_back() -> None:
    view = View()
    view.listed([pod("a")], 5)
    view.lost("a", 4)
    view.saw(pod("b"), 5)
    view.reached(3)
    assert (view.version, view.held("dev")) == (5, ONE)


def test_a_view_begins_anew_where_etcd_was_restored_from_a_backup() -> None:
    view = View()
    view.listed([pod("a"), pod("b")], 9)
    view.lost("b", 10)
    view.listed([pod("c", THIRD)], 4)
    assert (view.version, view.held("dev"), [uid in view for uid in "abc"]) == (4, THIRD, [False, False, True])


def test_a_view_remembers_pods_that_are_gone_but_not_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GONE", 2)
    view = View()
    view.listed([pod("a"), pod("b"), pod("c")], 5)
    view.lost("a", 6)
    view.listed([], 7)
    assert [uid in view for uid in ("a", "b", "c", "d")] == [False, True, True, False]


def test_a_pod_is_seen_as_it_is_at_a_version_once_the_view_has_reached_that() -> None:
    view = View()
    view.listed([pod("a")], 5)
    assert [view.has_seen("a", version) for version in (4, 5, 6)] == [True, True, False]
    view.lost("a", 6)
    assert [view.has_seen(uid, 6) for uid in ("a", "b")] == [True, False]
