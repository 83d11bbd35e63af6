"""Rule files on disk: a directory in, a rulebook out, or everything that is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from webhook.core.document import DocumentError, Location, Node, Problem
from webhook.core.rulebook import Rulebook
from webhook.core.schema import rulebooks
from webhook.documents import parse

_NOT_RULES = {"kustomization.yaml", "kustomization.yml"}


class RuleFilesError(Exception):
    """Rule files that cannot be used; `problems` says everything that is wrong, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def load(directory: Path, *, tried: bool = False) -> Rulebook:
    """Read every `*.yaml` of a directory; raises RuleFilesError with all problems of all files.

    `tried`: their examples have been run already, and are not run again.
    """
    documents: list[Node] = []
    problems: list[Problem] = []
    digest = hashlib.sha256()
    for file in _files(directory):
        try:
            content = file.read_bytes()
            digest.update(content)
            documents += parse(content, file.name)
        except OSError as error:
            problems.append(Problem(Location(file.name, 1), "", f"cannot be read: {error.strerror}"))
        except DocumentError as error:
            problems += error.problems
    try:
        rulebook = rulebooks.rulebook(documents, digest.hexdigest(), tried=tried)
    except DocumentError as error:
        raise RuleFilesError([*problems, *error.problems]) from None
    if problems:
        raise RuleFilesError(problems)
    return rulebook


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise RuleFilesError([Problem(Location(str(directory), 1), "", "is not a directory")])
    found = sorted(file for file in directory.iterdir() if file.suffix in {".yaml", ".yml"})
    return [file for file in found if file.name not in _NOT_RULES]
