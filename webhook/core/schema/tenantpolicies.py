"""The form of a `TenantPolicy`: whom it is for, what they may ask, and how much they may hold."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeVar, cast

from webhook.core import indexes, quantity, shorthand
from webhook.core.device import Device
from webhook.core.document import DocumentError, Node, Problem, Section, nearest
from webhook.core.rulebook import Rulebook
from webhook.core.schema import labels
from webhook.core.tenancy import tally
from webhook.core.tenancy.policy import (
    ACTIONS,
    Action,
    Ceiling,
    Defaults,
    Expression,
    Kinds,
    Namespaces,
    Quota,
    TenantPolicy,
)

T = TypeVar("T")
D = TypeVar("D")

MAX_PRIORITY: Final = 1_000_000
GLOB: Final = "[a-z0-9*?](?:[a-z0-9*?-]{0,61}[a-z0-9*?])?"
NUMBER: Final = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
LISTS: Final = ("backends", "vendors", "models", "sharing", "profiles")

_GLOB = re.compile(GLOB)
_NUMBER = re.compile(NUMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a policy can name.

    backends  those that there is a rule for, and of them the `enabled` ones
    devices   card models by lower-case name and alias
    asking    annotations and labels in which back ends are asked for devices
    """

    backends: Collection[str]
    enabled: Collection[str]
    devices: Mapping[str, Device]
    asking: Collection[str]


def known_to(rulebook: Rulebook) -> Known:
    """What policies can name where these rules are loaded."""
    return Known(
        backends=rulebook.backends.keys(),
        enabled=rulebook.cluster.backends,
        devices=rulebook.devices,
        asking=indexes.asking(rulebook.backends.values()),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """What everything in one policy is read with."""

    name: str
    known: Known
    problems: list[Problem]
    action: Action = "deny"

    def section(self, node: Node) -> Section:
        return Section(node, self.problems)

    def own(self, section: Section) -> Action:
        """What becomes of pods that break this rule."""
        return section.take("enforcementAction", action, self.action)

    def take(self, section: Section, key: str, read: Callable[[Node, _Reader, str], T], default: D) -> T | D:
        """A part of the policy that messages name as a rule: by the line of its key."""
        at = section.node.keys.get(key, section.node.at)
        line = rule(self.name, Node(None, at, f"{section.node.path}.{key}"))
        return section.take(key, lambda node: read(node, self, line), default)


def rule(name: str, node: Node) -> str:
    """The rule that stands there, for messages: `vision (tenants.yaml:41)`, `TenantPolicy/vision spec.quota`."""
    return node.at.of(name) if node.at.line else f"{node.at.file} {node.path}".removesuffix(" spec")


def policy(name: str, spec: Node, known: Known, problems: list[Problem]) -> TenantPolicy:
    """Read the spec of a policy."""
    spec = Node(spec.value, spec.at, "spec", spec.keys)
    section = Section(spec, problems)
    reader = _Reader(name, known, problems, section.take("enforcementAction", action, "deny"))
    container, pod = section.take("ceilings", lambda node: _ceilings(node, reader), (None, None))
    read = TenantPolicy(
        name=name,
        rule=rule(name, spec),
        namespaces=section.need("namespaces", lambda node: _namespaces(node, reader), Namespaces()),
        priority=section.take("priority", _priority, 0),
        action=reader.action,
        container=container,
        pod=pod,
        allowed=reader.take(section, "allowed", _kinds, None),
        forbidden=reader.take(section, "forbidden", _kinds, None),
        defaults=reader.take(section, "defaults", _defaults, Defaults()),
        affinity=section.take("affinity", lambda node: _affinity(node, reader), ()),
        labels=section.take("labels", lambda node: _harmless(node, labels.read_labels(node), known), {}),
        annotations=section.take(
            "annotations", lambda node: _harmless(node, labels.read_annotations(node), known), {}
        ),
        quota=reader.take(section, "quota", _quota, None),
    )
    section.done()
    return read


def action(node: Node) -> Action:
    """One of deny, warn and dryrun; raises DocumentError."""
    return cast("Action", node.word(ACTIONS))


def _priority(node: Node) -> int:
    if node.integer(-MAX_PRIORITY) > MAX_PRIORITY:
        raise node.problem(f"has to be {MAX_PRIORITY} or less, not {node.value}")
    return node.integer(-MAX_PRIORITY)


def _namespaces(node: Node, reader: _Reader) -> Namespaces:
    section = reader.section(node)
    found = Namespaces(
        names=section.take("names", lambda n: globs(n, reader.problems), ()),
        selector=section.take("selector", lambda n: _selector(n, reader.problems), None),
    )
    section.done()
    _any_of(section, "names", "selector")
    return found


def globs(node: Node, problems: list[Problem]) -> tuple[str, ...]:
    """Names of namespaces, with `*` and `?`; those that can be none are left out."""
    if not node.elements():
        raise node.problem("has to name something")
    found = []
    for element in node.elements():
        try:
            found.append(_glob(element))
        except DocumentError as error:
            problems += error.problems
    return tuple(found)


def _glob(node: Node) -> str:
    if not _GLOB.fullmatch(node.text()):
        hint = 'write the name of one, or a pattern with * or ?, as vision-dev or "vision-*"'
        raise node.problem(f'"{node.text()}" is no name of a namespace; {hint}')
    return node.text()


def _selector(node: Node, problems: list[Problem]) -> Sequence[Expression]:
    found = labels.selector(node, problems)
    return [Expression(key=key, operator=operator, values=frozenset(values)) for key, operator, values in found]


def _any_of(section: Section, *keys: str) -> None:
    """Complain of a mapping that has none of the keys."""
    if isinstance(section.node.value, dict) and not set(section.given()) & set(keys):
        section.complain(f"needs {' or '.join([', '.join(keys[:-1]), keys[-1]])}")


def _ceilings(node: Node, reader: _Reader) -> tuple[Ceiling | None, Ceiling | None]:
    section = reader.section(node)
    container = reader.take(section, "container", _ceiling, None)
    pod = reader.take(section, "pod", _ceiling, None)
    section.done()
    _any_of(section, "container", "pod")
    return container, pod


def _ceiling(node: Node, reader: _Reader, line: str) -> Ceiling:
    section = reader.section(node)
    found = Ceiling(
        devices=section.take("devices", number, None),
        memory=section.take("memory", size, None),
        cores=section.take("cores", number, None),
        action=reader.own(section),
        rule=line,
    )
    section.done()
    _any_of(section, "devices", "memory", "cores")
    return found


def number(node: Node) -> Fraction:
    """`2`, or `"0.5"` in quotes: YAML would round it; raises DocumentError."""
    if isinstance(node.value, float):
        raise node.problem(f'has to be in quotes: "{node.value}"')
    text = str(node.value) if isinstance(node.value, int) and not isinstance(node.value, bool) else node.text()
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]):
        raise node.problem(f'"{text}" has a sign too many; write {text[:-1]}, which is percent of one device')
    if not _NUMBER.fullmatch(text):
        raise node.problem(f'"{text}" is no number that can be asked for; write 2, or "0.5" in quotes')
    return Fraction(text)


def size(node: Node) -> int:
    """Bytes, of a size with its unit; raises DocumentError."""
    if isinstance(node.value, int) and not isinstance(node.value, bool):
        raise node.problem(f"has no unit; write {node.value}Gi or {node.value}Mi")
    try:
        return quantity.size(node.text())
    except quantity.QuantityError as error:
        raise node.problem(f"{error.message}; {error.fix}") from None


def _kinds(node: Node, reader: _Reader, line: str) -> Kinds:
    section = reader.section(node)
    known = reader.known
    found = Kinds(
        backends=section.take("backends", lambda n: _each(n, lambda e: _backend(e, known), reader), frozenset()),
        vendors=section.take("vendors", lambda n: _each(n, lambda e: _vendor(e, known), reader), frozenset()),
        models=section.take("models", lambda n: _each(n, lambda e: _model(e, known), reader), frozenset()),
        sharing=section.take(
            "sharing", lambda n: _each(n, lambda e: e.word(shorthand.SHARINGS), reader), frozenset()
        ),
        profiles=section.take("profiles", lambda n: _each(n, lambda e: _profile(e, known), reader), frozenset()),
        action=reader.own(section),
        rule=line,
    )
    section.done()
    _any_of(section, *LISTS)
    return found


def _each(node: Node, read: Callable[[Node], str], reader: _Reader) -> frozenset[str]:
    """What a list names, as far as it is known."""
    if not node.elements():
        raise node.problem("has to name something; leave it out to say nothing")
    found = set()
    for element in node.elements():
        try:
            found.add(read(element))
        except DocumentError as error:
            reader.problems.extend(error.problems)
    return frozenset(found)


def _backend(node: Node, known: Known) -> str:
    if node.text() not in known.backends:
        raise node.problem(f'no rule defines the back end "{node.value}"{nearest(node.value, known.backends)}')
    return node.text()


def _enabled(node: Node, known: Known) -> str:
    if _backend(node, known) not in known.enabled:
        hint = nearest(node.value, known.enabled)
        raise node.problem(f'spec.backends of the Cluster document does not enable "{node.value}"{hint}')
    return node.text()


def _vendor(node: Node, known: Known) -> str:
    vendors = {device.vendor for device in known.devices.values()}
    if node.text() not in vendors:
        raise node.problem(f'no catalogue is of the vendor "{node.value}"{nearest(node.value, vendors)}')
    return node.text()


def _model(node: Node, known: Known) -> str:
    """A card model by the name of its catalogue."""
    if node.text().lower() not in known.devices:
        models = {device.model for device in known.devices.values()}
        raise node.problem(f'no catalogue knows the model "{node.value}"{nearest(node.value, models)}')
    return known.devices[node.text().lower()].model


def _profile(node: Node, known: Known) -> str:
    """A partition as requests name it."""
    profiles = {profile for device in known.devices.values() for profile in device.profiles}
    with contextlib.suppress(quantity.QuantityError):
        if (profile := shorthand.profile(node.text())) in profiles:
            return profile
    raise node.problem(f'no catalogue has the profile "{node.value}"{nearest(node.value, profiles)}')


def _defaults(node: Node, reader: _Reader, line: str) -> Defaults:
    section = reader.section(node)
    found = Defaults(
        backend=section.take("backend", lambda n: _enabled(n, reader.known), None),
        model=section.take("model", lambda n: _model(n, reader.known), None),
        sharing=section.take("sharing", lambda n: n.word(shorthand.SHARINGS), None),
        memory=section.take("memory", _some, None),
        rule=line,
    )
    section.done()
    _any_of(section, "backend", "model", "sharing", "memory")
    return found


def _some(node: Node) -> int:
    """The memory that a request can ask for."""
    size(node)
    try:
        return shorthand.memory(node.text())
    except quantity.QuantityError as error:
        raise node.problem(f"{error.message}; {error.fix}") from None


def _affinity(node: Node, reader: _Reader) -> Sequence[Mapping[str, Any]]:
    """Match expressions as they stand in a pod."""
    return [
        {"key": key, "operator": operator, **({"values": [*values]} if values else {})}
        for key, operator, values in labels.requirements(node, labels.COMPARING, reader.problems)
    ]


def _harmless(node: Node, found: dict[str, str], known: Known) -> dict[str, str]:
    """Labels or annotations none of which asks for devices; raises DocumentError."""
    problems = [
        Problem(node.keys.get(key, node.at), node.path, f'"{key}" asks for devices; {_INSTEAD}')
        for key in found
        if _asks(key, known)
    ]
    if problems:
        raise DocumentError(*problems)
    return found


_INSTEAD: Final = "what is meant where a pod does not say stands in defaults"


def _asks(key: str, known: Known) -> bool:
    """Whether pods ask for devices by this label or annotation, in the shorthand or in words of a back end."""
    return key == "gpu" or key.startswith("gpu-") or "gpu-webhook.io/" in key or key in known.asking


def _quota(node: Node, reader: _Reader, line: str) -> Quota:
    section = reader.section(node)
    hard = {
        **_amounts(section),
        **section.take("models", lambda n: _models(n, reader), {}),
    }
    found = Quota(hard=hard, action=reader.own(section), rule=line)
    section.done()
    _any_of(section, "devices", "memory", "models")
    return found


def _amounts(section: Section) -> dict[str, Fraction]:
    devices = section.take("devices", number, None)
    memory = section.take("memory", size, None)
    found = {tally.DEVICES: devices, tally.MEMORY: None if memory is None else Fraction(memory)}
    return {key: amount for key, amount in found.items() if amount is not None}


def _models(node: Node, reader: _Reader) -> dict[str, Fraction]:
    """What may be held of each card model, by the key under which it is counted."""
    if not dict(node.items()):
        raise node.problem("has to name a model; leave it out to limit none")
    found: dict[str, Fraction] = {}
    spelled: dict[str, str] = {}
    for name, child in node.items():
        section = reader.section(child)
        amounts = _amounts(section)
        section.done()
        _any_of(section, "devices", "memory")
        at = node.keys.get(name, child.at)
        try:
            model = _model(Node(name, at, node.path), reader.known)
        except DocumentError as error:
            reader.problems.extend(error.problems)
            continue
        first = spelled.setdefault(model, name)
        if first != name:
            reader.problems.append(Problem(at, node.path, f'"{name}" and "{first}" are the same model, {model}'))
        found |= {tally.of_model(what, model): amount for what, amount in amounts.items()}
    return found
