"""The text that rules write into annotations, labels, env and node affinity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from webhook.core.backends import amounts, cards
from webhook.core.kube.quantity import show_size
from webhook.core.plan.choose import Assignment
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Mode
from webhook.core.rules.outputs import Constant, Output
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.vocabulary import holes

_OF_MODELS: Final = frozenset({"product", "lookalikes", "model"})
"""Words that have no value if no model is asked for."""


def texts(output: Output, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The values of an output, in order; empty if it is to be left out."""
    if isinstance(output, Constant):
        return [filled for template in output.texts for filled in _filled(template, served, rulebook) if filled]
    if output.is_number:
        number, _ = amounts.express(output, served.request, served.card)
        return [] if number is None else [amounts.as_text(output, number)]
    values = _word(output.what, output.form, served, rulebook)
    return [text for value in values for text in output.values.get(value, (value,))]


def text(output: Output, served: Assignment, rulebook: Rulebook) -> str | None:
    """The values of an output joined by commas; None if it is to be left out."""
    if output.what in _OF_MODELS and not served.request.models:
        return None
    return ",".join(texts(output, served, rulebook)) or None


def _word(what: str, form: str, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    request = served.request
    if what in _OF_MODELS:
        return _of_models(what, form, request.models, rulebook) if request.models else ()
    value: str | None = None
    match what:
        case "container":
            value = served.asked.container.name
        case "memory":
            value = None if request.memory is None else show_size(request.memory)
        case "profile" | "placement" | "claim":
            value = getattr(request, what)
    return () if value is None else (value,)


def _of_models(what: str, form: str, models: Sequence[str], rulebook: Rulebook) -> Sequence[str]:
    if what == "model":
        return models
    if what == "product":
        names = [name for model in models for name in rulebook.devices[model.lower()].names]
    else:
        names = [name for _, name in _lookalikes("product", models, rulebook)]
    return [cards.as_label(name) for name in names] if form == "label" else names


def _filled(template: str, served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The text with its holes filled, once for each product or model; empty if a hole has no value."""
    texts = [template]
    open_holes = dict.fromkeys(holes(template))
    for hole in open_holes:
        words = _word(hole, "label", served, rulebook)
        if hole == "product" and "profile" in open_holes and not served.request.models:
            words = _products_with(served, rulebook)
        texts = [text.replace(f"{{{hole}}}", word) for text in texts for word in words]
    return texts


def taken_for(models: Sequence[str], modes: Iterable[Mode], rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a system with one of these modes may give, beside the models that it is asked for."""
    loosely = {mode.loosely for mode in modes if mode.loosely} if models else ()
    found = (card for what in loosely for card, _ in _lookalikes(what, models, rulebook))
    return list({card.model: card for card in found}.values())


def _lookalikes(what: str, models: Sequence[str], rulebook: Rulebook) -> list[tuple[Card, str]]:
    """Other cards and their products whose names contain a requested one, as `NVIDIA A100` contains `NVIDIA A10`.

    `what` is `product` or `model`: the names by which they are requested.
    """
    asked = {card.model: card for card in (rulebook.devices[model.lower()] for model in models)}
    vendors = {card.vendor for card in asked.values()}
    products = _products(rulebook)
    places = {place for card in asked.values() for place in _like(what, card, rulebook)}
    found = (products[place] for place in sorted(places))
    return [(card, name) for card, name in found if card.vendor in vendors and card.model not in asked]


def _products(rulebook: Rulebook) -> Sequence[tuple[Card, str]]:
    """The products of all cards; listed once for each rulebook."""
    known: list[tuple[Card, str]] | None = rulebook.cache.get(_products)
    if known is None:
        all_cards = {card.model: card for card in rulebook.devices.values()}.values()
        known = rulebook.cache[_products] = [(card, name) for card in all_cards for name in card.names]
    return known


def _like(what: str, card: Card, rulebook: Rulebook) -> Sequence[int]:
    """The places of the products whose names contain one of the card's; found once for each card."""
    known: list[int] | None = rulebook.cache.get((_like, what, card.model))
    if known is None:
        parts = [name.lower() for name in (card.names if what == "product" else [card.model])]
        lower = [name.lower() for _, name in _products(rulebook)]
        known = [place for place, name in enumerate(lower) if any(part in name for part in parts)]
        rulebook.cache[_like, what, card.model] = known
    return known


def _products_with(served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The products of all cards that have the requested partition, if no model is asked for."""
    able = (card for card in cards.served(served.backend, rulebook) if served.request.profile in card.profiles)
    names = [name for card in able for name in card.names]
    return [cards.as_label(name) for name in names]
