"""Hints for labels and annotations that begin like the shorthand and are read by nothing.

A misspelt key changes nothing, so the pod would start without its GPU, or with a whole one, and nobody would know.
Keys of a domain (`gpu.example/kind`) belong to that domain. Those that a rule or a policy reads are no mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, Final

from webhook.core.forms.document import Nearest
from webhook.core.interpret.locations import DEFAULT_CONTAINER, NOTE, RESOURCES, SUFFIX
from webhook.core.kube.paths import field
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import QuantityError, shown
from webhook.core.request import shorthand
from webhook.core.request.request import PREFIX, Devices
from webhook.core.request.shorthand import EXAMPLES, KEYS, pasteable
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.vocabulary import METADATA, SlotKind

BEGINNINGS: Final = tuple(map("".join, product("gG", "pP", "uU")))
"""How a key of the shorthand begins, in any capitals."""

MOST: Final = 8
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


def of_keys(pod: Pod, rulebook: Rulebook, nearest: Nearest) -> Iterator[str]:
    """A warning for each label or annotation that begins with `gpu` and is read by nothing; MOST of them."""
    strange = [(kind, section, key) for kind, section, key in _like_ours(pod) if not _read(kind, key, rulebook)]
    for kind, section, key in strange[:MOST]:
        wish = _wish(kind, key, getattr(pod, section)[key], rulebook, nearest)
        yield f"{field(('metadata', section, shown(key)))}: nothing here reads this {kind}. {wish}"
    if len(strange) > MOST:
        yield f"{len(strange) - MOST} more labels and annotations begin with gpu, and nothing here reads them"
    yield from islice(_of_resources(pod, nearest), MOST)


def _of_resources(pod: Pod, nearest: Nearest) -> Iterator[str]:
    """A warning for each resource that begins with `gpu` and has no domain, which the API server will refuse."""
    for container in pod.containers:
        for section, amounts in (("limits", container.limits), ("requests", container.requests)):
            for name in amounts:
                if name.startswith(BEGINNINGS) and "/" not in name and name not in RESOURCES:
                    meant, _ = _meant(name, nearest)
                    known = meant if meant in RESOURCES else ", ".join(sorted(RESOURCES))
                    path = field((*container.path, "resources", section, shown(name)))
                    yield f"{path}: Kubernetes takes no such resource. Write {known}"


def _like_ours(pod: Pod) -> Iterator[tuple[SlotKind, str, str]]:
    """The labels and annotations that begin like the shorthand, or have its domain, and are none of its keys."""
    for section, kind in METADATA:
        for key in getattr(pod, section):
            plain = key.startswith(BEGINNINGS) and "/" not in key
            if (plain or (kind == "label" and SUFFIX in key)) and not shorthand.is_key(kind, key):
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
