"""`python -m tests.bench --only pods`: pods created per second through an API server, and what a ledger adds to it.

Everything runs all the time: a control plane with its controllers, our server and its settler, the no-op server.
Which of them a pod meets depends on its namespace alone, and the namespaces take turns.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests import tables
from tests.bench import reviews
from tests.bench.figures import medians, met
from tests.cluster import binaries
from tests.cluster.client import Object
from tests.cluster.plane import ControlPlane, accepts, control_plane, free_port
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, configurations

NONE = "no webhook"
NATIVE = "native ResourceQuota"
NOOP = "no-op webhook, validating"
NOOPS = "no-op webhook, mutating and validating"
LEDGER = "gpu-webhook with its ledger"
SETUPS = (NONE, NATIVE, NOOP, NOOPS, LEDGER)

ONE, MANY = 1, 32
"""Clients at once."""

LEAST_OF_NATIVE = 0.5
MOST_ADDED = 2.0

RESOURCE = "nvidia.com/gpu"
LIMIT = 1_000_000
SELECTED = "bench.gpu-webhook.io/setup"
TENANT = "bench"
PUT_TENANT = "bench-put"
USAGES = f"/apis/{world.API_VERSION}/tenantusages"


class Creates(NamedTuple):
    """One run, or the medians of several."""

    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """How often, and how many pods each time, with one client and with many."""

    rounds: int
    few: int = 200
    many: int = 1500

    def pods(self, clients: int) -> int:
        """How many pods so many clients create."""
        return self.few if clients == ONE else self.many


@dataclass(frozen=True, slots=True)
class Bench:
    """All that runs, and the program that creates."""

    plane: ControlPlane
    settler: int
    writer: Path

    @property
    def folder(self) -> Path:
        """Where files may be put."""
        return self.plane.processes.folder

    def creates(self, setup: str, clients: int, pods: int) -> Creates:
        """Create pods in the namespace of a setup, and take them away again."""
        path = f"/api/v1/namespaces/{_namespace(setup)}/pods"
        try:
            return self._write(self.folder / "pod.json", path, "POST", "pod", clients, pods)
        finally:
            self._clean(setup, path)

    def puts(self, count: int) -> Creates:
        """Replace the status of a TenantUsage of one kilobyte, which nobody else writes meanwhile."""
        os.kill(self.settler, signal.SIGSTOP)
        client = self.plane.client
        try:
            made = client.create(
                {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {"name": PUT_TENANT}}
            )
            version = made["metadata"]["resourceVersion"]
            return self._write(
                self.folder / "usage.json", f"{USAGES}/{PUT_TENANT}/status", "PUT", version, ONE, count
            )
        finally:
            client.send("DELETE", f"{USAGES}/{PUT_TENANT}")
            os.kill(self.settler, signal.SIGCONT)

    def _write(self, file: Path, path: str, method: str, prefix: str, clients: int, count: int) -> Creates:
        options = {
            "address": self.plane.client.url.removeprefix("https://"),
            "roots": self.folder / "ca.crt",
            "certificate": self.folder / "admin.crt",
            "key": self.folder / "admin.key",
            "object": file,
            "method": method,
            "path": path,
            "prefix": prefix,
            "connections": clients,
            "count": count,
        }
        command = [str(self.writer), *(f"-{name}={value}" for name, value in options.items())]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            raise RuntimeError(f"{method} {path}: {done.stderr}")
        said = json.loads(done.stdout)
        assert said["written"] == count, said
        return Creates(said["per_second"], said["p50_us"] / 1000, said["p99_us"] / 1000)

    def _clean(self, setup: str, path: str) -> None:
        """Delete the pods, and await that nobody counts them any more."""
        client = self.plane.client
        client.send("DELETE", path, query={"gracePeriodSeconds": "0"})
        until(lambda: not client.send("GET", path, query={"limit": "1"})["items"], "the pods are gone")
        if setup == LEDGER:
            until(lambda: not _used(world.usage(client, TENANT)), "the ledger is empty", within=60)


def _used(status: Mapping[str, Any]) -> bool:
    return bool(status.get("pending")) or any(status["held"].values())


@contextmanager
def running(built: Mapping[str, Path], *, unlike: bool = False) -> Iterator[Bench]:
    """Start everything, each setup in a namespace of its own."""
    with control_plane(binaries.find(say), controllers=True) as plane:
        (plane.processes.folder / "pod.json").write_text(json.dumps(pod(unlike=unlike)))
        (plane.processes.folder / "usage.json").write_text(json.dumps(usage()))
        world.define(plane.client)
        for setup in SETUPS:
            plane.client.create(namespace(setup))
        limits(plane)
        settler = world.start_settler(plane)
        with world.attached_webhook(plane, "bench-webhook") as webhook:
            noop = start_noop(plane, built["noop"], webhook, "bench-webhook")
            for configuration in (*ours(webhook), *noops(noop)):
                plane.client.apply(configuration)
            world.await_counted(plane.client, TENANT, _namespace(LEDGER))
            yield Bench(plane, settler.popen.pid, built["writer"])


def start_noop(plane: ControlPlane, program: Path, webhook: Webhook, name: str) -> Webhook:
    """The server that only says yes, with the certificate of our server of a name."""
    port = free_port()
    folder = plane.processes.folder / name / "gpu-webhook"
    pair = (f"-certificate={folder / 'tls.crt'}", f"-key={folder / 'tls.key'}")
    plane.processes.start("noop", program, f"-address=127.0.0.1:{port}", *pair)
    until(lambda: accepts(port), "the no-op server listens")
    return Webhook(f"https://127.0.0.1:{port}", webhook.authority, webhook.process)


def limits(plane: ControlPlane) -> None:
    """A limit that is never reached, native and ours."""
    plane.client.create(world.policy(TENANT, _namespace(LEDGER), quota={"devices": LIMIT}))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": TENANT, "namespace": _namespace(NATIVE)},
        "spec": {"hard": {f"requests.{RESOURCE}": str(LIMIT)}},
    }
    plane.client.create(quota)
    until(lambda: plane.client.get(quota).get("status", {}).get("hard"), "the native quota is enforced")


def ours(webhook: Webhook) -> list[Object]:
    """The shipped configurations, for one namespace."""
    return [_selecting(LEDGER, each, webhook) for each in configurations()]


def noops(webhook: Webhook) -> list[Object]:
    """The same, asking the server that only says yes: once where only the validating one is registered, or twice."""
    mutating, validating = ({**each, "webhooks": each["webhooks"][:1]} for each in configurations())
    found = []
    for name, setup, made in (("noop", NOOP, validating), ("noops", NOOPS, validating), ("noops", NOOPS, mutating)):
        copied = json.loads(json.dumps(made))
        copied["metadata"]["name"] = name
        copied["webhooks"][0]["clientConfig"]["service"]["path"] = "/mutate"
        found.append(_selecting(setup, copied, webhook))
    return found


def _selecting(setup: str, configuration: dict[str, Any], webhook: Webhook) -> Object:
    """A configuration that calls a server outside the cluster, for the namespace of one setup."""
    selector = {"matchLabels": {SELECTED: _namespace(setup)}}
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        bundle = base64.b64encode(webhook.authority).decode()
        hook |= {"clientConfig": {"url": webhook.url + path, "caBundle": bundle}, "namespaceSelector": selector}
    return configuration


def _namespace(setup: str) -> str:
    return f"bench-{SETUPS.index(setup)}"


def namespace(setup: str) -> Object:
    """The namespace of a setup."""
    name = _namespace(setup)
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {SELECTED: name}}}


def pod(*, unlike: bool = False) -> Object:
    """A pod of 3.4 KB that asks for a whole device by its vendor's resource, and needs no translation.

    What is compared is counting: its author has written the toleration for the nodes of such devices. All are copies
    of one, as a controller makes them, unless they are `unlike`.
    """
    main = reviews.container("main", 18)
    main["resources"]["limits"][RESOURCE] = "1"
    main = reviews.unlike(main) if unlike else main
    found = reviews.pod([main], {})
    found["spec"]["tolerations"].append({"key": RESOURCE, "operator": "Exists", "effect": "NoSchedule"})
    found["metadata"] = {"name": reviews.PLACEHOLDER, "labels": found["metadata"]["labels"]}
    return found


def usage() -> Object:
    """A TenantUsage of one kilobyte, of which each replacement is another."""
    made: Object = tables.table(__file__, "usage")
    return {"apiVersion": world.API_VERSION, **made}


def measure(bench: Bench, sizes: Sizes) -> Mapping[tuple[str, int], list[Creates]]:
    """Every setup in every round, in turns, and the order turned round each time; after one that does not count."""
    runs: dict[tuple[str, int], list[Creates]] = defaultdict(list)
    for setup in SETUPS:
        bench.creates(setup, MANY, sizes.few)
    for number in range(sizes.rounds):
        say(f"pods, round {number + 1} of {sizes.rounds}")
        for clients in (ONE, MANY):
            for setup in SETUPS if number % 2 == 0 else reversed(SETUPS):
                runs[setup, clients].append(bench.creates(setup, clients, sizes.pods(clients)))
        runs["", ONE].append(bench.puts(sizes.few))
    return runs


def report(sizes: Sizes, built: Mapping[str, Path], *, unlike: bool = False) -> Iterator[str]:
    """Measure, and say what was found."""
    with running(built, unlike=unlike) as bench:
        runs = measure(bench, sizes)
    found = {key: medians(each) for key, each in runs.items()}
    put = found.pop(("", ONE))
    kind = "all unlike" if unlike else "copies of one"
    turns = f"{sizes.few} and {sizes.many} a turn, medians of {sizes.rounds} turns"
    yield f"Pods of 3.4 KB with a whole device, {kind}, {turns}"
    yield ""
    yield from table(found)
    yield ""
    yield from verdicts(found, put)


def table(found: Mapping[tuple[str, int], Creates]) -> Iterator[str]:
    """Markdown: every setup, at one client and at many."""
    yield "| setup | clients | pods/s | p50 ms | p99 ms | of native quota's pods/s |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for clients in (ONE, MANY):
        for setup in SETUPS:
            run = found[setup, clients]
            share = run.per_second / found[NATIVE, clients].per_second
            yield (
                f"| {setup} | {clients} | {run.per_second:,.0f} | {run.p50_ms:.2f} | {run.p99_ms:.2f} | {share:.2f} |"
            )


def verdicts(found: Mapping[tuple[str, int], Creates], put: Creates) -> Iterator[str]:
    """Whether the targets are met."""
    share = found[LEDGER, MANY].per_second / found[NATIVE, MANY].per_second
    is_met = met(share >= LEAST_OF_NATIVE)
    yield f"pods/s, {MANY} clients: {share:.2f} x native quota's ({is_met}: at least {LEAST_OF_NATIVE} x)"
    none = found[NONE, ONE].p50_ms
    call, added = found[NOOP, ONE].p50_ms - none, found[LEDGER, ONE].p50_ms - none
    ratio = added / (put.p50_ms + call)
    yield (
        f"added p50, 1 client: {added:.2f} ms, {ratio:.2f} x (one status PUT {put.p50_ms:.2f} ms + one no-op call "
        f"{call:.2f} ms) ({met(ratio <= MOST_ADDED)}: at most {MOST_ADDED:g} x)"
    )


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
