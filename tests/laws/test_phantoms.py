"""Whoever creates pods that are never stored keeps little reserved, and everybody else gets what is left.

A create that the API server refuses after it was reviewed costs nothing: its name is taken, or a ResourceQuota
refuses it. Here attackers do nothing else, as fast as time goes, while others create and delete small pods.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

import pytest

from webhook.core.quota.ledger import FORGET, PART, Ledger, reserve
from webhook.core.quota.settlement import Settlement, ViewedPod
from webhook.core.quota.tally import Ask, Tally, total

GRACE = 10
LIMIT: Tally = {"devices": Fraction(16)}
LONG = 4 * FORGET * GRACE
Attack = Callable[[int], Ask]
HERE, ELSEWHERE = "ann", "bob"
API_SERVER, STRANGER = "10.0.0.1", "10.9.9.9"


def ask(namespace: str, name: str, author: str, devices: int | Fraction) -> Ask:
    return Ask(namespace=namespace, name=name, uid=name, author=author, amount={"devices": Fraction(devices)})


def one_user(number: int) -> Ask:
    return ask("dev", f"x{number}", f"mallory@{API_SERVER}", 16)


ATTACKS: Mapping[str, Attack] = {
    "one user": one_user,
    "one user with one name": lambda number: ask("dev", "x", f"mallory@{API_SERVER}", 15)._replace(uid=f"x{number}"),
    "one user in small pieces": lambda number: ask("dev", f"x{number}", f"mallory@{API_SERVER}", Fraction(1, 2)),
    "a new user each time": lambda number: ask("dev", f"x{number}", f"mallory-{number}@{API_SERVER}", 16),
    "a stranger in the name of others": lambda number: ask("dev", f"x{number}", f"{HERE}@{STRANGER}", 16),
    "a new user each grace": lambda number: ask(
        "dev", f"x{number}", f"mallory-{number // (2 * GRACE)}@{API_SERVER}", 16
    ),
}


@dataclass
class Town:
    """One ledger, one settler that sees everything at once, and the honest, who have their pods for one tick."""

    settler: Settlement = field(default_factory=lambda: Settlement("me", GRACE))
    ledger: Ledger = field(default_factory=lambda: Ledger(hard=LIMIT, held={"dev": {}, "ci": {}}, view=1))
    pods: dict[str, ViewedPod] = field(default_factory=dict)
    version: int = 1
    admitted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    over: int = 0

    def tick(self, now: int, attack: Attack, honest: Mapping[str, Ask]) -> None:
        """An attacker creates three pods, then each of the honest one; then it is counted."""
        self.ledger, _ = reserve(self.ledger, [attack(3 * now + each) for each in range(3)])
        self._delete()
        for who, asked in honest.items():
            self.ledger, [outcome] = reserve(self.ledger, [asked])
            (self.admitted if outcome.verdict == "admit" else self.refused)[who] += 1
            if outcome.verdict == "admit":
                self._store(asked)
        self.settle(now)
        phantoms = total(amount for by_uid in self.ledger.pending.values() for amount in by_uid.values())
        self.over += phantoms.get("devices", 0) > LIMIT["devices"] / PART

    def settle(self, now: int) -> None:
        self.settler.view.listed(self.pods.values(), self.version)
        for _ in range(3):
            self.settler.read("red", self.ledger, now)
            step = self.settler.step("red", LIMIT, ["dev", "ci"], now)
            for name in step.get:
                found = self.pods.get(name)
                self.settler.found("red", name, found.uid if found else None, now)
            if step.ledger is not None:
                self.ledger = step.ledger

    def _store(self, asked: Ask) -> None:
        self.version += 1
        self.pods[asked.place] = ViewedPod(asked.uid, asked.namespace, asked.name, asked.amount)

    def _delete(self) -> None:
        self.version += 1
        self.pods.clear()


def everybody(now: int) -> Mapping[str, Ask]:
    return {
        "beside": ask("dev", f"beside-{now}", f"{HERE}@{API_SERVER}", 3),
        "elsewhere": ask("ci", f"elsewhere-{now}", f"{ELSEWHERE}@{API_SERVER}", 3),
    }


@pytest.mark.parametrize("attack", ATTACKS)
def test_attackers_are_in_the_way_of_others_for_a_few_graces_only(attack: str) -> None:
    graces, who = (5, {"elsewhere"}) if "new user" in attack else (3, {"beside", "elsewhere"})
    town = Town()

    for now in range(LONG):
        town.tick(now, ATTACKS[attack], everybody(now))

    bound = (graces * GRACE + graces) * (LONG // (FORGET * GRACE) if graces > 3 else 1)
    assert 0 < town.over <= bound
    assert {each: town.refused[each] <= bound for each in who} == dict.fromkeys(who, True)


def test_a_suspect_gets_pods_that_fit_into_the_part_of_suspects() -> None:
    town = Town()
    for now in range(5 * GRACE):
        town.tick(now, one_user, {})

    for now, number in zip(count(5 * GRACE), range(4 * GRACE), strict=False):
        town.tick(
            now, lambda each: ask("ci", f"y{each}", "other", 0), {"her": ask("dev", f"p{number}", "mallory", 1)}
        )

    assert town.refused["her"] <= GRACE + 2
