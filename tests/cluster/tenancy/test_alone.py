"""What the API server refuses by itself, filled in by the settler, while no replica answers."""

import http.client
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from certs import issue
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import control_plane, free_port
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import attempts, world
from tests.cluster.tenancy.town import told
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, point
from webhook.core.registration import conditions
from webhook.playground import CLUSTER, imagined

pytestmark = pytest.mark.cluster

POLICY = "gpu-webhook-devices"
FILLED_IN: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": POLICY},
}
PRIVILEGED = attempts.trying(securityContext={"privileged": True})


def _crowded() -> Object:
    """As much in its mounts and paths as made a condition run out of the API server's budget."""
    mounts = [{"name": "v0", "mountPath": f"/{'m' * 746}{number:03}"} for number in range(100)]
    privileged = {"securityContext": {"privileged": True}, "volumeMounts": mounts}
    volumes = [{"name": f"v{number}", "hostPath": {"path": f"/{'p' * 3996}{number:03}"}} for number in range(99)]
    return pod("crowded", containers=[container(f"c{n}", **privileged) for n in range(4)], volumes=volumes)


def _named(names: int, **fields: object) -> Object:
    variables = [{"name": f"{'N' * 4996}{number:03}", "value": ""} for number in range(names)]
    return pod("named", containers=[container("main", env=variables, securityContext={"privileged": True}, **fields)])


def _classed(name: str, *, claim: bool = False, **fields: Any) -> Object:
    """A pod of a runtime class, with an empty claim or without."""
    made = attempts.trying(**fields)
    made["spec"]["runtimeClassName"] = name
    if claim:
        made["spec"]["resourceClaims"] = [{"name": "empty", "resourceClaimTemplateName": "empty"}]
    return made


HANDLERS = {"fast": "nvidia-cdi", "nvidia": "nvidia", "sandbox": "runsc"}
TRACING = attempts.trying(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}})

REFUSED: Mapping[str, Object] = {
    "privileged": PRIVILEGED,
    "a variable": attempts.trying(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
    "a host path": attempts.on_host("/dev/nvidia0"),
    "a capability": attempts.trying(securityContext={"capabilities": {"add": ["cap_sys_admin"]}}),
    **{
        f"the capability {name}": attempts.trying(securityContext={"capabilities": {"add": [name]}})
        for name in ("SYS_MODULE", "SYS_BOOT", "BPF", "PERFMON", "DAC_READ_SEARCH", "MKNOD")
    },
    "the processes of the node, to trace them": {**TRACING, "spec": {**TRACING["spec"], "hostPID": True}},
    "an unmasked /proc": attempts.unmasked(),
    "a runtime class of any name whose handler is a vendor's": _classed("fast"),
    "the same with the processes of the node": {
        **_classed("fast"),
        "spec": {**_classed("fast")["spec"], "hostPID": True},
    },
    "four containers with a hundred long mounts, and long host paths": _crowded(),
    "ninety-nine variables with long names": _named(99),
    "five hundred dropped capabilities": attempts.trying(
        securityContext={"privileged": True, "capabilities": {"drop": [f"X{number}" for number in range(500)]}}
    ),
    "ninety-nine labels": {**PRIVILEGED, "metadata": {"name": "a", "labels": {f"l{n}": "" for n in range(99)}}},
}
"""What the API server refuses a tenant."""

FREE: Mapping[str, Object] = {
    "a runtime class of another handler": _classed("sandbox"),
    "tracing in the pod itself": TRACING,
    "the processes of the node": {**attempts.trying(), "spec": {**attempts.trying()["spec"], "hostPID": True}},
}
"""What the API server has stored though nobody answers."""

UNREACHABLE: Mapping[str, Object] = {
    "a vendor's runtime class": _classed("nvidia"),
    "a runtime class of a vendor's handler with an empty claim": _classed("fast", claim=True),
    "the same with an amount of nothing": _classed("fast", resources=limits(**{"nvidia.com/gpu": "0"})),
    "a mount that climbs": pod(
        "climbing",
        containers=[container("main", volumeMounts=[{"name": "mine", "mountPath": "/x/../etc/vdev"}])],
        volumes=[{"name": "mine", "emptyDir": {}}],
    ),
    "more containers than are looked at": pod(
        "many", containers=[container(f"c{number}") for number in range(conditions.CONTAINERS + 1)]
    ),
    "more variables than are looked at": attempts.trying(env=[{"name": f"A{number}"} for number in range(101)]),
    "a whole device": attempts.trying(resources=limits(**{"nvidia.com/gpu": "1"})),
    "an annotation": {**attempts.trying(), "metadata": {"name": "a", "annotations": {"cdi.k8s.io/x": "a.b/c=all"}}},
}
"""What is sent to the webhook, which nobody may do without."""


@pytest.fixture(scope="module")
def there(programs: Binaries) -> Iterator[Client]:
    """A tenant's namespace in a cluster whose webhooks are registered, and where nobody listens."""
    with control_plane(programs) as plane:
        world.define(plane.client)
        settler = world.start_settler(plane)
        authority = issue.authority(datetime.now(UTC), timedelta(days=1)).certificate
        point(plane.client, Webhook(f"https://127.0.0.1:{free_port()}", authority, settler))
        plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plugins"}})
        made = _bounded(plane.client)
        until(partial(_is_refused, made, PRIVILEGED), "the policies are filled in")
        until(partial(_is_refused, made, _classed("fast")), "the runtime classes are known")
        until(lambda: told(made, UNREACHABLE["a whole device"], dry_run=True)[0] != 201, "the webhooks are there")
        yield made


def _bounded(client: Client) -> Client:
    """A namespace under a quota, in a cluster with runtime classes."""
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bounded"}})
    for name, handler in HANDLERS.items():
        named = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}}
        client.create({**named, "handler": handler})
    client.create(world.policy("bounded", "bounded", quota={"devices": 1}))
    return client.in_namespace("bounded")


def _is_refused(client: Client, made: Object) -> bool:
    return told(client, made, dry_run=True)[0] == http.client.FORBIDDEN


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_a_tenant_is_refused_though_nobody_answers(there: Client, made: Object) -> None:
    code, words = told(there, made, dry_run=True)

    assert (code, f"ValidatingAdmissionPolicy '{POLICY}'" in words, "[GPU116]" in words) == (403, True, True), words


@pytest.mark.parametrize("made", FREE.values(), ids=FREE)
def test_what_reaches_no_device_is_stored_though_nobody_answers(there: Client, made: Object) -> None:
    assert told(there, made, dry_run=True)[0] == 201


def test_whoever_debugs_a_pod_traces_no_process_of_the_node(there: Client) -> None:
    stored = there.create({**FREE["the processes of the node"], "metadata": {"name": "debugged"}})
    debugger = {"name": "debug", "image": "none", "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}

    added = {**stored, "spec": {**stored["spec"], "ephemeralContainers": [debugger]}}

    with pytest.raises(RefusedError) as refused:
        there.update(added, subresource="ephemeralcontainers")

    assert 'the capability SYS_PTRACE of the container "debug"' in str(refused.value)


@pytest.mark.parametrize("made", UNREACHABLE.values(), ids=UNREACHABLE)
def test_what_comes_to_the_webhook_waits_for_it(there: Client, made: Object) -> None:
    code, words = told(there, made, dry_run=True)

    assert (code, 'failed calling webhook "' in words) == (500, True), words


def test_a_cluster_comes_up_while_nobody_answers(there: Client) -> None:
    """Pods of a network and a storage plugin, in a namespace of nobody."""
    network = attempts.trying(securityContext={"privileged": True, "capabilities": {"add": ["NET_ADMIN"]}})
    network["spec"] |= {"hostNetwork": True, "hostPID": True}
    network["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": path}} for path in ("/opt/cni/bin",)]
    storage = attempts.on_host("/var/lib/kubelet/plugins/csi.example.com")
    storage["spec"]["containers"][0]["securityContext"] = {"privileged": True}

    plugins = there.in_namespace("plugins")

    assert [told(plugins, made)[0] for made in (network, {**storage, "metadata": {"name": "storage"}})] == [201, 201]


def test_an_honest_pod_with_a_megabyte_of_mount_paths_is_judged_by_the_webhook_and_not_by_chance(
    there: Client,
) -> None:
    mounts = [{"name": "mine", "mountPath": f"/{'m' * 9_990}{number:03}"} for number in range(100)]
    honest = pod(
        "honest", containers=[container("main", volumeMounts=mounts)], volumes=[{"name": "mine", "emptyDir": {}}]
    )

    code, words = told(there, honest, dry_run=True)

    assert (code, "failed calling webhook" in words, "cost" in words) == (500, True, False), words


def test_what_somebody_edits_is_mended(there: Client) -> None:
    nobody = [{"name": "nobody", "expression": "false"}]
    there.patch(FILLED_IN, {"spec": {"matchConditions": nobody}})

    until(lambda: there.get(FILLED_IN)["spec"]["matchConditions"] != nobody, "it is mended", within=30)
    until(partial(_is_refused, there, PRIVILEGED), "it is in force again")


def test_an_exemption_holds_until_it_ends(there: Client) -> None:
    ends = (datetime.now(UTC) + timedelta(seconds=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    why = {"owner": "ada", "reason": "a driver is debugged", "expires": ends}
    brief = {"apiVersion": world.API_VERSION, "kind": "Exemption", "metadata": {"name": "brief"}}
    there.create({**brief, "spec": {**why, "namespaces": ["bounded"], "lifts": ["deviceAccess"]}})

    until(lambda: not _is_refused(there, PRIVILEGED), "it holds")
    until(partial(_is_refused, there, PRIVILEGED), "it has ended", within=40)


WITHOUT_POLICY = {"no-devices": {"a variable"}, "{default: everybody}": {"a variable", "privileged"}}
"""What is refused by what the cluster says of such namespaces: who takes the whole node may be a network plugin."""


def test_a_namespace_that_no_policy_selects_is_refused_what_the_cluster_says(
    programs: Binaries, tmp_path: Path
) -> None:
    """A tenant makes a second namespace."""
    rules = imagined(tmp_path / "rules")
    document = rules / CLUSTER.name
    text = document.read_text()
    document.unlink()
    with control_plane(programs) as plane:
        world.define(plane.client)
        plane.client.create(world.policy("everybody", "first", quota={"devices": 1}))
        first, second = (plane.client.in_namespace(name) for name in ("first", "second"))
        refused: dict[str, set[str]] = {}
        for number, word in enumerate(WITHOUT_POLICY):
            document.write_text(f"{text}  namespacesWithoutPolicy: {word}\n")
            settler = world.start_settler(plane, f"settler-{number}", rules=rules)
            until(partial(_is_refused, first, PRIVILEGED), "the policy is in force")
            with suppress(TimeoutError):  # the last words tell what is wrong
                until(lambda: _refused_there(second) == WITHOUT_POLICY[word], f"{word} is in force")  # noqa: B023 - called at once
            refused[word] = _refused_there(second)
            settler.stop()

    assert refused == WITHOUT_POLICY


def _refused_there(client: Client) -> set[str]:
    answers = {name: told(client, REFUSED[name], dry_run=True) for name in ("a variable", "privileged")}
    return {name for name, (code, words) in answers.items() if code == http.client.FORBIDDEN and "[GPU116]" in words}
