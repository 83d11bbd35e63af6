"""The text that rules write into annotations, labels, env and node affinity."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from webhook.core import amounts
from webhook.core.backend import Amount, Constant, Output
from webhook.core.choice import Served
from webhook.core.quantity import show_size
from webhook.core.rulebook import Rulebook

HOLES: Final = ("profile", "product", "model", "container", "tenant", "memory", "claim")
"""What a string of a rule may leave open, as `{model}`. A string whose hole has nothing to fill it is not written."""

_OF_MODELS: Final = frozenset({"product", "lookalikes", "model"})
"""Words for which there is nothing to say where no model is asked for."""

_HOLE = re.compile(r"\{([A-Za-z]+)\}")


def holes(template: str) -> list[str]:
    """The names of the holes in a text, known or not."""
    return _HOLE.findall(template)


def texts(output: Output, served: Served, rulebook: Rulebook) -> Sequence[str]:
    """The values that an output stands for, in order; empty if it is to be left out."""
    if isinstance(output, Constant):
        templates: Sequence[str] = output.value if isinstance(output.value, tuple) else (str(output.value),)
        return [filled for template in templates for filled in _filled(template, served, rulebook) if filled]
    if output.what in amounts.UNITS:
        number, _ = amounts.express(output, served.request, served.card)
        return [] if number is None else [amounts.as_text(output, number)]
    values = _word(output.what, output.form, served, rulebook)
    return [text for value in values for text in output.values.get(value, (value,))]


def text(output: Output, served: Served, rulebook: Rulebook) -> str | None:
    """The same as one string, a list joined by commas; None if it is to be left out."""
    if isinstance(output, Amount) and output.what in _OF_MODELS and not served.request.models:
        return None
    return ",".join(texts(output, served, rulebook)) or None


def _word(what: str, form: str, served: Served, rulebook: Rulebook) -> Sequence[str]:
    request = served.request
    if what in _OF_MODELS:
        return _of_models(what, form, request.models, rulebook) if request.models else ()
    value: str | None = None  # {tenant}: there are no tenants yet
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
        names = _lookalikes(models, rulebook)
    return [as_label(name) for name in names] if form == "label" else names


def _filled(template: str, served: Served, rulebook: Rulebook) -> Sequence[str]:
    """The text with its holes filled, once for each product or model; empty if one has nothing to fill it."""
    texts = [template]
    open_holes = dict.fromkeys(holes(template))
    for hole in open_holes:
        words = _word(hole, "label", served, rulebook)
        if hole == "product" and "profile" in open_holes and not served.request.models:
            words = _products_with(served, rulebook)
        texts = [text.replace(f"{{{hole}}}", word) for text in texts for word in words]
    return texts


def tells_model(output: Output) -> bool:
    """Whether an output says which card model is asked for."""
    return isinstance(output, Amount) and output.what in {"model", "product"}


def _lookalikes(models: Sequence[str], rulebook: Rulebook) -> list[str]:
    """Products of other cards whose names hold one that was asked for, as `NVIDIA A100` holds `NVIDIA A10`."""
    asked = {rulebook.devices[model.lower()].model: rulebook.devices[model.lower()] for model in models}
    wanted = [name.lower() for card in asked.values() for name in card.names]
    vendors = {card.vendor for card in asked.values()}
    others = {card.model: card for card in rulebook.devices.values() if card.vendor in vendors} if asked else {}
    others = {model: card for model, card in others.items() if model not in asked}
    return [name for card in others.values() for name in card.names if any(part in name.lower() for part in wanted)]


def _products_with(served: Served, rulebook: Rulebook) -> Sequence[str]:
    """The products of all cards that have the partition asked for, where no model is."""
    cards = {card.model: card for card in rulebook.devices.values() if served.request.profile in card.profiles}
    names = [name for card in cards.values() if served.backend.serves(card) for name in card.names]
    return [as_label(name) for name in names]


def as_label(name: str) -> str:
    """A driver's product name as GPU feature discovery writes it into a node label.

    Characters outside `[A-Za-z0-9-_. ]` go, spaces become dashes [NVIDIA/k8s-device-plugin internal/lm/resource.go].
    """
    return re.sub(r"[^A-Za-z0-9_. -]", "", name).replace(" ", "-")
