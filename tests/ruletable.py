"""A table of `rules/REFERENCE.md`: what every shipped back end makes of a request, and what it cannot say.

Both come from running the rules: the first column of an example that the rule carries, the last from asking.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.edited import edited
from webhook.core import examples
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.rules.backend import Backend, Example
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook, Surroundings, with_only

SIZED = {"gpu-memory": "1Gi", "gpu-cores": "10"}
PROBES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "whole devices": [{"gpu": "1"}],
    "several whole devices": [{"gpu": "2"}],
    "shares": [{"gpu": "0.1"}, {"gpu": "0.5"}],
    "shares of several devices": [{"gpu": "2x0.1"}, {"gpu": "2x0.6"}],
    "`gpu-memory`": [{"gpu-memory": "1Gi"}, SIZED],
    "`gpu-cores`": [SIZED],
    "`gpu-profile`": [],
    "`gpu-model`": [{"gpu": "1"}, {"gpu": "0.1"}, {"gpu": "0.5"}],
}
"""What is tried, of each card that the back end serves; one of several is enough."""

IMPLIED = {
    "whole devices": "several whole devices",
    "shares": "shares of several devices",
    "`gpu-memory`": "`gpu-cores`",
}
"""Who cannot do the one is not said to be unable to do the other as well."""


def table(rulebook: Rulebook) -> str:
    """One row for each back end, in the order of their names."""
    heading = ["| `gpu-backend` | asked | what the pod gets | cannot express |", "| --- | --- | --- | --- |"]
    return "\n".join([*heading, *(_row(backend, rulebook) for _, backend in sorted(rulebook.backends.items()))])


def _row(backend: Backend, rulebook: Rulebook) -> str:
    alone = with_only(backend.name, rulebook)
    example = _telling(backend)
    asked = ", ".join(f"`{key}: {_quoted(value)}`" for key, value in example.ask.items())
    link = f"[{backend.name}]({backend.at.file})"
    cells = [link, asked, "<br>".join(_gets(example, alone)), ", ".join(_cannot(backend, alone)) or "-"]
    return f"| {' | '.join(cells)} |"


def _quoted(value: str) -> str:
    return f'"{value}"' if value.replace(".", "").isdecimal() else value


def _telling(backend: Backend) -> Example:
    """The first example of a part or partition that comes out, else the first that does."""
    served = [example for example in backend.examples if example.refused is None and "/" not in "".join(example.ask)]
    parts = [example for example in served if example.ask.get("gpu", "0.")[:2] in {"0.", "2x"}]
    return (parts or served)[0]


def _gets(example: Example, alone: Rulebook) -> Iterator[str]:
    """What the pod has afterwards that it did not have before."""
    raw = examples.pod_of(example)
    found = examples.sections(edited(plan.make(pod.read(raw), alone).edits, raw))
    before = examples.sections(raw)
    for section, value in found.items():
        if section == "tolerations":
            continue  # each has some, and none of them says what a request becomes
        yield from _said(section, value, before[section])


def _said(section: str, value: Any, before: Any) -> Iterator[str]:
    if not value or value == before:
        return
    prefix = "" if section == "limits" else f"{section} "
    if isinstance(value, dict):
        new = {key: entry for key, entry in value.items() if key not in (before or {})}
        yield from (f"{prefix}`{key}: {_text(entry)}`" for key, entry in new.items())
    else:
        yield f"{prefix}`{_text(value)}`"


def _text(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    shown = value if len(value) < 3 else [*value[:2], "..."]
    return f"[{', '.join(map(str, shown))}]" if shown else "must not be there"


def _cannot(backend: Backend, alone: Rulebook) -> Iterator[str]:
    lost: list[str] = []
    for what, words in PROBES.items():
        if what not in {IMPLIED.get(other) for other in lost} and not _can(what, words, backend, alone):
            lost.append(what)
            yield what


def _can(what: str, words: Sequence[Mapping[str, str]], backend: Backend, alone: Rulebook) -> bool:
    cards = [card for card in alone.devices.values() if backend.serves(card)]
    return any(_served(what, words, card, backend, alone) for card in {card.model: card for card in cards}.values())


def _served(what: str, words: Sequence[Mapping[str, str]], card: Card, backend: Backend, alone: Rulebook) -> bool:
    known = replace(alone, surroundings=Surroundings(cards={backend.name: [card]}))
    example = _telling(backend)  # with whatever else such a pod has to have
    pods = (examples.pod_of(replace(example, ask=ask)) for ask in _asks(what, words, card, backend))
    plans = (plan.make(pod.read(raw), known, most_trials=0) for raw in pods)
    return any(not planned.violations and not _open(what, planned) for planned in plans)


def _open(what: str, planned: plan.Plan) -> bool:
    """Whether compute was asked and is not limited."""
    return what == "`gpu-cores`" and any("does not limit compute" in warning for warning in planned.warnings)


def _asks(what: str, words: Sequence[Mapping[str, str]], card: Card, backend: Backend) -> Iterator[Mapping[str, str]]:
    for name in card.profiles if what == "`gpu-profile`" else ():
        if name in backend.profiles:
            yield {"gpu-profile": name}
    for one in words:
        if what != "`gpu-model`":
            yield one
        yield {**one, "gpu-model": card.model}
