"""Pods that name ElasticGPUClaims, on a real API server: the watcher, the webhook, the three kinds, and kubectl."""

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import builders
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.pods import pod
from tests.cluster.waiting import until
from tests.cluster.watcher import kubeconfig_of, running_watcher
from tests.cluster.webhook import MUTATE, ROOT, calls, register, running_webhook

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

_numbers = itertools.count(1)

CRDS = sorted((Path(__file__).parent / "crds").glob("*.yaml"))
CLUSTER = (
    "backends: [nvidia-gpu, hami-vgpu, tencent-qgpu], defaults: {whole: nvidia-gpu, part: hami-vgpu}, "
    "provisioners: {gpushare.provisioner.elasticgpu.io: hami-vgpu, elasticgpu.io/qgpu: tencent-qgpu}"
)
SHARE = {"elasticgpu.com/gpu-core": 50, "elasticgpu.com/gpu-memory": 8192}
HAMI = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "50"}
QGPU = {"tke.cloud.tencent.com/qgpu-core": "50", "tke.cloud.tencent.com/qgpu-memory": "8"}


def elastic(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "elasticgpu.io/v1alpha1", "kind": kind, "metadata": {"name": name}, **fields}


def claim(name: str, class_name: str) -> Object:
    spec = {"elasticGPUClassName": class_name, "resources": {"requests": SHARE}}
    return elastic("ElasticGPUClaim", name, spec=spec)


def naming(name: str) -> Object:
    return pod(name, annotations={"elasticgpu.io/egpuc-main": name})


def refusal(client: Client, asking: Object) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        client.create(asking, dry_run=True)
    return refused.value


def limits(stored: Object) -> Object:
    found: Object = stored["spec"]["containers"][0]["resources"]["limits"]
    return found


@pytest.fixture(scope="module")
def claiming(programs: Binaries) -> Iterator[ControlPlane]:
    with control_plane(programs) as plane:
        yield plane


@pytest.fixture(scope="module")
def kubeconfig(claiming: ControlPlane) -> Path:
    return kubeconfig_of(claiming)


@pytest.fixture(scope="module")
def file(claiming: ControlPlane, kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the watcher writes beside a webhook that reads it; the cluster does not have the kinds yet."""
    folder = tmp_path_factory.mktemp("claims")
    rules = folder / "rules"
    shutil.copytree(ROOT / "rules", rules, ignore=shutil.ignore_patterns("kustomization.yaml"))
    (rules / "cluster.yaml").write_text(builders.cluster(CLUSTER))
    written = folder / "surroundings.json"
    with (
        running_watcher(claiming, kubeconfig, rules, written),
        running_webhook(claiming, rules=rules, surroundings=written) as webhook,
    ):
        until(written.exists, "the watcher has written")
        register(claiming.client, webhook)
        yield written


@pytest.fixture(scope="module")
def kinds(claiming: ControlPlane, file: Path) -> Path:
    """The three kinds, when the watcher has found the two that it looks for, and the webhook has read so."""
    for crd in CRDS:
        claiming.client.apply(yaml.safe_load(crd.read_text()))
    until(lambda: len(json.loads(file.read_bytes())) == 3, "the watcher has found the kinds", within=60)
    until(lambda: refusal(claiming.client, naming("nobody")).code == 503, "the webhook knows")
    return file


@pytest.fixture
def client(claiming: ControlPlane, kinds: Path) -> Client:
    """A namespace with the classes of two systems."""
    assert kinds.exists()
    client = claiming.client.in_namespace(f"test-{next(_numbers)}")
    for name, provisioner in (("share", "gpushare.provisioner.elasticgpu.io"), ("qgpu", "elasticgpu.io/qgpu")):
        client.apply(elastic("ElasticGPUClass", name, provisioner=provisioner))
    return client


def created(client: Client, asking: Object) -> Object:
    """The pod as it is stored, tried as clients try: for as long as they are told to come again."""

    def tried() -> Object:
        try:
            return client.create(asking)
        except RefusedError as refused:
            if refused.code != 503:
                raise
            return {}

    return until(tried, "the webhook has seen the claim")


def test_before_the_kinds_are_there_a_pod_that_names_a_claim_is_told_so(claiming: ControlPlane, file: Path) -> None:
    assert json.loads(file.read_bytes()) == {"nodes": []}

    refused = refusal(claiming.client, naming("train"))

    assert refused.code == 422
    assert "[GPU206] nothing here knows any ElasticGPUClaim" in str(refused)


@pytest.mark.parametrize(("class_name", "expected"), [("share", HAMI), ("qgpu", QGPU)])
def test_a_claim_is_served_by_the_back_end_of_its_class(client: Client, class_name: str, expected: Object) -> None:
    client.create(claim("train", class_name))

    stored = created(client, naming("train"))

    assert limits(stored) == expected
    assert stored["metadata"]["annotations"]["claimed.gpu-webhook.io/main"] == "train"


def test_a_pod_that_comes_before_its_claim_is_brought_again_by_kubectl(client: Client) -> None:
    asking = naming("early")
    status = refusal(client, asking).status
    assert (status["code"], status["details"]["retryAfterSeconds"]) == (503, 1)

    before = calls(client)[MUTATE]
    command = [str(client.kubectl_path), f"--kubeconfig={client.kubeconfig}", f"--namespace={client.namespace}"]
    with subprocess.Popen([*command, "create", "-f", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as kubectl:
        assert kubectl.stdin is not None
        kubectl.stdin.write(json.dumps(asking).encode())
        kubectl.stdin.close()
        until(lambda: calls(client)[MUTATE] > before, "kubectl has tried")
        client.create(claim("early", "share"))
        assert kubectl.wait(30) == 0

    assert limits(client.get(asking)) == HAMI


def test_once_served_a_pod_outlives_its_claim(client: Client, kinds: Path) -> None:
    client.create(claim("train", "share"))
    stored = created(client, naming("train"))
    client.delete(claim("train", "share"))
    key = "elasticgpuclaims.elasticgpu.io"
    until(lambda: client.namespace not in str(json.loads(kinds.read_bytes())[key]), "the claim is gone")

    changed = client.patch(naming("train"), {"metadata": {"labels": {"seen": "true"}}})
    again = client.create(
        {
            **naming("again"),
            "metadata": {"name": "again", "annotations": stored["metadata"]["annotations"]},
            "spec": stored["spec"],
        }
    )

    assert (changed.warnings, limits(again)) == ((), HAMI)


def test_a_claim_with_a_mistake_is_refused_for_good(client: Client) -> None:
    wrong = claim("wrong", "share") | {"spec": {"resources": {"requests": {"elasticgpu.com/gpu-core": 150}}}}
    client.create(wrong)

    def said() -> str:
        refused = refusal(client, naming("wrong"))
        return str(refused) if refused.code == 422 else ""

    assert "write 100 or 200, in the claim" in until(said, "the webhook has seen the claim")


def test_every_kind_takes_what_it_is_for(client: Client) -> None:
    share = elastic(
        "ElasticGPU",
        "card-0-half",
        spec={
            "capacity": SHARE,
            "gpuShare": {"gpuName": "card-0"},
            "claimRef": {"kind": "ElasticGPUClaim", "namespace": client.namespace, "name": "train"},
        },
    )

    assert client.create(share)["spec"] == share["spec"]


def test_the_watcher_may_read_claims_and_classes_and_write_neither(claiming: ControlPlane, kubeconfig: Path) -> None:
    allowed = [
        (verb, kind)
        for verb in ("get", "list", "watch", "create", "update", "delete")
        for kind in ("elasticgpuclaims", "elasticgpuclasses", "elasticgpus")
        if claiming.client.kubectl(
            "--kubeconfig", str(kubeconfig), "auth", "can-i", verb, f"{kind}.elasticgpu.io", "-A"
        ).returncode
        == 0
    ]

    assert allowed == [
        (verb, kind) for verb in ("list", "watch") for kind in ("elasticgpuclaims", "elasticgpuclasses")
    ]
