"""What must not change on a pod that has a GPU: the labels and annotations that what it counts is read from.

Its resources cannot change anyhow. A quota adds up what pods count as they stand, so whoever could make a pod count
less once it runs could have any number of GPUs; and the labels that a policy puts on a pod are its tenant's, not its
author's. Updates of `pods/status` do not come here: kubelets send them all day, and no user should be able to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from webhook.core import pod, standing
from webhook.core.backend import Backend, Constant
from webhook.core.fields import field
from webhook.core.places import NOTE
from webhook.core.quantity import QuantityError, shown
from webhook.core.review import AdmissionRequest
from webhook.core.rulebook import Rulebook
from webhook.core.shorthand import KEYS
from webhook.core.tenancy import counting
from webhook.core.tenancy.membership import member
from webhook.core.tenancy.policy import TenantPolicy
from webhook.core.violations import Violation

_SECTIONS: Final = (("labels", "label"), ("annotations", "annotation"))


class Change(NamedTuple):
    """One label or annotation that an update sets, changes or takes away; None: it is not there."""

    section: str
    kind: str
    key: str
    before: Any
    after: Any


AGAIN: Final = "create the pod again with it; this one keeps the GPU that it was created with"


def check(request: AdmissionRequest, rulebook: Rulebook) -> list[Violation]:
    """A violation (GPU109) for each change that a pod with a GPU must not go through; raises Refusal."""
    if request.pod is None or request.old_pod is None:
        return []
    policy = member(request.namespace, rulebook.tenancy).policy if rulebook.tenancy.policies else None
    wrong = [
        violation
        for change in _changes(request.old_pod, request.pod)
        for violation in _judged(change, request.user, policy, rulebook)
    ]
    return wrong if wrong and _has_gpu(request, rulebook) else []


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for section, kind in _SECTIONS:
        before, after = _entries(old, section), _entries(new, section)
        if before != after:
            for key in sorted(before.keys() | after.keys()):
                if before.get(key) != after.get(key):
                    yield Change(section, kind, key, before.get(key), after.get(key))


def _entries(raw: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    metadata = raw.get("metadata")
    entries = metadata.get(section) if isinstance(metadata, dict) else None
    return entries if isinstance(entries, dict) else {}


def _has_gpu(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether the pod holds anything, as it is or as it would be: nobody else is hindered."""
    return any(
        counting.holdings(pod.read(raw, request.namespace), rulebook)
        for raw in (request.old_pod, request.pod)
        if raw is not None
    )


def _judged(change: Change, user: str, policy: TenantPolicy | None, rulebook: Rulebook) -> Iterator[Violation]:
    set_by_policy = _of(policy, change)
    if set_by_policy is not None and policy is not None:
        if change.after != set_by_policy and not _writes(user, _injecting(change, rulebook)):
            fix = f"leave it; whoever wrote the policy {policy.name} says what it is"
            yield _violation(change, f"the policy {policy.name} sets it", policy.rule, fix)
        return
    asked = [*_asking(change, rulebook)] if change.before is not None else []
    if asked and not _writes(user, iter(asked)):
        yield _violation(change, f"{asked[0].name} gives it the card that it counts as by that", asked[0].rule)
        return
    if not (standing.depends(change.kind, change.key, rulebook) or change.key == NOTE):
        return
    said = any(_means_something(change, value, rulebook) for value in (change.before, change.after))
    if said and not _writes(user, _reading(change, rulebook)):
        yield _violation(change, "what the pod counts is read from it", _rule(change, rulebook))


def _of(policy: TenantPolicy | None, change: Change) -> str | None:
    """What a policy wants a label or annotation to be."""
    if policy is None:
        return None
    return (policy.labels if change.section == "labels" else policy.annotations).get(change.key)


def _means_something(change: Change, value: Any, rulebook: Rulebook) -> bool:
    """Whether a value asks for anything; `gpu: "true"` may have been on pods before there was a webhook."""
    plain = change.key in KEYS if change.section == "labels" else change.key == "gpu"
    if value is None or not plain or f"{change.kind} {change.key}" in rulebook.heard:
        return value is not None
    try:
        meaning = KEYS[change.key](str(value))
    except QuantityError:
        return False
    if change.key == "gpu-model":
        return any(name.lower() in rulebook.devices for name in meaning)
    return change.key != "gpu-backend" or meaning in rulebook.backends


def _asking(change: Change, rulebook: Rulebook) -> Iterator[Backend]:
    """The back ends that are told in it what a pod wants, as the card; a constant says the same of all pods."""
    for backend in rulebook.enabled:
        outputs = (getattr(mode.outputs, change.section).get(change.key) for mode in backend.modes)
        if any(output is not None and not isinstance(output, Constant) for output in outputs):
            yield backend


def _reading(change: Change, rulebook: Rulebook) -> Iterator[Backend]:
    """The back ends that read it."""
    for backend in rulebook.backends.values():
        marks = {mark.partition("=")[0] for mode in backend.modes for mark in mode.marks | mode.when.marks}
        unmarked = {mark for mode in backend.modes for mark in mode.when.unmarked}
        named = {key for mode in backend.modes for key in mode.outputs.annotations}
        keys = marks | unmarked | named if change.kind == "annotation" else set()
        if f"{change.kind} {change.key}" in backend.owns or change.key in keys:
            yield backend


def _injecting(change: Change, rulebook: Rulebook) -> Iterator[Backend]:
    """The back ends that would write it themselves."""
    for backend in rulebook.enabled:
        if any(change.key in getattr(mode.outputs, change.section) for mode in backend.modes):
            yield backend


def _writes(user: str, backends: Iterator[Backend]) -> bool:
    """Whether a user is a part of one of the back ends."""
    return any(fnmatchcase(user, writer) for backend in backends for writer in backend.writers)


def _rule(change: Change, rulebook: Rulebook) -> str:
    resource = rulebook.heard.get(f"{change.kind} {change.key}")
    return resource.rule if resource else ""


def _violation(change: Change, why: str, rule: str, fix: str = AGAIN) -> Violation:
    before = "not there" if change.before is None else f'"{shown(str(change.before))}"'
    after = "gone" if change.after is None else f'"{shown(str(change.after))}"'
    return Violation(
        code="GPU109",
        path=field(("metadata", change.section, change.key)),
        message=f"the {change.kind} {change.key} of a pod with a GPU cannot change: it is {before} and would be "
        f"{after}, and {why}",
        fix=fix,
        rule=rule,
    )
