"""The certificate program on two real API servers: rotations nobody notices, and faults that pass by themselves."""

import asyncio
import base64
import gc
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes.aio import client, config

from certs import issue
from certs.api import Api
from certs.rotation import Rotator, Terms
from certs.turns import Status, run
from tests.cluster.accounts import kubeconfig_of
from tests.cluster.binaries import Binaries
from tests.cluster.installation import (
    ACCOUNT,
    AUTHORITIES,
    SERVING,
    SITE,
    Installation,
    Issuer,
    installation,
)
from tests.cluster.load import CLIENTS, Load
from tests.cluster.plane import revived
from tests.cluster.waiting import until
from tests.cluster.webhook import configurations, shipped
from tests.laws import SOAK
from tests.results import Page

pytestmark = [pytest.mark.cluster, pytest.mark.large]

ROTATIONS = 1000 if SOAK else 24
FAST = ("--leaf-lifetime=45s", "--ca-lifetime=3m", "--renew-at=0.05", "--overlap=2s", "--idle=0.2s")
"""A leaf is due after 2.3 s, a CA after 4.5 s, and both are valid for long."""

STEADY = ("--overlap=5s", "--idle=1s")
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def installed(programs: Binaries) -> Iterator[Installation]:
    with installation(programs, *FAST) as made:
        yield made


def handshakes(installed: Installation) -> list[float]:
    """How many each replica has seen fail: those before the first bundle was published, and none after."""
    return [each.metric('dropped_total{why="handshake",what="connections"}') for each in installed.replicas]


def complaints(installed: Installation) -> list[str]:
    """What API servers have ever said of webhooks that they could not call."""
    said = [plane.apiserver.log.read_text(errors="replace") for plane in installed.planes]
    lines = [line for each in said for line in each.splitlines()]
    return [line for line in lines if "ailed calling webhook" in line]


def test_nobody_notices_rotations_of_leaf_and_ca(installed: Installation, soaked: Page) -> None:
    before = complaints(installed), handshakes(installed)
    with installed.issuer(*FAST) as issuer, Load(installed.clients, CLIENTS) as load:
        until(lambda: issuer.done("serve") >= ROTATIONS, f"{ROTATIONS} leaves", within=ROTATIONS * 6)
        leaves, authorities, forgotten = (issuer.done(action) for action in ("serve", "promote", "forget"))
    after = complaints(installed), handshakes(installed)
    soaked.add(f"- {leaves:.0f} leaves of {authorities:.0f} CAs: {load.told()}")

    assert load.failures == []
    assert load.created.total() > ROTATIONS
    assert authorities >= ROTATIONS / 4
    assert forgotten > 0
    assert all(each.metric('reloads_total{what="certificate",result="done"}') > 4 for each in installed.replicas)
    assert after == before


def test_nobody_notices_two_rotators_at_once(installed: Installation) -> None:
    """Each takes its turns, and spoils those of the other."""
    kubeconfig = str(kubeconfig_of(installed.planes[0], ACCOUNT, "certs.yaml"))
    minute = timedelta(minutes=1)
    terms = Terms(leaf=1.5 * minute, authority=6 * minute, renew_at=0.025, overlap=minute / 30)

    async def rotate() -> list[Status]:
        connected = client.Configuration()
        await config.load_kube_config(config_file=kubeconfig, client_configuration=connected)  # type: ignore[no-untyped-call]  # the library leaves it so
        api = Api(client.ApiClient(connected))
        copies = [Status(), Status()]
        running = [asyncio.create_task(run(each, [Rotator(api, SITE, terms, each).turn], 0.1)) for each in copies]
        for _ in range(600):
            await asyncio.sleep(0.1)
            if sum(each.actions["serve", "done"] for each in copies) >= 6:
                break
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await api.close()
        return copies

    before = complaints(installed)
    with Load(installed.clients, 4) as load:
        copies = asyncio.run(rotate())
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # a connection that was in its handshake when its rotator was cut off

    assert load.failures == []
    assert sum(each.actions["serve", "done"] for each in copies) >= 6
    assert all(each.actions for each in copies)
    assert complaints(installed) == before


def test_the_leaf_of_a_new_ca_waits_until_api_servers_have_had_it_for_the_overlap(installed: Installation) -> None:
    """The API server notes when a bundle was changed: by its clock, and in the same write."""
    with installed.issuer("--overlap=8s", "--idle=0.2s") as issuer:
        until(lambda: all_is_well(installed, issuer), "all is well before", within=60)
        before = issuer.done("publish")
        installed.client.delete(AUTHORITIES)
        until(lambda: issuer.done("publish") >= before + len(configurations()), "the new CA is published", within=30)
        changed = max(
            datetime.fromisoformat(fields["time"])
            for each in configurations()
            for fields in installed.client.get(each)["metadata"]["managedFields"]
            if "f:caBundle" in str(fields)
        )
        until(lambda: all_is_well(installed, issuer), "the new CA signs", within=60)

    signed = issue.issued(data(installed.stored(SERVING), "tls.crt"))
    assert timedelta(seconds=8) <= signed - changed < timedelta(seconds=40)


# Faults


@pytest.fixture(scope="module")
def issuer(installed: Installation) -> Iterator[Issuer]:
    """The program that keeps the installation."""
    with installed.issuer(*STEADY, number=0) as first:
        yield first


def data(stored: dict[str, Any] | None, key: str) -> bytes:
    return base64.b64decode((stored or {"data": {}})["data"].get(key, ""))


def all_is_well(installed: Installation, issuer: Issuer) -> bool:
    """Pods are rewritten, the program has nothing to say, bundles have all CAs, and replicas a leaf of the signer."""
    serving, authorities = installed.stored(SERVING), installed.stored(AUTHORITIES)
    if serving is None or authorities is None or issuer.problems() or not installed.works():
        return False
    bundles = {
        hook["clientConfig"].get("caBundle", "")
        for configuration in configurations()
        for hook in (installed.stored(configuration) or {"webhooks": [{"clientConfig": {}}]})["webhooks"]
    }
    mounted = {replica.mounted for replica in installed.replicas}
    wanted = b"".join(data(authorities, key) for key in ("next.crt", "ca.crt", "trusted.crt"))
    return (
        bundles == {base64.b64encode(wanted).decode()}
        and mounted == {serving["metadata"]["resourceVersion"]}
        and issue.anchor(data(serving, "tls.crt"), [data(authorities, "ca.crt")]) is not None
    )


def corrupt(installed: Installation, obj: Any, key: str, value: bytes = b"garbage") -> None:
    installed.client.patch(obj, {"data": {key: base64.b64encode(value).decode()}})


def restore(installed: Installation) -> None:
    """Two other CAs, as those of a backup that were forgotten since."""
    signer, successor = (issue.authority(datetime.now(UTC) - age * DAY, 1825 * DAY) for age in (400, 200))
    values = {"ca.crt": signer.certificate, "ca.key": signer.key, "trusted.crt": b""}
    values |= {"next.crt": successor.certificate, "next.key": successor.key}
    change = {key: base64.b64encode(value).decode() for key, value in values.items()}
    installed.client.patch(AUTHORITIES, {"data": change})


def wipe(installed: Installation) -> None:
    for configuration in configurations():
        stored = installed.client.get(configuration)
        for hook in stored["webhooks"]:
            hook["clientConfig"].pop("caBundle", None)
        installed.client.update(stored)


def grow_old(installed: Installation, days: int) -> None:
    """What a clock that jumps leaves: a CA and a leaf that were made when it was another time."""
    then = datetime.now(UTC) - days * DAY
    authority = issue.authority(then, 1825 * DAY)
    leaf = issue.leaf(authority, SITE.names, then, 30 * DAY)
    successor = issue.authority(then, 1825 * DAY)
    encoded = {"ca.crt": authority.certificate, "ca.key": authority.key, "trusted.crt": b""}
    encoded |= {"next.crt": successor.certificate, "next.key": successor.key}
    for obj, values in (
        (AUTHORITIES, encoded),
        (SERVING, {"tls.crt": leaf.certificate, "tls.key": leaf.key, "ca.crt": authority.certificate}),
    ):
        change = {key: base64.b64encode(value).decode() for key, value in values.items()}
        installed.client.patch(obj, {"data": change})
    for configuration in configurations():
        stored = installed.client.get(configuration)
        for hook in stored["webhooks"]:
            hook["clientConfig"]["caBundle"] = base64.b64encode(authority.certificate).decode()
        installed.client.update(stored)


FAULTS: dict[str, tuple[Callable[[Installation], object], str]] = {
    "the serving Secret is deleted": (
        lambda installed: installed.client.delete(SERVING),
        "the serving certificate is not good: there is none",
    ),
    "the Secret of CAs is deleted": (
        lambda installed: installed.client.delete(AUTHORITIES),
        "the CA cannot sign: there is none",
    ),
    "the serving Secret is corrupt": (
        lambda installed: corrupt(installed, SERVING, "tls.crt"),
        "the serving certificate is not good: it cannot be read",
    ),
    "the Secret of CAs is corrupt": (
        lambda installed: corrupt(installed, AUTHORITIES, "ca.key"),
        "promote: the CA cannot sign: it cannot be read",
    ),
    "the Secret of CAs is that of the version before, with one CA": (
        lambda installed: corrupt(installed, AUTHORITIES, "next.key", b""),
        "the CA has no good successor: there is none",
    ),
    "the Secret of CAs is an old copy": (
        lambda installed: restore(installed),  # noqa: PLW0108 - defined above
        "a leaf of a CA that was not known is being served",
    ),
}
SEEN_BY_CLIENTS: dict[str, tuple[Callable[[Installation], object], str]] = {
    "every bundle is wiped": (wipe, "its CA bundle is not what it should be"),
    "a configuration is deleted": (
        lambda installed: installed.client.delete(configurations()[1]),
        "the validating webhook configuration was deleted, and is there again",
    ),
    "the clock jumped a year ahead": (lambda installed: grow_old(installed, 365), "it expired on "),
    "the clock jumped a year back": (lambda installed: grow_old(installed, -365), "it is valid only from "),
}


def recovers(installed: Installation, issuer: Issuer, fault: Callable[[Installation], object], said: str) -> None:
    """Within a minute, and says so."""
    until(lambda: all_is_well(installed, issuer), "all is well before", within=60)
    before = issuer.process.log.read_text()
    fault(installed)
    until(lambda: said in issuer.process.log.read_text()[len(before) :], said, within=60)
    until(lambda: all_is_well(installed, issuer), "all is well again", within=60)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_secret_comes_back_and_nobody_notices(installed: Installation, issuer: Issuer, fault: str) -> None:
    with Load(installed.clients, 4) as load:
        recovers(installed, issuer, *FAULTS[fault])

    assert load.failures == []
    assert load.created.total() > 0


@pytest.mark.parametrize("fault", SEEN_BY_CLIENTS)
def test_what_stops_reviews_passes_within_a_minute(installed: Installation, issuer: Issuer, fault: str) -> None:
    recovers(installed, issuer, *SEEN_BY_CLIENTS[fault])


def test_a_configuration_that_was_created_again_follows_the_next_version(
    installed: Installation, issuer: Issuer
) -> None:
    """Server-side apply takes a webhook out only if nobody else owns it."""
    recovers(installed, issuer, *SEEN_BY_CLIENTS["a configuration is deleted"])
    present = shipped()[1]
    later = {**present, "webhooks": [each for each in present["webhooks"] if "templates" not in each["name"]]}

    installed.client.apply(later)

    names = [each["name"] for each in installed.client.get(later)["webhooks"]]
    installed.client.apply(present)
    assert names == [each["name"] for each in later["webhooks"]]


def test_an_api_server_that_was_away_through_a_rotation_refuses_nobody_when_it_is_back(
    installed: Installation, issuer: Issuer
) -> None:
    until(lambda: all_is_well(installed, issuer), "all is well before", within=60)
    leaf = data(installed.stored(SERVING), "tls.crt")
    with Load(installed.clients[:1], 4) as load:
        installed.planes[1].apiserver.kill()
        installed.client.delete(AUTHORITIES)
        until(lambda: data(installed.stored(SERVING), "tls.crt") != leaf, "a leaf of the new CA", within=60)
        mounted = installed.client.get(SERVING)["metadata"]["resourceVersion"]
        until(lambda: {replica.mounted for replica in installed.replicas} == {mounted}, "the replicas have it")

        installed.planes[1] = revived(installed.planes[1])
        with Load(installed.clients[1:], 4) as back:
            until(lambda: all_is_well(installed, issuer), "all is well", within=60)
            until(lambda: back.created.total() > 20, "pods are created there")

    assert (load.failures, back.failures) == ([], [])


def test_a_second_copy_goes_on_when_the_first_is_killed(installed: Installation, issuer: Issuer) -> None:
    with installed.issuer(*STEADY, number=1) as second:
        until(lambda: all_is_well(installed, second), "all is well before", within=60)
        assert second.done("serve") == 0
        issuer.process.kill()
        installed.client.delete(SERVING)

        until(lambda: all_is_well(installed, second), "the second copy has written it", within=60)

        assert second.done("serve") == 1
    issuer.process.popen.wait()
