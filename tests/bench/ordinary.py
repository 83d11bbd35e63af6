"""`python -m tests.bench --only ordinary`: what conditions and policies cost an API server for a pod without a GPU.

Everything is registered all the time. What a pod meets depends on its namespace alone; the namespaces take turns, and
what is compared is the CPU time of kube-apiserver, which another program's load disturbs least.
"""

import base64
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from statistics import median, quantiles
from time import time
from typing import Any

import yaml

from tests import builders, tables
from tests.bench import ledger
from tests.cluster import binaries
from tests.cluster.client import Object, RefusedError
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import Webhook, running_webhook
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.registration import configurations, policies
from webhook.core.rules.rulebook import Rulebook

NONE, NOOP, OURS, NET = "nothing", "an unconditional no-op webhook", "our webhooks and the net", "and `--mutating`"
SETUPS = {NONE: "none", NOOP: "noop", OURS: "ours", NET: "net"}
VARIABLES = (10, 60)
PODS = 40
"""A turn: short, so that the median turn has none of the lumps in which an API server collects its garbage."""

Runs = Mapping[tuple[str, str], list[float]]
"""Milliseconds of CPU a request, each turn, by setup and what was asked."""


def ordinary(variables: int) -> dict[str, Any]:
    """A pod of three containers with so many variables and four mounts each."""
    made: dict[str, Any] = deepcopy(tables.table(__file__, "pod"))
    [container] = made["spec"]["containers"]
    container["env"] = [{"name": f"SOME_VARIABLE_{index}", "value": "some-value-of-it"} for index in range(variables)]
    made["spec"]["containers"] = [{**container, "name": f"c{number}"} for number in range(3)]
    return made


def registered(rulebook: Rulebook, ours: Webhook, noop: Webhook) -> Iterator[Object]:
    """All that an API server is told, each for the namespaces of its setups."""
    for configuration in configurations.both(rulebook):
        for hook in configuration["webhooks"]:
            hook["clientConfig"] = _at(ours, hook["clientConfig"]["service"]["path"])
        yield _for(configuration, OURS, NET)
    unconditional = {
        **configurations.both(rulebook)[1]["webhooks"][0],
        "name": "noop.example.com",
        "clientConfig": _at(noop, "/validate"),
        "matchConditions": [],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    yield _for({**kind, "metadata": {"name": "noop"}, "webhooks": [unconditional]}, NOOP)
    filled = {
        name: {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": bound}
        for name, spec, bound in policies.filled_in(rulebook, time())
    }
    for made in yaml.safe_load_all(world.NET.read_text()):
        spec = {**made["spec"], **filled[made["metadata"]["name"]][made["kind"]]}
        yield _for({**made, "spec": spec}, OURS, NET)
    for made in policies.render_mutating(rulebook):
        yield _for(made, NET)


def _for(made: Object, *setups: str) -> Object:
    """A copy for the namespaces of some setups, as far as it selects any."""
    copy = deepcopy(made)
    for selecting in [*copy.get("webhooks", ()), *filter(None, [copy.get("spec", {}).get("matchResources")])]:
        selector = selecting["namespaceSelector"]
        lines = selector.get("matchExpressions", ())
        if "matchLabels" in selector or any(line["operator"] == "DoesNotExist" for line in lines):
            continue  # namespaces with a label that these have not, or none
        selecting["namespaceSelector"] = _of(*setups)
    return copy


def _at(webhook: Webhook, path: str) -> Object:
    return {"url": webhook.url + path, "caBundle": base64.b64encode(webhook.authority).decode()}


def _of(*setups: str) -> Object:
    values = [SETUPS[setup] for setup in setups]
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "In", "values": values}]}


def cpu_seconds(process: int) -> float:
    """What the threads of a process have used until now, which is told to the nanosecond."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def measure(plane: ControlPlane, turns: int, pods: int) -> Runs:
    """Each setup in each turn, and the order turned round each time; after a turn that does not count.

    What a turn leaves behind costs the next one something: each begins with some requests that are not measured.
    """
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    process, before_it = plane.apiserver.popen.pid, pods // 5
    for turn in range(turns + 1):
        sys.stderr.write(f"ordinary pods, turn {turn} of {turns}\n")
        for variables in VARIABLES:
            made = ordinary(variables)
            for setup in SETUPS if turn % 2 == 0 else reversed(SETUPS):
                there = plane.client.in_namespace(SETUPS[setup])
                began = 0.0
                for number in range(before_it + pods):
                    if number == before_it:
                        began = cpu_seconds(process)
                    stored = there.create(made)
                created = cpu_seconds(process)
                for number in range(pods):
                    there.patch(stored, {"status": {"message": f"turn {number}"}}, subresource="status")
                patched = cpu_seconds(process)
                if turn:
                    runs[setup, f"create, {variables} variables"].append(1000 * (created - began) / pods)
                    runs[setup, f"status, {variables} variables"].append(1000 * (patched - created) / pods)
        for namespace in SETUPS.values():
            path = f"/api/v1/namespaces/{namespace}/pods"
            plane.client.send("DELETE", path, query={"gracePeriodSeconds": "0"})
    return runs


def table(runs: Runs) -> Iterator[str]:
    """Markdown: medians and quartiles of the turns, and what is added as a part of the request's own cost."""
    asked = [f"{what}, {variables} variables" for what in ("create", "status") for variables in VARIABLES]
    yield f"| CPU of kube-apiserver a request, ms | {' | '.join(asked)} |"
    yield f"| --- |{' ---: |' * len(asked)}"
    for setup in SETUPS:
        cells = []
        for what in asked:
            low, middle, high = quantiles(2 * runs[setup, what], n=4)
            added = f" **{middle / median(runs[NONE, what]) - 1:+.2f} x**" if setup != NONE else ""
            cells.append(f"{middle:.2f} ({low:.2f} to {high:.2f}){added}")
        yield f"| {setup} | {' | '.join(cells)} |"


def report(turns: int, pods: int, built: Mapping[str, Path]) -> Iterator[str]:
    """Measure, and say what was found."""
    rulebook = builders.rulebook({**builders.shipped_files(), "tenants.yaml": tables.table(__file__, "tenant")})
    with control_plane(binaries.find()) as plane:
        world.define(plane.client)
        for name in SETUPS.values():
            plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        with running_webhook(plane) as ours:
            noop = ledger.start_noop(plane, built["noop"], ours, f"webhook-{ours.url.rpartition(':')[2]}")
            for made in registered(rulebook, ours, noop):
                plane.client.apply(made)
            privileged = ordinary(1)
            privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
            until(lambda: _refuses(plane, privileged), "the net is in force")
            runs = measure(plane, turns, pods)
    yield f"A pod without a GPU: three containers with variables and four mounts each; {pods} a turn, {turns} turns"
    yield ""
    yield from table(runs)


def _refuses(plane: ControlPlane, made: Object) -> bool:
    try:
        plane.client.in_namespace(SETUPS[NET]).create(made, dry_run=True)
    except RefusedError:
        return True
    return False
