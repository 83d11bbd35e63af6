"""What a pod holds, read from the resources on its containers: who skips the shorthand counts the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core import pod, standing
from webhook.core.asked import Asked
from webhook.core.backend import Backend
from webhook.core.device import Device
from webhook.core.interpret import asks_nothing, interpret
from webhook.core.measures import Measure
from webhook.core.pod import Container, Pod
from webhook.core.request import GpuRequest
from webhook.core.rulebook import Rulebook
from webhook.core.standing import Found, Standing
from webhook.core.tenancy import tally
from webhook.core.tenancy.tally import Tally

_OVER: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one container holds, and by which words: of which back end and card, and how much of it."""

    asked: Asked
    container: Container
    backend: Backend
    card: Device | None
    request: GpuRequest
    measure: Measure


class Count(NamedTuple):
    """What a pod counts; `unsized`: some of its memory is not in it, as nobody knows the card."""

    tally: Tally
    unsized: bool


def holdings(seen: Pod, rulebook: Rulebook) -> list[Holding]:
    """What each container holds; raises Refusal or CannotExpressError where that cannot be read."""
    if asks_nothing(seen, rulebook):
        return []
    found = []
    for asked in interpret(seen, rulebook).asked:
        there = _standing(asked, seen, rulebook) if asked.anything else None
        if there is not None:
            found.append(
                Holding(
                    asked=asked,
                    container=asked.container,
                    backend=there.backend,
                    card=there.card,
                    request=there.request,
                    measure=there.measure,
                )
            )
    return found


def _standing(asked: Asked, seen: Pod, rulebook: Rulebook) -> Standing | None:
    if not asked.native.amounts:
        return standing.claimed(asked, seen, rulebook)
    owners = standing.owners(asked, rulebook)
    return standing.read(asked, owners, lambda backend: Found(standing.card(asked, backend, rulebook)))


def count(held: Iterable[Holding]) -> Count:
    """What the containers of a pod hold together: as Kubernetes counts, each kind of amount by itself.

    Sidecars and containers add up, and each plain init container runs before the latter, beside the sidecars that
    were started before it.
    """
    most: Tally = tally.NOTHING
    staying: Tally = tally.NOTHING
    unsized = False
    for holding in held:
        unsized = unsized or holding.measure.unsized > 0
        amount = _amount(holding)
        if holding.container.kind == "init container":
            most = tally.at_least(most, tally.plus(staying, amount))
        else:
            staying = tally.plus(staying, amount)
    return Count(tally.at_least(most, staying), unsized)


def _amount(holding: Holding) -> Tally:
    amounts = {tally.DEVICES: holding.measure.devices, tally.MEMORY: Fraction(holding.measure.memory)}
    if holding.card is not None:
        model = holding.card.model
        amounts |= {tally.of_model(what, model): amount for what, amount in [*amounts.items()]}
    return {key: amount for key, amount in amounts.items() if amount}


def live(raw: Mapping[str, Any]) -> bool:
    """Whether a stored pod counts at all: one that is over holds nothing, one that is being deleted still does."""
    return (raw.get("status") or {}).get("phase") not in _OVER


def held(raw: Mapping[str, Any], rulebook: Rulebook) -> Count:
    """What a stored pod counts."""
    return count(holdings(pod.read(raw), rulebook))
