"""Text that was pasted into the page: bytes in, explanations out, or a sentence with the line it is about."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from webhook.core.interpret import claim_objects
from webhook.core.reports import explain
from webhook.core.reports.explain import Explanation
from webhook.core.rules import index
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents, manifests

MAX_BYTES: Final = 1 << 20
"""etcd stores no object above 1.5 MiB, and a larger pod is not readable on a page."""

MAX_VALUES: Final = 50_000
"""With aliases counted as often as they are used. A large pod has some 500 values; so many take two seconds,
and ten aliases of ten aliases of ten ... are refused before they are memory."""

MAX_EXCERPT: Final = 200

_NAME: Final = "the text"
_PLACED: Final = re.compile(rf"{_NAME}:(?P<line>\d+):(?P<column>\d+): (?P<message>.*)", re.DOTALL)


class UnreadableError(Exception):
    """The text is nothing that can be explained; `excerpt` is the line it is about, `caret` marks the column."""

    def __init__(self, message: str, excerpt: str = "", caret: str = "") -> None:
        super().__init__(message)
        self.excerpt, self.caret = excerpt, caret


def explanations(content: bytes, rulebook: Rulebook, backend: str = "") -> list[Explanation]:
    """Explain every pod in the text, as if the cluster had only `backend` if that is given.

    Raises UnreadableError.
    """
    if backend and backend not in rulebook.backends:
        known = ", ".join(sorted(rulebook.backends))
        raise UnreadableError(f'no back end is called "{backend[:63]}"; there are {known}')
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"this is more than {MAX_BYTES >> 20} MiB")
    if not content.strip():
        raise UnreadableError("there is nothing here yet: paste a pod, or anything that makes pods")
    chosen = replace(index.only(backend, rulebook), tenancy=rulebook.tenancy) if backend else rulebook
    try:
        objects = manifests.parse(content, _NAME, most=MAX_VALUES)
    except documents.UnreadableError as error:
        raise _located(str(error), content) from None
    chosen = claim_objects.given(objects, chosen)
    explained = (each for one in objects for each in explain.explain(one, chosen))
    found = list(explain.foreseen(explained, chosen.tenancy))
    if not found:
        raise UnreadableError("there is no pod in this, and nothing that makes pods")
    return found


def _located(message: str, content: bytes) -> UnreadableError:
    """What is wrong with a manifest, `the text:3:7: is not YAML`, with the line that it is about."""
    said = _PLACED.fullmatch(message)
    if said is None:
        return UnreadableError(message)
    line, column = int(said["line"]), int(said["column"])
    lines = content.decode(errors="replace").splitlines()
    text = f"line {line}, column {column}: {said['message']}"
    if line > len(lines) or column > MAX_EXCERPT:
        return UnreadableError(text)
    return UnreadableError(text, lines[line - 1][:MAX_EXCERPT], " " * (column - 1) + "^")
