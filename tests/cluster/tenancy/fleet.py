"""Several admission servers behind one address, a settler, and tenants that are ready to be asked for."""

import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.accounts import SETTLER, kubeconfig_of
from tests.cluster.client import Client
from tests.cluster.installation import page
from tests.cluster.plane import ControlPlane, accepts, free_port
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.tenancy.witness import Witness
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, register

RELAY = Path(__file__).with_name("relay.py")
REPLICAS = 3
GRACE = 11.0
"""Seconds. Nothing here is created more than 5 s after its reservation, when the API server gives a webhook up, or 7
after an advance was opened for it, and what storing takes on a machine that has other things to do."""

FIGURES = (
    'ledger_events_total{event="conflict"}',
    'ledger_events_total{event="error"}',
    'ledger_events_total{event="recount"}',
    'ledger_events_total{event="drawn"}',
    "reservation_seconds_sum",
    "reservation_seconds_count",
)


@dataclass(slots=True)
class Fleet:
    """What serves a cluster with tenants; any of it may be replaced by one that was started anew.

    way     the relay by which the settler reaches the API server, and the kubeconfig of whoever goes that way
    unused  tenants that nobody has asked for yet
    """

    plane: ControlPlane
    replicas: list[Process]
    settler: Process
    way: tuple[Process, Path]
    unused: list[str]

    @property
    def client(self) -> Client:
        """The administrator."""
        return self.plane.client

    def tenant(self, devices: int) -> tuple[str, list[str]]:
        """A tenant that has no pods yet and this limit, and its namespaces, when pods can be created there."""
        name = self.unused.pop()
        self.client.patch(world.policy(name), {"spec": {"quota": {"devices": devices}}})
        limited = {"devices": str(devices)}
        until(lambda: world.usage(self.client, name)["hard"] == limited, f"{name} has its limit")
        return name, namespaces_of(name)

    def revived(self, number: int) -> None:
        """Start a replica that was killed once more, and await it."""
        process = self.replicas[number] = self.plane.processes.again(self.replicas[number])
        until(lambda: accepts(port_of(process)), f"{process.name} listens again")

    def figures(self) -> Counter[str]:
        """What the replicas count of their ledgers, together."""
        found: Counter[str] = Counter()
        for process in self.replicas:
            shown = page(f"https://127.0.0.1:{port_of(process)}/metrics")
            for name in FIGURES:
                found[name] += float(re.search(rf"^gpu_webhook_{re.escape(name)}\S* (\S+)$", shown, re.MULTILINE)[1])  # type: ignore[index,assignment]
        return found


def port_of(process: Process) -> int:
    """Where a program of ours listens."""
    bind = next(word for word in process.command if word.startswith("--bind="))
    return int(bind.rpartition(":")[2])


@contextmanager
def running(plane: ControlPlane, tenants: int, *, replicas: int = REPLICAS) -> Iterator[Fleet]:
    """Replicas with one certificate behind one port, registered; a settler, and so many tenants."""
    world.define(plane.client)
    way = _way(plane)
    settler = world.start_settler(plane, grace=GRACE, kubeconfig=way[1])
    with ExitStack() as stack:
        servers = _replicas(plane, stack, replicas)
        processes = [each.process for each in servers]
        port = start_relay(plane, "balancer", *map(port_of, processes))[1]
        register(plane.client, Webhook(f"https://127.0.0.1:{port}", servers[0].authority, processes[0]))
        yield Fleet(plane, processes, settler, way, _tenants(plane.client, tenants))


def _way(plane: ControlPlane) -> tuple[Process, Path]:
    """A relay to the API server, and a kubeconfig of the settler's account that leads there."""
    relay, port = start_relay(plane, "way", urlsplit(plane.client.url).port or 443)
    direct = kubeconfig_of(plane, SETTLER, "settler.yaml")
    made = direct.with_name("way.kubeconfig")
    made.touch(mode=0o600)
    made.write_text(direct.read_text().replace(plane.client.url, f"https://127.0.0.1:{port}"))
    return relay, made


def _replicas(plane: ControlPlane, stack: ExitStack, count: int) -> list[Webhook]:
    """The first makes the certificate; the others are started together."""
    state = plane.processes.folder / "replicas"
    starts = [world.attached_webhook(plane, f"replica{number}", state=state) for number in range(count)]
    first = stack.enter_context(starts[0])
    with ThreadPoolExecutor() as pool:
        return [first, *pool.map(stack.enter_context, starts[1:])]


def namespaces_of(tenant: str) -> list[str]:
    """The namespaces of a tenant."""
    return [f"{tenant}-dev", f"{tenant}-ci"]


def _tenants(client: Client, count: int) -> list[str]:
    """Make tenants whose namespaces are counted: together, as each of them has to wait for the grace."""
    names = [f"tenant{number}" for number in range(count)]
    for name in names:
        client.create(world.policy(name, *namespaces_of(name), quota={"devices": 0}))
        for namespace in namespaces_of(name):
            client.in_namespace(namespace)
    for name in names:
        world.await_counted(client, name, *namespaces_of(name), within=6 * GRACE)
    return names


def hold(seconds: float) -> None:
    """Let a fault last."""
    threading.Event().wait(seconds)


def start_relay(plane: ControlPlane, name: str, *targets: int) -> tuple[Process, int]:
    """Pass a new port on to these, in turn."""
    port = free_port()
    process = plane.processes.start(name, sys.executable, RELAY, str(port), *map(str, targets))
    until(lambda: accepts(port), f"{name} listens")
    return process, port


def await_settled(client: Client, tenant: str, witness: Witness, *, within: float) -> None:
    """Await that the ledger says what is there, and that nothing is reserved any more."""

    def settled() -> bool:
        usage = world.usage(client, tenant)
        held = {namespace: Fraction(held.get("devices", 0)) for namespace, held in usage["held"].items()}
        rests = not usage["pending"] and not usage.get("advances")
        return rests and witness.up_to_date() and held == witness.held()

    try:
        until(settled, f"{tenant} is settled", within=within)
    except TimeoutError:
        usage = world.usage(client, tenant)
        raise AssertionError(f"live: {witness.held()}, but the ledger says {usage}") from None
