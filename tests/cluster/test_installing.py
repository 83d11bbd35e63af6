"""Installing, upgrading and uninstalling on a real API server: by kubectl with each component, and by Helm."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.accounts import BASE, NAMESPACE
from tests.cluster.binaries import Binaries, helm
from tests.cluster.client import Client
from tests.cluster.plane import control_plane
from tests.cluster.webhook import OF_LEASES
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
        done = plane.client.kubectl(*APPLY, "-f", str(OPERATORS))
        assert (done.returncode, done.stderr) == (0, "")
        yield plane.client


def _done(ran: subprocess.CompletedProcess[str]) -> list[str]:
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def _helm(client: Client, *arguments: str | Path) -> list[str]:
    command = [helm(), *arguments, f"--namespace={NAMESPACE}"]
    home = client.kubeconfig.parent
    env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(client.kubeconfig), "HOME": str(home)}
    return _done(subprocess.run(command, env=env, capture_output=True, text=True, check=False))


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
    fresh: Client, programs: Binaries, tmp_path: Path
) -> None:
    made = tmp_path / "gpu-webhook"
    chart.write(programs.path("kubectl"), made)
    everything = [f"--set=components.{chart.value(each)}=true" for each in TOGETHER]

    _helm(fresh, "install", "gpu-webhook", made, "--create-namespace")
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Fail", "Ignore"}
    _helm(fresh, "upgrade", "gpu-webhook", made, *everything)
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Ignore"}
    _helm(fresh, "rollback", "gpu-webhook", "1")
    assert {hook["failurePolicy"] for hook in _configurations(fresh)} == {"Fail", "Ignore"}

    said = _helm(fresh, "uninstall", "gpu-webhook")

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


def test_uninstalling_an_overlay_keeps_the_definitions_and_what_was_written_in_their_kinds(
    fresh: Client, tmp_path: Path
) -> None:
    policy = {
        "apiVersion": "gpu-webhook.io/v1alpha1",
        "kind": "TenantPolicy",
        "metadata": {"name": "vision"},
        "spec": {"namespaces": {"names": ["vision"]}},
    }
    fresh.create(policy)
    overlay(tmp_path, ["doctor"])  # the component with objects outside of our namespace
    _done(fresh.kubectl("delete", "--wait=false", "-k", str(tmp_path), "-l", "gpu-webhook.io/kept!=true"))

    assert _definitions(fresh) == DEFINITIONS
    assert fresh.exists(policy)
    roles = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    assert [each for each in fresh.list(roles) if each["metadata"]["name"].startswith("gpu-webhook")] == []
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    assert fresh.get(namespace)["status"]["phase"] == "Terminating"
