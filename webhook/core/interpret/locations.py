"""The places where the shorthand may be written, which of them wins, and hints for what is nearly one of them.

Pod-wide: labels `gpu`, `gpu-memory`, ...; labels and annotations `gpu-webhook.io/gpu`, `gpu-webhook.io/memory`, ...,
and the annotation `gpu` (other plain `gpu-*` annotations belong to back ends). For one container: annotations
`gpu.gpu-webhook.io/<container>`, and its resources `gpu`, `gpu-memory`, `gpu-cores` or `gpu-webhook.io/gpu`,
`/percent`, `/memory`, `/cores`. The more specific place wins; two of the same rank that differ are a violation.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Any, Final, NamedTuple

from webhook.core import request
from webhook.core.forms import labels
from webhook.core.forms.document import Nearest
from webhook.core.kube import quantity
from webhook.core.kube.fields import Path, field_path
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import Fraction, QuantityError, show, shown
from webhook.core.request import ASKING, EXAMPLES, KEYS, PREFIX, Devices, FieldValue, OtherKeyError, pasteable
from webhook.core.rules.rulebook import Rulebook, kept
from webhook.core.rules.verbs import METADATA, Slot, SlotKind
from webhook.core.violations import NOTHING, Alternative, Readings, Violation, joined

SUFFIX: Final = "." + PREFIX
CONTAINER: Final = PREFIX + "container"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"

CLAIMED: Final = "gpu-claimed"
"""Not a key of the shorthand: `claimed.gpu-webhook.io/<container>` names the claim that the others come from."""

NOTE: Final = PREFIX + "translated"
"""An annotation that tells people of the translation, `gpu=0.3 -> hami-vgpu`. No decision trusts it."""

CARD: Final = PREFIX + "card"
"""An annotation that keeps the cards that nodes had when the pod was created, if nothing else tells the card.
/mutate replaces or removes a value of the pod's author."""

LONGEST_NOTE: Final = 1024
"""Letters of a note of cards: /mutate writes no longer one."""

_QUALIFIED: Final = {PREFIX + key.removeprefix("gpu-"): key for key in KEYS}
_SHORT: Final[Mapping[SlotKind, Mapping[str, str]]] = {
    "label": {**{key: key for key in KEYS}, **_QUALIFIED},
    "annotation": {"gpu": "gpu", **_QUALIFIED},
}
"""The short key of every key for the whole pod."""

PERCENT: Final = PREFIX + "percent"
_RESOURCES: Final = {
    **{name: key for key in ("gpu", "gpu-memory", "gpu-cores") for name in (key, PREFIX + key.removeprefix("gpu-"))},
    PERCENT: "percent",
}
RESOURCES: Final = frozenset(_RESOURCES)
"""Resource names that are shorthand: they leave the container when it is translated."""


class Entry(NamedTuple):
    """One key that was found: its short name, value and path. `tolerant`: another value may be a label of others."""

    key: str
    text: Any
    path: Path
    tolerant: bool = False


def pod_wide(pod: Pod, nearest: Nearest) -> Iterator[Entry | Violation]:
    """The keys for the whole pod in labels and annotations; a violation for each unknown key of our prefix."""
    for section, kind in METADATA:
        keys = _SHORT[kind]
        for key, text in getattr(pod, section).items():
            if not key.startswith("gpu"):
                continue
            path: Path = ("metadata", section, key)
            short = keys.get(key)
            if short is None:
                if key.startswith(PREFIX) and key != NOTE and (kind, key) != ("annotation", CARD):
                    yield _unknown_key(key, _QUALIFIED, path, pod, nearest, text)
            else:
                legal = isinstance(text, str) and (kind == "annotation" or labels.is_value(text))
                yield Entry(short, text, path, tolerant=short == key and legal)


def per_container(pod: Pod, nearest: Nearest) -> Iterator[tuple[str, Entry | Violation]]:
    """The keys in annotations such as `gpu.gpu-webhook.io/main: "0.3"`, each with the container's name."""
    for key, text in pod.annotations.items():
        head, suffix, container = key.partition(SUFFIX)
        if not suffix or not container or head == CLAIMED.removeprefix("gpu-"):
            continue
        short = "gpu" if head == "gpu" else f"gpu-{head}"
        path: Path = ("metadata", "annotations", key)
        if short not in KEYS or short == "gpu-container":
            names = [annotation(name, container) for name in KEYS if name != "gpu-container"]
            yield container, _unknown_key(key, names, path, pod, nearest, text)
        else:
            yield container, Entry(short, text, path)


def annotation(key: str, container: str) -> str:
    """The annotation for a key (`gpu`, `gpu-memory`, ...) of one container."""
    return f"{key.removeprefix('gpu-')}{SUFFIX}{container}"


def claimed(container: str) -> str:
    """The annotation that names the claim from which a container's other annotations come."""
    return annotation(CLAIMED, container)


def _unknown_key(key: str, words: Collection[str], path: Path, pod: Pod, nearest: Nearest, text: Any) -> Violation:
    stem = key.removeprefix(PREFIX).partition(SUFFIX)[0]
    stems = {word.removeprefix(PREFIX).partition(SUFFIX)[0]: word for word in words}
    meant = _KEY_OF.get(_LETTERS.sub("", stem.lower()), "").removeprefix("gpu-")
    near = stems.get(meant or nearest.word(stem, stems), "")
    if any(container.name == stem for container in pod.containers):
        near = annotation("gpu", stem)
    fix = f"rename it to {near}" if near else f"rename it to one of: {quantity.listed([*words], 6)}"
    share = _share(stem, text)
    if near and share and share != text:
        fix = f"remove it, and write {pasteable(near, share)}"
    message = f'"{shown(key)}" is not a key of the shorthand'
    return Violation(code="GPU201", path=field_path(path), message=message, fix=fix)


def no_string(value: Any, path: Path, key: str = "") -> Violation:
    """The violation (GPU001) for an annotation or label that is no string; with a `key` it is of the shorthand."""
    text = shown(quantity.text_of(value))
    where = field_path(path)
    message = f"{where} is {text} without quotes, and Kubernetes takes only strings there"
    fix = f'quote it: {path[-1]}: "{text}"'
    alternatives: Sequence[Sequence[Alternative]] = [[Alternative(fix, {where: (key, text)})]] if key else ()
    if key and key not in request.CHOICES and (value is None or isinstance(value, bool | list | dict)):
        fix = f"write a value of the shorthand, as {path[-1]}{EXAMPLES[key].removeprefix(key)}"
        alternatives = [[Alternative(fix, {where: (key, "1")})]] if key == "gpu" and value else ()
        if value is None or value is False:
            fix = f"remove it, or {fix}"
        elif key not in ASKING:
            fix = f"{fix}, or remove it"
    elif key:
        try:
            KEYS[key](text)
        except QuantityError as error:
            wrong = misread(path, key, error)
            fix, alternatives = wrong.fix, wrong.alternatives
    return Violation(code="GPU001", path=where, message=message, fix=fix, alternatives=alternatives)


def parse(entry: Entry) -> FieldValue | Violation:
    """The value of a key that was found, or the violation (GPU201, GPU001) if it does not parse."""
    key, text, path = entry.key, entry.text, entry.path
    if not isinstance(text, str):
        return no_string(text, path, key)
    try:
        value = FieldValue(KEYS[key](text), field_path(path), shown(text))
    except QuantityError as error:
        return misread(path, key, error)
    if path[1] != "labels" or labels.is_value(text):
        return value
    # The API server takes it in no label; if an annotation can have it, that is the way.
    message = f'"{shown(text)}" cannot be the value of a label: Kubernetes takes {labels.RULE} there'
    fix = f"write {_annotated(key, shown(text))}"
    return Violation(code="GPU001", path=value.path, message=message, fix=fix)


def _annotated(key: str, text: str) -> str:
    """How a fix says that a value belongs into an annotation, as no label can hold it."""
    return f"it as an annotation: {pasteable(_qualified(key), text)}"


def _qualified(key: str) -> str:
    """A key of the shorthand as an annotation of the pod has it."""
    return "gpu" if key == "gpu" else PREFIX + key.removeprefix("gpu-")


def misread(path: Path, name: str, error: QuantityError) -> Violation:
    """The violation (GPU201) for a value that does not parse."""
    where = field_path(path)

    def write(text: str) -> str:
        if path[0] == "metadata":
            legal = path[1] != "labels" or labels.is_value(text)
            return f"write {request.as_string(text) if legal else _annotated(name, text)}"
        count, times, share = text.partition("x")
        if not times:
            return f"write {text}"
        percent = show(100 * quantity.exact(share))
        return f"write {PREFIX}gpu: {count} and {PERCENT}: {percent} instead of {name}"

    parts = [text.partition(", or") for text in error.meant]
    meant = [Alternative(f"{write(text)}{more}{rest}", {where: (name, text)}) for text, more, rest in parts]
    fix = joined(value.text for value in meant) or error.fix
    if isinstance(error, OtherKeyError):
        # The other key in the place of this one.
        key, own = str(path[-1]), error.key
        if container := key.partition(SUFFIX)[2]:
            own = annotation(own, container)
        elif key.startswith(PREFIX) or path[1] == "annotations":
            own = _qualified(own)
        fix = f"remove it, and write {pasteable(own, error.text)}"
        meant = [Alternative(fix, {where: (error.key, error.text)})]
    if "{{" in error.message:
        fix, meant = "render the template first, as by helm template, and write the value", []
    leaving_out = [Alternative("remove it", {where: NOTHING})] if name in request.QUALIFIERS else []
    message, alternatives = f"{name}: {error.message}", [meant, leaving_out] if meant else []
    return Violation(code="GPU201", path=where, message=message, fix=fix, alternatives=alternatives)


# The shorthand in a container's own resources.


def resources(container: Container, instead: Readings) -> tuple[dict[str, FieldValue], list[Violation]]:
    """The shorthand in the container's own resources, by short key, and its violations."""
    stated: dict[str, FieldValue] = {}
    violations: list[Violation] = []
    limits, requests = container.limits, container.requests
    if RESOURCES.isdisjoint(limits) and RESOURCES.isdisjoint(requests):
        return stated, violations
    for name in sorted(RESOURCES & (limits.keys() | requests.keys())):
        section = "limits" if name in limits else "requests"
        limit = limits.get(name, requests.get(name))
        path = (*container.path, "resources", section, name)
        where, text = field_path(path), quantity.text_of(limit)
        if not quantity.same(limit, requests.get(name, limit)):
            violations.append(overcommitted(container, name))
        key, text = instead.get(where, (name, text))
        if not key:
            continue
        try:
            read = KEYS.get(key) if "x" in text and instead else None  # `2x0.75` is tried, and written in two lines
            value = FieldValue(read(text) if read else _shorthand_amount(key, text), where, as_written(text))
        except QuantityError as error:
            violations.append(misread(path, name, error))
        else:
            violations += merge(stated, {_RESOURCES.get(key, key): value})
    # `gpu-webhook.io/gpu: 2` with `/percent: 50` is two halves.
    percent, devices = stated.pop("percent", None), stated.get("gpu")
    if percent is None:
        return stated, violations
    if devices and (devices.value is None or devices.value.share):
        return stated, [*violations, contradiction("gpu", devices, percent)]
    count = devices.value.count if devices else 1
    return stated | {"gpu": FieldValue(Devices(count, percent.value), percent.path, percent.text)}, violations


def as_written(text: str) -> str:
    """A number as its author wrote it, of the API server's form: `0.3` for `300m`."""
    try:
        return quantity.show(quantity.served(text))
    except QuantityError:
        return shown(text)


def _shorthand_amount(name: str, text: str) -> Any:
    """The value of a resource, or of another key that is tried in its place; raises QuantityError."""
    key = _RESOURCES.get(name, name)
    if key == "percent":
        try:
            percent = quantity.served(text)
            message = f"{as_written(text)} is not a percentage of one GPU"
        except QuantityError as error:
            percent, message = quantity.nearly(quantity.tidied(text)) or Fraction(0), error.message
        else:
            if 1 <= percent < 100:
                return percent / 100
        fix = f"write 1 to 99, or {PREFIX}gpu: 1 instead of {PERCENT}"
        meant = [show(100 * percent)] if Fraction(1, 100) <= percent < 1 else []
        raise QuantityError(message, "" if meant else fix, meant)
    if key == "gpu-cores":
        return request.cores(text, quantity.served)
    if key != "gpu":
        return KEYS[key](text)
    # A number of devices in a resource, which cannot hold `2x0.75`.
    try:
        number = quantity.served(text)
    except QuantityError as error:
        other = request.not_devices(text, error.message)
        decimal = all(meant.replace(".", "").replace("x", "").isdecimal() for meant in other.meant or "?")
        raise (other if decimal or isinstance(other, OtherKeyError) else error) from None
    return request.devices_from(1, number)


def overcommitted(container: Container, name: str) -> Violation:
    """A request that differs from its limit (GPU401), both fields and values named."""
    path = (*container.path, "resources")
    limits, requests = (field_path((*path, section, name)) for section in ("limits", "requests"))
    present = (container.limits[name], container.requests[name])
    limit, requested = (as_written(quantity.text_of(amount)) for amount in present)
    message = f"{requests} is {requested}, and {limits} is {limit}: GPUs cannot be overcommitted"
    fix = f"remove {name} from requests; it will equal the limit"
    return Violation(code="GPU401", path=requests, message=message, fix=fix)


def merge(into: dict[str, FieldValue], more: Mapping[str, FieldValue]) -> list[Violation]:
    """Add the values of other places of the same rank; the violations (GPU202) for those that differ."""
    differing: list[Violation] = []
    for key, field_value in more.items():
        present = into.setdefault(key, field_value)
        if present.value != field_value.value:
            differing.append(contradiction(key, present, field_value))
    return differing


def contradiction(key: str, field: FieldValue, other: FieldValue) -> Violation:
    """Two places that ask for different things, both named."""
    first, second = sorted((field, other), key=lambda stated: stated.path)
    message = f"two places ask for a different {key}: {first}, and {second}"
    ways = [Alternative(f"remove {field.path}", {field.path: NOTHING}) for field in (first, second)]
    return exclusive("GPU202", second.path, message, ways)


def exclusive(code: str, path: str, message: str, ways: Sequence[Alternative]) -> Violation:
    """A violation of which any of some ways is the end."""
    fix = joined(way.text for way in ways)
    return Violation(code=code, path=path, message=message, fix=fix, alternatives=[ways])


# Hints for labels and annotations that begin like the shorthand and are read by nothing.

BEGINNINGS: Final = tuple(map("".join, product("gG", "pP", "uU")))
"""How a key of the shorthand begins, in any capitals."""

MOST_HINTS: Final = 8
"""How many keys get a hint."""

_SHARES: Final = frozenset({"fraction", "fractions", "share", "shares", "portion", "part", "percent", "percentage"})
_SPELLINGS: Final[Mapping[str, str]] = {
    "gpu": "s count counts num number nums quantity amount device devices card cards limit limits request requests"
    " req total units size",
    "gpu-memory": "mem vram ram memsize memorysize memlimit memorylimit memories memgb memgib memmb memmib memorygb"
    " memorymb memorymib memorygib framebuffer",
    "gpu-cores": "core compute sm sms util utilization corepercent corepercentage corelimit corelimits",
    "gpu-model": "type types product name kind cardtype cardmodel class sku models accelerator generation family",
    "gpu-profile": "profiles slice slices mig migprofile partition partitions instance",
    "gpu-sharing": "sharingstrategy sharingmode sharemode mode strategy shared",
    "gpu-backend": "backends provider system plugin scheduler",
    "gpu-claim": "claims claimname claimtemplate resourceclaim",
    "gpu-container": "containers containername fractioncontainername",
    "gpu-tflops": "tflop flops teraflops",
    "gpu-placement": "policy schedulingpolicy schedulerpolicy spread binpack topology",
}
"""What other systems and people write after `gpu` for each key, in small letters without dashes."""

_HEADS: Final = ("n", "nr", "num", "number-of", "count", "request", "requests", "limit", "v", "x")
"""What other systems and people write before `gpu`."""

_KEY_OF: Final = {
    **dict.fromkeys(("", *_SHARES), "gpu"),
    **{word: key for key in KEYS for word in (key.removeprefix("gpu-"), *_SPELLINGS[key].split())},
}
_LETTERS: Final = re.compile("[^a-z0-9]")
_LIKE_OURS: Final = re.compile("gpu[-_.]?webhook")


def hints_of_keys(pod: Pod, rulebook: Rulebook, nearest: Nearest) -> list[str]:
    """A warning for each label, annotation or resource that begins with `gpu` and is read by nothing, up to MOST."""
    strange = [
        (section, kind, key, value)
        for section, kind in METADATA
        for key, value in getattr(pod, section).items()
        if (
            (key.startswith(BEGINNINGS) and ("/" not in key or _LIKE_OURS.match(key)))
            or (kind == "label" and SUFFIX in key)
            or key in lookalikes(rulebook)
        )
        if not (key in _SHORT[kind] or request.is_key(kind, key) or key in _read_by_rules(kind, rulebook))
    ]
    hints = [
        f"{field_path(('metadata', section, shown(key)))}: nothing here reads this {kind}. "
        f"{_wish(kind, key, str(value), rulebook, nearest)}"
        for section, kind, key, value in strange[:MOST_HINTS]
    ]
    if len(strange) > MOST_HINTS:
        more = len(strange) - MOST_HINTS
        hints.append(f"{more} more labels and annotations begin with gpu, and nothing here reads them")

    # Resources without a domain, which the API server will refuse.
    plain = (
        (container, section, name)
        for container in pod.containers
        for section, amounts in (("limits", container.limits), ("requests", container.requests))
        for name in amounts
        if name.startswith(BEGINNINGS) and "/" not in name and name not in RESOURCES
    )
    for container, section, name in islice(plain, MOST_HINTS):
        meant = _meant(name, nearest)[0]
        write = meant if meant in RESOURCES else "gpu, gpu-memory or gpu-cores"
        if meant and meant not in RESOURCES:
            amount = quantity.text_of(getattr(container, section)[name])
            write = f"the annotation {pasteable(annotation(meant, container.name), shown(amount))} instead"
        path = field_path((*container.path, "resources", section, shown(name)))
        hints.append(f"{path}: Kubernetes takes no such resource. Write {write}")
    return hints


@kept
def lookalikes(rulebook: Rulebook) -> Mapping[str, str]:
    """The keys meant by names of resources, `num-gpus`, or `acme-gpu` with a vendor."""
    heads = [*_HEADS, *{card.vendor for card in rulebook.devices.values()}]
    spelled = map("".join, product(heads, ("", "-", "_", "."), ("gpu", "Gpu", "GPU"), ("", "s")))
    keys = dict.fromkeys(spelled, "gpu")
    for name, resource in rulebook.resources.items():
        if "gpu" in name.lower() and not isinstance(name, Slot):
            keys[name] = "gpu-memory" if resource.memory_unit or resource.in_bytes else "gpu"
    return keys


def _read_by_rules(kind: SlotKind, rulebook: Rulebook) -> Collection[str]:
    """The labels or annotations that a rule or a policy reads or writes; found once for each rulebook."""
    keys: Collection[str] | None = rulebook.cache.get((_read_by_rules, kind))
    if keys is None:
        writers: list[Any] = [*rulebook.tenancy.policies]
        for backend in rulebook.enabled:
            writers += [backend.inject.outputs, *(mode.outputs for mode in backend.modes)]
        written = [writer.labels if kind == "label" else writer.annotations for writer in writers]
        keys = frozenset((NOTE, DEFAULT_CONTAINER)).union(rulebook.slots[kind], rulebook.annotations, *written)
        rulebook.cache[_read_by_rules, kind] = keys
    return keys


def _wish(kind: SlotKind, key: str, text: str, rulebook: Rulebook, nearest: Nearest) -> str:
    """What to do about a key: what to write instead, or what it may have been meant for."""
    if SUFFIX in key:
        return f"Write it as an annotation: {pasteable(key, text)}"
    meant, sure = lookalikes(rulebook).get(key, ""), True
    name = key.partition("/")[2]  # in another domain
    plain = f"gpu-{name.removeprefix('gpu-')}" if name else key
    if not meant:
        meant, sure = _meant(plain, nearest)
    if not meant:
        return 'It asks for no GPU; a pod asks with gpu: "1"'
    # The key and value to write, in the same place; an example if the value is none of that key.
    written = EXAMPLES[meant]
    with suppress(QuantityError):
        text = _share(plain[len("gpu") :], text) or text
        value = KEYS[meant](text)
        written = pasteable(meant, str(value) if isinstance(value, Devices) and "%" in text else text)
    if kind == "annotation" and meant != "gpu":
        written = PREFIX + written.removeprefix("gpu-")
    owner = rulebook.all_slots[kind].get(key)
    if owner is not None:
        names = " or ".join(backend.name for backend in owner.known[:2])
        return f"It belongs to {names}, which this cluster does not enable. Write {written}"
    return f"Write {written}" if sure else f"Did you mean {written}?"


def _meant(key: str, nearest: Nearest) -> tuple[str, bool]:
    """The key of the shorthand that a key stands for, empty if none; and whether it is certain."""
    certain = _KEY_OF.get(_LETTERS.sub("", key.lower())[len("gpu") :])
    return certain or nearest.word(key.replace("_", "-"), KEYS, cutoff=0.8), certain is not None


def _share(word: str, text: Any) -> str:
    """The part of a device that a value of `percent` or `fraction` means, else an example; empty for other words."""
    if _LETTERS.sub("", word.lower()) not in _SHARES:
        return ""
    number = quantity.nearly(quantity.tidied(quantity.text_of(text))) or Fraction(0)
    number = number / 100 if number > 1 else number  # 50 percent are no 50 devices
    return show(number) if 0 < number <= 1 else "0.3"
