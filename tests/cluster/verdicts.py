"""What the scheduler says of a pod: where it runs, or why no node may have it."""

import re
from collections import Counter
from contextlib import suppress

from tests.cluster.client import Client, Object
from tests.cluster.waiting import until

Reasons = Counter[str]

_REFUSED = re.compile(r"0/\d+ nodes are available: (.*?)\.(?: |$)")
_COUNTED = re.compile(r"(\d+) ([^,]+?)(?:, (?=\d)|$)")

PATIENCE = 90.0
"""Seconds: a scheduler that tried a pod in vain comes back to it later and later, and a busy machine adds to that."""


def await_running(client: Client, created: Object) -> str:
    """The node on which a pod runs, when it does."""
    name = created["metadata"]["name"]
    try:
        until(lambda: client.get(created)["status"]["phase"] == "Running", f"{name} runs", within=PATIENCE)
    except TimeoutError as late:
        late.add_note(f"the scheduler says: {_unschedulable(client.get(created)) or 'nothing'}")
        raise
    node: str = client.get(created)["spec"]["nodeName"]
    return node


def await_unschedulable(client: Client, created: Object) -> None:
    """Await that the scheduler has found no node for a pod, which is what an autoscaler looks for."""
    name = created["metadata"]["name"]
    until(lambda: _unschedulable(client.get(created)), f"{name} is unschedulable", within=PATIENCE)


def await_refusals(client: Client, created: Object, expected: Reasons) -> None:
    """Await that the scheduler has looked at every node, as it is now, and compare why it took none."""
    with suppress(TimeoutError):
        until(lambda: _refusals(client.get(created)) == expected, "the scheduler says so", within=10)
    said = _refusals(stored := client.get(created))
    assert said == expected, f"{dict(said)}, not {dict(expected)}, and it is on {stored['spec'].get('nodeName')}"


def _refusals(stored: Object) -> Reasons:
    """The reasons for which a pod is Pending, each with the number of nodes; none before the scheduler has tried."""
    said = _REFUSED.match(_unschedulable(stored))
    return Counter({reason: int(count) for count, reason in _COUNTED.findall(said[1])}) if said else Counter()


def _unschedulable(stored: Object) -> str:
    """The scheduler's message on a pod that no node may have; '' on every other."""
    conditions = stored.get("status", {}).get("conditions", [])
    return next((found["message"] for found in conditions if found.get("reason") == "Unschedulable"), "")
