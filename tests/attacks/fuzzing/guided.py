"""Inputs guided by the branches of the core that they reach, by atheris: `python -m tests.attacks.fuzzing.guided`.

    python -m tests.attacks.fuzzing.guided TARGET INPUTS SEED

Ends with a code other than 0 and the input in the corpus if one fails. atheris is in the group `soak` of
pyproject.toml: it has wheels for Linux on x86-64 only, of 35 MB.
"""

import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["webhook"]):
    from tests.attacks.fuzzing import campaign
    from tests.attacks.fuzzing.targets import TARGETS

BEGINNING = 2000
"""Inputs of the target itself, to begin with."""

MOST_SECONDS = 10.0
"""CPU for one input: to be watched takes time, and to begin with a second."""


def main(name: str, inputs: str, seed: str) -> None:
    """Fuzz one target; libFuzzer ends the process."""
    target, done, dice = TARGETS[name], campaign.Tally(), Random(int(seed))  # noqa: S311  not a secret

    def one(content: bytes) -> None:
        campaign.attempt(name, content, done, MOST_SECONDS)

    def mutate(content: bytes, size: int, chosen: int) -> bytes:
        return target.make(Random(chosen))[:size] if chosen % 2 else atheris.Mutate(content, size)  # noqa: S311  as above

    with TemporaryDirectory() as folder:
        for number in range(BEGINNING):
            Path(folder, str(number)).write_bytes(target.make(dice))
        kept = campaign.CORPUS / name
        kept.mkdir(parents=True, exist_ok=True)
        limits = ["-max_len=8192", "-timeout=10", f"-runs={inputs}", f"-seed={seed}", f"-artifact_prefix={kept}/"]
        atheris.Setup([sys.argv[0], *limits, folder], one, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
