"""Card models by the names that people, nodes, drivers and labellers give them; and which ones a cluster has.

Capitals, spaces, dashes and underscores make no difference: `NVIDIA A100-SXM4-80GB`, `AMD_Instinct_MI300X_OAM`. Words
before the first digit may be missing (`A100-SXM4-80GB`), and the vendor's name may stand before any. What GPU feature
discovery appends to a product (`-SHARED`, `-MIG-3g.20gb`) is no part of its name. A name of several sizes (`A100`)
means all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from webhook.core.backends import cards
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.rulebook import Rulebook

LISTED: Final = 12
"""How many names a message lists."""

_SEPARATOR: Final = re.compile(r"[ _-]+")
_APPENDED: Final = re.compile(r"-(?:shared|mig-.+)$")
_SIZE: Final = re.compile(r"-[0-9]+gb$")
_FIRST_WORD: Final = re.compile(r"^[a-z]+-")


def read(name: str, rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a name means, several if it has no size; none for a name that no catalogue knows."""
    known = _index(rulebook)
    if name in known:
        return known[name]
    said = _APPENDED.sub("", _plain(name))
    if said in known:
        return known[said]
    vendor, _, rest = said.partition("-")
    return [card for card in known.get(rest, ()) if card.vendor == vendor]


def suggested(names: Sequence[str], near: str = "") -> str:
    """Some of the names for a message: the one that is `near` what was asked, then the others in their order."""
    ordered = dict.fromkeys([*([near] if near else ()), *names])
    return ", ".join([*ordered][:LISTED]) + (", ..." if len(ordered) > LISTED else "")


def here(rulebook: Rulebook, backend: Backend | None = None) -> Sequence[str]:
    """The models that a back end serves, or all enabled ones; those of known nodes come first."""
    key = (here, backend.name if backend else "")
    known: Sequence[str] | None = rulebook.cache.get(key)
    if known is None:
        known = rulebook.cache[key] = _served([backend] if backend else rulebook.enabled, rulebook)
    return known


def _served(owners: Sequence[Backend], rulebook: Rulebook) -> Sequence[str]:
    present = [card.model for card in rulebook.surroundings.cards.values()]
    served = {card.model for owner in owners for card in cards.served(owner, rulebook) if _can_be_named(card, owner)}
    return [*dict.fromkeys(model for model in present if model in served), *sorted(served.difference(present))]


def _can_be_named(card: Card, owner: Backend) -> bool:
    """Whether a pod that names the card can get it of a back end."""
    alone = owner.models == {card.model.lower()}
    ways = ("product",) if card.names else ()
    return any(
        (alone or mode.selects in {"model", *ways}) and (mode.when.devices != "profile" or card.profiles)
        for mode in owner.modes
    )


def _plain(name: str) -> str:
    return _SEPARATOR.sub("-", name.strip().lower())


def _index(rulebook: Rulebook) -> Mapping[str, Sequence[Card]]:
    """The cards by every plain name; made once for each rulebook."""
    known: Mapping[str, Sequence[Card]] | None = rulebook.cache.get(_index)
    if known is None:
        known = rulebook.cache[_index] = _made(rulebook)
    return known


def _made(rulebook: Rulebook) -> Mapping[str, Sequence[Card]]:
    exact = {_plain(name): [card] for name, card in rulebook.devices.items()}
    sizes: dict[str, dict[str, Card]] = {}
    shorter: dict[str, dict[str, Card]] = {}
    for card in rulebook.devices.values():
        sizes.setdefault(_SIZE.sub("", _plain(card.model)), {})[card.model] = card
        for name in card.names:
            rest = _plain(name)
            while match := _FIRST_WORD.match(rest):
                rest = rest[match.end() :]
                shorter.setdefault(rest, {})[card.model] = card
    several = {name: [*found.values()] for name, found in sizes.items() if len(found) > 1}
    return {**{name: [*found.values()] for name, found in shorter.items()}, **exact, **several}
