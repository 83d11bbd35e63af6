"""However many ask at once, through however many admission servers, live pods never hold more than the limit."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.cluster.tenancy.crowd import Crowd, Row, wishes
from tests.cluster.tenancy.fleet import Fleet, await_settled
from tests.cluster.tenancy.witness import Witness
from tests.laws import SOAK

pytestmark = pytest.mark.cluster

SEEDS = range(20) if SOAK else range(1)
CREATES = 2000
LIMIT = 500
QUIET = 20.0
"""Seconds within which everything is settled when nobody asks any more."""


@pytest.mark.parametrize("seed", SEEDS)
def test_two_thousand_creates_never_hold_more_than_five_hundred_devices(
    served: Fleet, results: Callable[[Row], None], seed: int
) -> None:
    tenant, namespaces = served.tenant(LIMIT)
    before = served.figures()

    with Witness(served.client, namespaces) as witness:
        tale = Crowd(served.client).run(wishes(seed, CREATES, namespaces))
        await_settled(served.client, tenant, witness, within=QUIET)

    counted = served.figures() - before
    results(tale.row("mixed", seed, LIMIT, witness, counted))
    held = sum(witness.held().values(), Fraction(0))
    assert tale.others() == []
    assert counted['ledger_events_total{event="drawn"}'], "no advance was used"
    assert witness.peak.devices <= LIMIT
    assert sum(wish.holds for wish in tale.admitted()) == held == witness.peak.devices
    assert LIMIT - held < min(wish.holds for wish in tale.refused())


def test_of_four_hundred_that_ask_for_one_device_exactly_as_many_get_it_as_there_are(
    served: Fleet, results: Callable[[Row], None]
) -> None:
    tenant, namespaces = served.tenant(100)
    before = served.figures()

    with Witness(served.client, namespaces) as witness:
        tale = Crowd(served.client).run(wishes(0, 400, namespaces, ["whole"]))
        await_settled(served.client, tenant, witness, within=QUIET)

    results(tale.row("whole devices", 0, 100, witness, served.figures() - before))
    assert (len(tale.admitted()), len(tale.refused()), tale.others()) == (100, 300, [])
    assert sum(witness.held().values()) == witness.peak.devices == 100
