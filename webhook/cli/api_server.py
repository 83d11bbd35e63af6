"""What the API server refuses by itself and people meet daily: texts without quotes, and quantities.

It reads the quantities of an object before any webhook is called, and validates the object after them, as the patch
leaves it; a pod template is validated before there is a pod, and nothing can be rescued there. The forms are those of
apimachinery (pkg/api/resource/quantity.go) and of core validation (pkg/apis/core/validation). This is not all that
the API server refuses: `kubectl create --dry-run=server` tells the rest.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.core.decision import Decision
from webhook.core.forms import labels
from webhook.core.interpret.locations import PERCENT, RESOURCES, as_written, no_string
from webhook.core.kube import fields
from webhook.core.kube.fields import Path, field_path
from webhook.core.kube.pod import CORE, SECTIONS
from webhook.core.kube.quantity import is_whole, nearly, shown, text_of
from webhook.core.request import KEYS, PREFIX, devices_meant, pasteable
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Violation

REFUSED: Final = "GPU007"

_QUANTITY: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")


def refusals(
    review: AdmissionRequest, stored: Mapping[str, Any] | None, decision: Decision, rulebook: Rulebook
) -> list[Violation]:
    """A violation for each field that the API server refuses of a pod, or of a template of pods.

    `review` has the pod as its author wrote it, `stored` is the pod as our webhooks leave it, None for a template,
    and `decision` is what they answered. What they have said of a field is not repeated.
    """
    written = review.pod or {}
    violations: list[Violation] = []
    for section in ("labels", "annotations"):
        for key, value in fields.mapping(written if stored is None else stored, "metadata", section).items():
            at = ("metadata", section, key)
            if not isinstance(value, str):
                violations.append(no_string(value, at))
            elif section == "labels" and not labels.is_value(value):
                violations.append(_refused(at, f'"{shown(value)}" is no value of a label', f"write {labels.RULE}"))
    unreadable = False
    for path, name, text in _quantities(written):
        if not _QUANTITY.fullmatch(text):
            unreadable = True
            message, fix = f'{name}: "{shown(text)}" is no quantity', 'write a number, as "1", or a size, as 8Gi'
            if name in KEYS and name not in RESOURCES:
                fix = f"remove it, and write the label {pasteable(name, shown(text))}"
            violations.append(_refused(path, message, fix))
    if stored is None:
        violations += _not_in_a_template(written, rulebook)
    elif decision.allowed and not unreadable:
        for path, name, text in _quantities(stored):
            if name in CORE or name.startswith("hugepages-"):
                continue
            if "/" not in name:
                message, fix = f"there is no resource {shown(name)} in Kubernetes", "leave it out, or correct it"
                violations.append(_refused(path, message, fix))
            elif not is_whole(text):
                message, fix = f"{name}: {shown(text)} is no whole number", "write a whole number, as 1"
                violations.append(_refused(path, message, fix))
    told = {violation.path for violation in decision.violations}
    bare = [violation.path for violation in violations if violation.code == "GPU002" and "/" not in violation.path]
    return [violation for violation in violations if violation.path not in told.difference(bare)]


def _refused(path: Path, message: str, fix: str) -> Violation:
    return Violation(code=REFUSED, path=field_path(path), message=f"the API server refuses this: {message}", fix=fix)


def _quantities(pod: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """The quantities of a pod: the field path of each, the name of the resource, and the text."""
    for section in SECTIONS:
        containers = fields.at(pod, "spec", section)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            for kind in ("limits", "requests"):
                for name, value in fields.mapping(container, "resources", kind).items():
                    if value is not None:
                        yield ("spec", section, index, "resources", kind, name), name, text_of(value)


def _not_in_a_template(pod: Mapping[str, Any], rulebook: Rulebook) -> Iterator[Violation]:
    """Shorthand and parts of devices among the resources, each with the words that a template may have instead."""
    for path, name, text in _quantities(pod):
        resource = rulebook.resources.get(name)
        counts_devices = name == f"{PREFIX}gpu" or (resource is not None and resource.counts)
        fix = "write a whole number"
        if "/" not in name and name.startswith("gpu"):
            message = f"{name} is no resource name that Kubernetes takes in a pod template"
        elif "/" in name and not is_whole(text):
            message = f"{name}: {text} is no whole number, and a pod template needs one"
        else:
            continue
        if "/" not in name or counts_devices:
            key = name if name in KEYS else "gpu"
            amount = "".join(devices_meant(text)[:1] if key == "gpu" else ()) or as_written(text)
            qualified = f"{PREFIX}{key.removeprefix('gpu-')}: {amount}" if key in RESOURCES else ""
            if key == "gpu":
                number = nearly(amount)
                percent = 100 * (number or 0)
                qualified = f"{PERCENT}: {percent}" if 0 < percent < 100 and percent.denominator == 1 else ""
                qualified = f"{PREFIX}gpu: {number}" if number is not None and number.denominator == 1 else qualified
            label = f"remove it, and label the template {pasteable(key, amount)}"
            fix = f"write {qualified} instead of {name}, or {label}" if qualified else label
        yield Violation(code="GPU002", path=field_path(path), message=message, fix=fix)
