"""A YAML document as a tree that remembers where every key and value stands, and readers that say what is wrong.

The tree is made by `webhook.files.documents`; this module only walks it. Errors are collected, so an author sees all
of them at once, each as `file:line:column: key.path: what is wrong (did you mean ...?)`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

API_VERSION: Final = "gpu-webhook.io/v1alpha1"
"""That of every document of ours, in rule files and in a cluster."""

LONGEST_WORD: Final = 80
"""How much of a text is compared with the known words, in characters."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in a file; lines and columns count from 1. Line 0: an object of a cluster, which has no lines."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def of(self, rule: str) -> str:
        """The place as messages name a rule: `hami-vgpu (hami-vgpu.yaml:21)`."""
        return f"{rule} ({self.line_only})"

    @property
    def line_only(self) -> str:
        """`file:line`, the form that messages to pod authors use."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong with a document. `unknown`: its form is right, and it names what nothing here defines."""

    at: Location
    path: str
    message: str
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.at}: {self.path}: {self.message}" if self.path else f"{self.at}: {self.message}"


class UnreadableError(Exception):
    """A file, or an answer of a cluster, that cannot be used; the message says where and why."""


class DocumentError(UnreadableError):
    """What is wrong with a document; `problems` has all of it."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document: a scalar, a list of nodes, or a mapping of nodes (`keys` is where each key stands).

    `key` is the one that the value itself stands under, if any, and `key_at` where that is.
    """

    value: Any
    at: Location
    path: str = ""
    keys: Mapping[str, Location] = field(default_factory=dict)
    key: str = ""
    key_at: Location | None = None

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def problem(self, message: str, *, unknown: bool = False) -> DocumentError:
        """An error that points at this value."""
        return DocumentError(Problem(self.at, self.path, message, unknown))

    def items(self) -> Iterator[tuple[str, Node]]:
        """The entries of a mapping, with their key paths filled in; raises DocumentError for another type."""
        if not isinstance(self.value, dict):
            hint = "; what belongs to it stands below it, indented further" if self.value is None else ""
            if isinstance(self.value, str) and len(self.value) < LONGEST_WORD:
                key, _, rest = self.value.partition(":")
                hint = f'; write "{key}: {rest}", with a space after the colon' if key and rest else ""
            raise self.problem(f"has to be a mapping, not {kind(self.value)}{hint}")
        for key, node in self.value.items():
            yield key, Node(node.value, node.at, inside(self.path, key), node.keys, key, self.keys.get(key, self.at))

    def elements(self) -> list[Node]:
        """The elements of a list, with their key paths filled in; raises DocumentError for another type."""
        if not isinstance(self.value, list):
            short = isinstance(self.value, str) and len(self.value) < LONGEST_WORD
            hint = f'; write ["{self.value}"]' if short else ""
            raise self.problem(f"has to be a list, not {kind(self.value)}{hint}")
        return [Node(node.value, node.at, f"{self.path}[{i}]", node.keys) for i, node in enumerate(self.value)]

    def text(self) -> str:
        """A string; raises DocumentError."""
        if not isinstance(self.value, str):
            hint = f'; quote it: "{str(self.value).lower()}"' if isinstance(self.value, bool | int | float) else ""
            raise self.problem(f"has to be a string, not {kind(self.value)}{hint}")
        return self.value

    def filled(self) -> str:
        """A string that is not empty; raises DocumentError."""
        if not self.text():
            raise self.problem("has to say something")
        return self.text()

    def parsed(self, parse: Callable[[str], T]) -> T:
        """A string as `parse` understands it; raises DocumentError with the ValueError of another."""
        try:
            return parse(self.text())
        except ValueError as error:
            raise self.problem(str(error)) from None

    def integer(self, least: int = 0) -> int:
        """A whole number of at least `least`; raises DocumentError."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            digits = isinstance(self.value, str) and self.value.isdecimal()
            hint = f"; write it without quotes: {self.value}" if digits else ""
            raise self.problem(f"has to be a whole number, not {kind(self.value)}{hint}")
        if self.value < least:
            raise self.problem(f"has to be {least} or more, not {self.value}")
        return self.value

    def boolean(self) -> bool:
        """True or false; raises DocumentError."""
        if not isinstance(self.value, bool):
            raise self.problem(f"has to be true or false, not {kind(self.value)}")
        return self.value

    def word(self, words: Collection[str]) -> str:
        """One of a closed set of words; raises DocumentError with the nearest."""
        text = str(self.value) if isinstance(self.value, int | float) else self.text()
        if text not in words:
            raise self.problem(f'"{text}" is not one of {", ".join(words)}{nearest(text, words)}')
        return text


Parameters = Mapping[str, Node]
"""A value for each parameter of a back end, by name."""


def inside(path: str, key: str) -> str:
    """The key path of an entry of a mapping."""
    step = f'["{key}"]' if "." in key or "/" in key else f".{key}"
    return path + step if path else key


def of_json(value: Any, at: Location) -> Node:
    """A decoded JSON value as a document, all of which stands at one place."""
    if isinstance(value, dict):
        return Node({key: of_json(inner, at) for key, inner in value.items()}, at)
    if isinstance(value, list):
        return Node([of_json(inner, at) for inner in value], at)
    return Node(value, at)


class Section:
    """A mapping of which forms read the `entries`. What is wrong with it as a whole is added to the problems."""

    def __init__(self, node: Node, problems: list[Problem]) -> None:
        self.node, self.problems = node, problems
        self.entries: dict[str, Node] = {}
        try:
            self.entries.update(node.items())
        except DocumentError as error:
            problems += error.problems

    def present(self) -> Collection[str]:
        """The keys that stand in the document."""
        return self.entries.keys()

    def integers(self, *keys: str) -> dict[str, int]:
        """Those of the keys that are given and whole numbers."""
        values = {key: self.entries[key].value for key in keys if key in self.entries}
        return {key: value for key, value in values.items() if isinstance(value, int)}

    def complain(self, message: str) -> None:
        """Add a problem with the mapping as a whole."""
        self.problems.append(Problem(self.node.at, self.node.path, message))


def failing_examples(examples: Iterable[Any], mistake: Callable[[Any], str | None]) -> Iterator[Problem]:
    """A problem for each example of a document that does not come out; `mistake` tells what it does instead."""
    for index, example in enumerate(examples):
        if text := mistake(example):
            yield Problem(example.at, f"spec.examples[{index}]", f'the example "{example.name}" {text}')


def closest(text: str, words: Collection[str], cutoff: float = 0.6) -> str:
    """The known word that a text is nearest to, whatever its capitals; empty if it is near none."""
    spelled = {word.lower(): word for word in sorted(words)}
    close = difflib.get_close_matches(text[:LONGEST_WORD].lower(), spelled, n=1, cutoff=cutoff)
    return spelled[close[0]] if close else ""


def nearest(text: str, words: Collection[str], cutoff: float = 0.6) -> str:
    """` (did you mean "..."?)`, or nothing."""
    return did_you_mean(closest(text, words, cutoff))


def did_you_mean(word: str) -> str:
    """The hint for a word that is near; nothing for an empty one."""
    return f' (did you mean "{word}"?)' if word else ""


class Nearest:
    """`closest`, `times` times, and then nothing: a search among 100 words costs as much as reading a pod."""

    def __init__(self, times: int) -> None:
        self.left = times

    def word(self, text: str, words: Collection[str], cutoff: float = 0.6) -> str:
        """As `closest`."""
        if self.left <= 0:
            return ""
        self.left -= 1 + len(words) // 100
        return closest(text, words, cutoff)


def kind(value: Any) -> str:
    """What a value is, in the words of a YAML author."""
    names = {dict: "a mapping", list: "a list", str: "a string", bool: "true/false", type(None): "empty"}
    return names.get(type(value), f"the number {value}")
