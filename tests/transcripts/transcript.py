"""One transcript: its commands are run again, and what they print now stands in the place of what they printed."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.cli import program

HERE = Path(__file__).parent


class Command(NamedTuple):
    """A line behind `$`, and the lines that it reads."""

    line: str
    given: tuple[str, ...]


def find() -> list[Path]:
    """Every transcript, in the order of names."""
    return sorted(HERE.glob("*/*.console"))


def commands(text: str) -> Iterator[Command]:
    """The commands of a transcript; raises ValueError where the end of a text is missing."""
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        given: list[str] = []
        if end := re.search(r"<<'(\w+)'$", line):
            for text_line in lines:
                given.append(text_line)
                if text_line == end[1]:
                    break
            else:
                raise ValueError(f"no {end[1]} behind {line}")
        yield Command(line.removeprefix("$ "), tuple(given))


def replayed(text: str) -> str:
    """The transcript as it is if somebody runs its commands now."""
    with TemporaryDirectory() as folder, chdir(folder):
        Path("shipped").symlink_to(program.SHIPPED)
        Path("made-up").symlink_to(program.RULES)
        shutil.copytree(program.RULES, "rules")
        return "\n".join("".join(f"{line}\n" for line in _run(command)) for command in commands(text))


def _run(command: Command) -> Iterator[str]:
    yield f"$ {command.line}"
    yield from command.given
    if not command.line.startswith("gpu-webhook "):
        script = "\n".join([command.line, *command.given, ""])
        subprocess.run(["bash", "-euc", script], check=True)
        return
    words = shlex.split(command.line.partition(" <<")[0])[1:]
    if "--rules" not in words and words[0] != "check":
        words += ["--rules", "rules"]
    ran = program.run(*words, given="".join(f"{line}\n" for line in command.given[:-1]))
    yield from ran.out.splitlines()
    yield from (f"2> {line}" for line in ran.err.splitlines())
    if ran.code:
        yield f"[{ran.code}]"
