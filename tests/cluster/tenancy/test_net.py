"""What the API server refuses alone, by `gpu-webhook render policies`, beside what the webhook refuses."""

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tables
from tests.cases import golden
from tests.cli.program import run
from tests.cluster import rules
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.pods import completed, container, limits, pod
from tests.cluster.tenancy import attempts, generated, world
from tests.cluster.tenancy.town import running, told
from tests.cluster.waiting import until
from tests.cluster.webhook import unregister
from webhook.core.registration.configurations import REMOVING
from webhook.playground import imagined

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

SEED = 20261123
GENERATED = 300
BY_THE_SERVER = ("uid", "creationTimestamp", "namespace", "managedFields", "generation", "resourceVersion")
CEILINGS = {"container": {"devices": 2}, "pod": {"devices": 3}}
VISION = {"matchLabels": {"team": "vision"}}
POLICIES: Sequence[Any] = tables.table(__file__, "policies")
EXEMPTION: Object = tables.table(__file__, "exemption")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said of a pod; `stored` is the pod as it would have been stored, if it was admitted."""

    code: int
    said: str
    warnings: Sequence[str]
    stored: Object


def verdict(there: Client, made: Object) -> Verdict:
    try:
        answer = there.create(made, dry_run=True)
    except RefusedError as refused:
        return Verdict(refused.code, str(refused), refused.warnings, made)
    metadata = {key: value for key, value in answer["metadata"].items() if key not in BY_THE_SERVER}
    return Verdict(HTTPStatus.CREATED, "", answer.warnings, {**answer, "metadata": metadata, "status": {}})


def _attempted() -> list[Object]:
    return [
        *attempts.variables(),
        *attempts.metadata(),
        *attempts.host_paths(),
        *attempts.mounts(),
        *attempts.privileges(),
        *attempts.runtime_classes(),
        *attempts.past_ceilings(),
    ]


# What the webhook knows, and the API server does not

BY_THE_WEBHOOK_ALONE: Mapping[str, tuple[Object, str]] = tables.table(__file__, "by the webhook alone")


@dataclass(slots=True)
class Judged:
    """The namespaces by name, and what the webhook and then the policies said of pods in them."""

    there: Mapping[str, Client]
    webhook: Mapping[str, Sequence[Verdict]]
    policies: Mapping[str, Sequence[Verdict]]
    rendered: Sequence[Object]


def _tried() -> Mapping[str, list[Object]]:
    chance = random.Random(SEED)  # noqa: S311 - the same pods in every run
    few = [
        attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        attempts.trying(securityContext={"privileged": True}),
        attempts.on_host("/dev/nvidia0"),
    ]
    return {
        "doors-a": [*_attempted(), *(generated.one(chance) for _ in range(GENERATED))],
        "doors-b": [made for made, _ in BY_THE_WEBHOOK_ALONE.values()],
        "doors-lenient": few,
        "swept": few,
        "spared": few,
        "elsewhere": few,
        "labelled": few,
        "bounded": [],
    }


@pytest.fixture(scope="module")
def judged(
    programs: Binaries,
    controllers: None,  # noqa: ARG001 - asked for what it checks
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Judged]:
    """Each pod is judged by the webhook; then by the policies alone, as the webhook would have had it stored."""
    with control_plane(programs, controllers=True) as plane, running(plane) as town:
        client = town.client
        for name in {*generated.CLASSES, *(attempts.one(each.name) for each in attempts.names("runtime_classes"))}:
            client.create(
                {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "x"}
            )
        for each in (*POLICIES, EXEMPTION):
            client.create(each)
        tried = _tried()
        there = {name: client.in_namespace(name) for name in tried}
        world.label(client, "labelled", VISION["matchLabels"])
        world.label(client, "swept", {REMOVING: "remove"})
        world.await_counted(client, "ceilings", "doors-a")
        world.await_counted(client, "doors", "doors-b")
        for name in ("swept", "labelled"):
            until(partial(_refused, there[name], attempts.on_host("/dev")), f"the webhook knows {name}")
        until(partial(_admitted, there["swept"], tried["swept"][0]), "the webhook takes out what gives a device")
        webhook = {name: [verdict(there[name], made) for made in pods] for name, pods in tried.items()}
        rendered = _render(tmp_path_factory.mktemp("rules"))
        for each in rendered:
            client.create(each)
        _await_policies(there["doors-a"])
        unregister(client)
        for made in (pod("odd", annotations={"gpu-webhook.io/wrong": "1"}), BY_THE_WEBHOOK_ALONE["a quota"][0]):
            until(partial(_admitted, there["doors-b"], made), "the webhook is gone")
        policies = {name: [verdict(there[name], each.stored) for each in of] for name, of in webhook.items()}
        yield Judged(there, webhook, policies, rendered)


def _render(folder: Path) -> list[Object]:
    """What the program prints for the rules of the servers here, and the policies."""
    tenants = folder / "tenants.yaml"
    tenants.write_text(yaml.safe_dump_all([*POLICIES, EXEMPTION]))
    ran = run("render", "policies", "--rules", imagined(folder / "rules"), "--with", tenants)
    assert (ran.code, ran.err) == (0, "")
    return [*yaml.safe_load_all(ran.out)]


def _refused(there: Client, made: Object, by: str = "") -> bool:
    code, said = told(there, made, dry_run=True)
    return code == HTTPStatus.FORBIDDEN and by in said


def _admitted(there: Client, made: Object) -> bool:
    return told(there, made, dry_run=True)[0] == HTTPStatus.CREATED


def _await_policies(there: Client) -> None:
    """Await that each family refuses something, before the webhook is asked."""
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    for made, family in (
        (attempts.trying(env=env), "devices"),
        (next(attempts.mounts()), "device-names"),
    ):
        until(partial(_refused, there, made, f"'gpu-webhook-{family}'"), family)


def test_the_policies_refuse_nothing_that_the_webhook_admits(judged: Judged) -> None:
    wrong = [
        (name, told_by.stored, by_policy.said)
        for name, webhook in judged.webhook.items()
        for told_by, by_policy in zip(webhook, judged.policies[name], strict=True)
        if told_by.code == HTTPStatus.CREATED and by_policy.code != HTTPStatus.CREATED
    ]

    assert wrong == []


def test_the_policies_refuse_every_attempt_and_every_generated_pod_that_the_webhook_refuses(
    judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [*zip(judged.webhook["doors-a"], judged.policies["doors-a"], strict=True)]
    # A word that means nothing asks for no device.
    refused = [pair for pair in pairs if "[GPU" in pair[0].said and "that means anything here" not in pair[0].said]

    with capsys.disabled():
        admitted = sum(webhook.code == HTTPStatus.CREATED for webhook, _ in pairs)
        sys.stdout.write(f"\npods judged twice: {len(pairs)}, {len(refused)} refused, {admitted} admitted\n")
    assert [one.said for one, _ in pairs if "[GPU" not in one.said and one.code != HTTPStatus.CREATED] == []
    assert admitted > GENERATED / 4
    assert [(one.said, one.stored) for one, other in refused if "ValidatingAdmissionPolicy" not in other.said] == []


def test_what_the_webhook_refuses_and_the_policies_admit_is_listed(judged: Judged) -> None:
    found = {
        name: (sorted({*re.findall(r"\[(GPU\d+)\]", webhook.said)}), policies.code)
        for name, webhook, policies in zip(
            BY_THE_WEBHOOK_ALONE, judged.webhook["doors-b"], judged.policies["doors-b"], strict=True
        )
    }

    assert found == {name: ([code], HTTPStatus.CREATED) for name, (_, code) in BY_THE_WEBHOOK_ALONE.items()}


def test_each_namespace_is_judged_by_the_policy_that_holds_there(judged: Judged) -> None:
    codes = {
        name: [(one.code, bool(one.warnings)) for one in judged.policies[name]]
        for name in ("doors-lenient", "swept", "spared", "elsewhere", "labelled")
    }

    denied, warned, nothing = (HTTPStatus.FORBIDDEN, False), (HTTPStatus.CREATED, True), (HTTPStatus.CREATED, False)
    assert codes == {
        "doors-lenient": [warned] * 3,
        "swept": [nothing, denied, denied],  # the webhook had taken the variable out
        "spared": [nothing] * 3,
        "elsewhere": [denied, nothing, nothing],  # without a policy it gets no device
        "labelled": [denied] * 3,
    }


def test_without_the_webhook_a_pod_that_says_gpu_and_has_no_device_is_refused(judged: Judged) -> None:
    there = judged.there["elsewhere"]
    asking = [
        pod("asking", labels={"gpu": "1"}),
        pod("asking", labels={"gpu-memory": "8Gi"}),
        pod("asking", labels={"gpu-profile": "1g.10gb"}),
        pod("asking", annotations={"gpu-webhook.io/gpu": "30%"}),
        pod("asking", annotations={"gpu.gpu-webhook.io/main": "0.3"}),
        pod("asking", containers=[container("main", resources=limits(**{"gpu-webhook.io/gpu": "1"}))]),
        pod("asking", labels={"gpu": "1"}, containers=[container("main", resources=limits(**{"rdma/hca": "1"}))]),
    ]

    answers = [told(there, made, dry_run=True) for made in asking]

    assert [(code, "[GPU601]" in said) for code, said in answers] == [(HTTPStatus.FORBIDDEN, True)] * len(asking)


def test_without_the_webhook_nothing_is_added_to_a_pod_that_exists(judged: Judged) -> None:
    there = judged.there["doors-a"]
    stored = there.create(pod("running"))
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    asking = {"name": "debug", "image": "none", "env": [variable]}
    privileged = {"name": "debug", "image": "none", "securityContext": {"privileged": True}}
    kubelet = there.acting_as("system:node:a")

    with pytest.raises(RefusedError) as annotated:
        there.patch(stored, {"metadata": {"annotations": {"nvidia.cdi.k8s.io/pod": "nvidia.com/gpu=all"}}})
    refused = []
    for added in (asking, privileged):
        with pytest.raises(RefusedError) as debugged:
            there.update(
                {**stored, "spec": {**stored["spec"], "ephemeralContainers": [added]}},
                subresource="ephemeralcontainers",
            )
        refused.append(str(debugged.value).partition("denied request: ")[2].partition(" may give")[0])
    kubelet.patch(stored, {"metadata": {"annotations": {"huawei.com/kltDev": "Ascend910-0"}}})
    there.patch(stored, {"metadata": {"annotations": {"a": "b"}}})
    with pytest.raises(RefusedError, match=r"the annotation huawei\.com/kltDev may give devices"):
        there.patch(stored, {"metadata": {"annotations": {"huawei.com/kltDev": "Ascend910-1"}}})

    assert "[GPU116] the annotation nvidia.cdi.k8s.io/pod may give devices" in str(annotated.value)
    assert refused == [
        '[GPU116] the variable NVIDIA_VISIBLE_DEVICES of the container "debug"',
        '[GPU116] privileged: true of the container "debug"',
    ]


def test_without_the_webhook_accounts_of_tenants_add_nothing_to_pods_of_others(judged: Judged) -> None:
    stored = judged.there["doors-a"].create(pod("visited"))
    visitor, stranger, binder = (
        judged.there["doors-a"].acting_as(f"system:serviceaccount:{name}:ci")
        for name in ("doors-b", "of-nobody", "kube-system")
    )
    debugger = {"name": "debug", "image": "none", "securityContext": {"privileged": True}}
    debugged = {**stored, "spec": {**stored["spec"], "ephemeralContainers": [debugger]}}
    annotated = {"metadata": {"annotations": {"huawei.com/kltDev": "Ascend910-0"}}}

    for account in (visitor, stranger, binder):
        with pytest.raises(RefusedError, match="privileged: true"):
            account.update(debugged, subresource="ephemeralcontainers")
    for account in (visitor, stranger):
        with pytest.raises(RefusedError, match=r"the annotation huawei\.com/kltDev"):
            account.patch(stored, annotated)
    binder.patch(stored, annotated)


def test_without_the_webhook_a_tenant_with_one_namespace_gets_no_more_whole_devices_than_its_quota(
    judged: Judged,
) -> None:
    there = judged.there["bounded"]
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpu-webhook"}}
    until(lambda: there.get(quota).get("status"), "Kubernetes counts")
    made = [pod(f"one-{n}", containers=[container("main", resources=limits(**{"amd.com/gpu": "1"}))]) for n in "abc"]

    answers = [told(there, each) for each in made]

    assert [code for code, _ in answers] == [HTTPStatus.CREATED, HTTPStatus.CREATED, HTTPStatus.FORBIDDEN]
    assert (
        "exceeded quota: gpu-webhook, requested: requests.amd.com/gpu=1, used: requests.amd.com/gpu=2"
        in answers[2][1]
    )


def test_a_refusal_names_what_is_refused_and_what_to_do(judged: Judged) -> None:
    made = attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])

    assert told(judged.there["doors-a"], made, dry_run=True)[1] == (
        "pods \"free\" is forbidden: ValidatingAdmissionPolicy 'gpu-webhook-devices' with binding "
        "'gpu-webhook-devices' denied request: [GPU116] the variable NVIDIA_VISIBLE_DEVICES of the container "
        '"main" may give devices that the pod does not ask for, and no quota counts that; leave it out, and ask for '
        'GPUs as gpu: "1"; if the pod needs it, ask an operator of the cluster for an Exemption that lifts '
        "deviceAccess"
    )


def test_a_large_pod_stays_within_the_budget_of_the_api_server(judged: Judged) -> None:
    """As large as one that asks for a GPU may be: 1,000 variables in each of ten containers, 1,000 annotations."""
    env = [{"name": f"NVIDIA_VISIBLE_DEVICE_{index}", "value": "all"} for index in range(1000)]
    mounts = [{"name": "mine", "mountPath": f"/data/{index}"} for index in range(100)]
    large = pod(
        "large",
        annotations={f"example.com/{index}": "x" for index in range(1000)},
        containers=[container(f"c{index}", env=env, volumeMounts=mounts) for index in range(10)],
        volumes=[
            {"name": "mine", "emptyDir": {}},
            *({"name": f"host-{index}", "hostPath": {"path": f"/srv/{index}"}} for index in range(100)),
        ],
    )

    assert told(judged.there["doors-a"], large, dry_run=True) == (HTTPStatus.CREATED, "")


def test_no_golden_case_is_taken_for_a_pod_that_was_not_translated(programs: Binaries, tmp_path: Path) -> None:
    """The pods that each case becomes, with the back end of each; and what the policy says of those that ask."""
    stored = [
        completed(yaml.safe_load(case.expected()["mutated.yaml"]))
        for case in golden.find()
        if case.has_pod and "mutated.yaml" in case.expected() and "ephemeralContainers" not in case.pod()["spec"]
    ]
    with control_plane(programs) as plane:
        ran = run("render", "policies", "--rules", rules.with_every_back_end(tmp_path))
        for each in yaml.safe_load_all(ran.out):
            plane.client.create(each)
        until(partial(_refused, plane.client, pod("asking", labels={"gpu": "1"}), "[GPU601]"), "the policy is there")

        answers = [told(plane.client, {**made, "metadata": _named(made)}, dry_run=True) for made in stored]

    said = [one for _, one in answers if one and "RuntimeClass" not in one and "must not contain '..'" not in one]
    assert said == []
    assert len(stored) > GENERATED


def _named(made: Object) -> Object:
    return {key: value for key, value in made["metadata"].items() if key != "namespace"}
