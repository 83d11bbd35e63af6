"""Laws of a rotation, with real rotators that are interrupted anywhere, and what is planned in each state."""

import base64
import itertools
import os
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from certs import issue, rotation
from certs.api import Object
from certs.issue import Pair
from certs.rotation import Authorities, Publish, Replace, Serve, State
from tests.certs.strange import rsa_authority, versioned
from tests.certs.town import BEGAN, CONFIGURATIONS, PATHS, SITE, TERMS, Town, Walker, installed, settle

SOAK = bool(os.environ.get("SOAK"))
HOUR, DAY = timedelta(hours=1), timedelta(days=1)

EVENTS = st.one_of(
    st.tuples(st.just("walk"), st.integers(0, 1)),
    st.tuples(st.just("turn"), st.integers(0, 1)),
    st.tuples(st.just("hear"), st.tuples(st.integers(0, 1), st.sampled_from(CONFIGURATIONS))),
    st.tuples(st.just("mount"), st.integers(0, 2)),
    st.tuples(st.just("crash"), st.integers(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from([HOUR / 6, HOUR, DAY, 12 * DAY])),
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
            pair = rotation.pair(town.objects.get(SITE.serving))
            if not pair or issue.check(pair, town.at + TERMS.leaf * (1 - rotation.LAST_CALL)):
                town.hear_all_before(rotation.GRACE)  # now nobody waits for an API server that is slower


def one_ca(town: Town) -> None:
    """What the version before leaves: a CA without a successor."""
    secret, signer = town.objects[SITE.authorities], town.authorities.signer
    assert signer is not None
    values = {key: value for key, value in secret["data"].items() if not key.startswith("next")}
    town.store(SITE.authorities, {**secret, "data": values})
    for path in CONFIGURATIONS:
        bundle(town, path, base64.b64encode(signer.certificate).decode())
    town.everybody_hears()


BEGINNINGS: dict[str, Callable[[Town], object]] = {
    "all is well": lambda _: None,
    "the Secret of CAs is deleted": lambda town: town.objects.pop(SITE.authorities),
    "the key of the CA is lost": lambda town: corrupt(town, SITE.authorities, "ca.key"),
    "the key of the successor is lost": lambda town: corrupt(town, SITE.authorities, "next.key"),
    "the version before had one CA": lambda town: one_ca(town),  # noqa: PLW0108 - as the others
}


@pytest.mark.large
@settings(max_examples=2000 if SOAK else 100, deadline=None)
@given(
    st.sampled_from(sorted(BEGINNINGS)),
    st.sampled_from([0, 10, 19, 41]),
    st.lists(EVENTS, min_size=40, max_size=140),
)
@example(
    "all is well",
    41,
    [*[("wait", 12 * DAY)] * 4, *[("turn", 0)] * 3, *[("wait", 12 * DAY)] * 3, ("turn", 0), ("mount", 0)],
)
def test_no_api_server_ever_refuses_what_a_replica_serves_whatever_is_late_or_crashes(
    beginning: str, days: int, events: list[tuple[str, object]]
) -> None:
    town = installed()
    for _ in range(days // 10):
        town.at += 10 * DAY  # after 40 days the CA is due, after 20 the leaf
        if town.at < BEGAN + 40 * DAY:
            settle(town, Walker(town))
    town.at += days % 10 * DAY
    town.everybody_hears()
    BEGINNINGS[beginning](town)
    walkers = [Walker(town), Walker(town)]

    for event in events:
        happen(town, walkers, event)
        assert town.refused() == []
    for walker in walkers:
        walker.crash()


@pytest.mark.parametrize("steps", range(14))
def test_a_rotator_that_sleeps_through_a_whole_rotation_of_another_does_no_harm(steps: int) -> None:
    town = installed()
    sleeper, other = Walker(town), Walker(town)
    for days in (15, 15, 11):
        town.at += days * DAY
        settle(town, other)
    town.objects.pop(SITE.authorities)
    for _ in range(steps):
        sleeper.walk()

    for days in (1, 15, 15, 15):
        settle(town, other)
        town.at += days * DAY
    for _ in range(30):
        sleeper.walk()
        town.everybody_hears()
        assert town.refused() == []
    sleeper.crash()


@pytest.mark.parametrize("steps", range(6))
def test_a_rotator_that_read_before_another_began_does_no_harm_while_that_one_serves(steps: int) -> None:
    for turns, more in itertools.product(range(1, 4), range(0, 12, 2)):
        town = installed()
        sleeper, other = Walker(town), Walker(town)
        for _ in range(steps):
            sleeper.walk()
        town.objects.pop(SITE.authorities)  # a new CA, while the old one is far from due
        for _ in range(turns):
            other.whole_turn()
            town.everybody_hears()
        town.at += DAY
        for _ in range(more):
            other.walk()
        sleeper.whole_turn()
        town.everybody_hears()
        other.whole_turn()
        town.everybody_hears()
        assert town.refused() == []
        sleeper.crash()
        other.crash()


def test_as_long_as_a_replica_has_a_good_leaf_its_ca_stays_trusted() -> None:
    town = installed()
    walker = Walker(town)
    for days in (15, 15, 9):
        town.at += days * DAY
        settle(town, walker)
    former = town.authorities.signer

    trusted = []
    for turn in range(80):
        town.at += DAY / 2
        walker.whole_turn()
        town.mount(turn % 2)  # never the third
        assert town.refused() == []
        trusted.append(former is not None and former.certificate in town.authorities.certificates)

    assert former not in town.authorities
    assert (trusted[60], trusted[-1]) == (True, False)


def test_a_successor_is_in_the_bundles_for_a_third_of_its_life_before_it_signs() -> None:
    town = installed()
    walker, before = Walker(town), town.authorities
    served = town.objects[SITE.serving]

    for day in range(1, 41):
        assert before == town.authorities, day
        assert all(
            bundle == b"".join(before.certificates)
            for path in CONFIGURATIONS
            for _, bundle in rotation.bundles(town.objects[path])
        )
        town.at += DAY
        settle(town, walker)

    assert town.authorities.signer == before.successor
    pair = rotation.pair(town.objects[SITE.serving])
    assert pair is not None
    assert before.successor is not None
    assert issue.anchor(pair.certificate, [before.successor.certificate])
    assert pair != rotation.pair(served)


def test_after_a_lost_secret_the_new_ca_signs_when_no_bundle_was_changed_for_a_day() -> None:
    town = installed()
    walker, serving = Walker(town), town.objects[SITE.serving]
    town.objects.pop(SITE.authorities)
    settle(town, walker)

    for hour in range(47):
        town.at += HOUR
        if hour == 23:
            bundle(town, CONFIGURATIONS[1], "")  # it is published again, and API servers have to hear of it
        walker.whole_turn()
        assert town.objects[SITE.serving] is serving, hour
    town.at += 2 * HOUR
    settle(town, walker)

    assert town.objects[SITE.serving] is not serving
    well(town)


@pytest.mark.parametrize("version", range(4))
def test_an_old_copy_of_the_secret_of_cas_is_restored_and_nobody_is_refused(version: int) -> None:
    town = installed()
    walker = Walker(town)
    for _ in range(14):
        town.at += 10 * DAY
        settle(town, walker)
    copies = [secret for _, secret in town.history[SITE.authorities]]
    assert len(copies) > 5
    town.store(SITE.authorities, copies[version])

    for step in range(600):
        walker.walk()
        town.mount(step % 5 % 3)
        assert town.refused() == []
        town.at += HOUR / 6
    walker.crash()
    settle(town, walker)
    well(town)


def test_the_version_before_had_one_ca_and_its_leaf_is_served_on() -> None:
    town = installed()
    serving, before = town.objects[SITE.serving], town.authorities
    one_ca(town)

    assert settle(town, Walker(town)) <= 2

    assert town.authorities.signer == before.signer
    assert town.authorities.successor not in {None, before.successor}
    assert town.objects[SITE.serving] is serving
    well(town)


def test_rotations_leave_nothing_in_the_bundles_that_nobody_needs() -> None:
    town = installed()
    walker, signers = Walker(town), [town.authorities.signer]

    for _ in range(16):
        for _ in range(3):
            town.at += 9 * DAY
            settle(town, walker)
        signer, successor, trusted = town.authorities
        assert signer is not None
        assert successor is not None
        assert len(trusted) <= 1
        for path in CONFIGURATIONS:
            bundles = [bundle for _, bundle in rotation.bundles(town.objects[path])]
            assert bundles == [successor.certificate + signer.certificate + b"".join(trusted)] * 2
            assert town.objects[path]["webhooks"][2] == {"name": "somebody-elses.example.com", "clientConfig": {}}
        signers += [] if signer in signers else [signer]

    assert len(signers) > 8


def test_a_first_installation_waits_for_nothing() -> None:
    town = Town()
    walker = Walker(town)

    walker.whole_turn()
    walker.whole_turn()

    well(town)


def test_an_expired_leaf_is_replaced_at_once_also_if_its_ca_has_expired() -> None:
    for days in (50, 100, 130, 365):
        town = installed()
        town.at += days * DAY
        walker = Walker(town)

        walker.whole_turn()
        walker.whole_turn()

        well(town)


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
BREAKS_AT_ONCE = {
    "a bundle is wiped",
    "a bundle is garbage",
    "a bundle has a certificate of no known version",
    "the clock jumps a year",
    "the clock jumps back a year",
}


def data(**values: bytes) -> dict[str, str]:
    return {key.replace("_", "."): base64.b64encode(value).decode() for key, value in values.items()}


def foreign(town: Town) -> Object:
    made = issue.authority(town.at, 90 * DAY)
    values = data(tls_crt=made.certificate, tls_key=made.key, ca_crt=made.certificate)
    return {"type": "kubernetes.io/tls", "metadata": {}, "data": values}


def rsa_alone(town: Town) -> None:
    made = rsa_authority(town.at)
    values = data(ca_crt=made.certificate, ca_key=made.key)
    town.store(SITE.authorities, {**town.objects[SITE.authorities], "type": "Opaque", "data": values})
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

    assert settle(town, walker) <= 11

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
        town.at += timedelta(seconds=10) if step < 200 else HOUR / 2
    walker.crash()
    well(town)


def test_a_configuration_that_is_created_again_belongs_to_those_who_applied_it() -> None:
    town, path = installed(), CONFIGURATIONS[0]
    present = town.objects[path]
    applied = {"manager": "kubectl", "operation": "Apply", "time": BEGAN.isoformat()}
    town.store(path, {**present, "metadata": {**present["metadata"], "managedFields": [applied]}})
    walker = Walker(town)
    walker.whole_turn()
    del town.objects[path]

    settle(town, walker)

    created = town.objects[path]["metadata"]
    assert created["managedFields"] == [{**applied, "time": created["creationTimestamp"]}]
    assert max(rotation.bundle_changes(town.objects[path])) > BEGAN + timedelta(seconds=30)


@settings(max_examples=500 if SOAK else 60, deadline=None)
@given(st.lists(st.one_of(EVENTS, st.tuples(st.just("spoil"), st.sampled_from(sorted(SABOTAGE)))), max_size=60))
@example([("spoil", "the clock jumps back a year"), ("turn", 0), ("turn", 0), ("spoil", "the key is another")]).via(
    "a change of a bundle in the future"
)
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


def test_a_key_that_is_spoilt_after_the_clock_was_set_back_is_replaced_before_that_time_has_come_again() -> None:
    town = installed()
    walker = Walker(town)
    SABOTAGE["the clock jumps back a year"](town)
    settle(town, walker)
    SABOTAGE["the key is another"](town)

    assert settle(town, walker) == 1

    well(town)


def test_a_bundle_that_is_published_after_the_clock_was_set_back_is_heard_of_before_its_ca_signs() -> None:
    town = installed()
    walker, path = Walker(town), CONFIGURATIONS[0]
    town.at += HOUR
    SABOTAGE["both Secrets are deleted"](town)
    walker.whole_turn()
    before = town.objects[path]
    while town.objects[path] is before:
        walker.walk()
    walker.crash()
    town.at -= HOUR / 2

    walker.whole_turn()  # the bundle of the other configuration is published now, that of this one in half an hour
    town.at += timedelta(seconds=10)
    walker.whole_turn()
    assert SITE.serving not in town.objects
    town.at += rotation.GRACE
    walker.whole_turn()
    assert SITE.serving in town.objects


# What is planned


def plan(state: State, after: timedelta = timedelta(0)) -> list[rotation.Action]:
    return list(rotation.plan(state, SITE.names, TERMS, BEGAN + after))


def leaf(signer: Pair, after: timedelta = timedelta(0)) -> Pair:
    return issue.leaf(signer, SITE.names, BEGAN + after, TERMS.leaf)


CA, NEXT = issue.authority(BEGAN, TERMS.authority), issue.authority(BEGAN, TERMS.authority)
LATER = issue.authority(BEGAN + 40 * DAY, TERMS.authority)
BOTH = NEXT.certificate + CA.certificate
GOOD = State({"mutating": frozenset([BOTH])}, BEGAN, leaf(CA), BOTH, Authorities(CA, NEXT))
BUNDLE = LATER.certificate + BOTH
PROMOTED = State(
    {"mutating": frozenset([BUNDLE])},
    BEGAN + 40 * DAY,
    leaf(NEXT, 40 * DAY),
    BUNDLE,
    Authorities(NEXT, LATER, (CA.certificate,)),
)


def test_nothing_is_done_while_all_is_well() -> None:
    assert plan(GOOD) == plan(GOOD, 19 * DAY) == []


def test_a_leaf_is_renewed_at_two_thirds_of_its_life_by_a_ca_that_signed_the_present_one() -> None:
    why = "the serving certificate is due: it expires on 2026-12-22"

    assert plan(GOOD, 20 * DAY + timedelta(minutes=1)) == [Serve(why, CA)]
    assert plan(GOOD._replace(changed=BEGAN + 20 * DAY), 20 * DAY + timedelta(minutes=1)) == [Serve(why, CA)]


@pytest.mark.parametrize(
    ("signer", "successor"),
    [
        pytest.param(CA, NEXT, id="the successor is at a third of its life"),
        pytest.param(issue.authority(BEGAN - 40 * DAY, TERMS.authority), LATER, id="the signer is at two thirds"),
    ],
)
def test_a_successor_is_promoted_and_the_former_ca_stays_trusted(signer: Pair, successor: Pair) -> None:
    state = GOOD._replace(serving=leaf(signer, 39 * DAY), authorities=Authorities(signer, successor))
    why = f"the CA is due: it expires on {issue.expires(signer.certificate):%Y-%m-%d}"

    assert plan(state, 41 * DAY) == [Replace("promote", why, successor, None, [signer.certificate])]


def test_a_ca_without_a_good_successor_gets_one() -> None:
    for successor, why in ((None, "there is none"), (NEXT._replace(key=CA.key), "the key is not the certificate's")):
        assert plan(GOOD._replace(authorities=Authorities(CA, successor, (LATER.certificate,)))) == [
            Replace("prepare", f"the CA has no good successor: {why}", CA, None, (LATER.certificate,))
        ]


def test_a_leaf_of_a_promoted_ca_is_served_at_once_if_the_bundles_had_it_for_a_day() -> None:
    served = Serve("the serving certificate is one of the old CA", NEXT)
    state = PROMOTED._replace(serving=leaf(CA, 35 * DAY), bundles={"mutating": frozenset([BOTH])}, changed=BEGAN)
    published = Publish("its CA bundle is not what it should be", "mutating", BUNDLE)

    assert plan(state, 41 * DAY) == [served, published]
    assert plan(state._replace(changed=BEGAN + 40 * DAY + HOUR), 41 * DAY) == [published]
    both = {"mutating": frozenset([BOTH]), "validating": frozenset([CA.certificate])}
    assert [type(action) for action in plan(state._replace(bundles=both), 41 * DAY)] == [Publish, Publish]
    assert plan(state._replace(bundles={}), 41 * DAY) == []


@pytest.mark.parametrize("serving", [None, leaf(CA, 13 * DAY)], ids=["there is none", "it nearly expires"])
def test_a_bad_leaf_waits_for_a_minute_only(serving: Pair | None) -> None:
    state = PROMOTED._replace(serving=serving, changed=BEGAN + 41 * DAY)

    assert plan(state, 41 * DAY + timedelta(seconds=59)) == []
    assert [type(action) for action in plan(state, 41 * DAY + timedelta(seconds=60))] == [Serve]


def test_a_former_ca_is_forgotten_when_the_last_leaf_of_it_has_expired() -> None:
    renewed = PROMOTED._replace(serving=leaf(NEXT, 60 * DAY))

    assert plan(renewed, 70 * DAY - HOUR) == []
    assert plan(renewed, 70 * DAY) == [Replace("forget", "every leaf of a former CA has expired", NEXT, LATER, [])]
    assert plan(renewed._replace(serving=leaf(CA, 60 * DAY), bundles={}), 70 * DAY) == []


def test_a_bundle_that_is_not_as_it_should_be_is_published() -> None:
    for present in ({b""}, {BOTH, b""}, {b"garbage"}, {CA.certificate + NEXT.certificate}, {CA.certificate}):
        assert plan(GOOD._replace(bundles={"validating": frozenset(present)})) == [
            Publish("its CA bundle is not what it should be", "validating", BOTH)
        ]


def test_an_old_copy_of_the_secret_of_cas_signs_nothing_and_all_cas_stay_trusted() -> None:
    state = PROMOTED._replace(authorities=Authorities(CA, issue.authority(BEGAN, TERMS.authority)))
    [start] = plan(state, 40 * DAY)

    assert isinstance(start, Replace)
    assert (start.name, start.why) == ("start", "a leaf of a CA that was not known is being served")
    assert (start.signer, start.successor) == (None, None)
    assert {*start.trusted} == {*state.authorities.certificates, NEXT.certificate, LATER.certificate}


def test_where_nothing_else_is_left_the_bundle_beside_the_leaf_tells_what_to_trust() -> None:
    lost = GOOD._replace(bundles={"mutating": frozenset([b""])}, authorities=Authorities(None))

    start = Replace("start", "the CA cannot sign: there is none", None, None, [NEXT.certificate, CA.certificate])
    assert plan(lost) == [start]


def test_a_change_of_a_bundle_is_dated_by_the_api_server_and_nothing_else_of_the_object() -> None:
    metadata = {
        "creationTimestamp": "2026-11-22T12:00:00Z",
        "managedFields": [
            {"time": "2026-11-24T12:00:00Z", "fieldsV1": {"f:webhooks": {'k:{"name":"a"}': {"f:rules": {}}}}},
            {"time": "2026-11-23T12:00:00Z", "fieldsV1": {"f:webhooks": {'k:{"name":"a"}': {"f:caBundle": {}}}}},
        ],
    }

    assert rotation.bundle_changes({"metadata": metadata}) == [BEGAN + DAY]
    assert rotation.bundle_changes({"metadata": {"creationTimestamp": "2026-11-22T12:00:00Z"}}) == [BEGAN]
