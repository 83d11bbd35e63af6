"""Installing, upgrading and uninstalling on a real API server: by kubectl with each component, and by Helm."""

import json
import subprocess
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import run
from tests.cluster.accounts import BASE
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client
from tests.cluster.helmed import helm
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import told
from tests.cluster.test_operating import COMMANDS, executed
from tests.cluster.waiting import until
from tests.cluster.webhook import OF_LEASES, ROOT
from tests.release import chart
from tests.release.kustomized import COMPONENTS, TOGETHER, overlay

pytestmark = pytest.mark.cluster

APPLY = ("apply", "--server-side", "--validate=strict")
OPERATORS = Path(__file__).with_name("operators")
DEFINITIONS = {f"{kind}.gpu-webhook.io" for kind in ("exemptions", "tenantpolicies", "tenantusages")}


@pytest.fixture(scope="module")
def fresh(programs: Binaries) -> Iterator[Client]:
    """A cluster with the kinds of cert-manager and of Prometheus' operator, and nothing of ours."""
    with control_plane(programs) as plane:
        _done(plane.client.kubectl(*APPLY, "-f", str(OPERATORS)))
        yield plane.client


def _done(ran: subprocess.CompletedProcess[str]) -> list[str]:
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def _configurations(client: Client) -> list[Any]:
    """Our webhooks, without those that only the certificate program calls."""
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    objects = [{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind} for kind in kinds]
    hooks = [hook for each in objects for one in client.list(each) for hook in one["webhooks"]]
    return [hook for hook in hooks if hook["name"] not in OF_LEASES]


def _definitions(client: Client) -> set[str]:
    found = client.list({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"})
    return {each["metadata"]["name"] for each in found} & DEFINITIONS


def test_helm_installs_upgrades_rolls_back_and_uninstalls_all_but_the_definitions(
    fresh: Client, charted: Path
) -> None:
    everything = [f"--set=components.{chart.value(each)}=true" for each in TOGETHER]

    helm(fresh, "install", "gpu-webhook", charted, "--create-namespace")
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Fail", "Ignore"}
    helm(fresh, "upgrade", "gpu-webhook", charted, *everything)
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Ignore"}
    helm(fresh, "rollback", "gpu-webhook", "1")
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Fail", "Ignore"}

    said = helm(fresh, "uninstall", "gpu-webhook")

    assert 'release "gpu-webhook" uninstalled' in said
    assert _configurations(fresh) == []
    assert _definitions(fresh) == DEFINITIONS


def test_the_base_is_applied_without_a_warning_and_twice_changes_nothing(fresh: Client) -> None:

    _done(fresh.kubectl(*APPLY, "-k", str(BASE)))

    assert _done(fresh.kubectl("diff", "--server-side", "-k", str(BASE))) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_component_is_applied_without_a_warning(fresh: Client, component: str, tmp_path: Path) -> None:
    overlay(tmp_path, [component])

    _done(fresh.kubectl(*APPLY, "-k", str(tmp_path)))


def _left(client: Client) -> set[str]:
    """All that has our name or our label, of whatever kind the API server serves, but what serves our kinds."""
    kinds = ",".join(_done(client.kubectl("api-resources", "--verbs=list", "-o=name")))
    ran = client.kubectl("get", kinds, "--all-namespaces", "-o=json")
    assert ran.returncode == 0, ran.stderr
    stored = [(each["kind"], each["metadata"]) for each in json.loads(ran.stdout)["items"]]
    ours = {
        f"{kind} {metadata['name']}"
        for kind, metadata in stored
        if "gpu-webhook" in json.dumps([metadata["name"], metadata.get("namespace"), metadata.get("labels")])
    }
    return {name for name in ours if not name.endswith(".gpu-webhook.io")}


@pytest.mark.usefixtures("controllers")
def test_from_kubectl_to_helm_and_away_again_nothing_is_left(
    programs: Binaries, charted: Path, tmp_path: Path
) -> None:
    """Whole devices are free then, also where a ResourceQuota has bounded them, and so are privileged pods."""
    with control_plane(programs, controllers=True) as plane:
        client = plane.client
        _done(client.kubectl(*APPLY, "-f", str(OPERATORS)))
        components = [each for each in TOGETHER if each != "observe-only"]
        overlay(tmp_path, components)
        _done(client.kubectl(*APPLY, "-k", str(tmp_path)))
        vision = client.in_namespace("vision")
        policy = world.policy("vision", "vision", quota={"devices": 0})
        client.create(policy)
        tenants = tmp_path / "tenants.yaml"
        tenants.write_text(json.dumps(policy))
        net = run("render", "policies", "--mutating", "--rules", ROOT / "rules", "--with", tenants).out
        assert client.kubectl(*APPLY, "-f", "-", stdin=net).returncode == 0
        asking = [
            pod("whole", containers=[container("main", resources=limits(**{"nvidia.com/gpu": 1}))]),
            pod("privileged", containers=[container("main", securityContext={"privileged": True})]),
        ]
        until(lambda: told(vision, asking[0], dry_run=True)[0] == HTTPStatus.FORBIDDEN, "the net holds")

        same = [f"--set=components.{chart.value(each)}=true" for each in components]
        helm(client, "install", "gpu-webhook", charted, "--take-ownership", *same)
        assert "gpu-webhook" in helm(client, "list", "--short")
        said = executed(plane, COMMANDS["uninstall"].splitlines()[-1], tmp_path)

        assert said.count("deleted") > 30
        assert _left(client) == set()
        assert [told(vision, made)[0] for made in asking] == [HTTPStatus.CREATED] * 2
        assert (_definitions(client), client.exists(policy)) == (DEFINITIONS, True)
        _done(client.kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=gpu-webhook"))
        assert _definitions(client) == set()
