"""How far a review walks: calls, files and changes of file. `python -m tests.bench.trace` prints the figures."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import webhook
from tests import builders
from webhook.core import mutate, review, validate
from webhook.core.kube import patch
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files

ROOT = Path(__file__).parents[2]
PROGRAM = str(Path(webhook.__file__).parent)


class Walk(NamedTuple):
    """The calls of functions of ours, in how many files these are, and how often the next is in another file."""

    calls: int
    functions: int
    files: int
    changes: int

    def __str__(self) -> str:
        return (
            f"{self.calls} calls of {self.functions} functions in {self.files} files, {self.changes} changes of file"
        )


def walk(call: Callable[[], object]) -> Walk:
    """Trace a call. The body of a comprehension and each value of a generator are calls to the interpreter, too."""
    entered = []

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PROGRAM):
            entered.append(frame.f_code)

    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = [code.co_filename for code in entered]
    changes = sum(file != following for file, following in pairwise(files))
    return Walk(len(entered), len(set(entered)), len(set(files)), changes)


def walks(rulebook: Rulebook) -> tuple[Walk, Walk]:
    """The walks of /mutate and /validate for a pod that was not seen before; the rulebook has served another one."""

    def creating(share: str) -> review.AdmissionRequest:
        return review.creating(builders.pod(labels={"gpu": share}), "u", "team")

    for share in ("0.2", "0.3"):
        request = creating(share)
        mutated = walk(lambda request=request: mutate.mutate(request, rulebook))  # type: ignore[misc]
        pod = patch.applied(mutate.mutate(request, rulebook).patch, request.pod or {})
        stored = request._replace(pod=pod)
        validated = walk(lambda stored=stored: validate.validate(stored, rulebook))  # type: ignore[misc]
    return mutated, validated


def main() -> None:
    """Print the figures of the demo cluster."""
    mutated, validated = walks(rule_files.load(ROOT / "rules"))
    sys.stdout.write(f"/mutate    {mutated}\n/validate  {validated}\n")


if __name__ == "__main__":
    main()
