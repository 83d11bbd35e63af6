"""`python -m tests.bench --only swaps`: reviews while all rules are read anew each second, and in quiet.

All shipped files change in one step, as a kubelet does it, and back ends have another order each time: every index is
made anew, and no decision is remembered. 22 s, on loopback.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tests.bench import contest
from tests.bench.figures import HIT, MISS
from tests.bench.reviews import all_measured
from tests.builders import shipped_files
from tests.cluster.installation import metric
from tests.cluster.processes import Processes
from tests.server.test_changed_rules import Volume

ORDERS = ("amd-gpu, tencent-qgpu]", "tencent-qgpu, amd-gpu]")


@contextmanager
def swapping(volume: Volume) -> Iterator[None]:
    """Publish other rules each second until the end."""
    files, ended = shipped_files(), threading.Event()

    def swap() -> None:
        while not ended.wait(1):
            text = files["cluster.yaml"].replace(ORDERS[0], ORDERS[volume.number % 2])
            volume.publish({**files, "cluster.yaml": text})

    threading.Thread(target=swap, daemon=True).start()
    yield
    ended.set()


def report(built: Mapping[str, Path]) -> Iterator[str]:
    """Measure, and say what was found."""
    with Processes() as processes:
        volume, file = Volume(processes.folder / "rules"), processes.folder / "review.json"
        volume.publish(shipped_files())
        with contest.on(contest.server_core()):
            server = contest.admission_server("swaps", processes, volume.directory, rules_seconds=0.2)
        load = contest.Load(built["load"], processes.folder / "tls.crt", connections=8, seconds=5)
        for review in (each for each in all_measured() if each.name in {HIT, MISS}):
            file.write_bytes(review.body)
            for when, meanwhile in (("quiet", nullcontext()), ("swaps", swapping(volume))):
                with meanwhile:
                    found = load.run(server, review, file)
                times = f"p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms"
                yield f"{review.name}, {when}: {found.per_second:,.0f} reviews/s, {times}"
        done = metric(f"https://127.0.0.1:{server.port}/metrics", 'reloads_total{what="rules",result="done"}')
        yield f"{done:.0f} of {volume.number - 1} versions were read; every review was answered"
