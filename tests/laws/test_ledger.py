"""Laws of the quota ledger: no more is used than may be, whatever goes wrong, and nothing stays counted for good.

The world is in `ledgers/`, and is checked after each step of a simulation with the weights of a bad day. What is
tried is the same for everybody, except in a soak. That the world notices each fault of a protocol is a test as well.
"""

from fractions import Fraction
from random import SystemRandom

import pytest

from tests.laws import SOAK
from tests.laws.ledgers import GRACE, TENANTS, OvershootError, faults
from tests.laws.ledgers.settlers import Making
from tests.laws.ledgers.store import OPEN
from tests.laws.ledgers.world import World, simulate
from webhook.core.quota.settlement import Settlement

SIMULATIONS = 400 * (50 if SOAK else 1)
STEPS = 800
"""In each simulation."""

FAULTY = 1000
"""How many simulations have to notice what is missing; the rarest fault shows in one of a hundred or two."""


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
    tried = f"seeds {first} to {first + SIMULATIONS - 1}, {SIMULATIONS * STEPS:,} steps"
    with capsys.disabled():
        print(f"\nledger: {tried}, {admissions:,} pods admitted and {refusals:,} not")  # noqa: T201 - belongs into the log
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
