"""Fifty thousand inputs that nobody meant: none crashes a reader, takes long, or gets a device for nothing.

`SOAK=1` tries a million, others every time, and a hundred thousand more that are guided by coverage. What failed once
is in `corpus/` and is tried first.
"""

import subprocess
import sys
from pathlib import Path
from random import SystemRandom

import pytest

from tests.attacks.conftest import Figure
from tests.attacks.fuzzing import campaign
from tests.attacks.fuzzing.targets import TARGETS
from tests.laws import SOAK

TIMES = 10 if SOAK else 0.5
LEAST = 1 / 50
"""The part of all inputs that an oracle has to judge."""


@pytest.mark.parametrize(
    "file", sorted(campaign.CORPUS.glob("*/*")), ids=lambda file: f"{file.parent.name}-{file.name}"
)
def test_what_failed_once_does_not_fail_again(file: Path) -> None:
    campaign.attempt(file.parent.name, file.read_bytes(), campaign.Tally())


@pytest.mark.large
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_a_reader_takes_long_or_gets_a_device_for_nothing(target: str, figure: Figure) -> None:
    seed = SystemRandom().randrange(2**32) if SOAK else 0

    done = campaign.run(target, int(TIMES * TARGETS[target].inputs), seed)

    figure(f"fuzzing {target}: {done}, seed {seed}")
    assert done.judged >= LEAST * done.inputs


def test_all_targets_together_get_a_hundred_thousand_inputs() -> None:
    assert sum(target.inputs for target in TARGETS.values()) == 100_000


if SOAK:

    @pytest.mark.parametrize("target", TARGETS)
    def test_no_input_that_is_guided_by_coverage_does(target: str, figure: Figure) -> None:
        seed = SystemRandom().randrange(2**31)
        program = [
            sys.executable,
            "-m",
            "tests.attacks.fuzzing.guided",
            target,
            str(TARGETS[target].inputs),
            str(seed),
        ]

        done = subprocess.run(program, capture_output=True, text=True, check=False)

        assert done.returncode == 0, done.stderr[-4000:]
        [reached] = [line.split() for line in done.stderr.splitlines() if "DONE" in line]
        figure(
            f"fuzzing {target}, guided by coverage: {TARGETS[target].inputs:,} inputs, {reached[3]} branches reached"
        )
