"""The places where the shorthand may be written, and which of them wins.

Pod-wide: labels `gpu`, `gpu-memory`, ...; labels and annotations `gpu-webhook.io/gpu`, `gpu-webhook.io/memory`, ...,
and the annotation `gpu` (other plain `gpu-*` annotations belong to back ends). For one container: annotations
`gpu.gpu-webhook.io/<container>`, and its resources `gpu`, `gpu-memory`, `gpu-cores` or `gpu-webhook.io/gpu`,
`/percent`, `/memory`, `/cores`. The more specific place wins; two of the same rank that differ are a violation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, Final, NamedTuple

from webhook.core import request
from webhook.core.forms import labels
from webhook.core.forms.document import Nearest
from webhook.core.kube import quantity
from webhook.core.kube.fields import Path, field_path
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import QuantityError, shown
from webhook.core.request import EXAMPLES, KEYS, PREFIX, Devices, FieldValue, SizeError, pasteable
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.verbs import METADATA, SlotKind
from webhook.core.violations import Violation

# The places where the shorthand may be written, and which of them wins.

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

_QUALIFIED: Final = {PREFIX + key.removeprefix("gpu-"): key for key in request.KEYS}
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
    plain = request.is_plain_key(kind, key)
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
        if short not in request.KEYS or short == "gpu-container":
            known = [annotation(name, container) for name in request.KEYS if name != "gpu-container"]
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
    return Violation(code="GPU201", path=field_path(path), message=message, fix=fix)


def _no_label(short: str, text: str, path: Path) -> Violation:
    """The violation for a value that the API server takes in no label: GPU001 if an annotation can have it."""
    meant = parse(Entry(short, text, path))
    if isinstance(meant, Violation):
        return meant
    message = f'"{quantity.shown(text)}" cannot be the value of a label: Kubernetes takes {labels.RULE} there'
    key = "gpu" if short == "gpu" else PREFIX + short.removeprefix("gpu-")
    fix = f"write it as an annotation: {request.pasteable(key, quantity.shown(text))}"
    return Violation(code="GPU001", path=field_path(path), message=message, fix=fix)


def no_string(value: Any, path: Path) -> Violation:
    """The violation (GPU001) for an annotation or label that is no string."""
    text = quantity.shown(quantity.text_of(value))
    message = f"{field_path(path)} is {text} without quotes, and Kubernetes takes only strings there"
    return Violation(code="GPU001", path=field_path(path), message=message, fix=f'quote it: {path[-1]}: "{text}"')


def parse(finding: Entry) -> FieldValue | Violation:
    """The value of a key that was found, or the violation (GPU201) if it does not parse."""
    try:
        return FieldValue(
            request.KEYS[finding.key](finding.text), field_path(finding.path), quantity.shown(finding.text)
        )
    except QuantityError as error:
        return misread(finding.path, finding.key, error)


def misread(path: Path, name: str, error: QuantityError) -> Violation:
    """The violation (GPU201) for a value that does not parse."""
    fix = error.fix
    if isinstance(error, SizeError):
        fix = f"remove it, and add {request.pasteable(_key_of_sizes(path), error.size)}"
    return Violation(code="GPU201", path=field_path(path), message=f"{name}: {error.message}", fix=fix)


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
            entry = (
                _RESOURCES.get(name, "percent"),
                FieldValue(_amount(name, text), field_path(path), as_written(text)),
            )
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
            return request.cores_from(quantity.served(text))
        case key:
            return request.KEYS[key](text)


def _devices(text: str) -> Any:
    """A number of devices in a resource, which cannot hold `2x0.75`."""
    try:
        number = quantity.served(text)
    except QuantityError as error:
        other = request.not_devices(text, error.message)
        raise (other if isinstance(other, SizeError) else error) from None
    if number > 1 and number.denominator > 1:
        low = number.numerator // number.denominator
        message = f"{quantity.show(number)} is neither a share of one GPU nor a whole number"
        raise QuantityError(message, f"write {low} or {low + 1}")
    return request.devices_from(1, number)


def overcommitted(container: Container, name: str) -> Violation:
    """A request that differs from its limit (GPU401), both fields and values named."""
    limits, requests = (
        field_path((*container.path, "resources", section, name)) for section in ("limits", "requests")
    )
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


# Hints for labels and annotations that begin like the shorthand and are read by nothing.

BEGINNINGS: Final = tuple(map("".join, product("gG", "pP", "uU")))
"""How a key of the shorthand begins, in any capitals."""

MOST_HINTS: Final = 8
"""How many keys get a hint."""

_SHARES: Final = frozenset({"fraction", "fractions", "share", "shares", "portion", "part", "percent", "percentage"})
_SPELLINGS: Final[Mapping[str, Collection[str]]] = {
    "gpu": _SHARES
    | {
        "",
        "s",
        "count",
        "counts",
        "num",
        "number",
        "nums",
        "quantity",
        "amount",
        "device",
        "devices",
        "card",
        "cards",
    }
    | {"limit", "limits", "request", "requests", "req", "total", "units", "size"},
    "gpu-memory": {"mem", "memory", "vram", "ram", "memsize", "memorysize", "memlimit", "memorylimit", "memories"}
    | {"memgb", "memgib", "memmb", "memmib", "memorygb", "memorymb", "memorymib", "memorygib", "framebuffer"},
    "gpu-cores": {"core", "cores", "compute", "sm", "sms", "util", "utilization", "corepercent", "corepercentage"}
    | {"corelimit", "corelimits"},
    "gpu-model": {"type", "types", "product", "name", "kind", "cardtype", "cardmodel", "class", "sku", "models"}
    | {"accelerator", "generation", "family"},
    "gpu-profile": {"profiles", "slice", "slices", "mig", "migprofile", "partition", "partitions", "instance"},
    "gpu-sharing": {"sharingstrategy", "sharingmode", "sharemode", "mode", "strategy", "shared"},
    "gpu-backend": {"backends", "provider", "system", "plugin", "scheduler"},
    "gpu-claim": {"claims", "claimname", "claimtemplate", "resourceclaim"},
    "gpu-container": {"containers", "containername", "fractioncontainername"},
    "gpu-tflops": {"tflop", "flops", "teraflops"},
    "gpu-placement": {"policy", "schedulingpolicy", "schedulerpolicy", "spread", "binpack", "topology"},
}
"""What other systems and people write after `gpu` for each key, in small letters without dashes."""

_KEY_OF: Final = {said: key for key in KEYS for said in {key.removeprefix("gpu-"), *_SPELLINGS[key]}}
_LETTERS: Final = re.compile("[^a-z0-9]")


def hints_of_keys(pod: Pod, rulebook: Rulebook, nearest: Nearest) -> Iterator[str]:
    """A warning for each label or annotation that begins with `gpu` and is read by nothing; MOST of them."""
    strange = [(kind, section, key) for kind, section, key in _like_ours(pod) if not _read(kind, key, rulebook)]
    for kind, section, key in strange[:MOST_HINTS]:
        wish = _wish(kind, key, getattr(pod, section)[key], rulebook, nearest)
        yield f"{field_path(('metadata', section, shown(key)))}: nothing here reads this {kind}. {wish}"
    if len(strange) > MOST_HINTS:
        yield f"{len(strange) - MOST_HINTS} more labels and annotations begin with gpu, and nothing here reads them"
    yield from islice(_of_resources(pod, nearest), MOST_HINTS)


def _of_resources(pod: Pod, nearest: Nearest) -> Iterator[str]:
    """A warning for each resource that begins with `gpu` and has no domain, which the API server will refuse."""
    for container in pod.containers:
        for section, amounts in (("limits", container.limits), ("requests", container.requests)):
            for name in amounts:
                if name.startswith(BEGINNINGS) and "/" not in name and name not in RESOURCES:
                    meant, _ = _meant(name, nearest)
                    known = meant if meant in RESOURCES else ", ".join(sorted(RESOURCES))
                    path = field_path((*container.path, "resources", section, shown(name)))
                    yield f"{path}: Kubernetes takes no such resource. Write {known}"


def _like_ours(pod: Pod) -> Iterator[tuple[SlotKind, str, str]]:
    """The labels and annotations that begin like the shorthand, or have its domain, and are none of its keys."""
    for section, kind in METADATA:
        for key in getattr(pod, section):
            plain = key.startswith(BEGINNINGS) and "/" not in key
            if (plain or (kind == "label" and SUFFIX in key)) and not request.is_key(kind, key):
                yield kind, section, key


def _read(kind: SlotKind, key: str, rulebook: Rulebook) -> bool:
    """Whether a rule or a policy reads or writes the key."""
    known: Mapping[SlotKind, Collection[str]] | None = rulebook.cache.get(_read)
    if known is None:
        known = rulebook.cache[_read] = {
            "label": _known("label", rulebook),
            "annotation": _known("annotation", rulebook),
        }
    return key in known[kind]


def _known(kind: SlotKind, rulebook: Rulebook) -> frozenset[str]:
    modes = [mode.outputs for backend in rulebook.enabled for mode in backend.modes]
    outputs = [*modes, *(backend.inject.outputs for backend in rulebook.enabled)]
    policies = rulebook.tenancy.policies
    if kind == "label":
        written: Sequence[Collection[str]] = [*(one.labels for one in outputs), *(one.labels for one in policies)]
    else:
        written = [*(one.annotations for one in outputs), *(one.annotations for one in policies)]
    return frozenset(chain(rulebook.slots[kind], rulebook.annotations, *written, (NOTE, DEFAULT_CONTAINER)))


def _wish(kind: SlotKind, key: str, value: Any, rulebook: Rulebook, nearest: Nearest) -> str:
    """What to do about a key: what to write instead, or what it may have been meant for."""
    if SUFFIX in key:
        return f"Write it as an annotation: {pasteable(key, str(value))}"
    meant, sure = _meant(key, nearest)
    if not meant:
        return 'It asks for no GPU; a pod asks with gpu: "1"'
    written = _instead(kind, meant, key, str(value))
    owner = rulebook.all_slots[kind].get(key)
    if owner is not None:
        names = " or ".join(backend.name for backend in owner.known[:2])
        return f"It belongs to {names}, which this cluster does not enable. Write {written}"
    return f"Write {written}" if sure else f"Did you mean {written}?"


def _meant(key: str, nearest: Nearest) -> tuple[str, bool]:
    """The key of the shorthand that a key stands for, empty if none; and whether that is certain."""
    said = _KEY_OF.get(_after_gpu(key))
    if said is not None:
        return said, True
    return nearest.word(key.replace("_", "-"), KEYS, cutoff=0.8), False


def _instead(kind: SlotKind, meant: str, key: str, text: str) -> str:
    """The key and value to write, in the same place; an example if the value is none of that key."""
    share = _after_gpu(key) in _SHARES
    example = pasteable("gpu", "0.3") if share else EXAMPLES[meant]
    written = pasteable(meant, text) if _fits(meant, text, share=share) else example
    return written if kind == "label" or meant == "gpu" else PREFIX + written.removeprefix("gpu-")


def _fits(meant: str, text: str, *, share: bool) -> bool:
    """Whether the value is one of the other key; a percentage is no number of devices."""
    try:
        value = KEYS[meant](text)
    except QuantityError:
        return False
    return not share or (isinstance(value, Devices) and value.share is not None)


def _after_gpu(key: str) -> str:
    """What follows `gpu` in a key, in small letters without dashes."""
    return _LETTERS.sub("", key.lower())[len("gpu") :]
