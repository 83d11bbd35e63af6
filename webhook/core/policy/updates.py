"""What an update must not change on a pod with a GPU: the labels and annotations that its count depends on.

Kubernetes lets no update change GPU resources. A quota adds up what pods count at present, so a user who could make a
running pod count less could get any number of GPUs. Labels and annotations that a policy sets must stay, too.

A Binding is an update, too: the API server merges its labels and annotations into the pod's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.interpret import interpret, locations
from webhook.core.interpret.interpret import MOST
from webhook.core.interpret.locations import NOTE
from webhook.core.kube import fields, pod, quantity
from webhook.core.kube.fields import Append, Edit, Path, Put, Remove, at, field_path
from webhook.core.kube.pod import SECTIONS, Container, Pod
from webhook.core.kube.quantity import QuantityError, shown
from webhook.core.plan import allocation
from webhook.core.plan.plan import Plan
from webhook.core.policy import defaults, device_access, observe, unknown_devices, usage
from webhook.core.policy.membership import is_of_one_tenant, member
from webhook.core.request import KEYS, GpuRequest, is_plain_key
from webhook.core.review import AdmissionRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Constant
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.rules.verbs import METADATA, Slot, SlotKind
from webhook.core.violations import LATER_FIX, Violation

# What an update must not change on a pod with a GPU: the labels and annotations that its count depends on.


class Change(NamedTuple):
    """One label or annotation that an update adds, changes or removes; None: it is missing."""

    section: str
    kind: SlotKind
    key: str
    before: Any
    after: Any


_ACCOUNT: Final = "system:serviceaccount:"
_ANYBODY: Final = "system:anonymous"

AGAIN: Final = "create the pod again with it; this one keeps the GPU that it was created with"


def check(request: AdmissionRequest, rulebook: Rulebook) -> list[Violation]:
    """A violation (GPU109) for each forbidden change of a pod with a GPU; raises Refusal."""
    if request.pod is None or request.old_pod is None:
        return []
    policy = _policy(request, rulebook)
    violations = (
        violation
        for change in _changes(request.old_pod, request.pod)
        for violation in _judged(change, request, policy, rulebook)
    )
    wrong = [*islice(violations, MOST)]
    return wrong if wrong and (_has_gpu(request, rulebook) or _is_uncounted(request, policy, rulebook)) else []


def update_by_binding(request: AdmissionRequest) -> AdmissionRequest | None:
    """The update that a Binding makes of its stored pod (registry/core/pod/storage, setPodNodeAndMetadata).

    None if the pod is not known, or the Binding is for another one of its name.
    """
    if request.pod is None or request.old_pod is None:
        return None
    stored, uid = request.old_pod, _metadata(request.pod).get("uid")
    if uid and uid != _metadata(stored).get("uid"):
        return None
    merged = {section: {**_entries(stored, section), **_entries(request.pod, section)} for section, _ in METADATA}
    bound = {**stored, "metadata": {**_metadata(stored), **merged}}
    return request._replace(operation="UPDATE", resource="pods", subresource="", pod=bound)


def unnamed(request: AdmissionRequest, update: AdmissionRequest, rulebook: Rulebook) -> list[Violation]:
    """A violation (GPU109) for what a Binding without a UID carries: another pod may have the name by then.

    `update` is the update that it makes, pruned: of any number of labels and annotations those that rules read.
    """
    binding = request.pod or {}
    if _metadata(binding).get("uid"):
        return []
    policy = _policy(request, rulebook)
    carried = (
        Change(section, kind, key, "", value)
        for section, kind in METADATA
        for key, value in _entries(update.pod or {}, section).items()
        if key in _entries(binding, section)
    )
    wrong = (change for change in carried if any(_judged(change, request, policy, rulebook)))
    return [
        Violation(
            code="GPU109",
            path=field_path(("metadata", change.section, change.key)),
            message=f"the Binding carries the {change.kind} {change.key}, which a pod with a GPU may count by, and "
            "does not say of which pod: another one could have the name by then",
            fix="bind through pods/binding with the pod's UID in metadata.uid, or leave the key out",
        )
        for change in islice(wrong, MOST)
    ]


def reserved(rulebook: Rulebook) -> set[str]:
    """The annotations, as globs, that only schedulers and device plugins of enabled back ends write."""
    return {glob for glob, _ in _index(rulebook).reserved[1]}


def unread(why: str) -> Violation:
    """The answer (GPU111) while the pod of a Binding cannot be read; the client retries."""
    message = f"whether the Binding changes what its pod counts cannot be told now: {why}"
    return Violation(code="GPU111", path="metadata.name", message=message, fix=LATER_FIX)


def _policy(request: AdmissionRequest, rulebook: Rulebook) -> TenantPolicy | None:
    return member(request.namespace, rulebook.tenancy).policy if rulebook.tenancy.policies else None


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for section, kind in METADATA:
        before, after = _entries(old, section), _entries(new, section)
        if before != after:
            for key in sorted(before.keys() | after.keys()):
                if before.get(key) != after.get(key):
                    yield Change(section, kind, key, before.get(key), after.get(key))


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = raw.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _entries(raw: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    entries = _metadata(raw).get(section)
    return entries if isinstance(entries, dict) else {}


def _has_gpu(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether the pod holds a GPU, before or after the update; other pods may change freely."""
    return any(
        usage.holdings(pod.read(raw, request.namespace), rulebook)
        for raw in (request.old_pod, request.pod)
        if raw is not None
    )


def _is_uncounted(request: AdmissionRequest, policy: TenantPolicy | None, rulebook: Rulebook) -> bool:
    """Whether the pod would have been refused as it is now, as it asks a back end that is not enabled."""
    if unknown_devices.action(policy, rulebook.cluster) != "deny":
        return False
    return any(unknown_devices.find_disabled(pod.read(request.pod or {}, request.namespace), rulebook))


def _judged(
    change: Change, request: AdmissionRequest, policy: TenantPolicy | None, rulebook: Rulebook
) -> Iterator[Violation]:
    user = request.user
    set_by_policy = None if policy is None else getattr(policy, change.section).get(change.key)
    if set_by_policy is not None and policy is not None:
        if change.after != set_by_policy and not _writes(
            user, _index(rulebook).injecting.get((change.kind, change.key), ())
        ):
            fix = f"leave it as it is: the policy {policy.name} sets it"
            yield _violation(change, f"the policy {policy.name} sets it", policy.rule, fix)
        return
    ruled = rulebook.as_ruled(change.key) if change.kind == "annotation" else change.key
    asking = _index(rulebook).asking.get((change.kind, ruled), ()) if change.before is not None else ()
    if asking and not _writes(user, asking):
        yield _violation(change, f"{asking[0].name} gives it the card that it counts as by that", asking[0].rule)
        return
    # The back ends that serve a pod as this label or annotation says, as what isolates a share.
    place = change.kind, change.key
    written = _index(rulebook).writing.get(place, ()) if change.before is not None else ()
    serving = _index(rulebook).enforcing.get(place, written)
    if serving and not _writes(user, serving):
        yield _violation(change, f"{serving[0].name} serves the pod as it says", serving[0].rule)
        return
    if not (allocation.depends(change.kind, change.key, rulebook) or change.key == NOTE):
        yield from _reserved(change, request, rulebook)
        return
    means_something = any(_means_something(change, value, rulebook) for value in (change.before, change.after))
    if means_something and not _writes(user, _index(rulebook).reading.get((change.kind, ruled), ())):
        resource = rulebook.all_slots[change.kind].get(ruled)
        yield _violation(change, "what the pod counts is read from it", resource.rule if resource else "")


def _reserved(change: Change, request: AdmissionRequest, rulebook: Rulebook) -> Iterator[Violation]:
    """A violation for what only a back end's scheduler and device plugin write: they take a device for it."""
    heads, patterns = _index(rulebook).reserved
    if change.kind != "annotation" or not change.key.startswith(heads):
        return
    reserving = [backend for pattern, backend in patterns if fnmatchcase(change.key, pattern)]
    if not reserving or any(_is_a_part(request, backend, rulebook) for backend in reserving):
        return
    name, rule = reserving[0].name, reserving[0].rule
    fix = f"leave it; if {shown(request.user)} is a part of {name}, add it to writers: in the rule"
    yield _violation(change, f"only the scheduler of {name} writes it", rule, fix)


def _is_a_part(request: AdmissionRequest, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether the user may be a part of a back end.

    A part of Kubernetes always may: schedulers and device plugins of some vendors have the user of kube-scheduler or
    of the node. Else the rule lists them; if it does not, a service account of no tenant may.
    """
    if request.user.startswith(_ACCOUNT) and backend.writers:
        return _writes(request.user, [backend])
    return is_of_the_platform(request, rulebook)


def is_of_the_platform(request: AdmissionRequest, rulebook: Rulebook) -> bool:
    """Whether the user is a part of Kubernetes, or a service account of no tenant."""
    if not request.user.startswith(_ACCOUNT):
        return request.user.startswith("system:") and request.user != _ANYBODY
    namespace = request.user.removeprefix(_ACCOUNT).partition(":")[0]
    if namespace == request.namespace:
        return False
    policy = member(namespace, rulebook.tenancy).policy
    return policy is None or rulebook.cluster.exempts(namespace) or not is_of_one_tenant(policy, rulebook)


def _means_something(change: Change, value: Any, rulebook: Rulebook) -> bool:
    """Whether a value has a meaning; `gpu: "true"`, a label from before this webhook, has none."""
    plain = is_plain_key(change.kind, change.key)
    if value is None or not plain or change.key in rulebook.all_slots[change.kind]:
        return value is not None
    try:
        meaning = KEYS[change.key](str(value))
    except QuantityError:
        return False
    if change.key == "gpu-model":
        return any(cards.read_model(name, rulebook) for name in meaning)
    return change.key != "gpu-backend" or meaning in rulebook.backends


Backends = dict[tuple[SlotKind, str], list[Backend]]
"""Back ends by the label or annotation, each at most once."""


class _Index(NamedTuple):
    """What back ends do with a label or annotation.

    asking     the enabled ones to which it tells a part of the request, as the card; a constant tells none
    injecting  the enabled ones whose rules write it
    reading    all that read it
    enforcing  the enabled ones that let it have no value but their own, if the site has one
    writing    the enabled ones that have it in a mode as a constant: it says how a pod of that mode is served
    reserved   how the annotations begin that only schedulers of enabled ones write; and each of them, as a glob
    """

    asking: Backends
    injecting: Backends
    reading: Backends
    enforcing: Backends
    writing: Backends
    reserved: tuple[tuple[str, ...], Sequence[tuple[str, Backend]]]


def _index(rulebook: Rulebook) -> _Index:
    """The index of a rulebook; made once for each."""
    index: _Index | None = rulebook.cache.get(_Index)
    if index is None:
        index = rulebook.cache[_Index] = _Index({}, {}, {}, {}, {}, _reserved_by(rulebook.enabled))
        for backend in rulebook.enabled:
            for section, kind in METADATA:
                _enter_outputs(index, section, kind, backend)
        for backend in rulebook.backends.values():
            for kind, key in _read_by(backend):
                _enter(index.reading, kind, key, backend)
    return index


def _enter_outputs(index: _Index, section: str, kind: SlotKind, backend: Backend) -> None:
    injected = getattr(backend.inject.outputs, section)
    outputs = [output for mode in backend.modes for output in getattr(mode.outputs, section).items()]
    for key, output in outputs:
        _enter(index.injecting, kind, key, backend)
        if output.what:
            _enter(index.asking, kind, key, backend)
        elif key not in injected:
            _enter(index.writing, kind, key, backend)
    for key, output in [*injected.items(), *outputs]:
        if isinstance(output, Constant) and output.enforce:
            _enter(index.enforcing, kind, key, backend)


def _reserved_by(backends: Iterable[Backend]) -> tuple[tuple[str, ...], Sequence[tuple[str, Backend]]]:
    demands = ((backend, mode.companions) for backend in backends for mode in backend.modes)
    reserving = {
        (glob, backend.name): backend for backend, companions in demands if companions for glob in companions.reserved
    }
    heads = tuple({glob.partition("*")[0] for glob, _ in reserving})
    return heads, [(glob, backend) for (glob, _), backend in reserving.items()]


def _enter(index: Backends, kind: SlotKind, key: str, backend: Backend) -> None:
    there = index.setdefault((kind, key), [])
    if backend not in there:
        there.append(backend)


def _read_by(backend: Backend) -> Iterator[tuple[SlotKind, str]]:
    yield from ((name.kind, name.key) for name in backend.owns if isinstance(name, Slot))
    for mode in backend.modes:
        keys = {mark.partition("=")[0] for mark in mode.enforced | mode.when.annotated | mode.when.unannotated}
        yield from (("annotation", key) for key in keys | mode.outputs.annotations.keys())


def _writes(user: str, backends: Iterable[Backend]) -> bool:
    """Whether a user is listed as a writer of one of the back ends, as its scheduler is."""
    return any(fnmatchcase(user, writer) for backend in backends for writer in backend.writers)


def _violation(change: Change, why: str, rule: str, fix: str = AGAIN) -> Violation:
    before = "not there" if change.before is None else f'"{shown(str(change.before))}"'
    after = "gone" if change.after is None else f'"{shown(str(change.after))}"'
    return Violation(
        code="GPU109",
        path=field_path(("metadata", change.section, change.key)),
        message=f"the {change.kind} {change.key} of a pod with a GPU cannot change: it is {before} and would be "
        f"{after}, and {why}",
        fix=fix,
        rule=rule,
    )


# An update that states again what its pod was created from: /mutate puts back what is stored.

_AMOUNTS: Final = ("limits", "requests")
_TOLERATIONS: Final = ("spec", "tolerations")


class Pair(NamedTuple):
    """A container as it is stored, as it is sent, and as it would be if its pod was created as it is sent."""

    stored: Container
    sent: Container
    made: Container


class Difference(NamedTuple):
    """An amount of a GPU that is sent and not stored, or stored and not sent; None: it is not there."""

    path: Path
    stored: Any
    sent: Any

    @property
    def name(self) -> str:
        """The name of the resource."""
        return str(self.path[-1])


def keep_stored(request: AdmissionRequest, rulebook: Rulebook, *, whole: bool) -> Decision:
    """The decision of /mutate about an update, whose pods are pruned; raises Refusal.

    `whole`: the client sent the pod as a whole, so it may lack labels and annotations that it never had from its
    author. What else the API server got is a change of the stored pod, and who removes one of them means it.
    """
    stored, sent = (pod.read(raw or {}, request.namespace) for raw in (request.old_pod, request.pod))
    nothing = all(interpret.asks_nothing(raw, rulebook) for raw in (stored, sent))
    if stored.raw == sent.raw or (nothing and not device_access.removal(sent, {}, rulebook)):
        return UNTOUCHED
    before = defaults.plan_for_tenant(stored, rulebook)
    # The plan for creating a pod, and the pod as that makes it; its containers keep their back ends.
    written = _as_written(stored, sent, rulebook)
    kept = [
        Put(
            ("metadata", "annotations", locations.annotation("gpu-backend", served.demand.container.name)),
            served.backend.name,
        )
        for served in before.assignments
        if "gpu-backend" not in served.demand.stated
    ]
    planned = defaults.plan_for_tenant(defaults.with_metadata(written, kept), rulebook)
    planned.edits[:0] = kept
    planned.edits += device_access.removing(device_access.removal(written, planned.backends, rulebook))
    after, made = (
        planned,
        pod.read(fields.applied(fields.to_patch(planned.edits, written.raw), written.raw), written.namespace),
    )
    edits: list[Edit] = []
    for pair in _pairs(stored, sent, made):
        differing = list(_differing(pair, rulebook))
        if differing and not _is_restated(pair, differing, before, after, rulebook):
            wrong = check(request, rulebook) or [*_refused(pair, differing, _asked(before, pair), rulebook)]
            return observe.enforced(denied([*islice(wrong, MOST)]), rulebook)
        edits += map(_put_back, differing)
    edits += _others(after, made, stored, {"spec", "metadata"} if whole else {"spec"})
    if edits:
        return Decision(allowed=True, patch=fields.to_patch(edits, request.pod or {}))
    changed = check(request, rulebook) if stored.spec != sent.spec else ()
    return observe.enforced(denied(changed), rulebook) if changed else UNTOUCHED


def _as_written(stored: Pod, sent: Pod, rulebook: Rulebook) -> Pod:
    """The pod as its author may have written it, without amounts that are there as the API server merges.

    Beside a limit that changes these are the request that was made of the stored one, and beside a fraction
    (`nvidia.com/gpu: "0.5"`) everything that the stored fraction became.
    """
    raw = deepcopy(sent.raw)
    for pair in _pairs(stored, sent, sent):
        changed = {section: _changed(pair.stored, pair.sent, section) for section in _AMOUNTS}
        fraction = any(
            _is_fraction(name, text, rulebook) for container in changed.values() for name, text in container.items()
        )
        for section, amounts in at(raw, *pair.sent.path, "resources").items() if any(changed.values()) else ():
            beside = pair.sent.limits if section == "requests" else ()
            for name in [*(amounts or ())] if section in _AMOUNTS else ():
                if name not in changed[section] and (name in beside or (fraction and name in rulebook.resources)):
                    del amounts[name]
    return pod.read(raw, sent.namespace)


def _pairs(stored: Pod, sent: Pod, made: Pod) -> Iterator[Pair]:
    """The containers that an update may keep: Kubernetes lets none come, go or change its place."""
    there = {(container.path, container.name): container for container in stored.containers}
    for here, result in zip(sent.containers, made.containers, strict=True):
        if (here.path, here.name) in there:
            yield Pair(there[here.path, here.name], here, result)


def _changed(there: Container, here: Container, section: str) -> Mapping[str, Any]:
    """The amounts that are sent and not stored."""
    before, after = getattr(there, section), getattr(here, section)
    return {name: text for name, text in after.items() if name not in before or not quantity.same(before[name], text)}


def _is_fraction(name: str, text: Any, rulebook: Rulebook) -> bool:
    """Whether it is a fraction of a back end's count, which no stored pod has."""
    if name not in rulebook.resources or not rulebook.resources[name].counts:
        return False
    try:
        return quantity.served(quantity.text_of(text)).denominator != 1
    except quantity.QuantityError:
        return False


def _differing(pair: Pair, rulebook: Rulebook) -> Iterator[Difference]:
    for section in _AMOUNTS:
        before, after = getattr(pair.stored, section), getattr(pair.sent, section)
        names = {*_changed(pair.stored, pair.sent, section), *(before.keys() - after.keys())}
        for name in sorted(names):
            if name in rulebook.resources or name in locations.RESOURCES:
                path = (*pair.sent.path, "resources", section, name)
                yield Difference(path, before.get(name), after.get(name))


def _is_restated(pair: Pair, differing: list[Difference], before: Plan, after: Plan, rulebook: Rulebook) -> bool:
    """Whether creating the container gives what is stored, or, by other rules than then, asks for the same."""
    same = pair.made.limits.keys() == pair.stored.limits.keys()
    if same and not any(_changed(pair.stored, pair.made, section) for section in _AMOUNTS):
        return True
    request = _asked(before, pair)
    in_words = (
        difference.sent is None or _is_word(difference.name, difference.sent, rulebook) for difference in differing
    )
    return request is not None and request == _asked(after, pair) and all(in_words)


def _is_word(name: str, text: Any, rulebook: Rulebook) -> bool:
    """Whether an amount is shorthand, which leaves the container when it is translated."""
    return name in locations.RESOURCES or _is_fraction(name, text, rulebook)


def _asked(planned: Plan, pair: Pair) -> GpuRequest | None:
    """What a container asks for in shorthand."""
    requests = (request for request in planned.interpretation.asked if request.container.path == pair.sent.path)
    return next((request.request for request in requests), None)


def _put_back(difference: Difference) -> Edit:
    if difference.stored is None:
        return Remove(difference.path)
    return Put(difference.path, difference.stored)


def _others(planned: Plan, made: Pod, stored: Pod, parts: Collection[str]) -> Iterator[Edit]:
    """The edits of what is no amount that give what is stored."""
    for edit in planned.edits:
        path = edit.path
        if path[0] in parts and not any(step in _AMOUNTS for step in path[4:5]):
            if isinstance(edit, Append) and path == _TOLERATIONS:
                fits = edit.value in (stored.spec.get("tolerations") or ())
            else:
                fits = _read(made, path) == _read(stored, path)
            if fits:
                yield edit


def _read(pod: Pod, path: Path) -> Any:
    """What stands in the field of a pod that an edit changes, without what nothing reads of a list."""
    length = 2
    if path[0] == "metadata":
        length = 3
    elif path[1] in SECTIONS:
        length = 5 if path[3] == "resources" else 4
    value = at(pod.raw, *path[:length])
    return [element for element in value if element] if isinstance(value, list) else value


def _refused(
    pair: Pair, differing: list[Difference], had: GpuRequest | None, rulebook: Rulebook
) -> Iterator[Violation]:
    """A violation for each amount that differs: those in shorthand if there are any, and in limits if it is there."""
    words = [
        difference
        for difference in differing
        if difference.sent is not None and _is_word(difference.name, difference.sent, rulebook)
    ]
    limits = [word for word in words or differing if "limits" in word.path]
    for limit in limits or words or differing:
        yield Violation(
            code="GPU109",
            path=field_path(limit.path),
            message=f'the container "{pair.sent.name}" was created with {had or _shown(limit.name, limit.stored)}, '
            f"which cannot change to {_shown(limit.name, limit.sent)}",
            fix="delete the pod and create it again, or write what it was created with",
        )


def _shown(name: str, value: Any) -> str:
    return f"{name}: {locations.as_written(quantity.text_of(value))}" if value is not None else f"no {name}"
