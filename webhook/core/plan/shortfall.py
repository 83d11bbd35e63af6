"""The check that a pod, as it would be stored, gives at least what its shorthand asks.

No back end is chosen again, and unknown resources are accepted: replicas have different rules for a while after each
change, and no pod may be refused for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.core.backends import read_back, translate
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.interpret import extended_resources, locations
from webhook.core.interpret.container_request import ContainerRequest
from webhook.core.interpret.interpret import Interpretation, interpret
from webhook.core.kube.pod import Pod
from webhook.core.plan import allocation, resource_claims
from webhook.core.plan.allocation import Allocation
from webhook.core.plan.choose import Assignment
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Violation

CREATE_AGAIN: Final = "create the pod again; if it happens again, show this to an operator of the cluster"
"""The fix for a pod that the mutating webhook has not translated."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The violations, and how the pod was read: the rulebook, the interpretation, the allocations by container."""

    violations: Sequence[Violation]
    interpretation: Interpretation
    rulebook: Rulebook
    allocations: Mapping[str, Allocation]


def check(seen: Pod, rulebook: Rulebook) -> Checked:
    """Compare what each container asks with its resources.

    The replica that translated the pod may have a back end enabled that this one has not. So if something seems to be
    missing from a pod with the note of a translation, it is read again by the rules of every back end.
    """
    first = _checked(seen, rulebook)
    if first.violations and locations.NOTE in seen.annotations:
        again = _checked(seen, _hearing_all(rulebook))
        if not again.violations:
            return again
    return first


def _hearing_all(rulebook: Rulebook) -> Rulebook:
    """The rulebook that reads the annotations and labels of every back end, enabled or not."""
    return replace(rulebook, slots=rulebook.all_slots, annotations=rulebook.all_annotations)


def _checked(seen: Pod, rulebook: Rulebook) -> Checked:
    found = interpret(seen, rulebook)
    lasting = allocation.lasting(seen, rulebook)
    # A model that this replica's catalogue lacks (3xx) may be in that of the replica that translated.
    violations = [violation for violation in found.violations if not violation.code.startswith("GPU3")]
    allocations: dict[str, Allocation] = {}
    for asked in found.asked:
        there = allocation.written(asked, lasting)
        if there is not None:
            allocations[asked.container.name] = there
        if there is None or not _claimed(there.served, asked, seen, rulebook):
            violations += _given(asked, seen, rulebook)
    return Checked(violations, found, rulebook, allocations)


def _claimed(served: Assignment, asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> bool:
    """Whether a container has the resource claims that its shorthand becomes."""
    wanted = resource_claims.templates(served, rulebook)
    return not wanted or resource_claims.used(seen, asked.container).issuperset(wanted)


def _given(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Iterator[Violation]:
    """A violation if the container's resources are less than its shorthand asks.

    Resources that no rule here knows may be those of a back end that only the translating replica knows, if the pod
    has its note. The note proves nothing, and a forged one gives no GPU.
    """
    noted = locations.NOTE in seen.annotations
    if asked.request is None or (noted and any(extended_resources.foreign(asked.container, rulebook))):
        return
    if asked.extended.amounts:
        owners = allocation.known_owners(asked, rulebook)
        if not any(_gives(asked, owner, rulebook) or _writes(asked, seen, owner, rulebook) for owner in owners):
            yield _less(asked, seen)
    elif noted and resource_claims.made_for(seen, asked.container):
        return  # another webhook, which runs later, made claims of its resources
    elif not any(_writes(asked, seen, backend, rulebook) for backend in _by_claim(asked, seen, rulebook)):
        yield _untranslated(asked)


def _by_claim(asked: ContainerRequest, seen: Pod, rulebook: Rulebook) -> Sequence[Backend]:
    """The back ends that may have served a container without resources: those with claims, if it has a claim."""
    if not resource_claims.used(seen, asked.container):
        return ()
    return [backend for backend in rulebook.backends.values() if any(mode.claims for mode in backend.modes)]


def _writes(asked: ContainerRequest, seen: Pod, backend: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end translates this request to exactly the container's resources."""
    served = allocation.as_written(replace(asked, extended=extended_resources.NOTHING), backend, rulebook)
    return served is not None and asked.extended.amounts == served.amounts and _claimed(served, asked, seen, rulebook)


def _gives(asked: ContainerRequest, owner: Backend, rulebook: Rulebook) -> bool:
    """Whether a back end reads the container's resources as at least what is asked."""
    if asked.request is None:
        return True
    try:
        given, _ = read_back.understand(asked.extended.amounts, owner, asked.annotations)
        card = translate.find_card(asked.request, rulebook, owner)
        return read_back.gives(given, translate.with_cores(asked.request, card), card)
    except CannotExpressError:
        return False


def _untranslated(asked: ContainerRequest) -> Violation:
    return Violation(
        code="GPU601",
        path=asked.request.path() if asked.request else "",
        message=f'the container "{asked.container.name}" asks for {asked.request} and has no GPU resource: '
        "the mutating webhook did not run, or another one took its work away",
        fix=CREATE_AGAIN,
    )


def _less(asked: ContainerRequest, seen: Pod) -> Violation:
    there = ", ".join(f"{name}: {asked.extended.texts[name]}" for name in asked.extended.amounts)
    note = seen.annotations.get(locations.NOTE, "untranslated")
    return Violation(
        code="GPU602",
        path=extended_resources.where(asked.container, next(iter(asked.extended.amounts))),
        message=f'the container "{asked.container.name}" asks for {asked.request} and would get {there} ({note})',
        fix=f"remove {', '.join(asked.extended.amounts)}; the shorthand writes what it needs",
    )
