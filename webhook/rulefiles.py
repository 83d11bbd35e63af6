"""Rule files on disk: YAML read into documents that know the line and column of every key and value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from webhook.core.document import DocumentError, Location, Node, Problem
from webhook.core.rulebook import Rulebook
from webhook.core.schema import rulebooks

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_RULES = {"kustomization.yaml", "kustomization.yml"}


class RuleFilesError(Exception):
    """Rule files that cannot be used; `problems` says everything that is wrong, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def load(directory: Path) -> Rulebook:
    """Read every `*.yaml` of a directory; raises RuleFilesError with all problems of all files."""
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
        rulebook = rulebooks.rulebook(documents, digest.hexdigest())
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


def parse(content: bytes, name: str) -> list[Node]:
    """The documents of one YAML file; raises DocumentError for what is not YAML, or has a key twice."""
    try:
        loader = _LOADER(content)
        try:
            return list(_documents(loader, name))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Location(name, mark.line + 1, mark.column + 1) if mark else Location(name, 1)
        raise DocumentError(Problem(at, "", f"is not YAML: {error.problem or error.context}")) from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(Problem(Location(name, 1), "", f"is not YAML: {error}")) from None


def _documents(loader: Any, name: str) -> Iterator[Node]:
    while loader.check_node():
        node = loader.get_node()
        if node.tag != "tag:yaml.org,2002:null":
            yield _node(node, loader, name)


def _node(node: Any, loader: Any, name: str) -> Node:
    at = Location(name, node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, loader, name, at)
    if isinstance(node, yaml.SequenceNode):
        return Node([_node(child, loader, name) for child in node.value], at)
    return Node(loader.construct_object(node), at)


def _mapping(node: Any, loader: Any, name: str, at: Location) -> Node:
    entries: dict[str, Node] = {}
    keys: dict[str, Location] = {}
    for key_node, value_node in node.value:
        where = Location(name, key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        key = str(key_node.value)
        if key in entries:
            first = keys[key].line_only
            raise DocumentError(Problem(where, "", f'the key "{key}" stands here a second time; first at {first}'))
        entries[key] = _node(value_node, loader, name)
        keys[key] = where
    return Node(entries, at, keys=keys)
