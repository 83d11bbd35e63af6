"""What an update must not change on a pod with a GPU: the labels and annotations that its count depends on.

Kubernetes lets no update change GPU resources. A quota adds up what pods count at present, so a user who could make a
running pod count less could get any number of GPUs. Labels and annotations that a policy sets must stay, too.

A Binding is an update, too: the API server merges its labels and annotations into the pod's.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final, NamedTuple

from webhook.core.backends import cards
from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.interpret import interpret, locations
from webhook.core.kube import pod, quantity
from webhook.core.kube.fields import Append, Edit, Path, Put, Remove, applied, at, field_path, mapping, to_patch
from webhook.core.kube.pod import SECTIONS, Container, Pod
from webhook.core.plan import allocation, plan
from webhook.core.policy import defaults, device_access, judge, unknown_devices, usage
from webhook.core.policy.membership import is_of_the_platform, member
from webhook.core.request import KEYS, is_plain_key
from webhook.core.review import AdmissionRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Constant
from webhook.core.rules.rulebook import Rulebook, kept
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.rules.verbs import METADATA, Slot, SlotKind
from webhook.core.violations import LATER_FIX, Violation


class Change(NamedTuple):
    """One label or annotation that an update adds, changes or removes; None: it is missing."""

    section: str
    kind: SlotKind
    key: str
    before: Any
    after: Any


AGAIN: Final = "create the pod again with it; this one keeps the GPU that it was created with"


def check(request: AdmissionRequest, rulebook: Rulebook) -> list[Violation]:
    """A violation (GPU109) for each forbidden change of a pod with a GPU; raises Refusal."""
    if request.pod is None or request.old_pod is None:
        return []
    policy = member(request.namespace, rulebook.tenancy).policy
    wrong: list[Violation] = []
    for section, kind in METADATA:
        before, after = (mapping(raw, "metadata", section) for raw in (request.old_pod, request.pod))
        for key in sorted(before.keys() | after.keys()) if before != after else ():
            change = Change(section, kind, key, before.get(key), after.get(key))
            if change.before != change.after and len(wrong) < interpret.MOST:
                violation = _forbidden(change, request, policy, rulebook)
                wrong += [violation] if violation else []
    if not wrong:
        return []
    for raw in (request.old_pod, request.pod):  # pods without a GPU may change freely
        if usage.holdings(pod.read(raw, request.namespace), rulebook):
            return wrong
    if unknown_devices.action(policy, rulebook.cluster) != "deny":
        return []
    # The pod would have been refused as it is now if it asks a back end that is not enabled.
    return wrong if any(unknown_devices.find_disabled(pod.read(request.pod, request.namespace), rulebook)) else []


def update_by_binding(request: AdmissionRequest) -> AdmissionRequest | None:
    """The update that a Binding makes of its stored pod (registry/core/pod/storage, setPodNodeAndMetadata).

    None if the pod is not known, or the Binding is for another one of its name.
    """
    binding, stored = request.pod, request.old_pod
    if binding is None or stored is None:
        return None
    uid = at(binding, "metadata", "uid")
    if uid and uid != at(stored, "metadata", "uid"):
        return None
    metadata = {**mapping(stored, "metadata")}
    for section, _ in METADATA:
        metadata[section] = {**mapping(stored, "metadata", section), **mapping(binding, "metadata", section)}
    bound = {**stored, "metadata": metadata}
    return request._replace(operation="UPDATE", resource="pods", subresource="", pod=bound)


def unnamed(request: AdmissionRequest, update: AdmissionRequest, rulebook: Rulebook) -> list[Violation]:
    """A violation (GPU109) for what a Binding without a UID carries: another pod may have the name by then.

    `update` is the update that it makes, pruned: of any number of labels and annotations those that rules read.
    """
    if at(request.pod, "metadata", "uid"):
        return []
    policy = member(request.namespace, rulebook.tenancy).policy
    carried = (
        Change(section, kind, key, "", value)
        for section, kind in METADATA
        for key, value in mapping(update.pod, "metadata", section).items()
        if key in mapping(request.pod, "metadata", section)
    )
    wrong = (change for change in carried if _forbidden(change, request, policy, rulebook))
    return [
        Violation(
            code="GPU109",
            path=field_path(("metadata", change.section, change.key)),
            message=f"the Binding carries the {change.kind} {change.key}, which a pod with a GPU may count by, and "
            "does not say of which pod: another one could have the name by then",
            fix="bind through pods/binding with the pod's UID in metadata.uid, or leave the key out",
        )
        for change in islice(wrong, interpret.MOST)
    ]


def unread(why: str) -> Violation:
    """The answer (GPU111) while the pod of a Binding cannot be read; the client retries."""
    message = f"whether the Binding changes what its pod counts cannot be told now: {why}"
    return Violation(code="GPU111", path="metadata.name", message=message, fix=LATER_FIX)


def _forbidden(
    change: Change, request: AdmissionRequest, policy: TenantPolicy | None, rulebook: Rulebook
) -> Violation | None:
    """The violation for a change; None if what a pod counts does not depend on it, or its user may write it."""
    section, kind, key, before, after = change
    user, index, place = request.user, _index(rulebook), (kind, key)
    ruled = rulebook.as_ruled(key) if kind == "annotation" else key
    set_by_policy = None if policy is None else getattr(policy, section).get(key)
    asking = index["asking"].get((kind, ruled), ()) if before is not None else ()
    writing = index["writing"].get(place, ()) if before is not None else ()
    serving = index["enforcing"].get(place, writing)
    fix = AGAIN
    if policy is not None and set_by_policy is not None:
        if after == set_by_policy or _writes(user, index["injecting"].get(place, ())):
            return None
        why, rule = f"the policy {policy.name} sets it", policy.rule
        fix = f"leave it as it is: {why}"
    elif asking and not _writes(user, asking):
        why, rule = f"{asking[0].name} gives it the card that it counts as by that", asking[0].rule
    elif serving and not _writes(user, serving):  # it says what isolates a share, for example
        why, rule = f"{serving[0].name} serves the pod as it says", serving[0].rule
    elif allocation.depends(kind, key, rulebook) or key == locations.NOTE:
        means_something = any(_means_something(kind, key, value, rulebook) for value in (before, after))
        if not means_something or _writes(user, index["reading"].get((kind, ruled), ())):
            return None
        resource = rulebook.all_slots[kind].get(ruled)
        why, rule = "what the pod counts is read from it", resource.rule if resource else ""
    else:
        # Only a back end's scheduler and device plugin may write what takes a device for a pod. Those of some vendors
        # have the user of kube-scheduler or of the node.
        globs = index["reserved"].items() if kind == "annotation" else ()
        reserving = [backend for (_, glob), backends in globs if fnmatchcase(key, glob) for backend in backends]
        if not reserving or is_of_the_platform(user, rulebook):
            return None
        name, rule = reserving[0].name, reserving[0].rule
        why = f"only the scheduler of {name} writes it"
        fix = f"leave it; if {quantity.shown(user)} is of {name}, add it to platformAccounts of the Cluster document"
    was = "not there" if before is None else f'"{quantity.shown(str(before))}"'
    would_be = "gone" if after is None else f'"{quantity.shown(str(after))}"'
    return Violation(
        code="GPU109",
        path=field_path(("metadata", section, key)),
        message=f"the {kind} {key} of a pod with a GPU cannot change: it is {was} and would be {would_be}, and {why}",
        fix=fix,
        rule=rule,
    )


def _means_something(kind: SlotKind, key: str, value: Any, rulebook: Rulebook) -> bool:
    """Whether a value has a meaning; `gpu: "true"`, a label from before this webhook, has none."""
    if value is None or not is_plain_key(kind, key) or key in rulebook.all_slots[kind]:
        return value is not None
    try:
        meaning = KEYS[key](str(value))
    except quantity.QuantityError:
        return False
    if key == "gpu-model":
        return any(cards.read_model(name, rulebook) for name in meaning)
    return key != "gpu-backend" or meaning in rulebook.backends


def _writes(user: str, backends: Iterable[Backend]) -> bool:
    """Whether a user is listed as a writer of one of the back ends, as its scheduler is."""
    return any(fnmatchcase(user, writer) for backend in backends for writer in backend.writers)


def reserved(rulebook: Rulebook) -> set[str]:
    """The annotations, as globs, that only schedulers and device plugins of enabled back ends write."""
    return {glob for _, glob in _index(rulebook)["reserved"]}


@kept
def _index(rulebook: Rulebook) -> Mapping[str, Mapping[tuple[SlotKind, str], list[Backend]]]:
    """The back ends by what they do with a label or annotation.

    asking     the enabled ones to which it tells a part of the request, as the card; a constant tells none
    injecting  the enabled ones whose rules write it
    writing    the enabled ones that have it in a mode as a constant: it says how a pod of that mode is served
    enforcing  the enabled ones that let it have no value but their own, if the site has one
    reserved   the enabled ones whose schedulers alone write it, by glob
    reading    all that read it
    """
    roles = ("asking", "injecting", "writing", "enforcing", "reserved", "reading")
    index: dict[str, dict[tuple[SlotKind, str], list[Backend]]] = {role: {} for role in roles}

    def enter(role: str, kind: SlotKind, key: str, backend: Backend) -> None:
        backends = index[role].setdefault((kind, key), [])
        if backend not in backends:
            backends.append(backend)

    for backend in rulebook.enabled:
        for section, kind in METADATA:
            injected = getattr(backend.inject.outputs, section)
            outputs = [output for mode in backend.modes for output in getattr(mode.outputs, section).items()]
            for key, output in outputs:
                enter("injecting", kind, key, backend)
                if output.what:
                    enter("asking", kind, key, backend)
                elif key not in injected:
                    enter("writing", kind, key, backend)
            for key, output in [*injected.items(), *outputs]:
                if isinstance(output, Constant) and output.enforce:
                    enter("enforcing", kind, key, backend)
        for mode in backend.modes:
            for glob in mode.companions.reserved if mode.companions else ():
                enter("reserved", "annotation", glob, backend)
    for backend in rulebook.backends.values():
        for name in backend.owns:
            if isinstance(name, Slot):
                enter("reading", name.kind, name.key, backend)
        for mode in backend.modes:
            marks = mode.enforced | mode.when.annotated | mode.when.unannotated
            for key in {mark.partition("=")[0] for mark in marks} | mode.outputs.annotations.keys():
                enter("reading", "annotation", key, backend)
    return index


# An update that states again what its pod was created from: /mutate puts back what is stored.

_AMOUNTS: Final = ("limits", "requests")


class Difference(NamedTuple):
    """An amount of a GPU that is sent and not stored, or stored and not sent; None: it is not there.

    `in_words`: it is shorthand that is sent, which leaves the container when it is translated.
    """

    name: str
    path: Path
    stored: Any
    sent: Any
    in_words: bool


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
    # Kubernetes lets no container come, go or change its place.
    kept = {(container.path, container.name): container for container in stored.containers}

    # The plan for creating the pod, whose containers keep their back ends, and the pod as that makes it.
    written = _as_written(kept, sent, rulebook)
    backends = [
        Put(
            ("metadata", "annotations", locations.annotation("gpu-backend", served.demand.container.name)),
            served.backend.name,
        )
        for served in before.assignments
        if "gpu-backend" not in served.demand.stated
    ]
    after = defaults.plan_for_tenant(defaults.with_metadata(written, backends), rulebook)
    after.edits[:0] = backends
    after.edits += device_access.removing(device_access.removal(written, after.backends, rulebook))
    made = pod.read(applied(to_patch(after.edits, written.raw), written.raw), written.namespace)

    had, has = (
        {demand.container.path: demand.request for demand in planned.interpretation.asked}
        for planned in (before, after)
    )
    edits: list[Edit] = []
    for container, result in zip(sent.containers, made.containers, strict=True):
        there = kept.get((container.path, container.name))
        differing = _differing(there, container, rulebook) if there else []
        if there is None or not differing:
            continue
        # Creating it gives what is stored, or, by other rules than then, it asks for the same.
        same = result.limits.keys() == there.limits.keys()
        same = same and not any(_changed(there, result, section) for section in _AMOUNTS)
        created = had.get(container.path)
        if not same and created is not None and created == has.get(container.path):
            same = all(difference.sent is None or difference.in_words for difference in differing)
        if same:
            edits += (Remove(path) if value is None else Put(path, value) for _, path, value, _, _ in differing)
            continue
        wrong = check(request, rulebook)
        # Those in shorthand if there are any, and in limits if it is there.
        words = [difference for difference in differing if difference.in_words] or differing
        limits = [difference for difference in words if "limits" in difference.path] or words
        for name, path, *values, _ in limits if not wrong else ():
            was, wish = (
                f"no {name}" if value is None else f"{name}: {locations.as_written(quantity.text_of(value))}"
                for value in values
            )
            message = (
                f'the container "{container.name}" was created with {created or was}, which cannot change to {wish}'
            )
            fix = "delete the pod and create it again, or write what it was created with"
            wrong.append(Violation(code="GPU109", path=field_path(path), message=message, fix=fix))
        return judge.decision_if_not_observing(denied(wrong[: interpret.MOST]), rulebook)
    edits += _others(after, made, stored, {"spec", "metadata"} if whole else {"spec"})
    if edits:
        return Decision(allowed=True, patch=to_patch(edits, request.pod or {}))
    changed = check(request, rulebook) if stored.spec != sent.spec else ()
    return judge.decision_if_not_observing(denied(changed), rulebook) if changed else UNTOUCHED


def _as_written(kept: Mapping[tuple[Path, str], Container], sent: Pod, rulebook: Rulebook) -> Pod:
    """The pod as its author may have written it, without amounts that are there as the API server merges.

    Beside a limit that changes these are the request that was made of the stored one, and beside a fraction
    (`nvidia.com/gpu: "0.5"`) everything that the stored fraction became.
    """
    raw = deepcopy(sent.raw)
    for container in sent.containers:
        there = kept.get((container.path, container.name))
        changed = {section: _changed(there, container, section) for section in _AMOUNTS} if there else {}
        fraction = any(_is_fraction(*amount, rulebook) for amounts in changed.values() for amount in amounts.items())
        for section in _AMOUNTS if any(changed.values()) else ():
            amounts = at(raw, *container.path, "resources", section) or {}
            beside = container.limits if section == "requests" else ()
            for name in [*amounts]:
                if name not in changed[section] and (name in beside or (fraction and name in rulebook.resources)):
                    del amounts[name]
    return pod.read(raw, sent.namespace)


def _differing(there: Container, sent: Container, rulebook: Rulebook) -> list[Difference]:
    differing: list[Difference] = []
    for section in _AMOUNTS:
        before, after = getattr(there, section), getattr(sent, section)
        for name in sorted({*_changed(there, sent, section), *(before.keys() - after.keys())}):
            is_word = name in locations.RESOURCES
            if is_word or name in rulebook.resources:
                path = (*sent.path, "resources", section, name)
                text = after.get(name)
                in_words = text is not None and (is_word or _is_fraction(name, text, rulebook))
                differing.append(Difference(name, path, before.get(name), text, in_words))
    return differing


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


def _others(planned: plan.Plan, made: Pod, stored: Pod, parts: Collection[str]) -> Iterator[Edit]:
    """The edits of what is no amount that give what is stored."""
    for edit in planned.edits:
        path = edit.path
        if path[0] not in parts or any(step in _AMOUNTS for step in path[4:5]):
            continue
        if isinstance(edit, Append) and path == ("spec", "tolerations"):
            if edit.value in (stored.spec.get("tolerations") or ()):
                yield edit
            continue
        # The field that it changes: of the metadata, of the spec, or of a container there.
        length = 3 if path[0] == "metadata" else 2
        if path[1] in SECTIONS:
            length = 5 if path[3] == "resources" else 4
        values = [at(pod_there.raw, *path[:length]) for pod_there in (made, stored)]
        # Nothing reads what pruning has left empty in a list.
        values = [[*filter(None, value)] if isinstance(value, list) else value for value in values]
        if values[0] == values[1]:
            yield edit
