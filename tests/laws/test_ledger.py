"""Laws of the quota ledger: no more is used than may be, whatever goes wrong, and nothing stays counted for good.

The world is in `ledgers/`, and is checked after each step: a state machine that Hypothesis drives and shrinks, and a
simulation with the weights of a bad day, which comes further in the same time. What they try is the same for
everybody, except in a soak.
"""

from collections.abc import Collection
from fractions import Fraction
from random import SystemRandom
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from tests.laws import SOAK
from tests.laws.ledgers import GRACE, TENANTS, OvershootError, faults
from tests.laws.ledgers.settlers import Making
from tests.laws.ledgers.store import OPEN
from tests.laws.ledgers.world import Action, World, simulate
from webhook.core.quota.settlement import Settlement

EXAMPLES = 550 * (20 if SOAK else 1)
RULES = 100
"""Rules in each example; each of them is two steps."""

SIMULATIONS = 400 * (50 if SOAK else 1)
STEPS = 800
"""In each simulation."""

FAULTY = 1000
"""How many simulations have to notice what is missing; the rarest fault shows in one of a hundred or two."""


class Move(NamedTuple):
    """Something that happens, and to whom."""

    action: Action
    one: int
    two: int


def moves(weighted: dict[Action, int]) -> st.SearchStrategy[tuple[Move, Move]]:
    """Two things that happen one after the other."""
    deck = [action for action, weight in weighted.items() for _ in range(weight)]

    def move(number: int) -> Move:
        return Move(deck[number >> 12], number % 64, (number >> 6) % 64)

    one = st.integers(0, (len(deck) << 12) - 1).map(move)
    return st.tuples(one, one)


CREATE = moves(
    {
        World.ask: 3,
        World.attack: 1,
        World.reserve: 4,
        World.write: 3,
        World.answer: 3,
        World.review_again: 1,
        World.drop: 1,
        World.renew: 2,
    }
)
COUNT = moves({World.settle: 4, World.answer: 3, World.watch: 3, World.get: 1, World.step: 1, World.list_pods: 1})
HAPPEN = moves({World.time: 3, World.delete: 3, World.end: 1, World.learn: 3, World.refresh: 1, World.answer: 2})
UPSET = moves(
    {
        World.stall: 2,
        World.sneak: 1,
        World.restart: 1,
        World.kill: 1,
        World.limit: 1,
        World.move: 2,
        World.grow: 1,
        World.flip_namespace: 1,
        World.delete_ledger: 1,
        World.meddle: 1,
        World.inflate: 1,
        World.learn: 2,
        World.settle: 4,
    }
)


class Machine(RuleBasedStateMachine):
    """The world, driven by Hypothesis; `steps` counts those of all examples."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(moves=CREATE)
    def create(self, moves: Collection[Move]) -> None:
        self._happen(moves)

    @rule(moves=COUNT)
    def count(self, moves: Collection[Move]) -> None:
        self._happen(moves)

    @rule(moves=HAPPEN)
    def happen(self, moves: Collection[Move]) -> None:
        self._happen(moves)

    @rule(moves=UPSET)
    def upset(self, moves: Collection[Move]) -> None:
        self._happen(moves)

    def _happen(self, moves: Collection[Move]) -> None:
        for action, one, two in moves:
            Machine.steps += 1
            action(self.world, one, two)

    def teardown(self) -> None:
        self.world.quiet()


def said(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\nledger: {text}")  # noqa: T201 - what was tried belongs into the log


@pytest.mark.large
def test_hypothesis_finds_no_way_over_a_limit_and_no_leak(capsys: pytest.CaptureFixture[str]) -> None:
    Machine.steps = 0
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=RULES,
            deadline=None,
            database=None,
            derandomize=not SOAK,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    said(capsys, f"{EXAMPLES:,} examples, {Machine.steps:,} steps of the state machine")
    assert Machine.steps >= 100_000


@pytest.mark.large
def test_no_simulated_day_leads_over_a_limit_or_to_a_leak(capsys: pytest.CaptureFixture[str]) -> None:
    first = SystemRandom().randrange(1 << 32) if SOAK else 0
    admissions = refusals = 0
    for seed in range(first, first + SIMULATIONS):
        world = World()
        try:
            simulate(world, seed, STEPS)
        except AssertionError as error:
            error.add_note(f"simulate(World(), {seed}, {STEPS})")
            raise
        admissions += world.clients.admissions
        refusals += world.clients.refusals
    said(
        capsys,
        f"seeds {first} to {first + SIMULATIONS - 1}, {SIMULATIONS * STEPS:,} steps, "
        f"{admissions:,} pods admitted and {refusals:,} not",
    )
    assert admissions > 5 * SIMULATIONS, "hardly anything happens in this world"


@pytest.mark.large
@pytest.mark.parametrize("fault", faults.FAULTS)
def test_a_protocol_that_lacks_something_is_caught(fault: str) -> None:
    making, caught = faults.FAULTS[fault]
    for seed in range(FAULTY):
        try:
            simulate(making(), seed, STEPS)
        except caught:
            return
        except AssertionError:
            continue
    pytest.fail(f"nothing was noticed in {FAULTY * STEPS:,} steps")


def settle_only(world: World, tenant: str) -> None:
    """One settler learns the policies, and settles this tenant alone until its grace is over."""
    settler = world.settlers[0]
    settler.learn()
    for _ in range(4 * GRACE):
        world.store.now += 1
        settler.get(tenant)
        settler.step(tenant)
        for call in list(world.network.calls):
            world.network.finish(call)


def moved_by_one_who_sees_to_one_tenant_only(making: Making) -> World:
    """The namespace `a` goes from red to blue; who counts blue has heard of it, and nobody else has."""
    world = World(making=making)
    world.store.change(world.store.policies[-1]._replace(owner={"a": "blue", "b": "blue", "c": "red"}))
    settle_only(world, "blue")
    for _ in range(GRACE):
        world.ask(1, 0)
        world.reserve(0, TENANTS.index("red"))
        for call in list(world.network.calls):
            world.network.finish(call)
        world.write(0, 0)
    return world


def test_a_namespace_that_another_tenant_has_does_not_come_in() -> None:
    world = moved_by_one_who_sees_to_one_tenant_only(Settlement)
    assert {tenant: sorted(stored.ledger.held) for tenant, stored in world.store.ledgers.items()} == {
        "red": ["a", "c"],
        "blue": ["b"],
    }
    world.quiet()


def test_a_settler_that_does_not_ask_for_the_other_ledgers_is_caught() -> None:
    with pytest.raises(OvershootError):
        moved_by_one_who_sees_to_one_tenant_only(faults.Unlisted)


def moved_after_a_pod_in_it_has_grown(making: Making) -> World:
    """The namespace `a`, which nobody counts, goes to red; its settler has seen the pod there before it grew."""
    world = World(making=making)
    world.store.change(world.store.policies[-1]._replace(owner={"a": OPEN, "b": "blue", "c": "red"}))
    world.quiet()
    settler = world.settlers[0]
    world.ask(1, 0)
    world.write(0, 0)
    settler.list_pods()
    world.grow(0, 2)
    world.store.change(world.store.policies[-1]._replace(owner={"a": "red", "b": "blue", "c": "red"}))
    settle_only(world, "red")
    return world


def test_a_namespace_does_not_come_in_with_less_than_its_pods_have_come_to_hold() -> None:
    world = moved_after_a_pod_in_it_has_grown(Settlement)
    assert sorted(world.store.ledgers["red"].ledger.held) == ["c"]
    world.quiet()
    assert world.store.ledgers["red"].ledger.held["a"] == {"devices": Fraction(7, 3), "memory": Fraction(7)}


@pytest.mark.parametrize("making", [faults.Unlooked, faults.Nominal])
def test_a_settler_that_does_not_look_at_the_pods_or_for_their_uids_only_is_caught(making: Making) -> None:
    with pytest.raises(OvershootError):
        moved_after_a_pod_in_it_has_grown(making)
