"""What a back end requires of the rest of a pod, or forbids, and what the webhook never writes itself.

Host namespaces, users and host paths must be set by the pod's author: injecting them would lower security unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from webhook.core.backends.charge import charge
from webhook.core.kube.paths import Path, at, field, mapping, objects
from webhook.core.kube.pod import INIT, SIDECAR, Pod
from webhook.core.kube.quantity import show_size
from webhook.core.plan.choose import Assignment
from webhook.core.rules.modes import Companions
from webhook.core.violations import Violation


def check(pod: Pod, served: Sequence[Assignment]) -> Iterator[Violation]:
    """A violation (GPU503) for each required field that is missing and each forbidden one, once for each back end."""
    by_rule: dict[str, list[Assignment]] = {}
    for one in served:
        if one.mode.companions is not None:
            by_rule.setdefault(one.mode.companions.rule, []).append(one)
    for group in by_rule.values():
        companions = group[0].mode.companions
        if companions is not None:
            owned = group[0].backend.owns
            same = [one for one in served if not owned.isdisjoint(one.amounts)]
            yield from _check(pod, group, companions)
            yield from _together(same, companions)


def _check(pod: Pod, group: Sequence[Assignment], wanted: Companions) -> Iterator[Violation]:
    name = group[0].backend.name
    for word, value in wanted.requires.items():
        yield from (
            _violation(wanted, path, f"{name} needs {what}", f"write {what}, if your cluster allows it")
            for path, what in REQUIRABLE[word](pod, group, value)
        )
    for word in wanted.forbids:
        found = FORBIDDABLE[word](pod, group)
        yield from (_violation(wanted, path, f"{name} does not work with {what}", fix) for path, what, fix in found)
    yield from _reserved(pod, name, wanted)


def _violation(wanted: Companions, path: Path, message: str, fix: str) -> Violation:
    return Violation(code="GPU503", path=field(path), message=message, fix=fix, rule=wanted.rule)


def _reserved(pod: Pod, name: str, wanted: Companions) -> Iterator[Violation]:
    for key in sorted(pod.annotations) if wanted.reserved else ():
        if wanted.reserves(key):
            message = f"the annotation {key} is written by the scheduler of {name}, and by nobody else"
            yield _violation(wanted, ("metadata", "annotations", key), message, f"remove {key}")


def _together(group: Sequence[Assignment], wanted: Companions) -> Iterator[Violation]:
    """The limits on all containers of a pod together."""
    names = [one.asked.container.name for one in group]
    if wanted.containers is not None and len(group) > wanted.containers:
        most = f"{wanted.containers} container{'s' if wanted.containers > 1 else ''} of a pod"
        message = f"{group[0].backend.name} serves {most}; {' and '.join(names)} ask for a GPU"
        yield _violation(wanted, group[-1].asked.container.path, message, "use a pod for each of them")
    if wanted.one_device and len(group) > 1:
        yield from _one_device(group, wanted, names)


def _one_device(group: Sequence[Assignment], wanted: Companions, names: Sequence[str]) -> Iterator[Violation]:
    card = next((one.card for one in group if one.card is not None), None)
    sizes = sum(one.request.memory or 0 for one in group)
    parts = sum((charge(one.request, one.card) for one in group if one.card is not None), Fraction(0))
    too_large = card is not None and sizes > card.memory
    if too_large or parts > 1:
        asked = f"{show_size(sizes)}, and {card.model} has {show_size(card.memory)}" if card and too_large else ""
        message = (
            f"all containers of a pod share one device of {group[0].backend.name}, and {' and '.join(names)} "
            f"together ask for {asked or f'{float(parts):.2f} devices'.replace('.00', '')}"
        )
        yield _violation(wanted, ("spec", "containers"), message, "ask for less, or use two pods")


Required = Iterator[tuple[Path, str]]
Forbidden = Iterator[tuple[Path, str, str]]


def _host_ipc(pod: Pod, _group: Sequence[Assignment], _value: str) -> Required:
    if pod.spec.get("hostIPC") is not True:
        yield ("spec", "hostIPC"), "hostIPC: true"


def _run_as_user(pod: Pod, group: Sequence[Assignment], value: str) -> Required:
    general = _context(pod.spec).get("runAsUser")
    for one in group:
        user = _context(one.asked.container.raw).get("runAsUser", general)
        if str(user) != value:
            path: Path = (*one.asked.container.path, "securityContext", "runAsUser")
            yield path, f"securityContext.runAsUser: {value}"


def _host_path(pod: Pod, group: Sequence[Assignment], value: str) -> Required:
    volumes = [volume for volume in objects(pod.spec.get("volumes")) if at(volume, "hostPath", "path") == value]
    named = {str(volume.get("name")) for volume in volumes}
    for one in group:
        mounts = objects(one.asked.container.raw.get("volumeMounts"))
        if not any(str(mount.get("name")) in named and mount.get("mountPath") == value for mount in mounts):
            path: Path = (*one.asked.container.path, "volumeMounts")
            yield path, f"the hostPath volume {value}, mounted at the same path"


REQUIRABLE: Final[Mapping[str, Callable[[Pod, Sequence[Assignment], str], Required]]] = {
    "hostIPC": _host_ipc,
    "runAsUser": _run_as_user,
    "hostPath": _host_path,
}
"""The words of `requires:`. Each yields the path and the name of what is missing."""


def _privileged(pod: Pod, _group: Sequence[Assignment]) -> Forbidden:
    for container in pod.containers:
        if _context(container.raw).get("privileged") is True:
            path: Path = (*container.path, "securityContext", "privileged")
            yield path, f'the privileged container "{container.name}"', "leave privileged out"


def _node_name(pod: Pod, _group: Sequence[Assignment]) -> Forbidden:
    if pod.spec.get("nodeName"):
        fix = "leave nodeName out; a node affinity on kubernetes.io/hostname selects a node, too"
        yield ("spec", "nodeName"), "spec.nodeName, which passes its scheduler by", fix


def _init_containers(_pod: Pod, group: Sequence[Assignment]) -> Forbidden:
    for one in group:
        container = one.asked.container
        if container.kind in {INIT, SIDECAR}:
            yield container.path, f'init containers, and "{container.name}" is one', "ask in a container"


FORBIDDABLE: Final[Mapping[str, Callable[[Pod, Sequence[Assignment]], Forbidden]]] = {
    "privileged": _privileged,
    "nodeName": _node_name,
    "initContainers": _init_containers,
}
"""The words of `forbids:`. Each yields the path, the name and the fix of what is there."""


def _context(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(holder, "securityContext")
