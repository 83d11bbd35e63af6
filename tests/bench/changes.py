"""`python -m tests.bench --only changes`: what `gpu-webhook diff` takes for recorded pods.

The pods are stored ones with 40 variables each, alike within an application, of a hundred namespaces under quotas.
The new side shares by another back end and halves a quota. CPU time and memory are those of the program alone.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests import builders
from tests.cases.served import as_served
from tests.cli.objects import policy
from webhook.core.kube import fields
from webhook.core.mutate import mutate

TENANTS: Final = 10
BEGIN: Final = datetime(2026, 11, 1, tzinfo=UTC)
CLUSTER: Final = "backends: [hami-vgpu, tencent-qgpu], device: A100-80GB, defaults: {part: %s}"


def rules(folder: Path, part: str, quota: int) -> Path:
    """The shipped rules, a cluster that shares by one back end, and a tenant for every ten namespaces."""
    folder.mkdir()
    for name, text in builders.shipped_files().items():
        (folder / name).write_text(text)
    (folder / "cluster.yaml").write_text(builders.cluster(CLUSTER % part))
    names = [f"team{tenant}" for tenant in range(TENANTS)]
    policies = [policy(name, f"{name}-*", quota={"devices": quota if name == "team0" else 40}) for name in names]
    (folder / "tenants.yaml").write_text("\n---\n".join(map(json.dumps, policies)))
    return folder


def pods(number: int, applications: int) -> Iterator[dict[str, Any]]:
    """Pods as `kubectl get pods -o json` has them, a new one every ten seconds, most of which have ended."""
    random = Random(0)  # noqa: S311  not a secret
    cluster = builders.cluster(CLUSTER % "hami-vgpu")
    rulebook = builders.rulebook({**builders.shipped_files(), "cluster.yaml": cluster})
    env = [{"name": f"SETTING_{variable}", "value": "x" * 40} for variable in range(40)]
    for index in range(number):
        application = index % applications
        labels = {"app": f"app-{application}", "gpu": f"0.{1 + application % 998:03}"}
        pod = builders.pod(builders.container(env=env), labels=labels)
        pod["metadata"]["namespace"] = f"team{index % TENANTS}-{index // TENANTS % 10}"
        stored = as_served(fields.applied(mutate(builders.creating(pod), rulebook).patch, pod))
        begin = BEGIN + timedelta(seconds=10 * index)
        stored["metadata"] |= {"name": f"pod-{index}", "uid": f"{index}", "creationTimestamp": f"{begin:%FT%TZ}"}
        ended = {"finishedAt": f"{begin + timedelta(seconds=random.randrange(300, 3600)):%FT%TZ}"}
        stored["status"] = {
            "phase": "Succeeded" if index < number * 0.9 else "Running",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }
        yield stored


def report(number: int, applications: int) -> Iterator[str]:
    """Measure so many pods, and say what was found."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        record = folder / "pods.json"
        with record.open("w") as file:
            file.write('{"apiVersion": "v1", "items": [')
            every = enumerate(pods(number, applications))
            file.writelines(f"{',' if index else ''}{json.dumps(raw, indent=4)}" for index, raw in every)
            file.write('], "kind": "List"}')
        sides = rules(folder / "old", "hami-vgpu", 40), rules(folder / "new", "tencent-qgpu", 20)
        command = [sys.executable, "-m", "webhook.cli", "diff", *map(str, sides), "--pods", str(record)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = record.stat().st_size >> 20
    assert done.returncode in {0, 1}, done.stderr
    yield done.stdout.partition("\n")[0]
    yield f"a record of {size} MiB: {used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss >> 10} MiB"
