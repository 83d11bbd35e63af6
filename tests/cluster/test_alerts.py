"""Each alert is fired through its cause: what real programs serve in that state, judged by the code of Prometheus."""

import json
import re
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from time import sleep, time
from urllib.parse import urlsplit

import pytest
import yaml

from certs import issue
from tests.cluster.accounts import SETTLER, WEBHOOK, kubeconfig_of
from tests.cluster.binaries import Binaries, alerts
from tests.cluster.client import Client, Object
from tests.cluster.installation import page, servers
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.pods import pod
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.fleet import port_of, start_relay
from tests.cluster.tenancy.town import told
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, register, shipped
from tests.missing import UnavailableError, announcing, skip_unless_ci
from tests.release.test_monitoring import FOLDER, RULES
from tests.server.process import running

pytestmark = pytest.mark.cluster

REPLICA, SETTLED, ISSUING, API = "gpu-webhook", "gpu-webhook-settler", "gpu-webhook-certs-metrics", "apiserver"
DAY = timedelta(days=1)
Pages = Mapping[str, str]
"""What targets serve, by their job; `gpu-webhook 2` is a second one of a job. An empty page: it does not answer."""


@dataclass(frozen=True, slots=True)
class Failing:
    """What targets serve in a state, the others being healthy.

    Where `growing` names metrics, they go on as in the seconds between the two readings; all else stays as it is.
    """

    pages: Pages
    earlier: Pages = field(default_factory=dict)
    seconds: float = 1.0
    growing: str = ""


@dataclass(slots=True)
class Scene:
    """A cluster with a tenant, a replica and a settler that reach its API server by a relay, and what all serve."""

    plane: ControlPlane
    replica: Webhook
    settler: Process
    way: Process
    healthy: dict[str, str]
    issuing: Mapping[str, str]
    folder: Path

    @property
    def client(self) -> Client:
        return self.plane.client.in_namespace("vision")

    def serves(self, job: str) -> str:
        """The present page of a job."""
        if job == API:
            return "\n".join(re.findall("(?m)^.*apiserver_admission_webhook_.*$", self.plane.client.text("/metrics")))
        if job == SETTLED:
            return page(f"http://127.0.0.1:{port_of(self.settler)}/metrics")
        return page(f"{self.replica.url}/metrics")

    def over(self, growing: str, act: Callable[[], object], *jobs: str) -> Failing:
        """What jobs serve before and after something is done."""
        earlier, began = {job: self.serves(job) for job in jobs}, time()
        act()
        return Failing({job: self.serves(job) for job in jobs}, earlier, time() - began, growing)


@pytest.fixture(scope="module")
def evaluator(request: pytest.FixtureRequest) -> Path:
    try:
        return alerts(announcing(request))
    except UnavailableError as reason:
        skip_unless_ci(f"nothing evaluates alerts: {reason}")


@pytest.fixture(scope="module")
def scene(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with servers(programs, count=1) as installed, control_plane(programs) as plane:
        installed.lay_out()
        with installed.issuer("--idle=1s") as issuer:
            for configuration in shipped():
                installed.client.apply(configuration)
            until(lambda: issuer.problems() == ["inactive"], "no replica has answered", within=30)
            issuing = {"inactive": page(issuer.url)}
            installed.start_replicas(1)
            until(lambda: installed.works() and not issuer.problems(), "certificates are fine", within=60)
            issuing["fine"] = page(issuer.url)
            installed.client.delete(shipped()[1])
            until(lambda: issuer.problems() == ["configuration"], "it misses a configuration", within=30)
            issuing["configuration"] = page(issuer.url)
        world.define(plane.client)
        relay, port = start_relay(plane, "way", urlsplit(plane.client.url).port or 443)
        for account, manifest in ((WEBHOOK, "tenants.yaml"), (SETTLER, "settler.yaml")):
            config = kubeconfig_of(plane, account, manifest)
            config.write_text(config.read_text().replace(plane.client.url, f"https://127.0.0.1:{port}"))
        plane.client.create(world.policy("vision", "vision", "default", quota={"devices": 60}))
        vision = plane.client.in_namespace("vision")
        settler = world.start_settler(plane)
        with world.attached_webhook(plane, "replica") as replica:
            register(plane.client, replica)
            world.await_counted(plane.client, "vision", "vision")
            vision.create(pod("healthy", labels={"gpu": "1"}))
            healthy, folder = {ISSUING: issuing["fine"]}, tmp_path_factory.mktemp("scene")
            made = Scene(plane, replica, settler, relay, healthy, issuing, folder)
            healthy |= {job: made.serves(job) for job in (REPLICA, SETTLED, API)}
            yield made


def fired(evaluator: Path, healthy: Pages, failing: Failing) -> Mapping[str, str]:
    """The alerts that fire an hour and a half after a state began, with their summaries; none does before."""
    grows = re.compile(failing.growing or "(?!)")

    def target(job: str) -> Mapping[str, object]:
        second = failing.pages.get(job, healthy.get(job, ""))
        first = "\n".join(line for line in failing.earlier.get(job, "").splitlines() if grows.search(line))
        seconds = failing.seconds if failing.growing else 1
        name, _, instance = job.partition(" ")
        pages = {"Healthy": healthy.get(job) or healthy[name], "First": f"{first}\n", "Second": second}
        return {"Job": name, "Instance": instance or "1", "Seconds": seconds, **pages}

    spec = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]
    targets = [target(job) for job in {**healthy, **failing.pages}]
    case = {"Rules": json.dumps(spec), "Now": time(), "Targets": targets}
    done = subprocess.run([evaluator], input=json.dumps(case), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not [alert for alert in found if alert["Minutes"] < 0]
    return {alert["Alert"]: alert["Summary"] for alert in found}


# The causes. Each leaves the scene as it was.


def no_replica_answers(_: Scene) -> Failing:
    return Failing({REPLICA: ""})


def one_of_two_replicas_is_away(_: Scene) -> Failing:
    return Failing({f"{REPLICA} 2": ""})


def _ruled(shown: str, scene: Scene) -> str:
    """A page of a server without a cluster, which has other rules than those of the scene."""
    [rulebook] = re.findall("^gpu_webhook_rulebook.*$", scene.healthy[REPLICA], re.MULTILINE)
    return re.sub("(?m)^gpu_webhook_rulebook.*$", rulebook, shown)


def rules_that_never_load(scene: Scene) -> Failing:
    (scene.folder / "broken").mkdir()
    (scene.folder / "broken" / "cluster.yaml").write_text("kind: [")
    with running(scene.folder / "never", rules=str(scene.folder / "broken")) as server:
        return Failing({f"{REPLICA} 2": server.get("/metrics")})


def a_replica_with_other_rules(scene: Scene) -> Failing:
    with running(scene.folder / "other") as server:
        return Failing({f"{REPLICA} 2": server.get("/metrics")})


def a_changed_file_that_cannot_be_used_for_the_first_time(scene: Scene) -> Failing:
    folder = scene.folder / "changed"
    with running(folder) as server:
        (folder / "enabled" / "cluster.yaml").write_text("kind: [")
        until(lambda: server.metric('unusable_files{what="rules"}') == 1, "the failure")
        shown = server.get("/metrics")
    return Failing({REPLICA: _ruled(shown, scene)})


def somebody_takes_away_a_right_of_replicas(scene: Scene) -> Failing:
    """They may no longer write ledgers."""
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    role = scene.plane.client.get({**kind, "metadata": {"name": "gpu-webhook-tenants"}})
    scene.plane.client.patch(role, {"rules": [rule for rule in role["rules"] if "update" not in rule["verbs"]]})
    try:
        until(lambda: not _created(scene.client, "forbidden"), "it is in force")
        return _three_creates(scene)
    finally:
        scene.plane.client.patch(role, {"rules": role["rules"]})
        until(lambda: _created(scene.client, "allowed"), "replicas reserve again", within=60)


def _three_creates(scene: Scene) -> Failing:
    def create() -> None:
        for _ in range(3):
            _created(scene.client, f"tried-{time()}")

    create()  # a counter begins at its first event, and Prometheus sees it grow from the second on
    return scene.over("reviews_total|ledger_events", create, REPLICA)


def _created(client: Client, name: str) -> bool:
    return told(client, pod(name, labels={"gpu": "1"}))[0] == HTTPStatus.CREATED


def everybody_is_refused(scene: Scene) -> Failing:
    def create() -> None:
        for _ in range(10):
            told(scene.client, pod("refused", labels={"gpu": "1.5"}))

    create()  # see `_three_creates`
    return scene.over("reviews_total", create, REPLICA)


def the_api_server_is_slow_for_replicas(scene: Scene) -> Failing:
    def create() -> None:
        for number in range(2):
            creating = threading.Thread(target=_created, args=(scene.client, f"slow-{number}"))
            scene.way.send(signal.SIGSTOP)
            creating.start()
            sleep(1.5)  # so long the API server takes
            scene.way.send(signal.SIGCONT)
            creating.join()

    return scene.over("review_seconds|reservation_seconds", create, REPLICA)


def somebody_writes_ledgers_all_the_time(scene: Scene) -> Failing:
    over = threading.Event()
    usage = {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {"name": "vision"}}

    def write() -> None:
        while not over.is_set():
            scene.plane.client.patch(usage, {"metadata": {"annotations": {"at": str(time())}}})

    def create() -> None:
        writer = threading.Thread(target=write)
        writer.start()
        for number in range(15):
            _created(scene.client, f"conflict-{number}")
        over.set()
        writer.join()

    return scene.over("ledger_events", create, REPLICA)


def the_settler_hears_of_no_pod(scene: Scene) -> Failing:
    scene.way.send(signal.SIGSTOP)
    try:
        return scene.over("settle_age_seconds", lambda: sleep(1), SETTLED)
    finally:
        scene.way.send(signal.SIGCONT)


def clients_that_do_not_accept_the_certificate(scene: Scene) -> Failing:
    context, port = ssl.create_default_context(), urlsplit(scene.replica.url).port or 0

    def connect() -> None:
        for _ in range(30):
            with suppress(ssl.SSLError), socket.create_connection(("127.0.0.1", port)) as connected:
                context.wrap_socket(connected, server_hostname="localhost")

    return scene.over("dropped_total", connect, REPLICA)


def a_certificate_that_nobody_renews(scene: Scene) -> Failing:
    now = datetime.now(UTC)
    pair = issue.leaf(issue.authority(now, 30 * DAY), ["localhost"], now, 4 * DAY)
    folder = scene.folder / "ends"
    folder.mkdir()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    with running(folder, tls_cert=str(folder / "tls.crt"), tls_key=str(folder / "tls.key")) as server:
        shown = page(f"https://127.0.0.1:{server.port}/metrics")
    return Failing({REPLICA: _ruled(shown, scene)})


def a_policy_ties_with_another(scene: Scene) -> Failing:
    second = world.policy("second", "vision")
    return _after(scene, second, 'policy="second",reason="SamePriority"')


def a_policy_that_cannot_be_used(scene: Scene) -> Failing:
    broken = world.policy("broken", "nowhere", allowed={"backends": ["nobody-has-this"]})
    return _after(scene, broken, 'policy="broken",reason="Invalid"')


def an_exemption_that_ends_in_five_days(scene: Scene) -> Failing:
    ends = (datetime.now(UTC) + 5 * DAY).strftime("%Y-%m-%dT%H:%M:%SZ")
    why = {"owner": "ada", "reason": "a driver is debugged", "expires": ends}
    spec = {**why, "namespaces": ["vision"], "lifts": ["deviceAccess"]}
    made = {"apiVersion": world.API_VERSION, "kind": "Exemption", "metadata": {"name": "short"}, "spec": spec}
    return _after(scene, made, 'exemption="short"')


def _after(scene: Scene, made: Object, shown: str) -> Failing:
    """What the settler serves while an object is there."""
    scene.plane.client.create(made)
    try:
        until(lambda: shown in scene.serves(SETTLED), f"the settler shows {shown}")
        return Failing({SETTLED: scene.serves(SETTLED)})
    finally:
        scene.plane.client.delete(made)
        until(lambda: shown not in scene.serves(SETTLED), f"it no longer shows {shown}")


def somebody_deletes_an_admission_policy(scene: Scene) -> Failing:
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    there = scene.plane.client.get({**kind, "metadata": {"name": "gpu-webhook-deletions"}})
    scene.plane.client.delete(there)

    def age() -> float:
        found = re.search(r"^gpu_webhook_net_age_seconds (\S+)", scene.serves(SETTLED), re.MULTILINE)
        return float(found[1]) if found else 0.0

    until(lambda: age() > 12, "the settler has looked once and failed", within=30)
    try:
        return scene.over("net_age_seconds", lambda: sleep(1), SETTLED)
    finally:
        scene.plane.client.create({**there, "metadata": {"name": "gpu-webhook-deletions"}})
        until(lambda: age() < 12, "it is in step again", within=30)


def the_watcher_is_dead(scene: Scene) -> Failing:
    """It has written the file, and ended."""
    file = scene.folder / "surroundings.json"
    file.write_text('{"nodes": []}')
    beside = file.with_name("surroundings.json.heard")
    beside.touch()
    with running(scene.folder / "alone", surroundings=str(file)) as server:
        until(lambda: server.metric("surroundings_age_seconds") >= 1, "the age")
        earlier, began = server.get("/metrics"), time()
        until(lambda: server.metric("surroundings_age_seconds") >= 3, "it grows")
        shown, seconds = server.get("/metrics"), time() - began
    return Failing({REPLICA: _ruled(shown, scene)}, {REPLICA: earlier}, seconds, "surroundings_age_seconds")


def a_replica_hangs(scene: Scene) -> Failing:
    names = iter(range(100))

    def create() -> None:
        for _ in range(2):
            _created(scene.client, f"hangs-{next(names)}")

    create()  # see `_three_creates`
    scene.replica.process.send(signal.SIGSTOP)
    try:
        create()
        return scene.over("apiserver_admission_webhook", create, API)
    finally:
        scene.replica.process.send(signal.SIGCONT)
        until(lambda: _created(scene.client, "hung"), "the replica answers again", within=60)


def no_replica_has_answered_yet(scene: Scene) -> Failing:
    return Failing({ISSUING: scene.issuing["inactive"]})


def a_webhook_configuration_is_deleted(scene: Scene) -> Failing:
    return Failing({ISSUING: scene.issuing["configuration"]})


def nobody_issues_certificates(_: Scene) -> Failing:
    return Failing({ISSUING: ""})


CAUSES: Sequence[tuple[Callable[[Scene], Failing], set[str]]] = [
    (no_replica_answers, {"Down", "ReplicaAway"}),
    (one_of_two_replicas_is_away, {"ReplicaAway"}),
    (rules_that_never_load, {"NoRules", "RulesDiffer"}),
    (a_replica_with_other_rules, {"RulesDiffer"}),
    (a_changed_file_that_cannot_be_used_for_the_first_time, {"ReloadFails"}),
    (everybody_is_refused, {"DenialSurge"}),
    (somebody_takes_away_a_right_of_replicas, {"Errors", "LedgerErrors"}),
    (the_api_server_is_slow_for_replicas, {"Slow", "LedgerSlow"}),
    (somebody_writes_ledgers_all_the_time, {"LedgerConflicts"}),
    (a_replica_hangs, {"SlowsApiServer", "Unanswered"}),
    (the_settler_hears_of_no_pod, {"SettlerStale"}),
    (a_policy_ties_with_another, {"PolicyNotInForce"}),
    (a_policy_that_cannot_be_used, {"PolicyNotInForce"}),
    (an_exemption_that_ends_in_five_days, {"ExemptionEnds"}),
    (somebody_deletes_an_admission_policy, {"NetStale"}),
    (the_watcher_is_dead, {"NodesStale"}),
    (clients_that_do_not_accept_the_certificate, {"HandshakesFail"}),
    (a_certificate_that_nobody_renews, {"CertificateExpires"}),
    (a_webhook_configuration_is_deleted, {"CertificateProblem"}),
    (no_replica_has_answered_yet, {"Inactive"}),
    (nobody_issues_certificates, {"CertsAway"}),
]
"""States, each with all alerts that fire in it, without `GpuWebhook`."""


@pytest.mark.parametrize(("cause", "alerts"), CAUSES, ids=[cause.__name__ for cause, _ in CAUSES])
def test_alerts_fire_by_their_cause_and_no_other_does(
    evaluator: Path, scene: Scene, cause: Callable[[Scene], Failing], alerts: set[str]
) -> None:
    summaries = fired(evaluator, scene.healthy, cause(scene))

    assert {*summaries} == {f"GpuWebhook{name}" for name in alerts}
    assert "<no value>" not in str(summaries)


def test_nothing_fires_where_all_is_well(evaluator: Path, scene: Scene) -> None:
    assert fired(evaluator, scene.healthy, Failing(scene.healthy)) == {}


def test_each_alert_has_a_cause_here() -> None:
    fired_here = {f"GpuWebhook{name}" for _, alerts in CAUSES for name in alerts}

    assert fired_here == {rule["alert"] for rule in RULES}
