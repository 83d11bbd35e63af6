"""Text that was pasted into the page: bytes in, explanations out, or a sentence with the line it is about."""

from __future__ import annotations

import re
from collections.abc import Mapping
from time import time
from typing import Any, Final, NamedTuple

from webhook.core.kube import time as times
from webhook.core.reports.missing import Setting
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents as files
from webhook.files import manifests, question, tenant_objects
from webhook.files.question import Answer, Question

MAX_BYTES: Final = 1 << 20
"""etcd stores no object above 1.5 MiB, and a larger pod is not readable on a page."""

MAX_VALUES: Final = 50_000
"""With aliases counted as often as they are used. A large pod has some 500 values; so many take two seconds,
and ten aliases of ten aliases of ten ... are refused before they are memory."""

MAX_EXCERPT: Final = 200

_PLACED: Final = re.compile(
    r"the (?:text|objects around it):(?P<line>\d+):(?P<column>\d+): (?P<message>.*)", re.DOTALL
)


class UnreadableError(Exception):
    """The text is nothing that can be explained; `excerpt` is the line it is about, `caret` marks the column."""

    def __init__(self, message: str, excerpt: str = "", caret: str = "") -> None:
        super().__init__(message)
        self.excerpt, self.caret = excerpt, caret


class Pasted(NamedTuple):
    """What the form has, or for scripts the body and the address: `at` is a time as Kubernetes writes it, or now."""

    text: bytes
    around: bytes = b""
    namespace: str = ""
    user: str = ""
    at: str = ""
    backend: str = ""


def answer(pasted: Pasted, rulebook: Rulebook, there: tenant_objects.Objects) -> Answer:
    """Explain every pod in the text as the command does, by the tenants that are there; raises UnreadableError."""
    if len(pasted.text) + len(pasted.around) > MAX_BYTES:
        raise UnreadableError(f"this is more than {MAX_BYTES >> 20} MiB")
    if not pasted.text.strip():
        raise UnreadableError("there is nothing here yet: paste a pod, or anything that makes pods")
    try:
        at = times.seconds(pasted.at) if pasted.at else time()
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    setting = Setting(pasted.namespace, pasted.user, at)
    documents = _parsed(pasted.text, "the text")
    around = _parsed(pasted.around, "the objects around it")
    try:
        answered = question.answer(Question(documents, around, setting, pasted.backend), rulebook, there)
    except files.UnreadableError as error:
        raise UnreadableError(str(error)) from None
    if not answered.found:
        raise UnreadableError("there is no pod in this, and nothing that makes pods")
    return answered


def _parsed(content: bytes, name: str) -> list[Mapping[str, Any]]:
    try:
        return manifests.parse(content, name, most=MAX_VALUES) if content.strip() else []
    except files.UnreadableError as error:
        raise _located(str(error), content) from None


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
