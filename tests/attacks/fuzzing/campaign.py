"""So many inputs for one target, each with its CPU time; what fails is kept and tried first from then on."""

import gc
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from time import thread_time
from typing import Final

from tests.attacks.fuzzing.targets import TARGETS

CORPUS: Final = Path(__file__).parents[1] / "corpus"
MOST_SECONDS: Final = 1.0
"""CPU for one input."""


class SlowError(Exception):
    """An input took too long."""


@dataclass(slots=True)
class Tally:
    """What a campaign has come to: how many inputs, how many an oracle judged, and the slowest in seconds."""

    inputs: int = 0
    judged: int = 0
    slowest: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {self.judged:,} judged by an oracle, the slowest {1000 * self.slowest:.0f} ms"
        )


def run(name: str, inputs: int, seed: int) -> Tally:
    """Try so many new inputs; one that fails is kept, and named with its seed."""
    dice, done = Random(seed), Tally()  # noqa: S311  not a secret
    gc.freeze()  # what thousands of other tests have left would be looked through in the time of an input
    for number in range(inputs):
        content = TARGETS[name].make(dice)
        try:
            attempt(name, content, done)
        except BaseException as error:
            error.add_note(f"{name}, seed {seed}, input {number:,}: kept as {keep(name, content)}")
            raise
    return done


def attempt(name: str, content: bytes, done: Tally, most: float = MOST_SECONDS) -> None:
    """Try one input; raises what is wrong."""
    began = thread_time()
    judged = TARGETS[name].run(content)
    seconds = thread_time() - began
    done.inputs, done.judged, done.slowest = done.inputs + 1, done.judged + bool(judged), max(done.slowest, seconds)
    if seconds >= most:
        raise SlowError(f"{seconds:.2f} s of CPU")


def keep(name: str, content: bytes) -> Path:
    """Write an input into the corpus."""
    file = CORPUS / name / sha256(content).hexdigest()[:12]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def kept(name: str) -> Iterator[Path]:
    """The inputs of the corpus."""
    yield from sorted((CORPUS / name).glob("*"))
