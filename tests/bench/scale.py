"""`python -m tests.bench --only tenants`: what 1,000 tenants with 5,000 namespaces and 50,000 pods cost.

The review of a pod beside the same review with one tenant; how quickly a settler counts all pods, from the bytes of
their list to the sums; and the memory of a server that knows all of it.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from time import process_time, process_time_ns

from tests import builders
from tests.bench import reviews
from tests.bench.contest import Contestant, load_core, on, server_core
from tests.bench.figures import OURS, met
from tests.bench.recorded import VERSION, Cluster
from tests.cluster.plane import accepts, free_port
from tests.cluster.processes import Processes
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM
from webhook.cluster import client
from webhook.core.kube import pod
from webhook.core.policy import usage
from webhook.core.quota.settlement import View, ViewedPod
from webhook.core.review import AdmissionRequest, decode
from webhook.core.rules import load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy
from webhook.core.validate import validate
from webhook.playground import imagined

LARGE = Cluster(tenants=1000, namespaces=5000, pods=50_000)
ONE_TENANT = replace(LARGE, tenants=1)

MOST_OF_ONE = 1.25
LEAST_COUNTED = 10_000
MOST_MEMORY = 200.0

ROUNDS, REVIEWS = 30, 100


@cache
def rulebook(cluster: Cluster) -> Rulebook:
    """The shipped rules, with the tenants of a cluster, as a server reads them."""
    shipped = builders.rulebook(builders.shipped_files())
    policies = list(load.policies_from(cluster.policies(), shipped).read.values())
    labels = {found["metadata"]["name"]: found["metadata"]["labels"] for found in cluster.spaces()}
    return replace(shipped, tenancy=Tenancy(policies=policies, labels=labels, watched=True))


def review_of(cluster: Cluster, namespace: int) -> bytes:
    """The review of a pod with a whole device, in the validating phase."""
    main = reviews.container("main", 18)
    main["resources"]["limits"]["nvidia.com/gpu"] = "1"
    asked = reviews.review(reviews.pod([main], {}))
    asked["request"] |= {"namespace": cluster.space(namespace), "name": f"pod-{namespace}"}
    return json.dumps(asked).encode()


def asked(cluster: Cluster) -> list[AdmissionRequest]:
    """A review in every fiftieth namespace."""
    return [decode(review_of(cluster, number), 0.0) for number in range(0, cluster.namespaces, 50)]


def ratio() -> float:
    """The CPU time of /validate with many tenants, over that with one: each at its best round, in turns."""
    sides = [(rulebook(cluster), asked(cluster)) for cluster in (ONE_TENANT, LARGE)]
    times: list[list[int]] = [[], []]
    for _ in range(ROUNDS):
        for which, (rules, requests) in enumerate(sides):
            times[which].append(_time(rules, requests))
    return min(times[1]) / min(times[0])


def _time(rules: Rulebook, requests: list[AdmissionRequest]) -> int:
    started = process_time_ns()
    for request in islice(cycle(requests), REVIEWS):
        decision = validate(request, rules)
        assert decision.reservation is not None, decision
    return process_time_ns() - started


@dataclass(frozen=True, slots=True)
class Recount:
    """Seconds of CPU time from the bytes of a list of pods to the sums by namespace, and to decoded pages alone."""

    pods: int
    whole: float
    decoding: float

    @property
    def per_second(self) -> float:
        """Pods counted."""
        return self.pods / self.whole


def recount(cluster: Cluster = LARGE, rounds: int = 3) -> Recount:
    """Count all pods as the settler does, and decode them only, in turns: each at its best round."""
    pages = [cluster.page(first, client.PAGE) for first in range(0, cluster.pods, client.PAGE)]
    counter = usage.Counter(rulebook(LARGE))
    whole, decoding = [], []
    for _ in range(rounds):
        started = process_time()
        view = View()
        view.listed([_kept(found, counter) for page in pages for found in client.decoded(page)["items"]], VERSION)
        whole.append(process_time() - started)
        assert len(view) == cluster.pods
        assert view.held(cluster.space(0)), "the pods hold something"
        started = process_time()
        assert sum(len(client.decoded(page)["items"]) for page in pages) == cluster.pods
        decoding.append(process_time() - started)
    return Recount(cluster.pods, min(whole), min(decoding))


def _kept(found: dict[str, dict[str, str]], counter: usage.Counter) -> ViewedPod:
    """As the settler does."""
    metadata = found["metadata"]
    amount = counter.held(found).tally if pod.live(found) else {}
    return ViewedPod(metadata["uid"], metadata["namespace"], metadata["name"], amount)


@contextmanager
def attached(cluster: Cluster) -> Iterator[Contestant]:
    """Start a recorded cluster on one core, and a server that follows it on the other."""
    with Processes() as processes:
        port, ours = free_port(), free_port()
        kubeconfig = processes.folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(port)))
        sizes = (cluster.tenants, cluster.namespaces, cluster.pods)
        with on(load_core()):
            processes.start("recorded", sys.executable, "-m", "tests.bench.recorded", *map(str, (port, *sizes)))
        until(lambda: accepts(port), "the recorded cluster listens")
        with on(server_core()):
            server = processes.start(
                "ours",
                PROGRAM,
                "serve",
                "--cluster",
                f"--bind=127.0.0.1:{ours}",
                f"--rules={imagined(processes.folder / 'rules')}",
                env={"XDG_STATE_HOME": str(processes.folder), "KUBECONFIG": str(kubeconfig)},
            )
        known = f"policies: {cluster.tenants} are known"
        until(lambda: known in server.log.read_text(), "the server knows the policies", within=120)
        yield Contestant(OURS, ours, server)


def _kubeconfig(port: int) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "recorded", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "recorded", "context": {"cluster": "recorded", "user": "nobody"}}],
        "current-context": "recorded",
    }


def report() -> Iterator[str]:
    """Measure, and say what was found."""
    found = ratio()
    is_met = met(found <= MOST_OF_ONE)
    yield f"/validate with {LARGE.tenants:,} tenants: {found:.2f} x that with one ({is_met}: at most {MOST_OF_ONE} x)"
    counted = recount()
    is_met = met(counted.per_second >= LEAST_COUNTED)
    yield (
        f"recount: {counted.per_second:,.0f} pods/s, {counted.whole / counted.decoding:.2f} x decoding alone "
        f"({is_met}: at least {LEAST_COUNTED:,} pods/s)"
    )
    with attached(LARGE) as server:
        memory = sum(server.memory())
    yield f"PSS of the server: {memory:.0f} MiB ({met(memory < MOST_MEMORY)}: under {MOST_MEMORY:.0f} MiB)"
