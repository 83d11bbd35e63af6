"""A table of `rules/REFERENCE.md`: what becomes of pods of other systems that are rewritten for a back end.

It comes from rewriting: of every system with cards of the same vendor, one pod of each kind that it can say itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.edited import edited
from webhook.cli.convert import rewritten
from webhook.cli.explanation import Explanation, explain
from webhook.core import examples
from webhook.core.backends import cards
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook, with_only

USUAL = "A100-80GB"
"""The card, where a system has it: it can be shared in every way."""

KINDS: Mapping[str, Sequence[Mapping[str, str]]] = {
    "a card": [{"gpu": "1"}],
    "several": [{"gpu": "2"}],
    "memory": [{"gpu-memory": "4Gi"}],
    "memory and compute": [{"gpu-memory": "4Gi", "gpu-cores": "30"}],
    "a share": [{"gpu": "0.25"}, {"gpu": "0.5"}, {"gpu": "0.1"}],
    "compute": [{"gpu-cores": "30"}],
    "a partition": [],
}
"""What is asked, the first that a system can say and says so."""

EXACT, TOLD, REFUSED = "=", "~", "-"


def table(rulebook: Rulebook) -> str:
    """One row for all back ends with the same outcomes, in the order of their names."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, target in sorted(rulebook.backends.items()):
        cells = tuple(_cell(kind, target, rulebook) for kind in KINDS)
        rows.setdefault(cells, []).append(name)
    heading = [f"| to | {' | '.join(KINDS)} |", "| --- |" + " --- |" * len(KINDS)]
    return "\n".join([*heading, *(f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in rows.items())])


def _cell(kind: str, target: Backend, rulebook: Rulebook) -> str:
    found = {outcome for source in _others(target, rulebook) for outcome in _outcome(kind, source, target, rulebook)}
    return " ".join(one for one in (EXACT, TOLD, REFUSED) if one in found)


def _others(target: Backend, rulebook: Rulebook) -> Iterator[Backend]:
    """The other systems with cards of a vendor that this one has, too."""
    for source in rulebook.backends.values():
        if source is not target and (source.vendors & target.vendors or not (source.vendors and target.vendors)):
            yield source


def _outcome(kind: str, source: Backend, target: Backend, rulebook: Rulebook) -> Iterator[str]:
    understood = said(kind, source.name, rulebook)
    if understood is not None:
        card = _card(source, rulebook)
        done = rewritten(understood, _alone(source.name, card, rulebook), _alone(target.name, card, rulebook))
        yield REFUSED if not done.decision.allowed else TOLD if done.decision.warnings else EXACT


def said(kind: str, source: str, rulebook: Rulebook) -> Explanation | None:
    """A pod of this kind as the system has it, without a word of ours; None if it cannot say that."""
    known: Explanation | None
    if (said, kind, source) in rulebook.cache:
        known = rulebook.cache[said, kind, source]
        return known
    backend = rulebook.backends[source]
    card = _card(backend, rulebook)
    alone = _alone(source, card, rulebook)
    profiles = backend.profiles & rulebook.devices[card.lower()].profiles.keys()
    asks = KINDS[kind] or [{"gpu-profile": name} for name in sorted(profiles)]
    found = (_understood(ask, backend, alone) for ask in asks)
    known = next((one for one in found if one is not None and kind == _kind(one)), None)
    rulebook.cache[said, kind, source] = known
    return known


def _understood(ask: Mapping[str, str], backend: Backend, alone: Rulebook) -> Explanation | None:
    example = next(one for one in backend.examples if one.refused is None)
    raw: Mapping[str, Any] = examples.pod_of(replace(example, ask=ask))
    planned = plan.make(pod.read(raw), alone)
    if planned.violations or not planned.assignments:
        return None
    done = edited(planned.edits, raw)
    annotations = {key: text for key, text in done["metadata"]["annotations"].items() if "gpu-webhook.io/" not in key}
    bare = {**done, "kind": "Pod", "metadata": {**done["metadata"], "annotations": annotations}}
    [understood] = explain(bare, alone)
    read = rewritten(understood, alone, alone)
    return replace(understood, converted=read.converted) if read.converted is not None else None


def _kind(understood: Explanation) -> str:
    """What the system's own words ask, whatever was asked in ours: some drop the compute."""
    [served] = understood.converted.assignments if understood.converted else [None]
    return "" if served is None else _kind_of(served.request)


def _kind_of(request: GpuRequest) -> str:
    if request.devices in {"profile", "whole"}:
        return "a partition" if request.profile is not None else "several" if request.count > 1 else "a card"
    sized = request.memory is not None or request.memory_share is not None
    if sized and request.cores is not None:
        return "a share" if request.memory is None else "memory and compute"
    return "memory" if sized else "compute"


def _alone(name: str, model: str, rulebook: Rulebook) -> Rulebook:
    """The cluster that has only this back end, and whose document says which card it has."""
    known: Rulebook | None = rulebook.cache.get((_alone, name, model))
    if known is None:
        made = with_only(name, rulebook)
        known = rulebook.cache[_alone, name, model] = replace(made, cluster=replace(made.cluster, device=model))
    return known


def _card(backend: Backend, rulebook: Rulebook) -> str:
    models = [card.model for card in cards.card_served(backend, rulebook)]
    return USUAL if USUAL in models else models[0]
