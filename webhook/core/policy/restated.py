"""An update that states again what its pod was created from: /mutate puts back what is stored.

`kubectl apply`, server-side apply and `kubectl replace` send what the pod's author wrote, as `limits: {gpu: "0.3"}`,
and Kubernetes lets no update change what the webhook made of it. If creating the pod as it is sent would give what is
stored, that is put back, and the update changes nothing. Every edit from here equals what is stored, so no update
gets more or counts less by it. Other amounts of a GPU are refused, in words that say what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, Final, NamedTuple

from webhook.core.decision import UNTOUCHED, Decision, denied
from webhook.core.interpret import interpret, locations
from webhook.core.interpret.interpret import MOST
from webhook.core.kube import patch, pod, quantity
from webhook.core.kube.patch import Append, Edit, Put, Remove
from webhook.core.kube.paths import Path, at, field
from webhook.core.kube.pod import SECTIONS, Container, Pod
from webhook.core.plan.plan import Plan
from webhook.core.policy import defaults, device_access, immutable, observe, placement
from webhook.core.request.request import GpuRequest
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Violation

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


def decide(request: AdmissionRequest, rulebook: Rulebook, *, whole: bool) -> Decision:
    """The decision of /mutate about an update, whose pods are pruned; raises Refusal.

    `whole`: the client sent the pod as a whole, so it may lack labels and annotations that it never had from its
    author. What else the API server got is a change of the stored pod, and who removes one of them means it.
    """
    stored, sent = (pod.read(raw or {}, request.namespace) for raw in (request.old_pod, request.pod))
    nothing = all(interpret.asks_nothing(each, rulebook) for each in (stored, sent))
    if stored.raw == sent.raw or (nothing and not device_access.removal(sent, {}, rulebook)):
        return UNTOUCHED
    before = defaults.plan_for_tenant(stored, rulebook)
    after, made = _created(_as_written(stored, sent, rulebook), before, rulebook)
    edits: list[Edit] = []
    for pair in _pairs(stored, sent, made):
        differing = list(_differing(pair, rulebook))
        if differing and not _is_restated(pair, differing, before, after, rulebook):
            wrong = immutable.check(request, rulebook) or [*_refused(pair, differing, _asked(before, pair), rulebook)]
            return observe.enforced(denied([*islice(wrong, MOST)]), rulebook)
        edits += map(_put_back, differing)
    edits += _others(after, made, stored, {"spec", "metadata"} if whole else {"spec"})
    if edits:
        return Decision(allowed=True, patch=patch.to_patch(edits, request.pod or {}))
    changed = immutable.check(request, rulebook) if stored.spec != sent.spec else ()
    return observe.enforced(denied(changed), rulebook) if changed else UNTOUCHED


def _as_written(stored: Pod, sent: Pod, rulebook: Rulebook) -> Pod:
    """The pod as its author may have written it, without amounts that are there as the API server merges.

    Beside a limit that changes these are the request that was made of the stored one, and beside a fraction
    (`nvidia.com/gpu: "0.5"`) everything that the stored fraction became.
    """
    raw = deepcopy(sent.raw)
    for pair in _pairs(stored, sent, sent):
        changed = {section: _changed(pair.stored, pair.sent, section) for section in _AMOUNTS}
        fraction = any(_is_fraction(name, text, rulebook) for each in changed.values() for name, text in each.items())
        for section, amounts in at(raw, *pair.sent.path, "resources").items() if any(changed.values()) else ():
            beside = pair.sent.limits if section == "requests" else ()
            for name in [*(amounts or ())] if section in _AMOUNTS else ():
                if name not in changed[section] and (name in beside or (fraction and name in rulebook.resources)):
                    del amounts[name]
    return pod.read(raw, sent.namespace)


def _created(written: Pod, before: Plan, rulebook: Rulebook) -> tuple[Plan, Pod]:
    """The plan for creating a pod, and the pod as that makes it; its containers keep their back ends."""
    kept = [
        Put(
            ("metadata", "annotations", locations.annotation("gpu-backend", served.asked.container.name)),
            served.backend.name,
        )
        for served in before.served
        if "gpu-backend" not in served.asked.stated
    ]
    planned = defaults.plan_for_tenant(placement.with_metadata(written, kept), rulebook)
    planned.edits[:0] = kept
    planned.edits += device_access.removing(device_access.removal(written, planned.backends, rulebook))
    return planned, pod.read(
        patch.applied(patch.to_patch(planned.edits, written.raw), written.raw), written.namespace
    )


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
    asked = _asked(before, pair)
    in_words = (each.sent is None or _is_word(each.name, each.sent, rulebook) for each in differing)
    return asked is not None and asked == _asked(after, pair) and all(in_words)


def _is_word(name: str, text: Any, rulebook: Rulebook) -> bool:
    """Whether an amount is shorthand, which leaves the container when it is translated."""
    return name in locations.RESOURCES or _is_fraction(name, text, rulebook)


def _asked(planned: Plan, pair: Pair) -> GpuRequest | None:
    """What a container asks for in shorthand."""
    found = (asked for asked in planned.interpretation.asked if asked.container.path == pair.sent.path)
    return next((asked.request for asked in found), None)


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


def _read(seen: Pod, path: Path) -> Any:
    """What stands in the field of a pod that an edit changes, without what nothing reads of a list."""
    length = 2
    if path[0] == "metadata":
        length = 3
    elif path[1] in SECTIONS:
        length = 5 if path[3] == "resources" else 4
    value = at(seen.raw, *path[:length])
    return [element for element in value if element] if isinstance(value, list) else value


def _refused(
    pair: Pair, differing: list[Difference], had: GpuRequest | None, rulebook: Rulebook
) -> Iterator[Violation]:
    """A violation for each amount that differs: those in shorthand if there are any, and in limits if it is there."""
    words = [each for each in differing if each.sent is not None and _is_word(each.name, each.sent, rulebook)]
    limits = [each for each in words or differing if "limits" in each.path]
    for each in limits or words or differing:
        yield Violation(
            code="GPU109",
            path=field(each.path),
            message=f'the container "{pair.sent.name}" was created with {had or _shown(each.name, each.stored)}, '
            f"which cannot change to {_shown(each.name, each.sent)}",
            fix="delete the pod and create it again, or write what it was created with",
        )


def _shown(name: str, value: Any) -> str:
    return f"{name}: {locations.as_written(quantity.text_of(value))}" if value is not None else f"no {name}"
