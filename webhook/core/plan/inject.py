"""What a pod needs beside resources: runtime class, scheduler, env, tolerations, node affinity, labels, annotations.

Only pods that get a GPU are changed, and only as the back end's rule says. A value of the pod's author is kept,
unless the rule says `enforce`. If it cannot be kept without breaking the back end, the pod is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from webhook.core.forms import labels
from webhook.core.kube import node_affinity
from webhook.core.kube.node_affinity import Requirement
from webhook.core.kube.patch import Append, Edit, Put, Remove
from webhook.core.kube.paths import Path, field
from webhook.core.kube.pod import Container, Pod
from webhook.core.plan import text
from webhook.core.plan.choose import Assignment
from webhook.core.plan.reach import Reach, requirements
from webhook.core.rules.outputs import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.vocabulary import Slot, SlotKind
from webhook.core.violations import Violation

DEFAULT_SCHEDULER: Final = "default-scheduler"


Injected = Edit | Violation


def inject(reach: Reach, served: Sequence[Assignment]) -> Iterator[Injected]:
    """The edits that the back ends' rules require, and a violation for each that cannot be made."""
    if not served:
        return
    pod, rulebook = reach.pod, reach.rulebook
    yield from _scheduler(pod, served)
    yield from _runtime_class(pod, served)
    yield from _tolerations(pod, served)
    for one in served:
        if one.mode.outputs.env:
            yield from _env(one, rulebook)
    yield from _metadata(pod.annotations, "annotation", served, rulebook)
    yield from _metadata(pod.labels, "label", served, rulebook)
    wanted = list(_node_affinity(served, reach))
    if wanted:
        yield from node_affinity.require(pod, wanted)


def _wanted(served: Sequence[Assignment], attribute: str) -> list[tuple[Assignment, Constant]]:
    found = [(one, getattr(one.backend.inject, attribute)) for one in served]
    return [(one, constant) for one, constant in found if constant is not None and constant.value]


def _scheduler(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    wanted = _wanted(served, "scheduler")
    yield from _agreed(wanted, "schedulerName")
    for one, constant in wanted[:1]:
        present = pod.spec.get("schedulerName")
        if present in {None, "", DEFAULT_SCHEDULER}:
            yield Put(("spec", "schedulerName"), constant.value, constant.rule)
        elif present != constant.value:
            message = f"{one.backend.name} works only with the scheduler {constant.value}; the pod names {present}"
            fix = f"leave schedulerName out, or name {constant.value}"
            yield Violation(code="GPU501", path="spec.schedulerName", message=message, fix=fix, rule=constant.rule)


def _runtime_class(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    wanted = _wanted(served, "runtime_class")
    if pod.spec.get("runtimeClassName"):
        return
    yield from _agreed(wanted, "runtimeClassName")
    for _, constant in wanted[:1]:
        yield Put(("spec", "runtimeClassName"), constant.value, constant.rule)


def _agreed(wanted: Sequence[tuple[Assignment, Constant]], name: str) -> Iterator[Violation]:
    """A violation if two back ends require different values of a field of the pod."""
    for one, constant in wanted[1:]:
        first, value = wanted[0]
        if constant.value != value.value:
            yield Violation(
                code="GPU501",
                path=f"spec.{name}",
                message=f"two back ends of this pod want a different {name}: {first.backend.name} wants "
                f"{value.value}, {one.backend.name} wants {constant.value}",
                fix="name one back end for the whole pod with gpu-backend, or use two pods",
                rule=constant.rule,
            )


def _tolerations(pod: Pod, served: Sequence[Assignment]) -> Iterator[Injected]:
    present = [*(pod.spec.get("tolerations") or ())]
    for backend in {one.backend.name: one.backend for one in served}.values():
        for wanted, rule in backend.inject.tolerations:
            if not any(_tolerates(toleration, wanted) for toleration in present):
                present.append(wanted)
                yield Append(("spec", "tolerations"), dict(wanted), rule)


def _tolerates(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a toleration of the pod covers the required one."""
    key, operator = present.get("key") or "", present.get("operator") or "Equal"
    if key != (wanted.get("key") or "") and not (key == "" and operator == "Exists"):
        return False
    if operator == "Equal" and (
        (wanted.get("operator") or "Equal") != "Equal" or present.get("value", "") != wanted.get("value", "")
    ):
        return False
    forever = present.get("tolerationSeconds") in {None, wanted.get("tolerationSeconds")}
    return forever and present.get("effect") in {None, "", wanted.get("effect")}


def _env(served: Assignment, rulebook: Rulebook) -> Iterator[Injected]:
    """Each variable once. The author's own is kept, or with `enforce` replaced, whatever its source of a value."""
    container = served.asked.container
    for name, output in served.mode.outputs.env.items():
        value = text.text(output, served, rulebook)
        if value is not None:
            enforce = isinstance(output, Constant) and output.enforce
            yield from _one_variable(container, name, value, output.rule, enforce=enforce)


def _one_variable(container: Container, name: str, value: str, rule: str, *, enforce: bool) -> Iterator[Edit]:
    entry = {"name": name, "value": value}
    path: Path = (*container.path, "env")
    present = [index for index, variable in enumerate(container.env) if variable.get("name") == name]
    if not present:
        yield Append(path, entry, rule)
        return
    if not enforce or [container.env[index] for index in present] == [entry]:
        return
    yield Put((*path, present[0]), entry, rule)
    for index in reversed(present[1:]):
        yield Remove((*path, index), rule)


def _metadata(
    present: Mapping[str, Any], kind: SlotKind, served: Sequence[Assignment], rulebook: Rulebook
) -> Iterator[Injected]:
    """Labels or annotations. The author's own constant is kept; a value that contradicts the request is refused."""
    section = f"{kind}s"
    ours: dict[str, tuple[str, str]] = {}
    for one in served:
        name = one.asked.container.name
        for ruled, output in getattr(one.mode.outputs, section).items():
            slot = Slot(kind, ruled)
            if slot in one.mode.amounts and (slot not in one.amounts or slot in one.asked.extended.amounts):
                continue  # nobody asks for it; or it is there, perhaps in other digits
            value = text.text(output, one, rulebook)
            if value is None:
                continue
            key = slot.named(name)
            path: Path = ("metadata", section, key)
            if section == "labels" and not labels.is_value(value):
                yield _no_label(path, value, one, output)
                continue
            first, before = ours.setdefault(key, (name, value))
            if before != value:
                who = f'the containers "{first}" and "{name}" need'
                yield _differ(path, who, (before, value), "ask for the same, or use two pods", output.rule)
            elif key not in present and first == name:
                yield Put(path, value, output.rule)
            elif key in present and present[key] != value and (output.what or output.enforce):
                who = f'the pod and its container "{name}" want'
                yield _differ(path, who, (present[key], value), f"remove {key} from the pod", output.rule)


def _no_label(path: Path, value: str, served: Assignment, output: Output) -> Violation:
    message = f'{served.backend.name} would set {field(path)} to "{value[:80]}", which no label can hold'
    fix = "ask for less at once, as for one model"
    return Violation(code="GPU503", path=field(path), message=message, fix=fix, rule=output.rule)


def _differ(path: Path, who: str, values: tuple[Any, str], fix: str, rule: str) -> Violation:
    message = f'{who} different values of {field(path)}: "{values[0]}", and "{values[1]}"'
    return Violation(code="GPU503", path=field(path), message=message, fix=fix, rule=rule)


def _node_affinity(served: Iterable[Assignment], reach: Reach) -> Iterator[Requirement]:
    dropped: dict[int, set[str]] = {}
    for one in served:
        lines = one.mode.outputs.node_affinity
        if one.asked.request is None and "gpu-backend" not in one.asked.stated and reach.selects:
            # A pod with the back end's own resources may choose other nodes, and counts what they give. A pod that
            # names the back end or the card may not: the name decides what it is charged.
            if id(one.mode) not in dropped:
                dropped[id(one.mode)] = {
                    key for key, line in lines.items() if not line.words and reach.excludes(one, [key])
                }
            lines = {key: line for key, line in lines.items() if key not in dropped[id(one.mode)]}
        yield from requirements(one, lines, reach.rulebook)
