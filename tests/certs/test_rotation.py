"""Laws of a rotation, with real rotators that are interrupted anywhere, and what is planned in each state."""

import base64
import itertools
import os
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certs import issue, rotation, rotator, stored
from certs.api import Object
from certs.issue import Pair
from certs.rotation import Authorities, Forget, Keep, Publish, Serve, Start, State
from tests.certs.strange import rsa_authority, versioned
from tests.certs.town import BEGAN, PATHS, SITE, TERMS, Town, Walker, installed, settle

SOAK = bool(os.environ.get("SOAK"))
CONFIGURATIONS = tuple(SITE.configurations.values())
DAY = timedelta(days=1)

EVENTS = st.one_of(
    st.tuples(st.just("walk"), st.integers(0, 1)),
    st.tuples(st.just("turn"), st.integers(0, 1)),
    st.tuples(st.just("hear"), st.tuples(st.integers(0, 1), st.sampled_from(CONFIGURATIONS))),
    st.tuples(st.just("mount"), st.integers(0, 2)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from([timedelta(minutes=10), timedelta(hours=1), DAY, 12 * DAY])),
)


def happen(town: Town, walkers: list[Walker], event: tuple[str, object]) -> None:
    match event:
        case "walk", int(walker):
            walkers[walker].walk()
        case "turn", int(walker):
            walkers[walker].whole_turn()
        case "hear", (int(server), str(path)):
            town.hear(server, path)
        case "mount", int(replica):
            town.mount(replica)
        case "crash", int(walker):
            walkers[walker].crash()
        case "wait", timedelta() as time:
            town.at += time


@settings(max_examples=2000 if SOAK else 150, deadline=None)
@given(st.lists(EVENTS, min_size=40, max_size=200))
def test_no_api_server_ever_refuses_what_a_replica_serves_whatever_is_late_or_crashes(
    events: list[tuple[str, object]],
) -> None:
    town = installed()
    walkers = [Walker(town), Walker(town)]
    town.at += 45 * DAY  # the CA is due, and so is the leaf

    for event in events:
        happen(town, walkers, event)
        assert town.refused() == []
    for walker in walkers:
        walker.crash()


@pytest.mark.parametrize("steps", range(14))
def test_a_rotator_that_sleeps_through_a_whole_rotation_of_another_does_no_harm(steps: int) -> None:
    town = installed()
    sleeper, other = Walker(town), Walker(town)
    town.at += 41 * DAY
    for _ in range(steps):
        sleeper.walk()

    for _ in range(3):
        settle(town, other)
        town.at += timedelta(hours=1)
    for _ in range(30):
        sleeper.walk()
        town.everybody_hears()
        assert town.refused() == []
    sleeper.crash()


@pytest.mark.parametrize("steps", range(6))
def test_a_rotator_that_read_before_another_began_does_no_harm_while_that_one_serves(steps: int) -> None:
    for turns, more in itertools.product(range(1, 5), range(12)):
        town = installed()
        sleeper, other = Walker(town), Walker(town)
        for _ in range(steps):
            sleeper.walk()
        town.objects.pop(SITE.authorities)  # a new CA, while the old one is far from due
        for _ in range(turns):
            other.whole_turn()
            town.everybody_hears()
        town.at += timedelta(hours=1)
        for _ in range(more):
            other.walk()
        sleeper.whole_turn()
        town.everybody_hears()
        other.whole_turn()
        town.everybody_hears()
        assert town.refused() == []
        sleeper.crash()
        other.crash()


def test_as_long_as_a_replica_has_no_new_leaf_its_ca_stays_trusted() -> None:
    town = installed()
    walker = Walker(town)
    town.at += 41 * DAY

    for turn in range(40):
        town.at += timedelta(minutes=30)
        walker.whole_turn()
        for server in (0, 1):
            for path in CONFIGURATIONS * 3:
                town.hear(server, path)
        town.mount(turn % 2)  # never the third
        assert town.refused() == []

    assert [each.what for each in walker.status.problems] == ["replica"]
    assert len(stored.authorities(town.objects[SITE.authorities]).certificates) == 2


def test_as_long_as_an_api_server_has_not_heard_of_the_new_ca_no_leaf_of_it_is_served() -> None:
    town = installed()
    walker, before = Walker(town), town.objects[SITE.serving]
    town.at += 41 * DAY
    town.store(SITE.serving, {**before, "data": fresh(town)})
    town.everybody_hears()
    serving = town.objects[SITE.serving]
    for _ in range(40):
        town.at += timedelta(minutes=30)
        walker.whole_turn()
        for path in CONFIGURATIONS * 3:
            town.hear(0, path)  # never the other
        assert town.objects[SITE.serving] is serving

    assert [each.what for each in walker.status.problems] == ["api-server"]


def fresh(town: Town) -> dict[str, str]:
    """The data of a serving Secret with a new leaf of the present CA."""
    signer = stored.authorities(town.objects[SITE.authorities]).signer
    assert signer is not None
    made = issue.leaf(signer, SITE.names, town.at, TERMS.leaf)
    values = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": signer.certificate}
    return {key: base64.b64encode(value).decode() for key, value in values.items()}


def test_a_rotation_ends_with_the_new_ca_alone_in_the_bundles() -> None:
    town, old = installed(), stored.authorities(installed().objects[SITE.authorities])
    walker = Walker(town)
    before = stored.authorities(town.objects[SITE.authorities])

    for _ in range(4):
        town.at += 41 * DAY
        settle(town, walker)
        town.at += timedelta(hours=1)
        settle(town, walker)
        town.at += timedelta(hours=1)
        settle(town, walker)
        after = stored.authorities(town.objects[SITE.authorities])

        assert after.signer is not None
        assert before.signer is not None
        assert after.certificates == (after.signer.certificate,)
        assert after.signer != before.signer
        for path in CONFIGURATIONS:
            ours = [bundle for _, _, bundle in stored.bundles(town.objects[path])]
            assert ours == [after.signer.certificate] * 2
            assert town.objects[path]["webhooks"][2] == {"name": "somebody-elses.example.com", "clientConfig": {}}
        before = after
    assert old.signer is not None


UNKNOWN = versioned(issue.authority(BEGAN, DAY).certificate, 5)

SABOTAGE: dict[str, Callable[[Town], object]] = {
    "the serving Secret is deleted": lambda town: town.objects.pop(SITE.serving),
    "the Secret of CAs is deleted": lambda town: town.objects.pop(SITE.authorities),
    "both Secrets are deleted": lambda town: (town.objects.pop(SITE.serving), town.objects.pop(SITE.authorities)),
    "the serving Secret is corrupt": lambda town: corrupt(town, SITE.serving, "tls.crt"),
    "the key is another": lambda town: corrupt(town, SITE.serving, "tls.key", issue.authority(BEGAN, DAY).key),
    "the Secret of CAs is corrupt": lambda town: corrupt(town, SITE.authorities, "ca.crt"),
    "the key of the CA is lost": lambda town: corrupt(town, SITE.authorities, "ca.key", b""),
    "the Secret of CAs is one that cert-manager left": lambda town: town.store(SITE.authorities, foreign(town)),
    "the key of the CA is one of RSA, and the serving Secret is deleted": lambda town: rsa_alone(town),  # noqa: PLW0108 - defined below
    "the serving certificate is of no known version": lambda town: corrupt(town, SITE.serving, "tls.crt", UNKNOWN),
    "a bundle has a certificate of no known version": lambda town: bundle(
        town, CONFIGURATIONS[0], base64.b64encode(UNKNOWN).decode()
    ),
    "a bundle is wiped": lambda town: bundle(town, CONFIGURATIONS[0], ""),
    "a bundle is garbage": lambda town: bundle(town, CONFIGURATIONS[1], "Z2FyYmFnZQ=="),
    "a configuration is deleted": lambda town: town.objects.pop(CONFIGURATIONS[0]),
    "the clock jumps a year": lambda town: setattr(town, "at", town.at + 365 * DAY),
    "the clock jumps back a year": lambda town: setattr(town, "at", town.at - 365 * DAY),
}
BREAKS_AT_ONCE = {"a bundle is wiped", "a bundle is garbage", "a bundle has a certificate of no known version"}


def data(**values: bytes) -> dict[str, str]:
    return {key.replace("_", "."): base64.b64encode(value).decode() for key, value in values.items()}


def foreign(town: Town) -> Object:
    made = issue.authority(town.at, 90 * DAY)
    values = data(tls_crt=made.certificate, tls_key=made.key, ca_crt=made.certificate)
    return {"type": "kubernetes.io/tls", "metadata": {}, "data": values}


def rsa_alone(town: Town) -> None:
    made = rsa_authority(town.at)
    values = data(ca_crt=made.certificate, ca_key=made.key)
    town.store(SITE.authorities, {**town.objects[SITE.authorities], "data": values})
    del town.objects[SITE.serving]


def corrupt(town: Town, path: str, key: str, value: bytes = b"garbage") -> None:
    data = {**town.objects[path]["data"], key: base64.b64encode(value).decode()}
    town.store(path, {**town.objects[path], "data": data})


def bundle(town: Town, path: str, value: str) -> None:
    present = town.objects[path]
    hooks = [{**each, "clientConfig": {"caBundle": value}} for each in present["webhooks"]]
    town.store(path, {**present, "webhooks": hooks})


def well(town: Town) -> None:
    """Every replica serves a good leaf that every API server accepts."""
    town.everybody_hears()
    for replica in range(3):
        pair = town.served(replica)
        assert pair is not None
        assert issue.check(pair, town.at, SITE.names) is None
    assert town.refused() == []


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_whatever_is_lost_or_spoilt_comes_back_in_a_few_turns(sabotage: str) -> None:
    town = installed()
    walker = Walker(town)
    assert not walker.whole_turn()
    SABOTAGE[sabotage](town)

    assert settle(town, walker) <= 6

    assert set(PATHS) == set(town.objects)
    well(town)


@pytest.mark.parametrize("sabotage", sorted(SABOTAGE.keys() - BREAKS_AT_ONCE))
def test_while_it_comes_back_nothing_is_refused_that_was_good(sabotage: str) -> None:
    town, heard = installed(), itertools.cycle([(server, path) for server in (0, 1) for path in CONFIGURATIONS])
    walker = Walker(town)
    assert not walker.whole_turn()
    SABOTAGE[sabotage](town)

    for step in range(400):
        walker.walk()
        town.hear(*next(heard))
        town.mount(step % 3)
        assert town.refused() == []
        town.at += timedelta(minutes=1)
    walker.crash()
    well(town)


def test_a_configuration_that_is_created_again_belongs_to_those_who_applied_it() -> None:
    town, path, managed = installed(), CONFIGURATIONS[0], [{"manager": "kubectl", "operation": "Apply"}]
    present = town.objects[path]
    town.store(path, {**present, "metadata": {**present["metadata"], "managedFields": managed}})
    walker = Walker(town)
    walker.whole_turn()
    del town.objects[path]

    settle(town, walker)

    assert town.objects[path]["metadata"]["managedFields"] == managed


@settings(max_examples=500 if SOAK else 60, deadline=None)
@given(st.lists(st.one_of(EVENTS, st.tuples(st.just("spoil"), st.sampled_from(sorted(SABOTAGE)))), max_size=60))
def test_after_any_number_of_faults_at_once_all_is_well_again(events: list[tuple[str, object]]) -> None:
    town = installed()
    walkers = [Walker(town), Walker(town), Walker(town)]
    assert not walkers[2].whole_turn()  # it has seen the configurations, and crashes never
    for event in events:
        if event[0] == "spoil":
            if all(path in town.objects for path in PATHS):
                SABOTAGE[str(event[1])](town)
        else:
            happen(town, walkers, event)
    for walker in walkers[:2]:
        walker.crash()

    settle(town, walkers[2])

    well(town)


# What is planned


def plan(state: State, after: timedelta = timedelta(0)) -> list[rotation.Action]:
    return list(rotation.plan(state, SITE.names, TERMS, BEGAN + after))


def leaf(signer: Pair, after: timedelta = timedelta(0)) -> Pair:
    return issue.leaf(signer, SITE.names, BEGAN + after, TERMS.leaf)


CA = issue.authority(BEGAN, TERMS.authority)
NEXT = issue.authority(BEGAN + 40 * DAY, TERMS.authority)
GOOD = State({"mutating": frozenset([CA.certificate])}, leaf(CA), (CA.certificate,), Authorities(CA))
BOTH = frozenset([NEXT.certificate + CA.certificate])


def test_nothing_is_done_while_all_is_well() -> None:
    assert plan(GOOD) == plan(GOOD, 19 * DAY) == []


def test_a_leaf_is_renewed_at_two_thirds_of_its_life_and_waits_no_longer_at_nine_tenths() -> None:
    why = "the serving certificate is due: it expires on 2026-12-22"

    assert plan(GOOD, 20 * DAY + timedelta(minutes=1)) == [Serve(why, CA, anyway=False)]
    assert plan(GOOD, 28 * DAY) == [Serve(why, CA, anyway=True)]


def test_a_ca_is_renewed_at_two_thirds_of_its_life_and_stays_trusted() -> None:
    late = GOOD._replace(serving=leaf(CA, 35 * DAY))

    assert plan(late, 41 * DAY) == [Start("the CA is due: it expires on 2027-01-21", (CA.certificate,))]


def test_a_new_ca_signs_nothing_before_it_was_published_for_an_hour() -> None:
    state = GOOD._replace(
        serving=leaf(CA, 35 * DAY), authorities=Authorities(NEXT, (CA.certificate,)), bundles={"mutating": BOTH}
    )

    assert plan(state, 40 * DAY + timedelta(minutes=59)) == []
    assert plan(state, 40 * DAY + timedelta(minutes=60)) == [
        Serve("the serving certificate is one of the old CA", NEXT, anyway=False)
    ]


def test_the_old_ca_is_forgotten_an_hour_after_the_new_leaf() -> None:
    state = GOOD._replace(
        serving=leaf(NEXT, 41 * DAY), authorities=Authorities(NEXT, (CA.certificate,)), bundles={"mutating": BOTH}
    )

    assert plan(state, 41 * DAY + timedelta(minutes=59)) == []
    assert plan(state, 41 * DAY + timedelta(minutes=60)) == [
        Forget("the old CA has had its overlap", NEXT.certificate)
    ]


def test_a_bundle_that_is_not_as_it_should_be_is_published() -> None:
    for present in ({b""}, {CA.certificate, b""}, {b"garbage"}, {CA.certificate + NEXT.certificate}):
        assert plan(GOOD._replace(bundles={"validating": frozenset(present)})) == [
            Publish("its CA bundle is not what it should be", "validating", CA.certificate)
        ]


def test_the_ca_of_a_leaf_that_is_good_stays_trusted_if_the_secret_of_cas_is_an_old_one() -> None:
    state = GOOD._replace(authorities=Authorities(NEXT), serving=leaf(CA, 40 * DAY))

    assert plan(state, 40 * DAY) == [Keep("a leaf of a CA that was not known is being served", (CA.certificate,))]


def test_a_leaf_is_served_unproven_only_while_the_present_one_is_bad_and_patience_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    town = installed()
    serving = town.objects.pop(SITE.serving)
    bundle(town, CONFIGURATIONS[0], "")
    town.everybody_hears()
    walker = Walker(town)
    while walker.whole_turn():  # the bundle; API servers hear nothing of it
        pass
    assert SITE.serving not in town.objects
    assert {each.what for each in walker.status.problems} == {"api-server"}

    monkeypatch.setattr(rotator, "PATIENCE_SECONDS", -1)

    assert walker.whole_turn()
    assert town.objects[SITE.serving]["data"] != serving["data"]
