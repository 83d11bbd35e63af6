"""What the API server refuses by itself, whatever our webhooks say: labels, annotations, names and quantities.

It reads the quantities of an object before any webhook is called, and validates the object after them, as the patch
leaves it; a pod template is validated before there is a pod, and nothing can be rescued there. The forms are those of
apimachinery (pkg/api/validation, pkg/api/resource/quantity.go) and of core validation (pkg/apis/core/validation).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from webhook.core.decision import Decision
from webhook.core.forms import labels
from webhook.core.interpret.locations import PERCENT, as_written, no_string
from webhook.core.kube import fields, quantity
from webhook.core.kube.fields import Path
from webhook.core.kube.fields import field_path as path_of
from webhook.core.kube.pod import CORE, SECTIONS
from webhook.core.kube.quantity import QuantityError, shown, text_of
from webhook.core.request import KEYS, PREFIX, pasteable
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Violation

REFUSED: Final = "GPU007"
MOST_ANNOTATIONS: Final = 256 << 10
"""Bytes of all annotations of an object."""

_QUANTITY: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_HUGE: Final = "hugepages-"
_NAME: Final = 'write small letters, digits and "-", as train-1'

Amount = tuple[Path, str, Any]
"""A quantity: its field path, the name of the resource, and the value."""


def of_a_pod(review: AdmissionRequest, stored: Mapping[str, Any], decision: Decision) -> Iterator[Violation]:
    """A violation for each field that the API server refuses of a pod.

    `review` has the pod as its author wrote it, `stored` is the pod as our webhooks leave it, and `decision` is what
    they answered. What they have said of a field is not repeated.
    """
    unreadable = [*_unreadable(review.pod or {})]
    resources = _resources(stored) if decision.allowed and not unreadable else ()
    yield from _unsaid(decision, unreadable, _metadata(stored), _names(stored, review.namespace), resources)


def of_a_template(review: AdmissionRequest, decision: Decision, rulebook: Rulebook) -> Iterator[Violation]:
    """The same of a template of pods, which no webhook changes before it is validated."""
    raw = review.pod or {}
    yield from _unsaid(
        decision, _unreadable(raw), _metadata(raw), _names(raw, review.namespace), _not_in_a_template(raw, rulebook)
    )


def _unsaid(decision: Decision, *found: Iterable[Violation]) -> Iterator[Violation]:
    said = {violation.path for violation in decision.violations}
    yield from (violation for violation in chain.from_iterable(found) if violation.path not in said)


def _refused(path: Path, message: str, fix: str) -> Violation:
    return Violation(code=REFUSED, path=path_of(path), message=f"the API server refuses this: {message}", fix=fix)


def _containers(raw: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for section in SECTIONS:
        listed = fields.at(raw, "spec", section)
        for index, container in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(container, dict):
                yield ("spec", section, index), container


def _amounts(raw: Mapping[str, Any], *sections: str) -> Iterator[Amount]:
    for path, container in _containers(raw):
        for section in sections:
            for name, value in fields.mapping(container, "resources", section).items():
                yield (*path, "resources", section, name), name, value


def _unreadable(raw: Mapping[str, Any]) -> Iterator[Violation]:
    """What is no quantity: the request is a 400 before any webhook is called."""
    for path, name, value in _amounts(raw, "limits", "requests"):
        text = text_of(value)
        if value is not None and not _QUANTITY.fullmatch(text):
            yield _refused(
                path, f'{name}: "{shown(text)}" is no quantity', 'write a number, as "1", or a size, as 8Gi'
            )


def _metadata(raw: Mapping[str, Any]) -> Iterator[Violation]:
    for key, value in fields.mapping(raw, "metadata", "labels").items():
        path: Path = ("metadata", "labels", key)
        if not labels.is_key(key):
            yield _refused(path, f'"{shown(key)}" is no key of a label', f"write {labels.RULE}")
        if not isinstance(value, str):
            yield no_string(value, path)
        elif not labels.is_value(value):
            yield _refused(path, f'"{shown(value)}" is no value of a label', f"write {labels.RULE}")
    annotations = fields.mapping(raw, "metadata", "annotations")
    for key, value in annotations.items():
        path = ("metadata", "annotations", key)
        if not labels.is_key(key.lower()):
            yield _refused(path, f'"{shown(key)}" is no key of an annotation', f"write {labels.RULE}")
        if not isinstance(value, str):
            yield no_string(value, path)
    if sum(len(f"{key}{value}".encode(errors="replace")) for key, value in annotations.items()) > MOST_ANNOTATIONS:
        message = f"the annotations have more than {MOST_ANNOTATIONS >> 10} KiB together"
        yield _refused(("metadata", "annotations"), message, "leave some out")


def _names(raw: Mapping[str, Any], namespace: str) -> Iterator[Violation]:
    metadata = fields.mapping(raw, "metadata")
    for key, ends in (("name", ""), ("generateName", "a")):
        name = metadata.get(key)
        if name and not (isinstance(name, str) and labels.is_subdomain(name + ends)):
            fix = 'write small letters, digits, "-" and ".", as train-1'
            yield _refused(("metadata", key), f'"{shown(text_of(name))}" is no name of an object', fix)
    if namespace and not labels.is_dns_label(namespace):
        yield _refused(("metadata", "namespace"), f'"{shown(namespace)}" is no name of a namespace', _NAME)
    yield from _container_names(raw)


def _container_names(raw: Mapping[str, Any]) -> Iterator[Violation]:
    seen: set[str] = set()
    for path, container in _containers(raw):
        name = text_of(container.get("name") or "")
        if not labels.is_dns_label(name):
            yield _refused((*path, "name"), f'"{shown(name)}" is no name of a container', _NAME)
        elif name in seen:
            yield _refused((*path, "name"), f'another container is called "{name}", too', "give it another name")
        seen.add(name)


def _resources(stored: Mapping[str, Any]) -> Iterator[Violation]:
    """What core validation refuses of resources, once webhooks have had their turn."""
    for path, name, value in _amounts(stored, "limits", "requests"):
        core = name in CORE or name.startswith(_HUGE)
        if not core and "/" not in name:
            yield _refused(path, f"there is no resource {shown(name)} in Kubernetes", "leave it out, or correct it")
        elif not core and not labels.is_key(name):
            yield _refused(path, f'"{shown(name)}" is no name of a resource', f"write {labels.RULE}")
        elif text_of(value).startswith("-"):
            yield _refused(path, f"{name}: {shown(text_of(value))} is below 0", "write 0 or more")
        elif not core and not quantity.is_whole(value):
            yield _refused(path, f"{name}: {shown(text_of(value))} is no whole number", "write a whole number, as 1")


def _not_in_a_template(raw: Mapping[str, Any], rulebook: Rulebook) -> Iterator[Violation]:
    for path, name, value in _amounts(raw, "limits", "requests"):
        if "/" not in name and name.startswith("gpu"):
            message = f"{name} is no resource name that Kubernetes takes in a pod template"
            yield Violation(code="GPU002", path=path_of(path), message=message, fix=_in_a_template(name, value))
        elif "/" in name and not quantity.is_whole(value):
            message = f"{name}: {value} is no whole number, and a pod template needs one"
            known = rulebook.resources.get(name)
            devices = name == f"{PREFIX}gpu" or (known is not None and known.counts)
            fix = _in_a_template(name, value) if devices else "write a whole number"
            yield Violation(code="GPU002", path=path_of(path), message=message, fix=fix)


def _in_a_template(name: str, value: Any) -> str:
    """The fix: an amount of shorthand, or a part of devices, as a template may have it."""
    text = as_written(text_of(value))
    key = name if name in KEYS else "gpu"
    label = f"label the template {pasteable(key, text)}"
    resource = _qualified(key, text)
    return f"write {resource} instead of {name}, or {label}" if resource else f"remove it, and {label}"


def _qualified(key: str, text: str) -> str:
    """The same amount as a resource that a template may have; empty if there is none."""
    if key != "gpu":
        return f"{PREFIX}{key.removeprefix('gpu-')}: {text}"
    try:
        number = quantity.decimal(text)
    except QuantityError:
        return ""
    if number.denominator == 1:
        return f"{PREFIX}gpu: {number}"
    percent = 100 * number
    return f"{PERCENT}: {percent}" if percent < 100 and percent.denominator == 1 else ""
