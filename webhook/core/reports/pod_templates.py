"""The pods that an object would make: where its kind keeps their template, and how many there are at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from webhook.core.kube.paths import Path, at, field, mapping
from webhook.core.request.shorthand import is_key
from webhook.core.rules.vocabulary import METADATA

TEMPLATES: Mapping[str, Path] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where a kind keeps its pod; every other kind that has `spec.template` keeps it there."""

NUMBERS: Sequence[Path] = (
    ("spec", "replicas"),
    ("spec", "parallelism"),
    ("spec", "jobTemplate", "spec", "parallelism"),
)
"""Where an object says how many pods it has at a time."""

COMPLETIONS: Sequence[Path] = (("spec", "completions"), ("spec", "jobTemplate", "spec", "completions"))
"""Where a Job says how many it wants in all: no more than that run at a time."""


class Found(NamedTuple):
    """A pod of an object, the title and namespace of that object, and how many such pods there are at a time."""

    title: str
    pod: Mapping[str, Any]
    namespace: str
    number: int


def pods(document: Any, kind: str = "") -> Iterator[Found]:
    """The pods of a document; nothing for a kind without pods."""
    if not isinstance(document, Mapping):
        return
    kind = str(document.get("kind") or kind)
    if kind == "AdmissionReview":
        for found in pods(at(document, "request", "object"), "Pod"):  # the object need not have its namespace yet
            yield found._replace(namespace=str(at(document, "request", "namespace") or found.namespace))
    elif kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from pods(item, kind.removesuffix("List"))
    else:
        made = at(document, *template_path(kind))
        if isinstance(made, Mapping):
            name = at(document, "metadata", "name") or at(document, "metadata", "generateName")
            namespace = at(document, "metadata", "namespace")
            yield Found(f"{kind} {name or '(no name)'}", made, str(namespace or "default"), number(document))


def template_path(kind: str) -> Path:
    """Where a kind keeps its pod."""
    return TEMPLATES.get(kind, ("spec", "template"))


def number(document: Any) -> int:
    """How many pods of an object there are at a time, as far as it says so; of a DaemonSet, one."""
    at_a_time, in_all = _positive(document, NUMBERS), _positive(document, COMPLETIONS)
    return min([at_a_time[0], *in_all]) if at_a_time else 1


def _positive(document: Any, paths: Iterable[Path]) -> list[int]:
    found = (at(document, *path) for path in paths)
    return [each for each in found if isinstance(each, int) and each > 0]


def misplaced(workload: Mapping[str, Any], template: Mapping[str, Any]) -> str | None:
    """A hint about shorthand in the metadata of something that makes pods, where it means nothing.

    Not if the template has it, too: Kubernetes gives a Job without labels those of its template.
    """
    where = field(template_path(str(workload.get("kind"))))
    for section, kind in METADATA:
        present = mapping(template, "metadata", section)
        for key in mapping(workload, "metadata", section):
            if is_key(kind, key) and key not in present:
                path = field(("metadata", section, key))
                return (
                    f"{path} is of the workload, and its pods do not get it. Write it in {where}.metadata.{section}"
                )
    return None
