"""What a quota says: who uses how much, what is asked, what would fit, and who would have to free some."""

from fractions import Fraction
from typing import Any

import pytest

from tests import tables
from webhook.core import decision
from webhook.core.decision import Form, Reservation
from webhook.core.policy import limits
from webhook.core.quota.ledger import Ask, Ledger, reserve

GIB = 1 << 30
RESERVATION = Reservation(
    tenant="vision",
    ask=Ask(namespace="vision-dev", name="train", uid="u-1", amount={"devices": Fraction(4)}),
    path='spec.containers[1].resources.limits["nvidia.com/gpu"]',
    rule="vision (tenants.yaml:41)",
)


def _asking(count: int = 1, form: Form = "", **amount: str | int) -> Reservation:
    ask = RESERVATION.ask
    amounts = {key.replace("_", "/"): Fraction(value) for key, value in amount.items()}
    return Reservation(
        tenant="vision",
        ask=Ask(namespace=ask.namespace, name=ask.name, uid=ask.uid, amount=amounts),
        path=RESERVATION.path,
        rule=RESERVATION.rule,
        count=count,
        form=form,
    )


def _ledger(hard: dict[str, Any], pending: Any = None, **held: Any) -> Ledger:
    return Ledger(
        hard={key: Fraction(value) for key, value in hard.items()},
        held={
            name.replace("_", "-"): {key: Fraction(value) for key, value in amount.items()}
            for name, amount in held.items()
        },
        view=7,
        pending=pending or {},
    )


USED = _ledger({"devices": 16}, vision_dev={"devices": 9}, vision_ci={"devices": 5}, vision_old={})


def test_the_message_says_who_uses_what_and_what_would_fit() -> None:
    (violation,) = limits.over(RESERVATION, USED, ["devices"])

    assert str(violation) == (
        '[GPU104] tenant "vision" is over its GPU quota: uses 14, asks 4, limit 16 devices\n'
        '  at   spec.containers[1].resources.limits["nvidia.com/gpu"]\n'
        "  rule vision (tenants.yaml:41)\n"
        "  fix  ask for 2 or fewer, or free some: namespace vision-dev holds 9, vision-ci 5"
    )


def test_what_is_promised_to_pods_not_seen_yet_is_held_by_their_namespace() -> None:
    pending = {"vision-ci/one": {"a": {"devices": Fraction(1)}, "b": {"devices": Fraction(2)}}}
    ledger = _ledger({"devices": 16}, pending, vision_dev={"devices": 9}, vision_ci={"devices": 5})

    (violation,) = limits.over(RESERVATION, ledger, ["devices"])

    assert "uses 16, asks 4, limit 16" in violation.message
    assert violation.fix == "free some: namespace vision-dev holds 9, vision-ci 7"


def test_the_pods_own_reservation_is_not_what_it_is_refused_for() -> None:
    after, (outcome,) = reserve(USED, [RESERVATION.ask._replace(enforced=False)])

    assert outcome.exceeded == ("devices",)
    assert limits.over(RESERVATION, after, ["devices"]) == limits.over(RESERVATION, USED, ["devices"])


def test_five_namespaces_are_named_those_that_hold_most() -> None:
    held = {f"vision-{name}": {"devices": 1 + (name == "d")} for name in "abcdefgh"}
    ledger = _ledger({"devices": 9}, **held)

    (violation,) = limits.over(RESERVATION, ledger, ["devices"])

    assert violation.fix == (
        "free some: namespace vision-d holds 2, vision-a 1, vision-b 1, vision-c 1, vision-e 1 and 3 more"
    )


@tables.rows
def test_each_limit_is_said_in_its_own_unit(
    key: str, limit: int, used: str | int, asked: str | int, message: str, fix: str
) -> None:
    ledger = _ledger({key: limit}, vision_dev={key: used})
    ask = Ask(namespace="vision-dev", name="train", uid="u-1", amount={key: Fraction(asked)})

    (violation,) = limits.over(Reservation(tenant="vision", ask=ask, path="spec", rule=""), ledger, [key])

    assert message in violation.message
    assert violation.fix.startswith(fix)


@pytest.mark.parametrize(
    ("asked", "fixes"),
    [
        (
            _asking(count=2, devices=1, memory=40 * GIB),
            ["1 of them instead of 2, as each counts 0.5", "1 of them instead of 2, as each counts 20Gi"],
        ),
        (
            _asking(count=4, devices="8/3", memory=8 * GIB),
            ["1 of them instead of 4, as each counts about 0.67", "1 of them instead of 4, as each counts 2Gi"],
        ),
        (_asking(count=2, devices=2, memory=48 * GIB), ["1 or fewer", "1 of them instead of 2, as each counts 24Gi"]),
        (_asking(count=2, devices=2, memory=64 * GIB), ["1 or fewer", "30Gi or less"]),
        (_asking(devices=2, memory=48 * GIB), ["1 or fewer", "30Gi or less"]),
    ],
    ids=["partitions", "parts, of which the fewest fit by devices", "whole cards", "none fits", "unlike"],
)
def test_who_asks_for_several_is_told_how_many_would_fit(asked: Reservation, fixes: list[str]) -> None:
    ledger = _ledger({"devices": 2, "memory": 64 * GIB}, vision_dev={"devices": 1, "memory": 34 * GIB})

    violations = limits.over(asked, ledger, ["devices", "memory"])

    free = ["namespace vision-dev holds 1", "namespace vision-dev holds 34Gi"]
    told = [f"ask for {fix}, or free some: {holders}" for fix, holders in zip(fixes, free, strict=True)]
    assert [violation.fix for violation in violations] == told


@tables.rows
def test_what_is_named_instead_can_be_asked_for_in_the_words_of_the_pod(form: Form, fixes: list[str]) -> None:
    ledger = _ledger({"devices": 1, "memory": 24 * GIB}, vision_dev={"devices": "0.7", "memory": 10 * GIB})

    violations = limits.over(_asking(form=form, devices=1, memory=20 * GIB), ledger, ["devices", "memory"])

    assert [violation.fix.partition(", or free some")[0] for violation in violations] == fixes


def test_where_nobody_holds_any_the_limit_is_what_fits() -> None:
    assert limits.over(_asking(devices=20), _ledger({"devices": 16}), ["devices"])[0].fix == (
        "ask for 16 or fewer: nobody holds any now"
    )
    assert limits.over(_asking(devices=1), _ledger({"devices": 0}), ["devices"])[0].fix == (
        "ask the operators of the quota for more: it is zero"
    )


def test_every_limit_that_is_exceeded_is_said() -> None:
    ledger = _ledger({"devices": 1, "memory": GIB})

    violations = limits.over(_asking(devices=2, memory=2 * GIB), ledger, ["devices", "memory"])

    assert [violation.code for violation in violations] == ["GPU104", "GPU104"]
    assert decision.denied(violations).code == 403


def test_a_quota_that_only_warns_says_the_same_in_one_line() -> None:
    assert limits.admitted_over(RESERVATION, USED, ["devices"]) == [
        (
            '[GPU104] tenant "vision" is over its GPU quota: uses 14, asks 4, limit 16 devices; it is admitted, '
            "as the policy only warns"
        )
    ]


def test_what_cannot_be_said_now_is_asked_for_again() -> None:
    violation = limits.again(RESERVATION, "nobody has counted yet what the tenant uses")

    assert violation.message == (
        'the quota of the tenant "vision" cannot be asked now: nobody has counted yet what the tenant uses'
    )
    assert decision.denied([violation]).code == 503
