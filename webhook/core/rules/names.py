"""Names in a document that stand for what other documents define."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.core.forms.document import Node
from webhook.core.forms.shape import TEXT, Scope, Shape
from webhook.core.kube.quantity import QuantityError
from webhook.core.request import shorthand
from webhook.core.rules.catalog import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a document can name.

    backends      those that there is a rule for, and of them the `enabled` ones
    parametrised  all rules that may have parameters
    devices       card models by lower-case name and alias
    asking        annotations and labels in which back ends are asked for devices
    """

    backends: Collection[str]
    enabled: Collection[str] = ()
    parametrised: Collection[str] = ()
    devices: Mapping[str, Card]
    asking: Collection[str] = ()


def one_of(complaint: str, names: Callable[[Known], Collection[str]]) -> Shape[str]:
    """One of these names; `complaint` is said of another."""

    def read(node: Node, scope: Scope) -> str:
        if node.text() not in (known := names(scope.known)):
            raise node.problem(f'{complaint} "{node.value}"{scope.nearest(node.text(), known)}', unknown=True)
        return node.text()

    return TEXT.reading(read)


def enabled_by(where: str) -> Shape[str]:
    """A back end that `where` enables."""

    def read(node: Node, scope: Scope) -> str:
        known, name = scope.known, node.text()
        if name not in known.enabled:
            hint = "; add it there" if name in known.backends else scope.nearest(name, known.enabled)
            raise node.problem(f'{where} does not enable "{name}"{hint}', unknown=True)
        return name

    return TEXT.reading(read)


def _model(node: Node, scope: Scope) -> str:
    devices: Mapping[str, Card] = scope.known.devices
    if node.text().lower() not in devices:
        models = {device.model for device in devices.values()}
        message = f'no catalogue knows the model "{node.value}"{scope.nearest(node.text(), models)}'
        raise node.problem(message, unknown=True)
    return devices[node.text().lower()].model


def _profile(node: Node, scope: Scope) -> str:
    profiles = {profile for device in scope.known.devices.values() for profile in device.profiles}
    with contextlib.suppress(QuantityError):
        if (profile := shorthand.profile(node.text())) in profiles:
            return profile
    message = f'no catalogue has the profile "{node.value}"{scope.nearest(node.text(), profiles)}'
    raise node.problem(message, unknown=True)


BACKEND: Final = one_of("no rule defines the back end", lambda known: known.backends)
PARAMETRISED: Final = one_of("no rule defines the back end", lambda known: known.parametrised)
VENDOR: Final = one_of(
    "no catalogue is of the vendor", lambda known: {device.vendor for device in known.devices.values()}
)
MODEL: Final = TEXT.reading(_model)
PROFILE: Final = TEXT.reading(_profile)
