"""The places where the shorthand may be written, and which of them wins.

Pod-wide: labels `gpu`, `gpu-memory`, ...; labels and annotations `gpu-webhook.io/gpu`, `gpu-webhook.io/memory`, ...,
and the annotation `gpu` (other plain `gpu-*` annotations belong to back ends). For one container: annotations
`gpu.gpu-webhook.io/<container>`, and its resources `gpu`, `gpu-memory`, `gpu-cores` or `gpu-webhook.io/gpu`,
`/percent`, `/memory`, `/cores`. The more specific place wins; two of the same rank that differ are a violation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.forms import labels
from webhook.core.forms.document import Nearest
from webhook.core.kube import quantity
from webhook.core.kube.paths import Path, field
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import QuantityError
from webhook.core.request import shorthand
from webhook.core.request.request import PREFIX, Devices, FieldValue
from webhook.core.request.shorthand import SizeError
from webhook.core.rules.vocabulary import METADATA, SlotKind
from webhook.core.violations import Violation

SUFFIX: Final = "." + PREFIX
CONTAINER: Final = PREFIX + "container"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

CLAIMED: Final = "gpu-claimed"
"""Not a key of the shorthand: `claimed.gpu-webhook.io/<container>` names the claim that the others come from."""

NOTE: Final = PREFIX + "translated"
"""An annotation that tells people of the translation, `gpu=0.3 -> hami-vgpu`. No decision trusts it."""

CARD: Final = PREFIX + "card"
"""An annotation that keeps the card that all nodes had when the pod was created, if nothing else tells the card.
/mutate replaces or removes a value of the pod's author."""

_QUALIFIED: Final = {PREFIX + key.removeprefix("gpu-"): key for key in shorthand.KEYS}
_RESOURCES: Final = {
    "gpu": "gpu",
    "gpu-memory": "gpu-memory",
    "gpu-cores": "gpu-cores",
    PREFIX + "gpu": "gpu",
    PREFIX + "memory": "gpu-memory",
    PREFIX + "cores": "gpu-cores",
}
PERCENT: Final = PREFIX + "percent"
RESOURCES: Final = frozenset({*_RESOURCES, PERCENT})
"""Resource names that are shorthand: they leave the container when it is translated."""


class Entry(NamedTuple):
    """One key that was found: its short name, text and path. `tolerant`: another value may be a label of others."""

    key: str
    text: str
    path: Path
    tolerant: bool = False


def pod_wide(pod: Pod, nearest: Nearest) -> Iterator[Entry | Violation]:
    """The keys for the whole pod in labels and annotations; a violation for each unknown key of our prefix."""
    for section, kind in METADATA:
        for key, text in getattr(pod, section).items():
            if key.startswith("gpu"):
                yield from _found(kind, key, text, ("metadata", section, key), nearest)


def _found(kind: SlotKind, key: str, text: Any, path: Path, nearest: Nearest) -> Iterator[Entry | Violation]:
    plain = shorthand.is_plain_key(kind, key)
    short = key if plain else _QUALIFIED.get(key)
    if short is not None and not isinstance(text, str):
        yield no_string(text, path)
    elif short is not None and kind == "label" and not labels.is_value(text):
        yield _no_label(short, text, path)
    elif short is not None:
        yield Entry(short, text, path, tolerant=plain)
    elif key.startswith(PREFIX) and key != NOTE and (kind, key) != ("annotation", CARD):
        yield _unknown_key(key, _QUALIFIED, path, nearest)


def per_container(pod: Pod, nearest: Nearest) -> Iterator[tuple[str, Entry | Violation]]:
    """The keys in annotations such as `gpu.gpu-webhook.io/main: "0.3"`, each with the container's name."""
    for key, text in pod.annotations.items():
        head, suffix, container = key.partition(SUFFIX)
        if not suffix or not container or head == CLAIMED.removeprefix("gpu-"):
            continue
        short = "gpu" if head == "gpu" else f"gpu-{head}"
        path: Path = ("metadata", "annotations", key)
        if short not in shorthand.KEYS or short == "gpu-container":
            known = [annotation(name, container) for name in shorthand.KEYS if name != "gpu-container"]
            yield container, _unknown_key(key, known, path, nearest)
        else:
            yield container, Entry(short, text, path) if isinstance(text, str) else no_string(text, path)


def annotation(key: str, container: str) -> str:
    """The annotation for a key (`gpu`, `gpu-memory`, ...) of one container."""
    return f"{key.removeprefix('gpu-')}{SUFFIX}{container}"


def claimed(container: str) -> str:
    """The annotation that names the claim from which a container's other annotations come."""
    return annotation(CLAIMED, container)


def _unknown_key(key: str, known: Collection[str], path: Path, nearest: Nearest) -> Violation:
    near = nearest.word(key, known)
    fix = f"rename it to {near}" if near else f"rename it to one of: {', '.join(known)}"
    message = f'"{quantity.shown(key)}" is not a key of the shorthand'
    return Violation(code="GPU201", path=field(path), message=message, fix=fix)


def _no_label(short: str, text: str, path: Path) -> Violation:
    """The violation for a value that the API server takes in no label: GPU001 if an annotation can have it."""
    meant = parse(Entry(short, text, path))
    if isinstance(meant, Violation):
        return meant
    message = f'"{quantity.shown(text)}" cannot be the value of a label: Kubernetes takes {labels.RULE} there'
    key = "gpu" if short == "gpu" else PREFIX + short.removeprefix("gpu-")
    fix = f"write it as an annotation: {shorthand.pasteable(key, quantity.shown(text))}"
    return Violation(code="GPU001", path=field(path), message=message, fix=fix)


def no_string(value: Any, path: Path) -> Violation:
    """The violation (GPU001) for an annotation or label that is no string."""
    text = quantity.shown(quantity.text_of(value))
    message = f"{field(path)} is {text} without quotes, and Kubernetes takes only strings there"
    return Violation(code="GPU001", path=field(path), message=message, fix=f'quote it: {path[-1]}: "{text}"')


def parse(finding: Entry) -> FieldValue | Violation:
    """The value of a key that was found, or the violation (GPU201) if it does not parse."""
    try:
        return FieldValue(
            shorthand.KEYS[finding.key](finding.text), field(finding.path), quantity.shown(finding.text)
        )
    except QuantityError as error:
        return misread(finding.path, finding.key, error)


def misread(path: Path, name: str, error: QuantityError) -> Violation:
    """The violation (GPU201) for a value that does not parse."""
    fix = error.fix
    if isinstance(error, SizeError):
        fix = f"remove it, and add {shorthand.pasteable(_key_of_sizes(path), error.size)}"
    return Violation(code="GPU201", path=field(path), message=f"{name}: {error.message}", fix=fix)


def _key_of_sizes(path: Path) -> str:
    """The key for sizes in the place of a key for a number of devices."""
    key = str(path[-1])
    if container := key.partition(SUFFIX)[2]:
        return annotation("gpu-memory", container)
    qualified = key.startswith(PREFIX) or path[1] == "annotations"
    return PREFIX + "memory" if qualified else "gpu-memory"


def resources(container: Container) -> tuple[dict[str, FieldValue], list[Violation]]:
    """The shorthand in the container's own resources, by short key, and its violations."""
    stated: dict[str, FieldValue] = {}
    violations: list[Violation] = []
    if RESOURCES.isdisjoint(container.limits) and RESOURCES.isdisjoint(container.requests):
        return stated, violations
    for name in sorted(RESOURCES & (container.limits.keys() | container.requests.keys())):
        limit = container.limits.get(name, container.requests.get(name))
        section = "limits" if name in container.limits else "requests"
        path = (*container.path, "resources", section, name)
        text = quantity.text_of(limit)
        if not quantity.same(limit, container.requests.get(name, limit)):
            violations.append(overcommitted(container, name))
        try:
            entry = _RESOURCES.get(name, "percent"), FieldValue(_amount(name, text), field(path), as_written(text))
        except QuantityError as error:
            violations.append(misread(path, name, error))
        else:
            violations += merge(stated, *entry)
    return _with_percent(stated, violations), violations


def as_written(text: str) -> str:
    """A number as its author wrote it, of the API server's form: `0.3` for `300m`."""
    try:
        return quantity.show(quantity.served(text))
    except QuantityError:
        return quantity.shown(text)


def _amount(name: str, text: str) -> Any:
    if name == PERCENT:
        percent = quantity.served(text)
        if not 0 < percent < 100:
            raise QuantityError(
                f'"{text}" is not a percentage of one GPU',
                f"write 1 to 99, or {PREFIX}gpu: 1 instead of {PREFIX}percent",
            )
        return percent / 100
    match _RESOURCES[name]:
        case "gpu":
            return _devices(text)
        case "gpu-cores":
            return shorthand.cores_from(quantity.served(text))
        case key:
            return shorthand.KEYS[key](text)


def _devices(text: str) -> Any:
    """A number of devices in a resource, which cannot hold `2x0.75`."""
    try:
        number = quantity.served(text)
    except QuantityError as error:
        other = shorthand.not_devices(text, error.message)
        raise (other if isinstance(other, SizeError) else error) from None
    if number > 1 and number.denominator > 1:
        low = number.numerator // number.denominator
        message = f"{quantity.show(number)} is neither a share of one GPU nor a whole number"
        raise QuantityError(message, f"write {low} or {low + 1}")
    return shorthand.devices_from(1, number)


def overcommitted(container: Container, name: str) -> Violation:
    """A request that differs from its limit (GPU401), both fields and values named."""
    limits, requests = (field((*container.path, "resources", section, name)) for section in ("limits", "requests"))
    return Violation(
        code="GPU401",
        path=requests,
        message=f"{requests} is {as_written(quantity.text_of(container.requests[name]))}, and {limits} is "
        f"{as_written(quantity.text_of(container.limits[name]))}: GPUs cannot be overcommitted",
        fix=f"remove {name} from requests; it will equal the limit",
    )


def _with_percent(stated: dict[str, FieldValue], violations: list[Violation]) -> dict[str, FieldValue]:
    """`gpu-webhook.io/gpu: 2` with `/percent: 50` is two halves."""
    percent = stated.pop("percent", None)
    if percent is None:
        return stated
    devices: FieldValue | None = stated.get("gpu")
    if devices and (devices.value is None or devices.value.share):
        violations.append(contradiction("gpu", devices, percent))
        return stated
    count = devices.value.count if devices else 1
    return stated | {"gpu": FieldValue(Devices(count, percent.value), percent.path, percent.text)}


def merge(into: dict[str, FieldValue], key: str, entry: FieldValue) -> Iterator[Violation]:
    """Add the value of one more place of the same rank; yields a violation (GPU202) if two differ."""
    present = into.setdefault(key, entry)
    if present.value != entry.value:
        yield contradiction(key, present, entry)


def contradiction(key: str, one: FieldValue, other: FieldValue) -> Violation:
    """Two places that ask for different things, both named."""
    first, second = sorted((one, other), key=lambda stated: stated.path)
    message = f"two places ask for a different {key}: {first}, and {second}"
    return Violation(
        code="GPU202", path=second.path, message=message, fix=f"remove {first.path}, or remove {second.path}"
    )


def overridden(general: Mapping[str, FieldValue], special: Mapping[str, FieldValue]) -> Iterator[str]:
    """A warning for each key of the whole pod that a container's own value replaces."""
    for key in sorted(general.keys() & special.keys()) if general and special else ():
        if general[key].value != special[key].value:
            yield f'{special[key]} and wins over {general[key].path}, which says "{general[key].text}"'
