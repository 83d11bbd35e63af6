"""Resources that look like GPUs and that no rule knows, so that no quota can count them.

A resource looks like a GPU if its domain is one of those in which back ends have resources, enabled or not, if a word
of its name says so, or if a catalogue lists it (`resources`). Those that are none are listed as data: `otherDevices`
of back ends and of the cluster.

An annotation or label that asks by itself for a GPU of a back end which is not enabled is one, too, unless the pod's
scheduler is one that does not read it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from itertools import islice
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import closest
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube.pod import EPHEMERAL, Container, Pod
from webhook.core.kube.quantity import shown
from webhook.core.plan.inject import DEFAULT_SCHEDULER
from webhook.core.rules.backend import Backend
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Resource, Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.rules.vocabulary import Slot, SlotKind
from webhook.core.violations import LATER_FIX, Action, Violation

WORDS: Final = ("gpu", "npu", "tpu", "xpu", "mlu", "dcu", "gcu")
"""A word of a name that begins or ends with one of these is that of a GPU, as `vgpu` or `gpumem`; `input` is not."""

LISTED: Final = 3
"""How many unknown resources are looked for: one is enough for a refusal, and a hostile pod may have thousands."""

_WORD = re.compile("[a-z]+")
_WILD = re.compile(r"[*?]|\[[^]]*\]")


class UnknownDevice(NamedTuple):
    """A resource that looks like a GPU and that no rule knows, with the first container that has it.

    Or the slot of an annotation or label of a back end that is not enabled, with the pod's first container.
    """

    container: Container
    name: str


class _Names(NamedTuple):
    """What tells GPUs from other devices.

    domains  those of the back ends' resources, and those that catalogues list as a whole
    listed   a pattern of resources that catalogues list, in lower case; `parts` of them are in every such name
    others   patterns of resources that back ends list as no GPUs, each with the words of a GPU that it has itself
    sites    a pattern of those that the cluster lists
    """

    domains: frozenset[str]
    listed: re.Pattern[str]
    parts: frozenset[str]
    others: Sequence[tuple[re.Pattern[str], frozenset[str]]]
    sites: re.Pattern[str]


def find(seen: Pod, rulebook: Rulebook) -> Sequence[UnknownDevice]:
    """The unknown devices of a pod, the first LISTED."""
    return [*islice(_find(seen, rulebook), LISTED)]


def _find(seen: Pod, rulebook: Rulebook) -> Iterator[UnknownDevice]:
    looked: set[str] = set()
    for container in seen.containers:
        for section in (container.limits, container.requests) if container.kind != EPHEMERAL else ():
            for name, amount in section.items():
                if name in looked or "/" not in name or name in rulebook.resources or str(amount) == "0":
                    continue
                looked.add(name)
                if _looks_like_a_gpu(name, rulebook):
                    yield UnknownDevice(container, name)
    yield from said(seen, rulebook)


def says_it(labels: Mapping[str, Any], annotations: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether any of these asks by itself for a GPU of a back end that is not enabled."""
    unread = _unread(rulebook)
    return not unread["label"].keys().isdisjoint(labels) or not unread["annotation"].keys().isdisjoint(annotations)


def said(seen: Pod, rulebook: Rulebook) -> Iterator[UnknownDevice]:
    """The labels and annotations that ask by themselves for a GPU of a back end that is not enabled."""
    first = next((one for one in seen.containers if one.kind == "container"), None)
    if first is None or not says_it(seen.labels, seen.annotations, rulebook):
        return
    scheduler = seen.spec.get("schedulerName") or DEFAULT_SCHEDULER
    for kind, numbers in _unread(rulebook).items():
        present = seen.labels if kind == "label" else seen.annotations
        for key in sorted(numbers.keys() & present.keys()):
            name = numbers[key].name
            listens = any(_reads(backend, scheduler, rulebook) for backend in numbers[key].known)
            if listens and not is_another(name, rulebook):
                yield UnknownDevice(first, name)


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


def _unread(rulebook: Rulebook) -> Mapping[SlotKind, Mapping[str, Resource]]:
    """The numbers in labels and annotations that ask by themselves, and that nothing reads; by kind and key."""
    known: Mapping[SlotKind, Mapping[str, Resource]] | None = rulebook.cache.get(_unread)
    if known is None:
        known = rulebook.cache[_unread] = {
            kind: {key: one for key, one in slots.items() if one.alone and key not in rulebook.slots[kind]}
            for kind, slots in rulebook.all_slots.items()
        }
    return known


def _looks_like_a_gpu(name: str, rulebook: Rulebook) -> bool:
    domain, _, local = name.partition("/")
    if name in locations.RESOURCES or is_another(name, rulebook):
        return False
    names = _names(rulebook)
    if name.startswith(DEVICE_CLASS):  # a class is called after its driver's domain, as gpu.acme.example
        return bool(_words(local)) or any(f".{local}".endswith(f".{known}") for known in names.domains)
    if _words(name) or names.listed.match(name.lower()):
        return True
    return domain in names.domains and not f".{domain}".endswith(".kubernetes.io")


def may_be_in(names: str, rulebook: Rulebook) -> bool:
    """Whether a text of very many names, in lower case, may have an unknown device. It is quick; its no is sure."""
    known = _names(rulebook)
    return any(part in names for part in (*WORDS, *known.parts)) or any(f"{one}/" in names for one in known.domains)


def _words(name: str) -> frozenset[str]:
    """The words of a name that tell a GPU."""
    return frozenset(w for w in _WORD.findall(name.lower()) if w.startswith(WORDS) or w.endswith(WORDS))


def is_another(name: str, rulebook: Rulebook) -> bool:
    """Whether a resource is listed as one that is no GPU.

    A glob of a back end says nothing of names in which its wildcard stands for a word that tells a GPU.
    """
    names = _names(rulebook)
    if names.sites.match(name):
        return True
    said = _words(name)
    return any(said <= words and glob.match(name) for glob, words in names.others)


def _names(rulebook: Rulebook) -> _Names:
    known: _Names | None = rulebook.cache.get(_Names)
    if known is None:
        domains = {name.partition("/")[0] for name in rulebook.resources if not isinstance(name, Slot)}
        whole = {glob.removesuffix("/*") for glob in rulebook.uncounted if glob.endswith("/*")}
        globs = dict.fromkeys(glob for backend in rulebook.backends.values() for glob in backend.other_devices)
        known = rulebook.cache[_Names] = _Names(
            domains=frozenset(domains | {domain for domain in whole if not _WILD.search(domain)}),
            listed=_any_of(rulebook.uncounted),
            parts=frozenset(max(_WILD.split(glob), key=len) for glob in rulebook.uncounted),
            others=[(_any_of([glob]), _words(glob)) for glob in globs],
            sites=_any_of(rulebook.cluster.other_devices),
        )
    return known


def _any_of(globs: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, globs)) or "(?!)")


def action(policy: TenantPolicy | None, cluster: Cluster) -> Action:
    """What becomes of a pod with a device that nothing can count.

    What the policy or the Cluster document says; else what becomes of a pod that is over the quota, and without one
    a warning.
    """
    said = (policy and policy.unknown_devices) or cluster.unknown_devices
    return said or (policy.quota.action if policy and policy.quota else "warn")


def refused_by_default(tenancy: Tenancy, cluster: Cluster) -> Sequence[str]:
    """The policies, by name, whose quota alone is why unknown devices are refused: nobody has said it."""
    policies = tenancy.policies if cluster.unknown_devices is None else ()
    return [each.name for each in policies if not each.unknown_devices and action(each, cluster) == "deny"]


def violations(found: Iterable[UnknownDevice], seen: Pod, rulebook: Rulebook, rule: str = "") -> Iterator[Violation]:
    """A violation (GPU114) for each of them; `rule` is the line of the policy that minds.

    A pod that was translated may be of a replica with newer rules: its client retries (GPU111).
    """
    newer = locations.NOTE in seen.annotations
    for container, name in found:
        message = (
            f'the container "{container.name}" asks for {shown(name)}, which looks like a GPU, and no rule knows it, '
            "so nothing counts it"
        )
        if isinstance(name, Slot):
            message = (
                f"the {name.kind} {name.key} asks for a GPU of {_backends(name, rulebook)}, which this cluster does "
                "not enable, so nothing counts it"
            )
        yield Violation(
            code="GPU111" if newer else "GPU114",
            path=extended_resources.where(container, name),
            message=message,
            fix=LATER_FIX if newer else _fix(name, rulebook),
            rule=rule,
        )


def _backends(name: Slot, rulebook: Rulebook) -> str:
    return " or ".join(backend.name for backend in rulebook.resources[name].known)


def _fix(name: str, rulebook: Rulebook) -> str:
    if isinstance(name, Slot):
        return (
            "ask for a GPU in shorthand, as gpu: 1, or have spec.backends of the Cluster document enable "
            f'{_backends(name, rulebook)}, or list "{name}" there under otherDevices if nothing gives a GPU for it'
        )
    known = [each for each in rulebook.resources.values() if not isinstance(each.name, Slot)]
    near = closest(name, [each.name for each in known if each.owners]) or closest(name, [each.name for each in known])
    listed = "or have it listed in the Cluster document under otherDevices if it is no GPU"
    if not near:
        return f"ask for a GPU in shorthand, as gpu: 1, {listed}"
    owners = rulebook.resources[near].owners
    if owners:
        return f"ask for {near}, of {owners[0].name}, {listed}"
    disabled = rulebook.resources[near].known[0].name
    return f"ask for {near}, once spec.backends of the Cluster document enables {disabled}, {listed}"
