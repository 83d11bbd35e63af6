"""How far a review walks: calls, files and changes of file. `python -m tests.bench.trace` prints the figures."""

import gc
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

import webhook
from tests.bench import reviews
from webhook.core import mutate, review, validate
from webhook.core.kube import fields
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files
from webhook.playground import imagined

PROGRAM = str(Path(webhook.__file__).parent)


def walk(call: Callable[[], object]) -> list[CodeType]:
    """The functions of ours that are called, in order.

    The body of a comprehension and each value of a generator are calls to the interpreter, too.
    """
    entered = []

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PROGRAM):
            entered.append(frame.f_code)

    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def calls(work: Callable[[], object], *, to: str = "") -> int:
    """How many functions are called, or how many times those of a name: no other program can change that."""
    made = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal made
        made += (event == "call" and frame.f_code.co_name == to) if to else event in {"call", "c_call"}

    work()  # what is made once for a rulebook is made
    gc.disable()  # others' callbacks at a collection would be counted
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


def figures(entered: list[CodeType]) -> str:
    """The calls, in how many functions and files, and how often the next is in another file."""
    files = [code.co_filename for code in entered]
    changes = sum(file != following for file, following in pairwise(files))
    return (
        f"{len(files)} calls of {len(set(entered))} functions in {len(set(files))} files, {changes} changes of file"
    )


def walks(rulebook: Rulebook) -> tuple[list[CodeType], list[CodeType]]:
    """The walks of /mutate and /validate for a pod that was not seen before; the rulebook has served another one."""
    for share in ("0.2", "0.3"):
        pod = reviews.pod([reviews.container("main", 18)], {"gpu": share})
        request = review.creating(pod, "review-1", "vision-dev")
        mutated = walk(lambda request=request: mutate.mutate(request, rulebook))  # type: ignore[misc]
        stored = request._replace(pod=fields.applied(mutate.mutate(request, rulebook).patch, pod))
        validated = walk(lambda stored=stored: validate.validate(stored, rulebook))  # type: ignore[misc]
    return mutated, validated


def main() -> None:
    """Print the figures of the imagined cluster, which shares its cards."""
    with TemporaryDirectory() as folder:
        mutated, validated = walks(rule_files.load(imagined(Path(folder) / "rules")))
    sys.stdout.write(f"/mutate    {figures(mutated)}\n/validate  {figures(validated)}\n")


if __name__ == "__main__":
    main()
