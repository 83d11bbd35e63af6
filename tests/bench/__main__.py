"""`python -m tests.bench`: reviews, pods through a real API server, and a thousand tenants; more of it by name.

Reviews per second, latency, memory and CPU, beside a Go server that only says yes; pods per second with our ledger,
beside no webhook, a native quota and a no-op; what an ordinary pod costs the API server; and what a thousand tenants
cost (`ledger`, `ordinary`, `scale`). By `--only` also reviews while rules change (`swaps`), and what `gpu-webhook`
takes for the differences of recorded pods (`changes`).
"""

import argparse
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.bench import changes, ledger, ordinary, programs, scale, swaps
from tests.bench.contest import WARMUP, Contestant, Load, start
from tests.bench.figures import NOOP, OURS, WITH_QUOTA, Figures, Row, medians, table, verdicts
from tests.bench.reviews import all_measured
from tests.cluster.processes import Processes


def main() -> int:
    options = arguments()
    say("building the load generators and the no-op server, where they are not built yet")
    built = programs.build()
    for part in DEFAULT if options.only is None else [options.only]:
        for line in PARTS[part](options, built):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        sys.stdout.write("\n")
    return 0


def reviewed(options: argparse.Namespace, built: Mapping[str, Path]) -> Iterator[str]:
    """The figures of reviews."""
    with Processes() as processes:
        contestants = start(processes, built["noop"])
        load = Load(built["load"], processes.folder / "tls.crt", options.connections, options.seconds)
        rows = measure(contestants, load, options.rounds, processes.folder)
        memory = {name: contestant.memory() for name, contestant in contestants.items()}
    yield from (heading(options), "", *table(rows, memory), "", *verdicts(rows, memory))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of one second each: a look, not a figure")
    parser.add_argument("--rounds", type=int, default=5, help="how often each server gets each review (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each time, after a warm-up (3)")
    parser.add_argument("--connections", type=int, default=8, help="how many at once (8)")
    parser.add_argument("--only", choices=PARTS, help="one part of it, which may be one that is not run else")
    parser.add_argument("--unlike", action="store_true", help="every pod another, and not copies of one")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def measure(contestants: Mapping[str, Contestant], load: Load, rounds: int, folder: Path) -> list[Row]:
    """Every review on our server and the no-op in every round, in turns, and the order turned round each time."""
    measured = {review.name: review for review in all_measured()}
    files = {name: folder / f"review-{number}.json" for number, name in enumerate(measured)}
    for name, file in files.items():
        file.write_bytes(measured[name].body)
    runs: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {2 * len(files) * (load.seconds + WARMUP):.0f} s")
        for name, review in measured.items():
            pair = [contestants[WITH_QUOTA if review.quota else OURS], contestants[NOOP]]
            for contestant in pair if number % 2 == 0 else reversed(pair):
                runs[name, contestant.name].append(load.run(contestant, review, files[name]))
    return [Row(name, len(measured[name].body), server, medians(found)) for (name, server), found in runs.items()]


def heading(options: argparse.Namespace) -> str:
    """Under which conditions the figures below were found."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in info if "model name" in line), platform.machine())
    other = "another" if len(os.sched_getaffinity(0)) > 1 else "the same"
    return (
        f"{options.connections} TLS keep-alive connections, {options.rounds} x {options.seconds:g} s in turns, "
        f"medians; servers on one core, load on {other}; {model}, Python {platform.python_version()}"
    )


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


Part = Callable[[argparse.Namespace, Mapping[str, Path]], Iterator[str]]
PARTS: Mapping[str, Part] = {
    "reviews": reviewed,
    "pods": lambda options, built: ledger.report(ledger.Sizes(options.rounds), built, unlike=options.unlike),
    "ordinary": lambda options, built: ordinary.report(options.rounds, ordinary.PODS, built),
    "tenants": lambda _, __: scale.report(),
    "swaps": lambda _, built: swaps.report(built),
    "changes": lambda _, __: changes.report(10_000, 1000),
}
DEFAULT = ("reviews", "pods", "ordinary", "tenants")

if __name__ == "__main__":
    sys.exit(main())
