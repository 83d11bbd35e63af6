"""Mutants: documents with one small change, to see whether an example or a suite notices.

Each entry, element of a list and mode is dropped once, each number is one more and one less in its last digit, and
each word, unit, text and model becomes another. Of a list of texts or numbers this is its first and last element.
Left alone is what only recognises nodes and users, or is for people.

No mutant is what the forms refuse, because nobody could write it, and what means the same as before:

- a default that is written out, and a line that writes nothing until a site sets its parameter
- a parameter that only nodes read
- a least value that is one step, because every amount is rounded up to a step or refused
- a mode for devices of any kind, because modes before it and the kinds that the back end has leave it one kind
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from webhook.core import examples
from webhook.core.forms import inheritance
from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, inside, of_json
from webhook.core.request import DEVICES, SHARINGS
from webhook.core.rules.backend import Backend, Nodes
from webhook.core.rules.catalog import Cards
from webhook.core.rules.load import Loaded, Memory, exemptions_from, policies_from, read
from webhook.core.rules.modes import Constant, Outputs
from webhook.core.rules.rulebook import Rulebook, with_backend_alone
from webhook.core.violations import ACTIONS

# What is changed, and into what

_SILENT: Final = {
    "description", "extends", "examples", "nodes", "writers", "otherDevices", "constraints", "name", "label", "also",
    "owner", "reason",
}  # fmt: skip
"""Keys of what decides nothing about a pod that is created."""

_KEYED: Final = {"limits", "annotations", "labels", "env", "nodeAffinity", "values", "names"}
"""Mappings whose entries are dropped whole, whatever stands in them; of others what stands in the entries is."""

_WORDS: Final[Mapping[str, Sequence[str]]] = {
    "devices": DEVICES,
    "sharing": SHARINGS,
    "absent": ("whole", "none"),
    "form": ("label", "name"),
    "enforcementAction": ACTIONS,
    "deviceAccess": ("deny", "warn", "remove"),
    "unknownDevices": ("deny", "warn"),
    "operator": ("In", "NotIn"),
}
"""Keys whose value is a word of these: it becomes the next one."""

_TURNED: Final = {"has": "lacks", "lacks": "has", "allowed": "forbidden", "forbidden": "allowed"}
_UNITS: Final = {"MiB": "GiB", "GiB": "MiB", "Mi": "Gi", "Gi": "Mi", "percent": "MiB", "quantity": "MiB"}
_NUMBER: Final = re.compile(r"([0-9]+)(\.[0-9]+)?(MiB|GiB|Mi|Gi)?")
_DAY: Final = re.compile(r"([0-9]{4}-[0-9]{2}-)([0-9]{2})(T.*)")


class Change(NamedTuple):
    """What became what, and where; `mode` is the place of the mode that it is in."""

    at: Location
    path: str
    before: str
    after: str
    mode: Location | None = None


def changes(document: Node, devices: Cards) -> Iterator[tuple[Change, Node]]:
    """Every small change of a document, with the document that it makes."""

    def inner(node: Node, path: str, key: str) -> Iterator[tuple[Change, Node]]:
        match node.value:
            case dict() as entries:
                plain = {name: child.value for name, child in entries.items()}
                for name, child in entries.items():
                    if name in _SILENT:
                        continue
                    at, below = node.keys.get(name, node.at), inside(path, name)
                    rest = {other: value for other, value in entries.items() if other != name}
                    one_step = name == "min" and child.value == plain.get("step", 1)
                    if key in _KEYED or not (one_step or name == "devices" or isinstance(child.value, dict | list)):
                        yield Change(at, below, _shown(child), "nothing"), _mapping(node, rest)
                    other = _model(name, devices) if key == "models" else _TURNED.get(name)
                    if other and other not in entries:
                        yield Change(at, path, name, other), _mapping(node, rest | {other: child})
                    for change, value in inner(child, below, name):
                        yield change, _mapping(node, entries | {name: value})
            case list() as elements:
                for index, child in enumerate(elements):
                    scalar = not isinstance(child.value, dict | list)
                    if scalar and 0 < index < len(elements) - 1:
                        continue
                    before, after, below = elements[:index], elements[index + 1 :], f"{path}[{index}]"
                    mode = child.at if path == "spec.modes" else None
                    dropped = Change(child.at, below, _shown(child), "nothing", mode)
                    yield dropped, replace(node, value=[*before, *after])
                    for change, value in inner(child, below, ""):
                        changed = replace(node, value=[*before, value, *after])
                        yield change._replace(mode=change.mode or mode), changed
            case value:
                for other in _others(value, key, devices):
                    yield Change(node.at, path, _shown(node), str(other)), replace(node, value=other)

    for change, spec in inner(document.value["spec"], "spec", ""):
        yield change, _mapping(document, {**document.value, "spec": spec})


def _mapping(node: Node, entries: Mapping[str, Node]) -> Node:
    return replace(node, value=entries)


def _others(value: Any, key: str, devices: Cards) -> Iterator[Any]:
    """What a value becomes that stands under a key, which is empty for an element of a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (value + 1, value - 1)
    if not isinstance(value, str) or "$(" in value:
        return
    words = _WORDS.get(key, ())
    if value in words:
        yield words[(words.index(value) + 1) % len(words)]
    elif model := _model(value, devices):
        yield model
    elif value in _UNITS:
        yield _UNITS[value]
    elif match := _NUMBER.fullmatch(value):
        digits, unit = match[1] + (match[2] or ""), match[3] or ""
        places = len((match[2] or ".")[1:])
        number = int(digits.replace(".", ""))
        for other in (number + 1, number - 1):
            text = str(other).zfill(places + 1)
            yield (f"{text[:-places]}.{text[-places:]}" if places else text) + unit
        if unit:
            yield digits + _UNITS[unit]
    elif match := _DAY.fullmatch(value):
        yield from (f"{match[1]}{int(match[2]) + days:02}{match[3]}" for days in (1, -1))
    elif key:
        yield f"{value}x"


def _model(name: str, devices: Cards) -> str | None:
    """The next model of the vendor of a model; None for what is none, or the only one."""
    card = devices.get(name.lower())
    if card is None or card.model.lower() != name.lower():
        return None
    models = sorted({other.model for other in devices.values() if other.vendor == card.vendor})
    other = models[(models.index(card.model) + 1) % len(models)]
    return None if other == card.model else other


def _shown(node: Node) -> str:
    """A value as its author wrote it, on one line."""
    text = examples.shown(node.plain())
    return text if len(text) < 80 else f"{text[:77]}..."


# Whether somebody notices


class Mutant(NamedTuple):
    """A change that was tried, and whether an example or a suite has noticed."""

    change: Change
    noticed: bool


def of_backend(
    documents: Sequence[Node], name: str, memory: Memory, suites: Callable[[Sequence[Node]], bool]
) -> Iterator[Mutant]:
    """The mutants of a back end, tried by its examples, then by those of back ends that extend it, then by suites.

    `documents` are sound. `suites` says whether one notices what they become.
    """
    backends = {name_of(node): node for node in documents if kind(node) == "Backend"}
    catalogs = [node for node in documents if kind(node) == "DeviceCatalog"]
    specs = {other: node.value["spec"] for other, node in backends.items()}
    names_of = {id(spec): other for other, spec in specs.items()}
    chains = {other: [names_of[id(spec)] for spec in inheritance.lineage(other, specs)] for other in specs}
    names = [name, *(other for other, chain in chains.items() if name in chain and other != name)]
    family = {other for heir in names for other in chains[heir]}

    def loaded(mutant: Node) -> Loaded:
        specimens = [mutant if other == name else backends[other] for other in sorted(family)]
        return read([*catalogs, *specimens, _NO_CLUSTER], "", memory)

    own = backends[name]
    before = loaded(own)
    meant = {backend.name: _meaning(backend) for backend in before.backends}
    for change, mutant in changes(own, before.rulebook.devices):
        try:
            after = {backend.name: backend for backend in loaded(mutant).backends}
        except DocumentError:
            continue
        if unlike := [after[heir] for heir in names if _meaning(after[heir]) != meant[heir]]:
            failing = (
                problem
                for backend in unlike
                for problem in examples.failing(backend, with_backend_alone(backend, before.rulebook.devices))
            )
            noticed = next(failing, None) is not None
            yield Mutant(change, noticed or suites([mutant if node is own else node for node in documents]))


def of_policy(document: Node, rulebook: Rulebook, suites: Callable[[Mapping[str, Any]], bool]) -> Iterator[Mutant]:
    """The mutants of a TenantPolicy or an Exemption; `suites` says whether one notices an object in its place."""
    understood = policies_from if kind(document) == "TenantPolicy" else exemptions_from
    meant = understood([document.plain()], rulebook).read
    for change, mutant in changes(document, rulebook.devices):
        raw = mutant.plain()
        meaning = understood([raw], rulebook).read
        if meaning and meaning != meant:
            yield Mutant(change, suites(raw))


_NO_CLUSTER: Final = of_json(
    {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": "none"}, "spec": {"backends": []}},
    Location("cluster.yaml", 1),
)


def kind(node: Node) -> str:
    """The kind of a document; empty where it says none."""
    head = node.value.get("kind") if isinstance(node.value, dict) else None
    return str(head.value) if head else ""


def name_of(node: Node) -> str:
    """The name of a sound document."""
    return str(node.value["metadata"].value["name"].value)


def _meaning(backend: Backend) -> Backend:
    """The back end as far as it decides about a pod."""

    def effect(constant: Constant | None) -> Constant | None:
        return constant if constant and constant.value else None

    scheduler, runtime_class = effect(backend.inject.scheduler), effect(backend.inject.runtime_class)
    inject = replace(backend.inject, outputs=Outputs(), scheduler=scheduler, runtime_class=runtime_class)
    return replace(backend, description="", parameters={}, nodes=Nodes(), examples=(), inject=inject)
