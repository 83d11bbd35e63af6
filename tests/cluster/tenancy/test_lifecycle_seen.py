"""What people see of tenants: kubectl's words, events, and what the programs themselves cost."""

import http.client
import json
import re
from pathlib import Path

import pytest
import yaml

from tests.cluster.accounts import BASE, SETTLER, kubeconfig_of
from tests.cluster.client import Client
from tests.cluster.plane import accepts, free_port
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.fleet import port_of
from tests.cluster.tenancy.test_lifecycle import workload
from tests.cluster.tenancy.town import Town, create, gpu_pod
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM, ROOT

pytestmark = pytest.mark.cluster


def test_who_is_over_a_quota_reads_all_of_it_at_once(town: Town) -> None:
    here, there = town.tenant("seen", namespaces=2, quota={"devices": 4})
    create(here, gpu_pod("one", "2"))
    create(there, gpu_pod("two", "0.5"))
    town.await_used("seen", "2.5")

    refused = there.kubectl("create", "-f", "-", stdin=json.dumps(gpu_pod("three", "2")))

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        'Error from server (Forbidden): error when creating "STDIN": admission webhook "validate.gpu-webhook.io" '
        'denied the request: [GPU104] tenant "seen" is over its GPU quota: uses 2.5, asks 2, limit 4 devices\n'
        "  at   metadata.labels.gpu\n"
        "  rule TenantPolicy/seen spec.quota\n"
        "  fix  ask for 1 or fewer, or free some: namespace seen-a holds 2, seen-b 0.5\n"
    )


def test_kubectl_shows_what_a_tenant_uses(town: Town) -> None:
    [there] = town.tenant("shown", quota={"devices": 4, "memory": "64Gi"})
    create(there, gpu_pod("one", "1", gpu_memory="16Gi"))
    town.await_used("shown", "1")

    printed = town.client.kubectl("get", "tenantusage", "shown")

    assert printed.stderr == ""
    assert [line.split() for line in printed.stdout.splitlines()] == [
        ["NAME", "USED%", "DEVICES", "OF", "MEMORY", "OF-MEMORY", "AGE"],
        ["shown", "25", "1", "4", "16Gi", "64Gi", printed.stdout.split()[-1]],
    ]


def test_kubectl_comes_again_by_itself_while_a_namespace_is_not_counted_yet(town: Town) -> None:
    there = town.client.in_namespace("awaited")
    town.client.create(world.policy("awaited", "awaited", quota={"devices": 1}))

    done = there.kubectl("create", "-f", "-", stdin=json.dumps(gpu_pod("one")))

    assert (done.returncode, done.stdout, done.stderr) == (0, "pod/one created\n", "")
    town.await_used("awaited", "1")


def events_about(there: Client, kind: str, reason: str) -> list[str]:
    """What events of a reason say of objects of a kind."""
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {}}
    found = there.list(event, fieldSelector=f"reason={reason},involvedObject.kind={kind}")
    return [each["message"] for each in found]


def test_who_owns_pods_that_a_quota_refuses_finds_it_in_the_events(town: Town) -> None:
    [there] = town.tenant("owned", quota={"devices": 1})

    there.create(workload("Deployment", 2))

    [said] = until(lambda: events_about(there, "ReplicaSet", "GPUQuotaExceeded"), "the owner is told")
    assert said == '[GPU104] tenant "owned" is over its GPU quota: uses 1, asks 1, limit 1 device'


def memory(process: Process) -> float:
    """What a program and those it has started take together, in MiB; what they share counts once."""
    pid = process.popen.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pages = (Path(f"/proc/{each}/smaps_rollup").read_text() for each in (pid, *children))
    sizes = [int(size) for page in pages for size in re.findall(r"^Pss: +(\d+) kB", page, re.MULTILINE)]
    return sum(sizes) / 1024


def requested(manifest: str, name: str) -> dict[str, int]:
    """The memory that a container of a manifest requests, and its limit, in MiB."""
    documents = yaml.safe_load_all((BASE / manifest).read_text())
    [spec] = [each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"]
    [found] = [each["resources"] for each in spec["containers"] if each["name"] == name]
    return {each: int(found[each]["memory"].removesuffix("Mi")) for each in ("requests", "limits")}


def test_the_programs_fit_into_the_memory_that_their_containers_request(town: Town) -> None:
    webhook, settler = memory(town.webhook.process), memory(town.settler)

    print(f"webhook {webhook:.0f} MiB, settler {settler:.0f} MiB")  # noqa: T201 - shown with -s
    assert webhook < requested("deployment.yaml", "webhook")["requests"]
    assert settler < requested("settler.yaml", "settler")["requests"]


def test_the_settler_says_what_everybody_uses_and_may(town: Town) -> None:
    [there] = town.tenant("figures", quota={"devices": 4, "memory": "64Gi"})
    create(there, gpu_pod("one", "0.5", gpu_memory="16Gi"))
    town.await_used("figures", "1")

    code, figures = page(port_of(town.settler), "/metrics")

    assert code == 200
    assert 'gpu_webhook_tenant_used{tenant="figures",what="devices"} 1.0\n' in figures
    assert f'gpu_webhook_tenant_used{{tenant="figures",what="memory"}} {16.0 * (1 << 30)}\n' in figures
    assert 'gpu_webhook_tenant_hard{tenant="figures",what="devices"} 4.0\n' in figures
    assert 'gpu_webhook_tenant_pending{tenant="figures"} 0\n' in figures


def test_the_settler_is_well_as_its_container_starts_it(town: Town) -> None:
    documents = yaml.safe_load_all((BASE / "settler.yaml").read_text())
    [container] = next(
        each["spec"]["template"]["spec"]["containers"] for each in documents if each["kind"] == "Deployment"
    )
    here = {"--bind": f"127.0.0.1:{free_port()}", "--rules": ROOT / "rules"}
    words = [
        f"{word}={here[word]}" if word in here else word for word in (arg.split("=")[0] for arg in container["args"])
    ]
    env = {"KUBECONFIG": str(kubeconfig_of(town.plane, SETTLER, "settler.yaml"))}
    second = town.plane.processes.start("second-settler", PROGRAM, *words, env=env)
    try:
        until(lambda: accepts(port_of(second)), "it listens")
        pages = {path: page(port_of(second), path) for path in ("/healthz", "/metrics", "/other")}
    finally:
        second.stop()

    probed = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert {path: code for path, (code, _) in pages.items()} == {"/healthz": 200, "/metrics": 200, "/other": 404}
    assert probed == {"/healthz"}
    assert "gpu_webhook_settle_age_seconds " in pages["/metrics"][1]


def page(port: int, path: str) -> tuple[int, str]:
    """What the settler answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found
