"""Text that was pasted into the page: bytes in, explanations out, or a sentence with the line it is about."""

import re
from collections.abc import Mapping
from pathlib import Path
from time import time
from typing import Any, Final, NamedTuple

import yaml

from webhook.cli import snapshot
from webhook.cli.explain import Answer, answer_question
from webhook.cli.explanation import Setting
from webhook.core.kube import quantity
from webhook.core.request import PREFIX
from webhook.core.rules.backend import Example
from webhook.core.rules.rulebook import Rulebook
from webhook.files import documents as files

MAX_BYTES: Final = 1 << 20
"""etcd stores no object above 1.5 MiB, and a larger pod is not readable on a page."""

MAX_VALUES: Final = 50_000
"""With aliases counted as often as they are used. A large pod has some 500 values; so many take two seconds,
and ten aliases of ten aliases of ten ... are refused before they are memory."""

MAX_EXCERPT: Final = 200

_PLACED: Final = re.compile(r"the (?:text|objects around it):(\d+):(\d+): (.*)", re.DOTALL)


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


def answer(pasted: Pasted, rulebook: Rulebook, there: snapshot.Snapshot) -> Answer:
    """Explain every pod in the text as the command does, by the tenants that are there; raises UnreadableError."""
    if len(pasted.text) + len(pasted.around) > MAX_BYTES:
        raise UnreadableError(f"this is more than {MAX_BYTES >> 20} MiB")
    if not pasted.text.strip():
        raise UnreadableError("there is nothing here yet: paste a pod, or anything that makes pods")
    try:
        at = quantity.parse_time(pasted.at) if pasted.at else time()
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    setting = Setting(pasted.namespace, pasted.user, at)
    documents = _parsed(pasted.text, "the text")
    around = _parsed(pasted.around, "the objects around it")
    try:
        answered = answer_question(documents, rulebook, there, around=around, setting=setting, backend=pasted.backend)
    except files.UnreadableError as error:
        raise UnreadableError(str(error)) from None
    if not answered.explanations:
        raise UnreadableError("there is no pod in this, and nothing that makes pods")
    return answered


def _parsed(content: bytes, name: str) -> list[Mapping[str, Any]]:
    try:
        return files.parse_manifests(content, name, most=MAX_VALUES) if content.strip() else []
    except files.UnreadableError as error:
        # `the text:3:7: is not YAML`: with the line that it is about.
        place = _PLACED.fullmatch(str(error))
        if place is None:
            raise UnreadableError(str(error)) from None
        line, column = int(place[1]), int(place[2])
        lines = content.decode(errors="replace").splitlines()
        message = f"line {line}, column {column}: {place[3]}"
        if line > len(lines) or column > MAX_EXCERPT:
            raise UnreadableError(message) from None
        raise UnreadableError(message, lines[line - 1][:MAX_EXCERPT], " " * (column - 1) + "^") from None


# Pods to begin with.

TRIES: Final[Mapping[str, Mapping[str, str]]] = yaml.safe_load(Path(__file__).with_name("tries.yaml").read_bytes())
"""For a reader of the page who has none at hand: by the name in the link, a title for it and the text of the form."""


def tries_for(example: Example) -> str:
    """A pod that asks what an example of a rule asks."""
    words = {f"{PREFIX}{key.removeprefix('gpu-')}": value for key, value in example.ask.items()}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "example", "annotations": words},
        "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
    }
    return yaml.safe_dump(pod, sort_keys=False)
