"""The golden cases once more, decided by the real API server: what is stored, and what a denied author is told.

Cases with rules or claims of their own stay with the core, as this server runs the shipped rules and sees no others;
and so do those with ephemeral containers, which no pod can be created with.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cases import golden
from tests.cases.served import NeverServedError, as_served
from tests.cluster.client import Client, RefusedError
from tests.cluster.pods import completed

pytestmark = pytest.mark.cluster

CASES = [
    case
    for case in golden.find()
    if case.has_pod
    and not any((case.folder / name).exists() for name in ("rules", "around.yaml"))
    and "ephemeralContainers" not in case.pod()["spec"]
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_api_server_comes_to_the_same(cluster: Client, case: golden.Case) -> None:
    pod = completed(case.pod())
    expected = case.expected()
    try:
        as_served(pod)
    except NeverServedError:
        with pytest.raises(RefusedError):
            cluster.create(pod, dry_run=True)
        return

    if "denied.txt" in expected:
        with pytest.raises(RefusedError) as refusal:
            cluster.create(pod, dry_run=True)
        assert str(refusal.value).endswith(f"denied the request: {expected['denied.txt'].strip()}")
    else:
        stored = cluster.create(pod, dry_run=True)
        after = completed(yaml.safe_load(expected["mutated.yaml"]))
        assert list(_missing(stored, as_served(after), "pod")) == []
        assert "".join(f"{warning}\n" for warning in stored.warnings) == expected.get("warnings.txt", "")


def _missing(stored: Any, expected: Any, path: str) -> Iterator[str]:
    """Where the stored object is not at least what was expected; the server adds fields and tolerations."""
    if isinstance(expected, dict) and isinstance(stored, dict):
        for key, value in expected.items():
            yield from _missing(stored.get(key), value, f"{path}.{key}")
    elif path == "pod.spec.tolerations":
        yield from (f"{path}: no {toleration}" for toleration in expected if toleration not in stored)
    elif isinstance(expected, list) and isinstance(stored, list) and len(stored) == len(expected):
        for index, (one, other) in enumerate(zip(stored, expected, strict=True)):
            yield from _missing(one, other, f"{path}[{index}]")
    elif stored != expected:
        yield f"{path}: {stored!r} is stored, and {expected!r} was expected"
