"""`python -m tests.bench`: reviews per second, latency, memory and CPU, beside a Go server that only says yes."""

import argparse
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path

from tests.bench import programs
from tests.bench.contest import WARMUP, Contestant, Load, start
from tests.bench.figures import Figures, Row, medians, table, verdicts
from tests.bench.reviews import all_reviews
from tests.cluster.processes import Processes


def main() -> int:
    options = arguments()
    say("building the load generator and the no-op server, where they are not built yet")
    built = programs.build()
    with Processes() as processes:
        contestants = start(processes, built["noop"])
        load = Load(built["load"], processes.folder / "tls.crt", options.connections, options.seconds)
        rows = measure(list(contestants.values()), load, options.rounds, processes.folder)
        memory = {name: contestant.memory() for name, contestant in contestants.items()}
    heading(options)
    for line in (*table(rows, memory), "", *verdicts(rows, memory)):
        sys.stdout.write(f"{line}\n")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of one second each: a look, not a figure")
    parser.add_argument("--rounds", type=int, default=5, help="how often each server gets each review (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each time, after a warm-up (3)")
    parser.add_argument("--connections", type=int, default=8, help="how many at once (8)")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def measure(contestants: list[Contestant], load: Load, rounds: int, folder: Path) -> list[Row]:
    """Every review on every server in every round, in turns, and the order turned round each time."""
    reviews = all_reviews()
    files = {name: folder / f"review-{number}.json" for number, name in enumerate(reviews)}
    for name, file in files.items():
        file.write_bytes(reviews[name])
    runs: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: {len(files) * len(contestants) * (load.seconds + WARMUP):.0f} s")
        for name, file in files.items():
            for contestant in contestants if number % 2 == 0 else reversed(contestants):
                patched = contestant is contestants[0] and name.startswith("fraction")
                runs[name, contestant.name].append(load.run(contestant, file, patched=patched))
    return [Row(name, len(reviews[name]), server, medians(found)) for (name, server), found in runs.items()]


def heading(options: argparse.Namespace) -> None:
    """Under which conditions the figures below were found."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in info if "model name" in line), platform.machine())
    other = "another" if len(os.sched_getaffinity(0)) > 1 else "the same"
    sys.stdout.write(
        f"\n{options.connections} TLS keep-alive connections, {options.rounds} x {options.seconds:g} s in turns, "
        f"medians; servers on one core, load on {other}; {model}, Python {platform.python_version()}\n\n"
    )


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
