"""What a running cluster says of its tenants to whoever asks it, and what would happen to one more pod."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Ran, run
from tests.cluster.client import Client, Object
from tests.cluster.pods import pod
from tests.cluster.tenancy.town import Town, create, gpu_pod, refusal

pytestmark = pytest.mark.cluster

EVERYTHING = "tenantpolicies,tenantusages,exemptions,namespaces"


def ask(client: Client, *arguments: str | Path, given: str = "") -> Ran:
    """Run `gpu-webhook` as the administrator of the cluster does."""
    return run(*arguments, given=given, kubeconfig=client.kubeconfig)


def tenant(told: str, name: str) -> dict[str, Any]:
    """One tenant of what `tenants -o json` prints."""
    [found] = [each for each in json.loads(told)["tenants"] if each["name"] == name]
    return dict(found)


def test_the_tenants_of_the_current_cluster_are_those_of_its_objects(town: Town) -> None:
    [there] = town.tenant("beheld", quota={"devices": 4})
    create(there, gpu_pod("one", "2"), gpu_pod("two", "1"))
    town.await_used("beheld", "3")

    asked = ask(town.client, "tenants", "-o", "json")

    assert (asked.code, asked.err) == (0, "")
    assert tenant(asked.out, "beheld") == {
        "name": "beheld",
        "policy": "TenantPolicy/beheld",
        "priority": 0,
        "enforcementAction": "deny",
        "percent": 75,
        "counted": True,
        "pending": 0,
        "devices": {"used": 3, "limit": 4, "left": 1},
        "memoryBytes": {"used": 0, "limit": None, "left": None},
        "models": {},
        "namespaces": [{"name": "beheld-a", "devices": 3, "memoryBytes": 0, "counted": True}],
    }


def test_what_kubectl_prints_says_the_same(town: Town) -> None:
    [there] = town.tenant("printed", quota={"devices": 2})
    create(there, gpu_pod("one"))
    town.await_used("printed", "1")

    printed = town.client.kubectl("get", EVERYTHING, "-o", "json")

    assert printed.returncode == 0, printed.stderr
    of_file = ask(town.client, "tenants", "-", "-o", "json", given=printed.stdout)
    assert tenant(of_file.out, "printed") == tenant(ask(town.client, "tenants", "-o", "json").out, "printed")


def test_what_explain_foresees_is_what_the_cluster_answers(town: Town, tmp_path: Path) -> None:
    [there] = town.tenant("foreseen", quota={"devices": 2})
    create(there, gpu_pod("one"))
    town.await_used("foreseen", "1")
    usage = tmp_path / "usage.json"
    usage.write_text(town.client.kubectl("get", EVERYTHING, "-o", "json").stdout)

    def asked(made: Object) -> Any:
        options = ("-n", there.namespace, "--usage", usage, "-o", "json")
        return ask(there, "explain", "-", *options, given=json.dumps(made)).json

    fits, large = asked(gpu_pod("fits")), asked(gpu_pod("large", "2"))

    assert fits["allowed"]
    assert large["code"] == 403
    refused = refusal(there, gpu_pod("large", "2"))
    causes = [cause["message"] for cause in refused.status["details"]["causes"]]
    assert causes == [violation["message"] for violation in large["violations"]]
    create(there, gpu_pod("fits"))


def test_a_workload_over_the_quota_is_warned_of_once_the_replica_knows_the_ledger(town: Town) -> None:
    [there] = town.tenant("warned", quota={"devices": 1})
    create(there, gpu_pod("one"))
    labels = {"app": "web", "gpu": "1"}
    template = {"metadata": {"labels": labels}, "spec": pod("ignored")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}

    [warning] = there.create(deployment, dry_run=True).warnings

    assert warning == (
        'pods of this template will be refused: [GPU104] tenant "warned" is over its GPU quota: uses 1, asks 1, '
        "limit 1 device; free some: namespace warned-a holds 1"
    )
