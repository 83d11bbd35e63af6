"""Resources that look like GPUs and that no rule knows, so that no quota can count them.

A resource looks like a GPU if its domain is one of those in which back ends have resources, enabled or not, if a word
of its name says so, if a catalogue lists it (`resources`), or if it is a device class, whose name tells nothing for
sure. Those that are none are listed as data: `otherDevices` of back ends and of the cluster.

Annotations and labels that ask back ends which are not enabled are treated like these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, Final, NamedTuple

from webhook.core.forms.document import closest
from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.fields import field_path
from webhook.core.kube.pod import EPHEMERAL, Pod
from webhook.core.kube.quantity import shown
from webhook.core.plan.plan import DEFAULT_SCHEDULER
from webhook.core.rules.backend import Backend
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Resource, Rulebook, kept
from webhook.core.rules.tenant_policy import Tenancy, TenantPolicy
from webhook.core.rules.verbs import CONTAINER, METADATA, Slot, SlotKind
from webhook.core.violations import LATER_FIX, Action, Violation

WORDS: Final = ("gpu", "npu", "tpu", "xpu", "mlu", "dcu", "gcu")
"""A word of a name that begins or ends with one of these is that of a GPU, as `vgpu` or `gpumem`; `input` is not."""

_WORD = re.compile("[a-z]+")
_WILD = re.compile(r"[*?]|\[[^]]*\]")


class UnknownDevice(NamedTuple):
    """What a pod asks for and nothing counts: a resource, or the slot of an annotation or label.

    path     the field path where the pod asks for it
    message  what is wrong
    fix      what the pod's author can do
    """

    name: str
    path: str
    message: str
    fix: str


class _Names(NamedTuple):
    """What tells GPUs from other devices.

    domains  those of the back ends' resources, and those that catalogues list as a whole
    listed   a pattern of resources that catalogues list, in lower case; `parts` of them are in every such name
    others   patterns of resources that back ends list as no GPUs, or Protections as ways to all, each with the
             words of a GPU that it has itself
    sites    a pattern of those that the cluster lists
    """

    domains: frozenset[str]
    listed: re.Pattern[str]
    parts: frozenset[str]
    others: Sequence[tuple[re.Pattern[str], frozenset[str]]]
    sites: re.Pattern[str]


def find(pod: Pod, rulebook: Rulebook) -> Iterator[UnknownDevice]:
    """The unknown devices of a pod's containers, each name once."""
    looked: set[str] = set()
    for container in pod.containers:
        for section in (container.limits, container.requests) if container.kind != EPHEMERAL else ():
            for name, amount in section.items():
                if name in looked or "/" not in name or name in rulebook.resources or str(amount) == "0":
                    continue
                looked.add(name)
                if not looks_like_a_gpu(name, rulebook):
                    continue
                # The fix names the most similar resource, of an enabled back end if one has any.
                resources = {key: there for key, there in rulebook.resources.items() if not isinstance(key, Slot)}
                enabled = [key for key, there in resources.items() if there.owners]
                near = next((key for key in enabled if name.startswith(f"{key}.")), "")
                near = near or closest(name, enabled) or closest(name, [*resources])
                instead = f"{near} instead" if near else 'gpu: "1" instead'
                if near and not resources[near].owners:
                    disabled = resources[near].known[0].name
                    instead = f"{near}, once spec.backends of the Cluster document enables {disabled}"
                yield UnknownDevice(
                    name=name,
                    path=extended_resources.where(container, name),
                    message=f'the container "{container.name}" asks for {shown(name)}, which looks like a GPU, '
                    "and no rule knows it, so nothing counts it",
                    fix=f"ask for {instead}, or have it listed in the Cluster document under otherDevices if it is "
                    "no GPU",
                )


def looks_like_a_gpu(name: str, rulebook: Rulebook) -> bool:
    """Whether a resource that no rule knows is probably a GPU: by domain, words, or a catalogue, or as a class."""
    if name in locations.RESOURCES or is_another(name, rulebook):
        return False
    names = _names(rulebook)
    if name.startswith(extended_resources.DEVICE_CLASS) or _words(name) or names.listed.match(name.lower()):
        return True
    domain = name.partition("/")[0]
    return domain in names.domains and not f".{domain}".endswith(".kubernetes.io")


def may_be_in(names: str, rulebook: Rulebook) -> bool:
    """Whether a text of very many names, in lower case, may have an unknown device. It is quick; its no is sure."""
    gpu_names = _names(rulebook)
    parts = (*WORDS, extended_resources.DEVICE_CLASS, *gpu_names.parts)
    return any(part in names for part in parts) or any(f"{domain}/" in names for domain in gpu_names.domains)


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
    parts = _words(name)
    return any(parts <= words and glob.match(name) for glob, words in names.others)


@kept
def _names(rulebook: Rulebook) -> _Names:
    def pattern(globs: Iterable[str]) -> re.Pattern[str]:
        return re.compile("|".join(map(translate, globs)) or "(?!)")

    domains = {name.partition("/")[0] for name in rulebook.resources if not isinstance(name, Slot)}
    whole = {glob.removesuffix("/*") for glob in rulebook.uncounted if glob.endswith("/*")}
    globs = {glob for backend in rulebook.backends.values() for glob in backend.other_devices}
    globs.update(*(protection.resources for protection in rulebook.protections))
    return _Names(
        domains=frozenset(domains | {domain for domain in whole if not _WILD.search(domain)}),
        listed=pattern(rulebook.uncounted),
        parts=frozenset(max(_WILD.split(glob), key=len) for glob in rulebook.uncounted),
        others=[(pattern([glob]), _words(glob)) for glob in globs],
        sites=pattern(rulebook.cluster.other_devices),
    )


def action(policy: TenantPolicy | None, cluster: Cluster) -> Action:
    """What becomes of a pod with a device that nothing can count.

    What the policy or the Cluster document says; else what becomes of a pod that is over the quota, and without one
    a warning.
    """
    access = (policy and policy.unknown_devices) or cluster.unknown_devices
    return access or (policy.quota.action if policy and policy.quota else "warn")


def refused_by_default(tenancy: Tenancy, cluster: Cluster) -> Sequence[str]:
    """The policies, by name, whose quota alone is why unknown devices are refused: nobody has said it."""
    policies = tenancy.policies if cluster.unknown_devices is None and not tenancy.observing else ()
    return [policy.name for policy in policies if not policy.unknown_devices and action(policy, cluster) == "deny"]


def violations(devices: Iterable[UnknownDevice], pod: Pod, rule: str = "") -> Iterator[Violation]:
    """A violation (GPU114) for each of them; `rule` is the line of the policy that minds.

    A pod that was translated may be of a replica with newer rules: its client retries (GPU111).
    """
    newer = locations.NOTE in pod.annotations
    for _, path, message, fix in devices:
        code = "GPU111" if newer else "GPU114"
        yield Violation(code=code, path=path, message=message, fix=LATER_FIX if newer else fix, rule=rule)


# Annotations and labels that ask by themselves for a GPU of a back end that is not enabled: nothing counts it.


def asks_disabled(labels: Mapping[str, Any], annotations: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether any of these asks by itself for a GPU of a back end that is not enabled."""
    return any(_asking("label", labels, rulebook)) or any(_asking("annotation", annotations, rulebook))


def find_disabled(pod: Pod, rulebook: Rulebook) -> Iterator[UnknownDevice]:
    """The labels and annotations of a pod that ask by themselves for a GPU of a back end that is not enabled.

    A back end reads those of pods of its scheduler. One that has a scheduler of its own may be installed with it
    under any name, but for those of others.
    """
    scheduler = pod.spec.get("schedulerName") or DEFAULT_SCHEDULER
    for section, kind in METADATA if any(container.kind == "container" for container in pod.containers) else ():
        for key, number in _asking(kind, getattr(pod, section), rulebook):
            others = {DEFAULT_SCHEDULER, *map(_scheduler, rulebook.enabled)}
            own = {_scheduler(backend) for backend in number.known}
            listens = None in own or scheduler in own or scheduler not in others
            if not listens or is_another(number.name, rulebook):
                continue
            text, disabled = f"{kind} {shown(key)}", " or ".join(backend.name for backend in number.known)
            yield UnknownDevice(
                name=number.name,
                path=field_path(("metadata", section, key)),
                message=f"the {text} asks for a GPU of {disabled}, which this cluster does not enable, so nothing "
                "counts it",
                fix=f'ask for gpu: "1" instead of the {text}, or have spec.backends of the Cluster document enable '
                f'{disabled}, or list "{number.name.replace(CONTAINER, "*")}" there under otherDevices if nothing '
                "gives a GPU for it",
            )


def _scheduler(backend: Backend) -> str | None:
    constant = backend.inject.scheduler
    return str(constant.value) if constant is not None and constant.value else None


def _asking(kind: SlotKind, present: Mapping[str, Any], rulebook: Rulebook) -> Iterator[tuple[str, Resource]]:
    """The keys that ask by themselves and that nothing reads, in order, each with the number of the rule."""
    numbers, heads = _unheard(rulebook)[kind]
    text = "\n".join(present) if heads else ""
    if numbers.keys().isdisjoint(present) and not any(head in text for head in heads):
        return
    for key in sorted(present):
        number = numbers.get(rulebook.as_ruled(key))
        if number is not None:
            yield key, number


@kept
def _unheard(rulebook: Rulebook) -> Mapping[SlotKind, tuple[Mapping[str, Resource], Sequence[str]]]:
    """The numbers that ask by themselves and that no enabled back end reads, by key, for labels and annotations.

    Beside them is how the keys begin that name a container: one search tells that there is none.
    """
    by_kind: dict[SlotKind, tuple[Mapping[str, Resource], Sequence[str]]] = {}
    for kind, slots in rulebook.all_slots.items():
        numbers = {key: slot for key, slot in slots.items() if slot.alone and key not in rulebook.slots[kind]}
        names = (number.name for number in numbers.values())
        by_kind[kind] = numbers, [*{name.head for name in names if isinstance(name, Slot) and name.per_container}]
    return by_kind
