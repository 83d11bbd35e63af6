"""Modes of enabled back ends that load, and probably do not mean what their author meant: warnings of `check`.

That a mode is behind one which takes all of its requests is no mistake where it reads what pods bring along.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.reports.examples import pod_of
from webhook.core.rules import index
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import Mode, When
from webhook.core.rules.rulebook import Rulebook
from webhook.core.violations import Refusal


def doubts(rulebook: Rulebook) -> Iterator[str]:
    """Sentences, each with the line of the mode that it is about."""
    for backend in rulebook.enabled:
        yield from _of_modes(backend, index.alone(backend, rulebook.devices))


def _of_modes(backend: Backend, alone: Rulebook) -> Iterator[str]:
    """Modes that no request reaches, that no example shows, or whose way of sharing is not offered."""
    shown = {mode.at for mode in _shown(backend, alone)}
    for mode in reversed({mode.at: mode for mode in reversed(backend.modes)}.values()):
        rule = f"{mode.at.of(backend.name)} spec.modes"
        before = _before(mode, backend)
        if before is not None:
            taken = f'as "{before.name}" ({before.at.line_only}) takes them all'
            yield f'{rule}: no request becomes "{mode.name}", {taken}; it only reads what pods bring along'
        elif mode.at not in shown:
            yield f'{rule}: no example shows "{mode.name}"'
        if mode.when.sharing is not None and mode.when.sharing not in backend.sharing:
            yield f'{rule}: nobody can ask for "{mode.name}", as sharing does not list {mode.when.sharing}'


def _shown(backend: Backend, alone: Rulebook) -> Iterator[Mode]:
    """The modes that the examples of a back end come to."""
    for example in backend.examples:
        try:
            planned = plan.make(pod.read(pod_of(example)), alone)
        except Refusal:
            continue
        yield from (served.mode for served in planned.served)


def _before(mode: Mode, backend: Backend) -> Mode | None:
    """The mode before it that takes all of its requests, whatever the card."""
    earlier = backend.modes[: [each.at for each in backend.modes].index(mode.at)]
    whole = (each for each in earlier if each.profile is None and each.size is None)
    return next((each for each in whole if _covers(each.when, mode.when)), None)


def _covers(general: When, special: When) -> bool:
    """Whether each request that meets the special condition meets the general one, too."""
    (low, high), (least, most) = general.count, special.count
    return (
        least >= low
        and (high is None or (most is not None and most <= high))
        and general.devices in {None, special.devices}
        and general.sharing in {None, special.sharing}
        and general.has <= special.has
        and general.lacks <= special.lacks
        and (not general.models or (bool(special.models) and special.models <= general.models))
        and general.annotated <= special.annotated
        and general.unannotated <= special.unannotated
    )
