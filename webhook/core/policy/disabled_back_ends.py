"""Annotations and labels that ask by themselves for a GPU of a back end that is not enabled: nothing counts it.

The back end's scheduler may be installed all the same. So these are unknown devices, too, unless the pod's scheduler
is one that does not read them, or the Cluster document lists them under `otherDevices`: as `annotation KEY`, with `*`
for the name of a container.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.core.kube.paths import field
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import shown
from webhook.core.plan.inject import DEFAULT_SCHEDULER
from webhook.core.policy.unknown_devices import UnknownDevice, is_another
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.vocabulary import CONTAINER, METADATA, Slot, SlotKind


def asked(labels: Mapping[str, Any], annotations: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether any of these asks by itself for a GPU of a back end that is not enabled."""
    return any(_asking("label", labels, rulebook)) or any(_asking("annotation", annotations, rulebook))


def find(seen: Pod, rulebook: Rulebook) -> Iterator[UnknownDevice]:
    """The labels and annotations of a pod that ask by themselves for a GPU of a back end that is not enabled."""
    scheduler = seen.spec.get("schedulerName") or DEFAULT_SCHEDULER
    for section, kind in METADATA if any(one.kind == "container" for one in seen.containers) else ():
        for key, number in _asking(kind, seen.labels if kind == "label" else seen.annotations, rulebook):
            listens = any(_reads(backend, scheduler, rulebook) for backend in number.known)
            if listens and not is_another(number.name, rulebook):
                yield _unknown(f"{kind} {shown(key)}", field(("metadata", section, key)), number)


def _unknown(said: str, path: str, number: Resource) -> UnknownDevice:
    disabled = " or ".join(backend.name for backend in number.known)
    return UnknownDevice(
        name=number.name,
        path=path,
        message=f"the {said} asks for a GPU of {disabled}, which this cluster does not enable, so nothing counts it",
        fix=f'ask for gpu: "1" instead of the {said}, or have spec.backends of the Cluster document enable '
        f'{disabled}, or list "{number.name.replace(CONTAINER, "*")}" there under otherDevices if nothing gives a '
        "GPU for it",
    )


def _reads(backend: Backend, scheduler: str, rulebook: Rulebook) -> bool:
    """Whether a back end may read annotations and labels of pods of a scheduler.

    One that has a scheduler of its own may be installed with it under any name, but for those of others.
    """
    own = _scheduler(backend)
    others = {DEFAULT_SCHEDULER, *map(_scheduler, rulebook.enabled)}
    return own is None or scheduler == own or scheduler not in others


def _scheduler(backend: Backend) -> str | None:
    constant = backend.inject.scheduler
    return str(constant.value) if constant is not None and constant.value else None


class _Unread(NamedTuple):
    """The numbers in labels or in annotations that ask by themselves and that nothing reads, by the key of the rule.

    `heads` are how the keys begin that name a container.
    """

    numbers: Mapping[str, Resource]
    heads: tuple[str, ...]


def _asking(kind: SlotKind, present: Mapping[str, Any], rulebook: Rulebook) -> Iterator[tuple[str, Resource]]:
    """The keys that ask by themselves and that nothing reads, in order; one search tells that there is none."""
    numbers, heads = _unread(rulebook)[kind]
    text = "\n".join(present) if heads else ""
    if numbers.keys().isdisjoint(present) and not any(head in text for head in heads):
        return
    for key in sorted(present):
        number = numbers.get(rulebook.as_ruled(key))
        if number is not None:
            yield key, number


def _unread(rulebook: Rulebook) -> Mapping[SlotKind, _Unread]:
    known: Mapping[SlotKind, _Unread] | None = rulebook.cache.get(_Unread)
    if known is None:
        known = rulebook.cache[_Unread] = {kind: _unread_of(kind, rulebook) for kind in rulebook.all_slots}
    return known


def _unread_of(kind: SlotKind, rulebook: Rulebook) -> _Unread:
    slots = rulebook.all_slots[kind].items()
    numbers = {key: one for key, one in slots if one.alone and key not in rulebook.slots[kind]}
    names = (number.name for number in numbers.values())
    return _Unread(numbers, tuple({name.head for name in names if isinstance(name, Slot) and name.per_container}))
