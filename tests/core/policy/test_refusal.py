"""What a quota says: who uses how much, what is asked, what would fit, and who would have to free some."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tests import builders, tables
from webhook.core.decision import Decision, Reservation, denied
from webhook.core.policy import quota_words
from webhook.core.quota.ledger import Ledger, Outcome, reserve
from webhook.core.quota.tally import Ask

GIB = 1 << 30
RESERVATION = Reservation(
    tenant="vision",
    ask=Ask(namespace="vision-dev", name="train", uid="u-1", amount={"devices": Fraction(4)}),
    path='spec.containers[1].resources.limits["nvidia.com/gpu"]',
    rule="vision (tenants.yaml:41)",
)


def _amounts(fields: Mapping[str, Any]) -> dict[str, Fraction]:
    return {key: Fraction(builders.size(text) if "memory" in key else text) for key, text in fields.items()}


def _ledger(hard: Mapping[str, Any], held: Mapping[str, Any], promised: Mapping[str, Any]) -> Ledger:
    counted = {namespace: _amounts(amount) for namespace, amount in held.items()}
    pending = {pod: {uid: _amounts(amount) for uid, amount in uids.items()} for pod, uids in promised.items()}
    return Ledger(hard=_amounts(hard), held=counted, view=7, pending=pending)


HELD = {"vision-dev": {"devices": 9}, "vision-ci": {"devices": 5}, "vision-old": {}}
USED = _ledger({"devices": 16}, HELD, {})


@tables.rows
def test_a_quota_that_is_exceeded_says(
    limit: Mapping[str, Any],
    held: Mapping[str, Any],
    asked: Mapping[str, Any],
    promised: Mapping[str, Any],
    messages: list[str],
    fixes: list[str],
) -> None:
    """What is asked has an amount and, unless they are usual, how many equal devices it is, and in which form.

    Promised is what admitted pods have of which nothing is seen yet.
    """
    ask = RESERVATION.ask._replace(amount=_amounts(asked["amount"]))
    others = {key: value for key, value in asked.items() if key != "amount"}
    reservation = replace(RESERVATION, ask=ask, **others)

    violations = quota_words.over(reservation, _ledger(limit, held, promised), list(limit))

    assert [violation.message for violation in violations] == messages
    assert [violation.fix for violation in violations] == fixes
    assert {violation.code for violation in violations} == {"GPU104"}
    assert denied(violations).code == 403


def test_the_message_says_who_uses_what_and_what_would_fit() -> None:
    (violation,) = quota_words.over(RESERVATION, USED, ["devices"])

    assert str(violation) == (
        '[GPU104] tenant "vision" is over its GPU quota: uses 14, asks 4, limit 16 devices\n'
        '  at   spec.containers[1].resources.limits["nvidia.com/gpu"]\n'
        "  rule vision (tenants.yaml:41)\n"
        "  fix  ask for 2 or fewer, or free some: namespace vision-dev holds 9, vision-ci 5"
    )


def test_the_pods_own_reservation_is_not_what_it_is_refused_for() -> None:
    after, (outcome,) = reserve(USED, [RESERVATION.ask._replace(enforced=False)])

    assert outcome.exceeded == ("devices",)
    assert quota_words.over(RESERVATION, after, ["devices"]) == quota_words.over(RESERVATION, USED, ["devices"])


def test_a_quota_that_only_warns_says_the_same_in_one_line() -> None:
    wanted, admitted = replace(RESERVATION, action="warn"), Outcome("admit", ("devices",))

    assert quota_words.after_ledger(Decision(allowed=True), wanted, admitted, USED).warnings == [
        (
            '[GPU104] tenant "vision" is over its GPU quota: uses 14, asks 4, limit 16 devices; it is admitted, '
            "as the policy only warns"
        )
    ]


def test_the_client_of_an_admitted_pod_reads_why_a_part_counts_as_a_whole_device() -> None:
    unknown = {"gpu-model": "nothing says of which card it is"}
    told = {}
    for kind, limit in {"devices": 16, "memory": 16 * GIB}.items():
        ledger = _ledger({kind: limit}, {"vision-dev": {}}, {})
        wanted = replace(RESERVATION, ask=RESERVATION.ask._replace(hard=ledger.hard), gaps=unknown)
        after, (outcome,) = reserve(ledger, [wanted.ask])
        told[kind] = quota_words.after_ledger(
            Decision(allowed=True, warnings=["first"]), wanted, outcome, after
        ).warnings

    why = "add gpu-model: a part of a device counts as a whole one, as nothing says of which card it is"
    assert told == {"devices": ["first", f"{why} (quota of vision, {RESERVATION.path})"], "memory": ["first"]}


def test_what_cannot_be_said_now_is_asked_for_again() -> None:
    outcome = Outcome("again", why="nobody has counted yet what the tenant uses")

    decision = quota_words.after_ledger(Decision(allowed=True), RESERVATION, outcome, USED)

    assert [violation.message for violation in decision.violations] == [
        'the quota of the tenant "vision" cannot be asked now: nobody has counted yet what the tenant uses'
    ]
    assert decision.code == 503
