"""Decisions that are remembered: of whom, and for how long."""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy.tenants import exemption
from webhook.core.decision import Decision, Reservation
from webhook.core.quota.tally import Ask
from webhook.core.review import AdmissionRequest, creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy
from webhook.server import handler
from webhook.server.handler import Memo

RULES = builders.rulebook(builders.shipped_files())


@dataclass
class Judge:
    """Counts what it is asked."""

    asked: list[AdmissionRequest] = field(default_factory=list)

    def __call__(self, request: AdmissionRequest, _: Rulebook) -> Decision:
        self.asked.append(request)
        return Decision(allowed=True)


def review(
    name: str, *, gpu: str = "0.3", image: str = "train:1", controller: str = "train-", **others: Any
) -> AdmissionRequest:
    pod = {
        "metadata": {"name": name, "generateName": controller, "labels": {"gpu": gpu}},
        "spec": {"containers": [{"name": "main", "image": image}]},
    }
    return creating(pod, uid=f"review of {name}", namespace="dev")._replace(**others)


def privileged(*, value: object) -> AdmissionRequest:
    containers = [{"name": "main", "securityContext": {"privileged": value}}]
    return creating({"metadata": {}, "spec": {"containers": containers}}, uid="review", namespace="dev")


def asked(*reviews: AdmissionRequest, rules: Rulebook = RULES) -> int:
    """How many of them are judged, and not remembered."""
    judge, known = Judge(), Memo()
    for each in reviews:
        known.decide("mutate", judge, each, rules)
    return len(judge.asked)


@tables.rows
def test_what_was_decided_about_one_pod_holds_for_those_that_are_alike(
    reviews: list[dict[str, Any]], judged: int
) -> None:
    assert asked(*(review(**fields) for fields in reviews)) == judged


def test_what_only_python_takes_for_the_same_is_judged() -> None:
    assert asked(privileged(value=1), privileged(value=True), privileged(value=1)) == 2


def test_what_is_remembered_is_reserved_for_the_pod_there_is() -> None:
    ask = Ask(namespace="dev", amount={"devices": Fraction(1)})
    wanted = Reservation(tenant="vision", ask=ask, path="spec", rule="vision")

    def judge(_: AdmissionRequest, __: Rulebook) -> Decision:
        return Decision(allowed=True, reservation=wanted)

    def made(name: str) -> AdmissionRequest:
        metadata = {"name": name, "uid": f"u-{name}", "creationTimestamp": "2026-11-22T12:00:05Z"}
        return creating({"metadata": metadata, "spec": {"containers": []}}, uid="review", namespace="dev")

    known = Memo()
    told = [known.decide("validate", judge, made(name), RULES).reservation for name in ("a", "b")]
    author = made("a").author
    asks = [ask._replace(name=n, uid=f"u-{n}", author=author, created=1_795_348_805.0) for n in ("a", "b")]
    assert told == [replace(wanted, ask=each) for each in asks]


def test_what_was_refused_is_judged_again() -> None:
    known, refused = Memo(), []

    def judge(request: AdmissionRequest, _: Rulebook) -> Decision:
        refused.append(request)
        return Decision(allowed=False)

    for name in ("a", "b"):
        known.decide("mutate", judge, review(name), RULES)
    assert len(refused) == 2


def test_other_rules_decide_anew() -> None:
    judge, known = Judge(), Memo()
    for rules in (RULES, replace(RULES), RULES):
        known.decide("mutate", judge, review("a"), rules)
    assert len(judge.asked) == 3


def test_each_path_remembers_for_itself() -> None:
    judge, known = Judge(), Memo()
    for path in ("mutate", "validate", "mutate", "validate"):
        known.decide(path, judge, review("a"), RULES)
    assert len(judge.asked) == 2


def test_where_an_exemption_may_hold_user_and_second_count() -> None:
    exempted = replace(RULES, tenancy=Tenancy(exemptions=[exemption(namespaces=("dev*",))]))
    reviews = [review("a", at=1.2), review("b", at=1.9), review("c", at=2.0), review("d", at=2.0, user="somebody")]
    assert asked(*reviews, rules=exempted) == 3
    assert asked(*(each._replace(namespace="ci") for each in reviews), rules=exempted) == 1


def test_what_a_kubelet_shows_is_remembered_for_nobody_else() -> None:
    """Whether it may have its node is decided by who sends it."""
    shown = {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "gpu-7"}}
    node, tenant = (review("a", user=user)._replace(pod=shown) for user in ("system:node:gpu-7", "ada"))

    assert asked(node, node, tenant) == 2


def test_a_pod_that_is_nested_deeper_than_it_can_be_compared_is_judged() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"deep": deep}
    nested = review("a")._replace(pod={"metadata": {}, "spec": {"nodeSelector": deep}})
    assert asked(nested, nested) == 2


def test_large_projections_are_not_remembered() -> None:
    large = review("a")._replace(pod={"metadata": {}, "spec": {"nodeSelector": {"zone": "a" * handler.LONGEST}}})
    assert asked(large, large) == 2


def test_where_there_is_no_room_the_oldest_decision_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "REMEMBERED", 2)
    assert asked(*(review("a", gpu=share) for share in ("0.1", "0.2", "0.3", "0.3", "0.2", "0.1"))) == 4
