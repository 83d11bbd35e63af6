"""What a back end needs of the rest of a pod, or cannot live with, and the webhook never writes itself.

Host namespaces, users and host paths are the author's to ask for: injecting them would lower security unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from webhook.core.backend import Companions
from webhook.core.charge import charge
from webhook.core.choice import Served
from webhook.core.fields import Path, field
from webhook.core.pod import Pod
from webhook.core.quantity import show_size
from webhook.core.violations import Violation


def check(pod: Pod, served: Sequence[Served]) -> Iterator[Violation]:
    """A violation (GPU503) for each thing that is missing or must not be there, said once for each back end."""
    by_rule: dict[str, list[Served]] = {}
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


def _check(pod: Pod, group: Sequence[Served], wanted: Companions) -> Iterator[Violation]:
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
        if any(key == word or (word[-1:] == "*" and key.startswith(word[:-1])) for word in wanted.reserved):
            message = f"the annotation {key} is written by the scheduler of {name}, and by nobody else"
            yield _violation(wanted, ("metadata", "annotations", key), message, f"remove {key}")


def _together(group: Sequence[Served], wanted: Companions) -> Iterator[Violation]:
    """What the containers of a pod may be only together."""
    names = [one.asked.container.name for one in group]
    if wanted.containers is not None and len(group) > wanted.containers:
        most = f"{wanted.containers} container{'s' if wanted.containers > 1 else ''} of a pod"
        message = f"{group[0].backend.name} serves {most}; {' and '.join(names)} ask for a GPU"
        yield _violation(wanted, group[-1].asked.container.path, message, "use a pod for each of them")
    if wanted.one_device and len(group) > 1:
        yield from _one_device(group, wanted, names)


def _one_device(group: Sequence[Served], wanted: Companions, names: Sequence[str]) -> Iterator[Violation]:
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


def _host_ipc(pod: Pod, _group: Sequence[Served], _value: str) -> Required:
    if pod.spec.get("hostIPC") is not True:
        yield ("spec", "hostIPC"), "hostIPC: true"


def _run_as_user(pod: Pod, group: Sequence[Served], value: str) -> Required:
    general = _context(pod.spec).get("runAsUser")
    for one in group:
        user = _context(one.asked.container.raw).get("runAsUser", general)
        if str(user) != value:
            path: Path = (*one.asked.container.path, "securityContext", "runAsUser")
            yield path, f"securityContext.runAsUser: {value}"


def _host_path(pod: Pod, group: Sequence[Served], value: str) -> Required:
    volumes = pod.spec.get("volumes")
    named = {
        volume.get("name")
        for volume in (volumes if isinstance(volumes, list) else ())
        if isinstance(volume, dict) and _mapping(volume.get("hostPath")).get("path") == value
    }
    for one in group:
        mounts = one.asked.container.raw.get("volumeMounts")
        found = [mount for mount in (mounts if isinstance(mounts, list) else ()) if isinstance(mount, dict)]
        if not any(mount.get("name") in named and mount.get("mountPath") == value for mount in found):
            path: Path = (*one.asked.container.path, "volumeMounts")
            yield path, f"the hostPath volume {value}, mounted at the same path"


REQUIRABLE: Final[Mapping[str, Callable[[Pod, Sequence[Served], str], Required]]] = {
    "hostIPC": _host_ipc,
    "runAsUser": _run_as_user,
    "hostPath": _host_path,
}
"""What `requires:` may name; each yields where something is missing, and what."""


def _privileged(pod: Pod, _group: Sequence[Served]) -> Forbidden:
    for container in pod.containers:
        if _context(container.raw).get("privileged") is True:
            path: Path = (*container.path, "securityContext", "privileged")
            yield path, f'the privileged container "{container.name}"', "leave privileged out"


def _node_name(pod: Pod, _group: Sequence[Served]) -> Forbidden:
    if pod.spec.get("nodeName"):
        fix = "leave nodeName out; a node affinity on kubernetes.io/hostname selects a node, too"
        yield ("spec", "nodeName"), "spec.nodeName, which passes its scheduler by", fix


def _init_containers(_pod: Pod, group: Sequence[Served]) -> Forbidden:
    for one in group:
        container = one.asked.container
        if container.kind in {"init container", "sidecar"}:
            yield container.path, f'init containers, and "{container.name}" is one', "ask in a container"


FORBIDDABLE: Final[Mapping[str, Callable[[Pod, Sequence[Served]], Forbidden]]] = {
    "privileged": _privileged,
    "nodeName": _node_name,
    "initContainers": _init_containers,
}
"""What `forbids:` may name; each yields where it is, what it is, and what to do."""


def _context(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(holder.get("securityContext"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
