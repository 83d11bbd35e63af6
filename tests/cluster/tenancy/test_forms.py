"""The ways round that other modules try on the manifests, on a release of the chart, and on one that has observed.

The release has rules of the site, so its settler writes the match conditions. The one that observed got them later.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tables
from tests.cli.program import run
from tests.cluster import helmed
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.installation import here, page
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import test_alone, test_deletions, test_edited, test_made_claims, test_neutral, world
from tests.cluster.tenancy.test_bindings import bind, binding
from tests.cluster.tenancy.test_phantoms import STRANGER, reviewed_for_a_stranger
from tests.cluster.tenancy.town import create, gpu_pod, owner, told
from tests.cluster.waiting import until
from tests.cluster.webhook import calls
from webhook.playground import CLUSTER

pytestmark = pytest.mark.cluster

ACME: str = tables.table(__file__, "rules of the site")
SPEC = yaml.safe_load(CLUSTER.read_text())["spec"]
CHART: Mapping[str, Any] = {
    "replicas": 1,
    "rules": {"acme.yaml": ACME},
    "extraArgs": {"settler": [f"--grace={world.GRACE}"]},
    "cluster": {
        **SPEC,
        "backends": [*SPEC["backends"], "acme-npu"],
        "otherDevices": [test_made_claims.LISTED],
        "namespacesWithoutPolicy": "no-devices",
    },
}
OBSERVING: Mapping[str, Any] = {**CHART, "rules": {}, "cluster": SPEC, "components": {"observeOnly": True}}
CLASSES = {**test_alone.HANDLERS, "acme": "acme"}


@pytest.fixture(scope="module", params=["the chart", "the chart after it has observed"])
def there(
    request: pytest.FixtureRequest, programs: Binaries, charted: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[helmed.Release]:
    """A cluster with runtime classes, a namespace `bounded` under a quota, and `second`, which no policy selects."""
    observed = request.param != "the chart"
    classes = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler}
        for name, handler in CLASSES.items()
    ]
    policies = {"default": world.policy("free", "default")}
    policies["bounded"] = world.policy("bounded", "bounded", quota={"devices": 4})
    values = OBSERVING if observed else CHART
    with helmed.release(programs, charted, tmp_path_factory.mktemp("mounted"), values, *classes, **policies) as made:
        bounded = made.client.in_namespace("bounded")
        made.client.in_namespace("second")
        if observed:
            until(lambda: bounded.create(test_alone.PRIVILEGED, dry_run=True).warnings, "it warns")
            [warning] = bounded.create(test_alone.PRIVILEGED).warnings
            assert ("[GPU116]" in warning, f"{test_alone.POLICY}-warn" in warning) == (True, True), warning
            assert told(bounded, gpu_pod("many", "9"), dry_run=True)[0] == HTTPStatus.CREATED
            made.upgrade(CHART)
        until(partial(_is_refused, bounded, test_alone.PRIVILEGED), "the policies are filled in", within=30)
        until(partial(_is_refused, bounded, test_alone.REFUSED[BY_CLASS]), "the classes are known", within=30)
        until(partial(_is_refused, bounded, gpu_pod("many", "9")), "quotas are held", within=30)
        until(
            partial(_is_refused, bounded, OF_ACME["an annotation"][0]), "the site's rules are registered", within=30
        )
        until(partial(_is_refused, bounded, test_made_claims.REFUSED["a claim"]), "claims are judged", within=30)
        yield made
        made.settler.assert_running()


BY_CLASS = "a runtime class of any name whose handler is a vendor's"


def _is_refused(client: Client, made: Object) -> bool:
    return told(client, made, dry_run=True)[0] == HTTPStatus.FORBIDDEN


@pytest.fixture
def mine(there: helmed.Release) -> Client:
    """The tenant's namespace."""
    return there.client.in_namespace("bounded")


def test_what_reaches_a_device_is_refused_by_the_api_server_alone(mine: Client) -> None:
    answers = {name: told(mine, made, dry_run=True) for name, made in test_alone.REFUSED.items()}

    assert {name: answer for name, answer in answers.items() if f"'{test_alone.POLICY}'" not in answer[1]} == {}
    assert {code for code, _ in answers.values()} == {HTTPStatus.FORBIDDEN}


OF_ACME: Mapping[str, tuple[Object, str]] = {
    "an annotation": (pod("acme", annotations={"acme.example/cards": "0"}), "GPU116"),
    "a label": (pod("acme", labels={"acme.example/cards": "0"}), "GPU116"),
    "a runtime class": (pod("acme", runtimeClassName="acme"), "GPU116"),
    "a mount": (
        pod(
            "acme",
            containers=[container("main", volumeMounts=[{"name": "mine", "mountPath": "/opt/acme"}])],
            volumes=[{"name": "mine", "emptyDir": {}}],
        ),
        "GPU116",
    ),
    "more cards than the quota": (
        pod("acme", containers=[container("main", resources=limits(**{"acme.example/npu": 5}))]),
        "GPU104",
    ),
}
"""What only the rules of the site name."""


@pytest.mark.parametrize("what", OF_ACME)
def test_what_rules_of_the_site_name_comes_to_the_webhook(mine: Client, what: str) -> None:
    made, code = OF_ACME[what]

    answered, words = told(mine, made, dry_run=True)

    assert (answered, f"[{code}]" in words) == (HTTPStatus.FORBIDDEN, True), words


def test_an_ordinary_pod_does_not(there: helmed.Release, mine: Client) -> None:
    before = calls(there.client)

    mine.create(pod("ordinary", labels={"app": "web"}), dry_run=True)

    assert calls(there.client) == before


def test_little_memory_of_a_card_whose_compute_is_open_counts_as_the_card(mine: Client) -> None:
    open_to_all = limits(**{"nvidia.com/gpu": 5, "nvidia.com/gpumem-percentage": 1})

    code, words = told(mine, pod("five", containers=[container("main", resources=open_to_all)]), dry_run=True)

    assert (code, "[GPU104]" in words) == (HTTPStatus.FORBIDDEN, True), words


def test_an_account_of_a_namespace_without_a_policy_is_not_the_platform(mine: Client) -> None:
    [stored] = create(mine, pod("taken", labels={"gpu": "0.1"}))
    taken = {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,81920,100:;"}
    stranger = mine.acting_as("system:serviceaccount:second:hami-scheduler")

    with pytest.raises(RefusedError, match="GPU109"):
        stranger.patch(stored, {"metadata": {"annotations": taken}})
    with pytest.raises(RefusedError, match="GPU109"):
        bind(stranger, stored, binding(stored, annotations=taken))

    mine.delete(stored)


def test_a_running_pod_is_not_deleted_at_once_nor_takes_a_month(mine: Client) -> None:
    running = {**gpu_pod("running"), "spec": {**gpu_pod("running")["spec"], "nodeName": "gpu-7"}}
    create(mine, running)
    mine.patch(running, {"status": {"phase": "Running"}}, subresource="status")
    eve = owner(mine, "eve")
    long = {**gpu_pod("long", "0.1"), "spec": {**gpu_pod("long")["spec"], "terminationGracePeriodSeconds": 2_592_000}}

    answers = [
        test_deletions.deleted(eve, "running"),
        test_deletions.deleted(eve, ""),
        test_deletions.evicted(eve, "running"),
        told(eve, long, dry_run=True),
    ]

    assert [(code, "[GPU117]" in words) for code, words in answers] == [(HTTPStatus.FORBIDDEN, True)] * 4, answers
    mine.delete(running)


@pytest.mark.parametrize("what", test_made_claims.REFUSED)
def test_a_claim_of_a_class_that_nothing_counts_is_refused(mine: Client, what: str) -> None:
    code, words = told(mine, test_made_claims.REFUSED[what], dry_run=True)

    assert (code, "[GPU108]" in words) == (HTTPStatus.FORBIDDEN, True), words


def test_a_second_namespace_gets_what_the_cluster_says(there: helmed.Release) -> None:
    second = there.client.in_namespace("second")

    answers = [told(second, made, dry_run=True) for made in (test_alone.REFUSED["a variable"], gpu_pod("free"))]

    assert [code for code, _ in answers] == [HTTPStatus.FORBIDDEN] * 2, answers


def test_nobody_on_the_pod_network_reads_who_uses_what(there: helmed.Release) -> None:
    port = there.rollouts.pods[0].replica.port
    create(there.client.in_namespace("bounded"), gpu_pod("seen", "0.1"))

    assert ['tenant="bounded"' in page(f"https://{host}:{port}/metrics") for host in ("127.0.0.1", here())] == [
        True,
        False,
    ]


def test_what_a_stranger_says_makes_nobody_else_suspect(there: helmed.Release, mine: Client) -> None:
    stored = dict(mine.create(gpu_pod("made-up", "0.1"), dry_run=True))
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001

    assert reviewed_for_a_stranger(there.rollouts.pods[0].replica.port, trusting, stored, "bounded", "eve", "made-up")

    until(lambda: world.usage(there.client, "bounded").get("suspects"), "it came to nothing", within=30)
    suspects = world.usage(there.client, "bounded")["suspects"]
    assert {key.partition(" ")[0] for key in suspects} == {f"bounded@{STRANGER}"}


def test_a_limit_that_somebody_edits_admits_nobody(there: helmed.Release, mine: Client) -> None:
    create(mine, gpu_pod("one"))
    there.settler.stop()
    try:
        test_edited.edit(there.client, "bounded", hard={"devices": "100"})
        several = [told(mine, gpu_pod(f"more-{number}")) for number in range(4)]
    finally:
        there.settler = there.installed.planes[0].processes.again(there.settler)

    assert {code for code, _ in several[2:]} == {HTTPStatus.SERVICE_UNAVAILABLE}, several  # 1.1 + 2 of 4


@pytest.mark.parametrize("noted", test_neutral.NOTED, ids=lambda made: str(made["metadata"]["name"]))
def test_no_note_switches_off_what_is_written_into_pods_without_a_gpu(
    there: helmed.Release, mine: Client, noted: Object, tmp_path: Path
) -> None:
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text(json.dumps(world.policy("bounded", "bounded", quota={"devices": 4})))
    ran = run("render", "policies", "--mutating", "--rules", there.rules.directory, "--with", tenants)
    for made in yaml.safe_load_all(ran.out):
        if made["kind"].startswith("MutatingAdmissionPolicy"):
            there.client.apply(made)

    until(lambda: test_neutral.values(mine.create(pod("any"), dry_run=True)) == {"main": "void"}, "it is in force")

    assert test_neutral.values(mine.create(noted, dry_run=True)) == {"main": "void"}
