"""However many ask at once, and whatever is killed, paused or cut off meanwhile: live pods never hold too much.

And nothing stays reserved for nobody.
"""

import itertools
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from http import HTTPStatus
from time import monotonic
from typing import Any

import pytest

from tests.cluster.client import MERGE, Client
from tests.cluster.plane import restarted
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.crowd import SHAPES, Crowd, Ending, Row, Tale, Wish, wishes
from tests.cluster.tenancy.fleet import GRACE, Fleet, await_settled, hold
from tests.cluster.tenancy.witness import Witness
from tests.cluster.waiting import until
from tests.laws import SOAK

pytestmark = pytest.mark.cluster

LIMIT = 60
ROOMY = 200
"""A limit far from which replicas admit against advances."""
CREATES = 1000 if SOAK else 500
PHANTOMS = GRACE + 10
"""Seconds after which nothing is reserved for pods that never came to be: the grace, and time to look."""

IMPATIENT = 0.4
"""Seconds after which some clients hang up on the API server, and ask for the same pod once more."""
Fault = Callable[[Fleet], None]


def replica_killed(fleet: Fleet) -> None:
    fleet.replicas[1].kill()
    hold(2)
    fleet.revived(1)


def replica_paused(fleet: Fleet) -> None:
    """Longer than the API server waits for it."""
    paused = fleet.replicas[2]
    paused.send(signal.SIGSTOP)
    hold(10)
    paused.send(signal.SIGCONT)


def settler_killed(fleet: Fleet) -> None:
    fleet.settler.kill()
    hold(2)
    fleet.settler = fleet.plane.processes.again(fleet.settler)


def settler_doubled_and_the_first_one_paused(fleet: Fleet) -> None:
    """One that comes back after a while thinks that it is still the only one."""
    second = world.start_settler(fleet.plane, "second", grace=GRACE)
    hold(4)
    fleet.settler.send(signal.SIGSTOP)
    hold(5)
    fleet.settler.send(signal.SIGCONT)
    hold(1)
    second.stop()


def watches_of_the_settler_stalled(fleet: Fleet) -> None:
    """It hears of no pod, while whatever it asks anew is answered."""
    relay, _ = fleet.way
    relay.send(signal.SIGUSR1)
    hold(10)
    relay.send(signal.SIGUSR2)


def api_server_restarted(fleet: Fleet) -> None:
    fleet.plane = restarted(fleet.plane)


FAULTS = (
    replica_killed,
    replica_paused,
    settler_killed,
    settler_doubled_and_the_first_one_paused,
    watches_of_the_settler_stalled,
    api_server_restarted,
)


def _storms() -> Iterator[tuple[Sequence[Fault], int, int]]:
    """Each fault by itself; in a soak all of them in one storm, too, one after the other."""
    for fault, seed in itertools.product(FAULTS, range(2 if SOAK else 1)):
        yield [fault], seed, LIMIT
    for fault, seed in itertools.product((replica_killed, replica_paused), range(2 if SOAK else 1)):
        yield [fault], seed, ROOMY
    for seed in range(3 if SOAK else 0):
        yield random.Random(seed).sample(FAULTS, len(FAULTS)), seed, LIMIT  # noqa: S311 - not a secret


def _creates(faults: Sequence[Fault]) -> int:
    return CREATES if len(faults) == 1 else 3 * CREATES


def _said(what: object) -> str:
    """A storm's name."""
    if not isinstance(what, list):
        return str(what)
    return what[0].__name__.replace("_", "-") if len(what) == 1 else "everything-in-turn"


@pytest.mark.parametrize(("faults", "seed", "limit"), list(_storms()), ids=_said)
def test_the_limit_holds(
    served: Fleet, results: Callable[[Row], None], faults: Sequence[Fault], seed: int, limit: int
) -> None:
    tenant, namespaces = served.tenant(limit)
    before = served.figures()

    with Witness(served.client, namespaces) as witness:
        tale = _storm(served, faults, _impatient(wishes(seed, _creates(faults), namespaces)), seed)
        await_settled(served.client, tenant, witness, within=PHANTOMS)

    results(tale.row(_said(faults).replace("-", " "), seed, limit, witness, served.figures() - before))
    assert tale.others() == []
    assert tale.refused()
    assert witness.peak.devices <= limit


def _impatient(all_of_them: Sequence[Wish]) -> list[Wish]:
    """Every tenth of them hangs up soon."""
    return [replace(wish, patience=IMPATIENT) if not number % 10 else wish for number, wish in enumerate(all_of_them)]


def _storm(fleet: Fleet, faults: Sequence[Fault], all_of_them: Sequence[Wish], seed: int) -> Tale:
    """A crowd whose pods come and go, and faults one after the other as soon as it is under way."""
    crowd = Crowd(fleet.client, lambda ending: _leave(fleet.client, ending, seed))
    asking = threading.Thread(target=crowd.run, args=[all_of_them])
    asking.start()
    try:
        until(lambda: crowd.done > len(all_of_them) / 10, "the storm is under way", within=60)
        for fault in faults:
            fault(fleet)
    finally:
        asking.join()
    return crowd.told()


def _leave(client: Client, ending: Ending, seed: int) -> None:
    """Half of the pods are deleted as soon as they are there, or are over; where that fails they stay."""
    fate = random.Random(f"{seed} {ending.wish.name}").random()  # noqa: S311 - not a secret
    if ending.code != HTTPStatus.CREATED or fate > 0.5:
        return
    path = f"/api/v1/namespaces/{ending.wish.namespace}/pods/{ending.wish.name}"
    try:
        if fate > 0.4:
            client.exchange("PATCH", f"{path}/status", b'{"status": {"phase": "Succeeded"}}', MERGE, 10)
        else:
            client.exchange("DELETE", f"{path}?gracePeriodSeconds=0", None, seconds=10)
    except OSError:
        return


def test_a_pod_that_is_there_already_leaves_nothing_reserved_for_the_others_of_its_name(served: Fleet) -> None:
    tenant, namespaces = served.tenant(10)
    same = [
        Wish(namespace=namespaces[0], name="same", holds=holds, asking=asking)
        for holds, asking in 5 * [SHAPES["whole"], SHAPES["half"], SHAPES["two"]]
    ]

    with Witness(served.client, namespaces) as witness:
        tale = Crowd(served.client).run(same)
        await_settled(served.client, tenant, witness, within=PHANTOMS)

    [stored] = tale.admitted()
    assert [each.code for each in tale.others()] == 14 * [HTTPStatus.CONFLICT]
    assert witness.held()[namespaces[0]] == witness.peak.devices == stored.holds


def test_what_the_quota_of_kubernetes_refuses_afterwards_is_not_kept(served: Fleet) -> None:
    tenant, namespaces = served.tenant(10)
    _allow_pods(served.client.in_namespace(namespaces[0]), 3)

    with Witness(served.client, namespaces) as witness:
        tale = Crowd(served.client).run(wishes(0, 8, namespaces[:1], ["whole"]))
        assert [("exceeded quota" in each.said, each.code) for each in tale.others()] == 5 * [(True, 403)]
        await_settled(served.client, tenant, witness, within=PHANTOMS)
        more = Crowd(served.client).run(wishes(0, 12, namespaces[1:], ["whole"]))

    assert (len(tale.admitted()), len(more.admitted()), len(more.refused())) == (3, 7, 5)
    assert sum(witness.held().values(), Fraction(0)) == witness.peak.devices == 10


def _allow_pods(client: Client, pods: int) -> None:
    """A ResourceQuota, in force."""
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": str(pods)}},
    }
    client.create(quota)
    until(lambda: client.get(quota).get("status", {}).get("hard") == quota["spec"]["hard"], "the quota is counted")


def test_a_settler_goes_on_where_one_that_had_seen_more_has_ended(served: Fleet) -> None:
    _, namespaces = served.tenant(2)
    Crowd(served.client).run(wishes(0, 2, namespaces, ["whole"]))
    second = world.start_settler(served.plane, "second", grace=GRACE)
    until(lambda: "/pods listed" in second.tail(), "the second has seen all pods")

    served.settler.send(signal.SIGSTOP)
    by_the_second = Crowd(served.client).run(_named("a", wishes(0, 1, namespaces, ["whole"])))
    second.kill()
    served.settler.send(signal.SIGCONT)
    by_the_first = Crowd(served.client).run(_named("b", wishes(0, 1, namespaces, ["whole"])))

    assert (len(by_the_second.refused()), len(by_the_first.refused())) == (1, 1)
    assert by_the_first.again.total() <= 1, by_the_first.again


def test_a_settler_that_hears_of_no_pods_lets_nobody_in_by_what_it_knew_before(served: Fleet) -> None:
    """It learns that there is one device more, and knows nothing yet of the pods that another one has counted."""
    tenant, namespaces = served.tenant(2)
    settler = served.settler = _restarted(served)
    relay, _ = served.way
    relay.send(signal.SIGUSR1)
    second = world.start_settler(served.plane, "second", grace=GRACE)
    until(lambda: "/pods listed" in second.tail(), "the second has seen all pods")
    with Witness(served.client, namespaces) as witness:
        Crowd(served.client).run(wishes(0, 2, namespaces, ["whole"]))
        await_settled(served.client, tenant, witness, within=PHANTOMS)
        second.kill()
        served.client.patch(world.policy(tenant), {"spec": {"quota": {"devices": 3}}})
        more = {"devices": "3"}
        until(lambda: world.usage(served.client, tenant)["hard"] == more, "the limit has been raised", within=60)
        tale = Crowd(served.client).run(_named("more", wishes(0, 6, namespaces, ["whole"])))
        await_settled(served.client, tenant, witness, within=PHANTOMS)
        relay.send(signal.SIGUSR2)

    assert "was cut off" in settler.log.read_text()
    assert (len(tale.admitted()), len(tale.refused())) == (1, 5)
    assert witness.peak.devices == 3


def _restarted(fleet: Fleet) -> Process:
    """The settler, started anew, when it has heard of everything."""
    fleet.settler.kill()
    heard = fleet.settler.log.read_text().count("/pods listed")
    settler = fleet.plane.processes.again(fleet.settler)
    until(lambda: settler.log.read_text().count("/pods listed") > heard, "the settler has seen all pods")
    return settler


def _named(prefix: str, all_of_them: Sequence[Wish]) -> list[Wish]:
    return [replace(wish, name=f"{prefix}-{wish.name}") for wish in all_of_them]


def test_who_takes_long_after_his_reservation_is_waited_for(served: Fleet) -> None:
    """Another webhook, which never answers and need not, keeps him for longer than many settlements take."""
    tenant, namespaces = served.tenant(1)
    [late] = _named("late", wishes(0, 1, namespaces, ["whole"]))
    with socket.create_server(("127.0.0.1", 0)) as deaf, Witness(served.client, namespaces) as witness:
        _delay(served.client, f"https://127.0.0.1:{deaf.getsockname()[1]}/", late.name)
        first = Crowd(served.client)
        asking = threading.Thread(target=first.run, args=[[late]])
        asking.start()
        until(lambda: world.usage(served.client, tenant)["pending"], "he has his reservation")
        others = Crowd(served.client, clients=4).run(wishes(0, 40, namespaces, ["half"]))
        assert first.done == 0
        asking.join()
        await_settled(served.client, tenant, witness, within=PHANTOMS)
        served.client.delete(_DELAY)

    assert (len(first.told().admitted()), len(others.refused())) == (1, 40)
    assert witness.peak.devices == 1


_DELAY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "deaf"},
}


def _delay(client: Client, url: str, name: str) -> None:
    """Let every pod of this name take so long as the API server waits for this address, and await that it does."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    hook = {
        "name": "deaf.example.com",
        "clientConfig": {"url": url},
        "rules": [rule],
        "matchConditions": [{"name": "late", "expression": f"object.metadata.name == '{name}'"}],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 4,
        "admissionReviewVersions": ["v1"],
    }
    client.apply({**_DELAY, "webhooks": [hook]})

    def delayed() -> bool:
        began = monotonic()
        client.create(pod(name), dry_run=True)
        return monotonic() - began > 3

    until(delayed, "the other webhook is called")


# Without a fault

QUIET = 20.0
"""Seconds within which everything is settled when nobody asks any more."""


@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_two_thousand_creates_never_hold_more_than_five_hundred_devices(
    served: Fleet, results: Callable[[Row], None], seed: int
) -> None:
    tenant, namespaces = served.tenant(500)
    before = served.figures()

    with Witness(served.client, namespaces) as witness:
        tale = Crowd(served.client).run(wishes(seed, 2000, namespaces))
        await_settled(served.client, tenant, witness, within=QUIET)

    counted = served.figures() - before
    results(tale.row("mixed", seed, 500, witness, counted))
    held = sum(witness.held().values(), Fraction(0))
    assert tale.others() == []
    assert counted['ledger_events_total{event="drawn"}'], "no advance was used"
    assert witness.peak.devices <= 500
    assert sum(wish.holds for wish in tale.admitted()) == held == witness.peak.devices
    assert 500 - held < min(wish.holds for wish in tale.refused())


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
