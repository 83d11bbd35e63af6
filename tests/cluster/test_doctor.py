"""`gpu-webhook doctor` on an installation behind a Service, with two API servers: whole, then broken in one place."""

import base64
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from time import time
from typing import Any

import pytest

from certs import issue
from certs.api import Site
from tests import readme, tables
from tests.cli.program import Ran, run
from tests.cluster.accounts import NAMESPACE, kubeconfig_of
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.installation import endpoints, works
from tests.cluster.nodes import node
from tests.cluster.plane import ControlPlane, accepts, control_planes, free_port
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import told
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM, ROOT, activate, configurations
from tests.release import kustomized
from webhook.cli.__main__ import COMMANDS
from webhook.cli.doctor import PROGRAMS, WITHOUT_RULES
from webhook.cli.options import JUDGED_BY_DEMO
from webhook.core.forms.document import API_VERSION

pytestmark = pytest.mark.cluster

RULES = ROOT / "rules"
DAYS = timedelta(days=1)
ACCOUNT = "gpu-webhook-doctor"
GROUP = "rbac.authorization.k8s.io"
ROLE: Object = {"apiVersion": f"{GROUP}/v1", "kind": "Role"}
DEPLOYMENT: Object = {"apiVersion": "apps/v1", "kind": "Deployment"}
CHECKS: list[str] = tables.table(__file__, "checks")
Rules = list[dict[str, Any]]
READING: Rules = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["gpu-webhook"], "verbs": ["get"]},
]
"""What it needs in the server's namespace beside the rights of its component, where it is not told the rules."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one run printed."""

    code: int
    out: str
    checks: Mapping[str, Mapping[str, Any]]

    def by_result(self, result: str) -> set[str]:
        return {name for name, check in self.checks.items() if check["result"] == result}


@dataclass(slots=True)
class Installation:
    """The shipped manifests, with one replica that runs on this machine behind the Service."""

    planes: Sequence[ControlPlane]
    authority: issue.Pair
    tls: Path
    port: int
    replica: Process
    kubeconfig: Path
    settler: Process

    @property
    def heard(self) -> Path:
        """What the watcher touches."""
        return self.tls / "surroundings.json.heard"

    @property
    def client(self) -> Client:
        return self.planes[0].client

    def doctor(self, *arguments: str | Path) -> Said:
        """What it says to scripts, with no other rights than it needs."""
        done = self.run("--output=json", *(arguments or ("--rules", RULES)))
        assert done.out, done.err
        return Said(done.code, done.out, {each["check"]: each for each in done.json["checks"]})

    def run(self, *arguments: str | Path) -> Ran:
        return run("doctor", *arguments, kubeconfig=self.kubeconfig)

    def shell(self, command: str) -> None:
        """Run a command as an administrator does, in a clone of this project; ours, if first, in this process."""
        given, (program, *arguments) = "", shlex.split(command.partition(" | ")[0])
        if program == "gpu-webhook":
            given, command = run(*arguments).out, command.partition(" | ")[2]
        path = f"{PROGRAM.parent}:{self.client.kubectl_path.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.client.kubeconfig)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def says(self, name: str, *results: str) -> Said:
        """What it says as soon as a check has one of these results: a change takes a moment to be in force."""
        said = [self.doctor()]

        def is_in_force() -> bool:
            if said[-1].checks[name]["result"] not in results:
                said.append(self.doctor())
            return said[-1].checks[name]["result"] in results

        until(is_in_force, f"{name} is one of {results}", within=60)
        return said[-1]

    def trust(self, bundle: bytes | None) -> None:
        """Write the caBundle of each of our webhooks."""
        encoded = None if bundle is None else base64.b64encode(bundle).decode()
        for made in configurations():
            hooks = self.client.get(made)["webhooks"]
            changed = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": encoded}} for hook in hooks]
            self.client.patch(made, {"webhooks": changed})

    def play(self, *dead: str) -> None:
        """What controllers and kubelets do: pods of Deployments become ready, and programs end and start."""
        for name in PROGRAMS:
            deployment = self.client.get({**DEPLOYMENT, "metadata": {"name": name, "namespace": NAMESPACE}})
            ready = 0 if name in dead else deployment["spec"]["replicas"]
            status = {"replicas": ready, "readyReplicas": ready}
            self.client.patch(deployment, {"status": status}, subresource="status")
            if name.endswith("settler"):
                self.settler.send(signal.SIGCONT if ready else signal.SIGSTOP)

    def await_health(self) -> None:
        """Await what takes effect later: API servers hear of configurations, and the replica of its certificate."""
        certificate = (self.tls / "tls.crt").read_text()
        until(lambda: accepts(self.port), "the replica listens")
        until(
            lambda: ssl.get_server_certificate(("127.0.0.1", self.port)) == certificate, "the certificate is served"
        )
        until(partial(works, [plane.client for plane in self.planes]), "pods are translated")


def _may_read_rules(client: Client) -> None:
    """Give the account the rights of a person who does not say where the rules are."""
    role = {**ROLE, "metadata": {"name": "rules", "namespace": NAMESPACE}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    client.apply({**role, "rules": READING})
    client.apply(
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "rules"},
            "subjects": [subject],
        }
    )


def _replica(plane: ControlPlane, tls: Path, port: int) -> Process:
    replica = plane.processes.start(
        "replica",
        PROGRAM,
        "serve",
        f"--bind=0.0.0.0:{port}",
        f"--rules={RULES}",
        f"--tls-cert={tls / 'tls.crt'}",
        f"--tls-key={tls / 'tls.key'}",
        f"--surroundings={tls / 'surroundings.json'}",
        farewell=signal.SIGINT,
    )
    until(lambda: accepts(port), "the replica listens")
    return replica


@pytest.fixture(scope="module")
def installation(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with control_planes(programs, 2) as planes:
        plane = planes[0]
        client = plane.client
        overlay = tmp_path_factory.mktemp("overlay")
        kustomized.overlay(overlay, ["doctor"])
        applied = client.kubectl("apply", "--server-side", "-k", str(overlay))
        assert applied.returncode == 0, applied.stderr
        activate(client)
        for number, each in enumerate(planes):
            client.create(endpoints("kubernetes", "default", number, int(each.client.url.rpartition(":")[2])))
        _may_read_rules(client)
        tls, port, now = tmp_path_factory.mktemp("tls"), free_port(), datetime.now(UTC)
        authority = issue.authority(now, 100 * DAYS)
        _certify(tls, authority, now)
        client.create(endpoints("gpu-webhook", NAMESPACE, 0, port))
        (tls / "surroundings.json").write_text('{"nodes": []}')
        kubeconfig = kubeconfig_of(plane, ACCOUNT)
        settler = world.start_settler(plane, rules=RULES)
        made = Installation(planes, authority, tls, port, _replica(plane, tls, port), kubeconfig, settler)
        made.play()
        made.trust(authority.certificate)
        made.await_health()
        made.says("net", "ok")
        yield made


def _certify(tls: Path, authority: issue.Pair, issued: datetime) -> None:
    """Write a certificate that was issued then for 30 days."""
    pair = issue.leaf(authority, Site(NAMESPACE).names, issued, 30 * DAYS)
    (tls / "tls.key").write_bytes(pair.key)
    (tls / "tls.crt").write_bytes(pair.certificate)


@pytest.fixture
def healthy(installation: Installation) -> Iterator[Installation]:
    """The installation, which a test mends again."""
    installation.heard.touch()
    yield installation
    installation.await_health()


def test_a_whole_installation_is_fine_in_every_check(healthy: Installation) -> None:
    said = healthy.doctor("--namespace", NAMESPACE)

    assert (said.code, list(said.checks), said.by_result("ok")) == (0, CHECKS, {*CHECKS}), said.out
    assert said.checks["admission"]["found"] == (
        "at 2 API servers pods with GPUs are translated or refused, and others are not sent to us"
    )
    assert said.checks["replicas"]["found"] == "1 replica is ready"
    assert said.checks["rules"]["found"].startswith(f"1 replica applies the rules of the ConfigMaps in {NAMESPACE}, ")
    assert said.checks["certificate"]["found"].endswith(f"for gpu-webhook.{NAMESPACE}.svc")


def test_what_the_api_server_refuses_by_itself_and_nobody_keeps_up_to_date_is_named(healthy: Installation) -> None:
    healthy.settler.popen.send_signal(signal.SIGSTOP)
    policy = world.policy("late", "late", quota={"devices": 1})
    healthy.client.create(policy)
    of_a_vendor = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "of-a-vendor"}}
    healthy.client.create({**of_a_vendor, "handler": "nvidia"})

    said = healthy.doctor()

    healthy.client.delete(policy)
    healthy.settler.popen.send_signal(signal.SIGCONT)
    healthy.says("net", "ok")
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    filled_in = healthy.client.get({**kind, "metadata": {"name": "gpu-webhook-devices"}})
    healthy.client.delete(of_a_vendor)
    healthy.says("net", "ok")
    assert "'of-a-vendor'" in str(filled_in["spec"]["matchConditions"])
    assert (said.by_result("fail"), said.by_result("warn")) == ({"ledgers"}, {"net"}), said.out
    assert "ValidatingAdmissionPolicyBinding gpu-webhook-devices" in said.checks["net"]["found"]
    assert said.checks["net"]["fix"] == "first fix `ledgers`"
    assert "gpu-webhook-settler" in said.checks["ledgers"]["fix"]


def test_what_refuses_deletions_is_named_too_where_somebody_has_edited_it(healthy: Installation) -> None:
    healthy.settler.popen.send_signal(signal.SIGSTOP)
    deletions = {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "gpu-webhook-deletions"}}
    edited = {"apiVersion": "admissionregistration.k8s.io/v1", **deletions}
    healthy.client.patch(edited, {"spec": {"matchConditions": [{"name": "nobody", "expression": "false"}]}})

    said = healthy.doctor()

    healthy.settler.popen.send_signal(signal.SIGCONT)
    healthy.says("net", "ok")
    assert said.checks["net"]["found"] == (
        "not what rules and policies say, so tenants may do what these refuse: "
        "ValidatingAdmissionPolicy gpu-webhook-deletions"
    )


def test_a_gpu_scheduler_in_a_namespace_that_nobody_lists_is_named_with_the_line_that_lists_it(
    healthy: Installation, tmp_path: Path
) -> None:
    rules = tmp_path / "rules"
    shutil.copytree(RULES, rules)
    document = rules / "cluster.yaml"
    document.write_text(document.read_text().replace("[nvidia-gpu, amd-gpu]", "[nvidia-gpu, hami-vgpu]"))
    there = healthy.client.in_namespace("hami-system")
    made = [pod("hami-scheduler-1"), pod("shared", annotations={"hami.io/vgpu-time": "1"})]
    stored = [there.create(each) for each in made]

    unlisted = healthy.doctor("--rules", rules)
    document.write_text(f"{document.read_text()}  platformAccounts: ['system:serviceaccount:hami-system:*']\n")
    listed = healthy.doctor("--rules", rules)

    for each in stored:
        there.delete(each)
    [manager] = {entry["manager"] for entry in stored[1]["metadata"]["managedFields"]}
    wrote = f"programs that wrote it into pods that run: {manager}"
    assert unlisted.checks["accounts"] == {
        "check": "accounts",
        "result": "warn",
        "examined": True,
        "found": "what only GPU schedulers write is refused to system:serviceaccount:hami-system:* (Pod"
        f" hami-scheduler-1 of hami-system); {wrote}",
        "fix": "if no tenant has these namespaces, write platformAccounts: ['system:serviceaccount:hami-system:*'] in"
        " the Cluster document",
    }
    assert (listed.checks["accounts"]["result"], listed.checks["accounts"]["found"]) == (
        "ok",
        f"no GPU scheduler is refused what only GPU schedulers write; {wrote}",
    )


def test_the_job_after_an_install_says_the_same_with_the_rights_of_its_component(healthy: Installation) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}}
    pod_spec = healthy.client.get(job)["spec"]["template"]["spec"]
    role = {**ROLE, "metadata": {"name": "rules", "namespace": NAMESPACE}}
    healthy.client.patch(role, {"rules": []})
    [container] = pod_spec["containers"]
    command, *arguments = [each.replace("/etc/gpu-webhook/rules", str(RULES)) for each in container["args"]]

    said = healthy.doctor(*arguments)

    assert (command, pod_spec["serviceAccountName"], pod_spec["restartPolicy"]) == ("doctor", ACCOUNT, "Never")
    assert (said.code, list(said.checks), said.by_result("ok")) == (0, CHECKS, {*CHECKS}), said.out
    healthy.client.patch(role, {"rules": READING})


def test_people_read_a_table_with_a_fix_for_whatever_is_wrong(healthy: Installation) -> None:
    ran = healthy.run("--rules", RULES, "--try-in", "kube-system")

    lines = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert "replicas        ok    1 replica is ready" in lines
    assert "admission       warn  not tried: pods in kube-system are left alone, by the Cluster document" in lines
    assert f"{' ' * 22}fix: name another namespace: --try-in NAMESPACE" in lines
    assert lines[-1] == "19 checks: none failed, 1 to look at"


@tables.rows
def test_where_nobody_asks_about_pods_none_is_tried(healthy: Installation, namespace: str, why: str) -> None:
    made = configurations()[0]
    healthy.client.in_namespace("not-opted-in")
    before = healthy.client.get(made)["webhooks"]
    opted_in = {**before[0]["namespaceSelector"], "matchLabels": {"kubernetes.io/metadata.name": "default"}}
    healthy.client.patch(made, {"webhooks": [{**before[0], "namespaceSelector": opted_in}, *before[1:]]})

    said = healthy.doctor("--rules", RULES, "--try-in", namespace)

    assert (said.code, said.by_result("warn")) == (0, {"namespaces", "admission"}), said.out
    assert said.checks["admission"]["found"] == f"not tried: {why}"
    healthy.client.patch(made, {"webhooks": before})


def test_replicas_can_be_named_where_the_endpoints_cannot_be_reached(healthy: Installation) -> None:
    seen = healthy.doctor("--rules", RULES, "--endpoint", f"localhost:{healthy.port}")
    hidden = healthy.doctor("--rules", RULES, "--endpoint", f"localhost:{free_port()}")

    assert (seen.code, seen.by_result("ok")) == (0, {*CHECKS}), seen.out
    unseen = {"replicas", "certificate", "expiry", "rules", "admission"}
    assert (hidden.code, hidden.by_result("warn")) == (0, unseen), hidden.out
    assert "whether it was sent to us cannot be told from here" in hidden.checks["admission"]["found"]


@tables.rows
def test_a_certificate_that_was_not_renewed(
    healthy: Installation, age: int, code: int, result: str, found: str
) -> None:
    now = datetime.now(UTC)
    healthy.replica.stop()  # one that runs would keep the good pair rather than take an expired one
    _certify(healthy.tls, healthy.authority, now - age * DAYS)
    healthy.replica = healthy.planes[0].processes.again(healthy.replica)
    until(lambda: accepts(healthy.port), "the replica listens")
    said = healthy.says("expiry", result)

    assert (said.code, said.by_result("fail") | said.by_result("warn") - {"admission"}) == (code, {"expiry"}), (
        said.out
    )
    assert found in said.checks["expiry"]["found"]
    assert "gpu-webhook-certs" in said.checks["expiry"]["fix"]
    _certify(healthy.tls, healthy.authority, now)


def test_a_server_that_is_down_is_missed_by_every_api_server(healthy: Installation) -> None:
    healthy.replica.stop()

    said = healthy.doctor()

    unseen = {"replicas", "certificate", "expiry", "rules"}
    assert (said.code, said.by_result("fail"), said.by_result("warn")) == (1, {"admission"}, unseen), said.out
    assert said.checks["admission"]["found"].count("failed calling webhook") == 1
    assert "look whether replicas run" in said.checks["admission"]["fix"]
    assert said.checks["replicas"]["found"].endswith(f":{healthy.port}: connection refused")
    healthy.replica = healthy.planes[0].processes.again(healthy.replica)


def test_an_edited_configuration_is_named_with_what_differs(healthy: Installation) -> None:
    made = configurations()[1]
    before = healthy.client.get(made)["webhooks"]
    edited = [{**before[0], "rules": before[0]["rules"][:1], "sideEffects": "None"}, *before[1:]]
    healthy.client.patch(made, {"webhooks": edited})

    said = healthy.doctor()

    assert (said.code, said.by_result("fail")) == (1, {"configurations", "active"}), said.out
    edits = "validate.gpu-webhook.io: sideEffects is None, rendered NoneOnDryRun"
    assert said.checks["configurations"]["found"] == edits
    assert said.checks["active"]["found"] == "validate.gpu-webhook.io: other rules than are rendered"
    assert "gpu-webhook render webhooks | kubectl apply" in said.checks["configurations"]["fix"]
    healthy.client.patch(made, {"webhooks": before})


def test_other_rules_than_those_that_replicas_apply_fail(healthy: Installation, tmp_path: Path) -> None:
    shutil.copytree(RULES, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "cluster.yaml").open("a") as file:
        file.write("# changed\n")

    said = healthy.doctor("--rules", tmp_path)

    assert (said.code, said.by_result("fail")) == (1, {"rules"}), said.out
    assert said.checks["rules"]["found"].startswith(f"{tmp_path} has the rules ")
    assert "their logs say why the rules do not load" in said.checks["rules"]["fix"]


def test_explain_judges_by_the_rules_and_policies_of_the_cluster(healthy: Installation) -> None:
    made = {**pod("train"), "metadata": {"name": "train", "namespace": "default", "labels": {"gpu": "2"}}}
    limiting = world.policy("small", "default", ceilings={"container": {"devices": 1}})
    healthy.client.create(limiting)

    def explained(kubeconfig: Path, *options: str | Path) -> tuple[int, list[str], str]:
        ran = run(
            *("explain", "-", "--cluster", "-o", "json", *options), given=json.dumps(made), kubeconfig=kubeconfig
        )
        answer = ran.json if ran.out else {"violations": []}
        return ran.code, [violation["code"] for violation in answer["violations"]], ran.err

    everything, nobody = healthy.client.kubeconfig, kubeconfig_of(healthy.planes[0], "nobody")

    assert explained(everything) == (1, ["GPU102"], "")
    code, codes, told = explained(nobody, "--rules", RULES)
    assert (code, codes) == (0, [])
    unread = "TenantPolicy, Exemption, TenantUsage, Namespace"
    first, second = told.splitlines()
    assert first == f"note: you may not list {unread} of the cluster; judged as if there were none"
    assert second.endswith("; judged as if nothing were known of nodes and claims")
    code, codes, told = explained(nobody)
    assert (code, codes) == (2, [])
    assert "to examine it without its ConfigMaps, give the rules that should be in force: --rules DIR" in told
    healthy.client.delete(limiting)


OFFERING = node("t4-1", capacity={"nvidia.com/gpu": 4})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples of `--help` name."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("rules", "changed-rules"):
        (folder / name).symlink_to(RULES)
    base = folder / "overlays" / "production"
    base.mkdir(parents=True)
    train = {**pod("train"), "metadata": {"name": "train", "labels": {"gpu": "1"}}}
    for file in (folder / "pod.yaml", folder / "pods.yaml", base / "pod.yaml"):
        file.write_text(json.dumps(train))
    (base / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (folder / "nodes.json").write_text(json.dumps(OFFERING))
    case = {"name": "a whole card", "ask": {"gpu": "1"}}
    suite = {"apiVersion": API_VERSION, "kind": "Suite", "metadata": {"name": "cards"}, "spec": {"cases": [case]}}
    (folder / "suite.yaml").write_text(json.dumps(suite))
    for name in ("policies.yaml", "changed.yaml", "tenants.yaml"):
        (folder / name).write_text(json.dumps(world.policy("example", "example")))
    return folder


@pytest.fixture
def offering(healthy: Installation) -> Iterator[Installation]:
    """A whole installation in a cluster with a node that has cards."""
    healthy.client.create(OFFERING)
    yield healthy
    healthy.client.delete(OFFERING)


@pytest.mark.parametrize(
    ("command", "example"), [(name, example) for name, (_, *examples) in COMMANDS.items() for example in examples]
)
def test_each_example_of_help_works(
    offering: Installation, project: Path, monkeypatch: pytest.MonkeyPatch, command: str, example: str
) -> None:
    (project / "a.json").unlink(missing_ok=True)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(project))
    by_demo = command in {"explain", "diff", "test"} and "rules" not in example and "--cluster" not in example
    noted = [JUDGED_BY_DEMO] if by_demo else []

    if command in SERVING or ">" in example:
        code, told = _ran_by_kubectl(offering.client, command, example)
    else:
        code, _, told = run(command, *shlex.split(example), kubeconfig=offering.client.kubeconfig)

    assert (code, told.splitlines()) == (0, noted)


SERVING = {
    "serve": "--bind 127.0.0.1:{0} --metrics 127.0.0.1:0",
    "watch": "",
    "console": "--bind 127.0.0.1:{0}",
    "settle": "--bind 127.0.0.1:{0}",
}
"""The commands that do not end by themselves, with the ports that are free."""


def _ran_by_kubectl(client: Client, command: str, example: str) -> tuple[int, str]:
    """The exit code and the errors of an example by the plugin, ended when it serves."""
    port = free_port()
    line = f"exec {client.kubectl_path} gpu {command} {example} {SERVING.get(command, '').format(port)}"
    path = f"{PROGRAM.parent}:{client.kubectl_path.parent}:/usr/bin:/bin"

    def serves() -> bool:
        if command == "watch":
            return Path("a.json").exists()
        if command != "console":
            return accepts(port)
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            return bool(answer.status == HTTPStatus.OK)
        return False

    with subprocess.Popen(
        ["/bin/sh", "-c", line],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(client.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as program:
        try:
            if command in SERVING:
                until(serves, "it serves", within=60)
                program.terminate()
            _, told = program.communicate(timeout=120)
        finally:
            program.kill()
    return program.returncode, told.decode()


def test_the_commands_for_teams_in_the_readme_work(healthy: Installation, tmp_path: Path) -> None:
    template = {**pod("train"), "metadata": {"labels": {"gpu": "1"}}}
    template["spec"] = {**template["spec"], "restartPolicy": "Never"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    policy = world.policy("team", "default", quota={"devices": 2})
    for made in (job, policy):
        healthy.client.create(made)

    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", readme.block("team", readme.README.read_text())],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(PROGRAM).parent}:{healthy.client.kubectl_path.parent}:/usr/bin:/bin",
            "KUBECONFIG": str(healthy.client.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    for made in (job, policy):
        healthy.client.delete(made)

    assert ran.returncode == 0, ran.stderr
    events, explained, standing = ran.stdout.partition("Job train\n")
    assert events.startswith("Events:")
    assert explained
    assert "quota     devices: 0 used, 1 asked, 2 at most" in standing
    assert "\nnamespace default\n  tenant   team, by TenantPolicy/team, of priority 0\n" in standing


def test_a_namespace_where_nothing_is_removed_for_want_of_a_label_is_named(healthy: Installation) -> None:
    removing = world.policy("removing", "default", deviceAccess="remove")
    healthy.client.create(removing)

    said = healthy.says("policies", "warn")

    assert said.checks["policies"]["found"].endswith("where the label is missing: default")
    assert said.checks["policies"]["fix"] == "kubectl label namespace NAME gpu-webhook.io/device-access=remove"
    world.label(healthy.client, "default", {"gpu-webhook.io/device-access": "remove"})
    found = healthy.says("policies", "ok").checks["policies"]["found"]
    assert found.partition(": ")[0] == "1 policy is in force; namespaces without one (no-devices)"
    world.label(healthy.client, "default", {"gpu-webhook.io/device-access": ""})
    healthy.client.delete(removing)


def test_gpu_pods_from_before_are_counted_and_named(healthy: Installation) -> None:
    made = configurations()
    before = [healthy.client.get(each) for each in made]
    old = pod("old", labels={"gpu": "1.5"})
    for each in made:
        healthy.client.delete(each)
    until(lambda: told(healthy.client, old)[0] == HTTPStatus.CREATED, "nobody judges the pod")
    for each in before:
        metadata = {"name": each["metadata"]["name"]}
        healthy.client.create({**each, "metadata": metadata})

    said = healthy.says("admission", "ok")

    assert (said.code, said.by_result("warn")) == (0, {"pods"}), said.out
    assert "1 pod of 1 would be refused today: default/old: [GPU" in said.checks["pods"]["found"]
    healthy.client.delete(old)


def test_an_account_that_may_not_look_or_try_is_an_error_and_no_finding(healthy: Installation) -> None:
    reading = healthy.client.get({**ROLE, "kind": "ClusterRole", "metadata": {"name": ACCOUNT}})
    trying = healthy.client.get({**ROLE, "metadata": {"name": ACCOUNT, "namespace": "default"}})
    healthy.client.patch(reading, {"rules": [each for each in reading["rules"] if "tenantusages" not in str(each)]})
    healthy.client.patch(trying, {"rules": [each for each in trying["rules"] if "pods" not in each["resources"]]})

    healthy.says("pods", "fail")
    said = healthy.says("admission", "fail")

    unexamined = {"admission", "policies", "ledgers", "pods", "accounts"}
    assert (said.code, said.by_result("fail")) == (2, unexamined), said.out
    assert {name for name, check in said.checks.items() if not check["examined"]} == unexamined
    assert 'cannot create resource "pods"' in said.checks["admission"]["found"]
    for role in (reading, trying):
        healthy.client.patch(role, {"rules": role["rules"]})


# Broken installations: each a whole one that is broken in one place, and mended by the fix that is said.

DOES: Mapping[str, Callable[[Installation], object]] = {
    "the settler hangs": lambda there: there.settler.send(signal.SIGSTOP),
    "no pod of the settler is ready": lambda there: there.play("gpu-webhook-settler"),
    "all pods are ready": lambda there: there.play(),
    "the settler has counted": lambda there: there.says("ledgers", "ok"),
    "the certificate program trusts another CA": lambda there: there.trust(_another_ca()),
    "the certificate program writes the bundle": lambda there: there.trust(there.authority.certificate),
    "the bundle is empty": lambda there: there.trust(None),
    "the watcher has been dead for an hour": lambda there: os.utime(there.heard, times=(time() - 3660,) * 2),
    "the watcher starts anew": lambda there: there.heard.touch(),
    "the replica is an endpoint": lambda there: there.client.create(
        endpoints("gpu-webhook", NAMESPACE, 0, there.port)
    ),
    "webhooks are activated": lambda there: activate(there.client),
}
"""What is no command: what hangs or dies, and what the certificate program, the watcher and kubelets do."""


def _another_ca() -> bytes:
    return issue.authority(datetime.now(UTC), DAYS).certificate


def _do(there: Installation, step: str) -> None:
    if step in DOES:
        DOES[step](there)
        return
    there.shell(step)
    if "deployment/" in step:
        there.play()


@tables.rows
def test_a_broken_installation_is_told_its_cause_and_a_fix_that_mends_it(
    healthy: Installation, breaks: list[str], check: str, found: str, fix: list[str], then: list[str]
) -> None:
    for step in breaks:
        _do(healthy, step)

    tried = [healthy.doctor()]

    def is_told() -> bool:
        """A change takes a moment to be in force, and the settler one to follow it."""
        if tried[-1].by_result("fail") != {check}:
            tried.append(healthy.doctor())
        return tried[-1].by_result("fail") == {check}

    try:
        with suppress(TimeoutError):
            until(is_told, "the cause is told", within=30)
        said = tried[-1]
    finally:
        for step in [
            *(each for each in fix if each.startswith(("kubectl ", "gpu-webhook ")) and " NAME" not in each),
            *then,
        ]:
            _do(healthy, step)
        until(lambda: healthy.doctor().by_result("ok") == {*CHECKS}, "all is well again", within=60)

    assert (said.code, said.by_result("fail")) == (1, {check}), said.out
    assert next(name for name, checked in said.checks.items() if checked["result"] != "ok") == check, said.out
    assert found in said.checks[check]["found"]
    for command in fix:
        assert command in said.checks[check]["fix"]


def test_rules_that_do_not_load_are_told_with_what_replicas_do_meanwhile(healthy: Installation) -> None:
    rules = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpu-webhook-rules", "namespace": NAMESPACE},
    }
    before = healthy.client.get(rules)["data"]["cluster.yaml"]
    healthy.client.patch(rules, {"data": {"cluster.yaml": before.replace("backends:", "backend:")}})

    said = healthy.doctor("--namespace", NAMESPACE)

    healthy.client.patch(rules, {"data": {"cluster.yaml": before}})
    assert (said.code, said.by_result("fail"), said.by_result("warn")) == (1, {"rules"}, set()), said.out
    assert {*said.checks} == WITHOUT_RULES
    assert "cluster.yaml:" in said.checks["rules"]["found"]
    assert "replicas keep the rules that they have, and one that starts now has none" in said.checks["rules"]["found"]
