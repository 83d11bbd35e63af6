"""The form of one mode of a `Backend`: which requests it is for, and what it writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from webhook.core import amounts
from webhook.core.backend import Amount, Companions, Constant, Mode, Output, Outputs, When
from webhook.core.companions import FORBIDDABLE
from webhook.core.document import Node, Problem, Section
from webhook.core.request import DEVICES, PREFIX
from webhook.core.schema import outputs
from webhook.core.shorthand import SHARINGS
from webhook.core.translate import describe
from webhook.core.words import holes

T = TypeVar("T")

_RESOURCE = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/([A-Za-z0-9]|\{profile\}|\{memory\})([A-Za-z0-9._-]|\{profile\}|\{memory\}){0,62}"
)
_DIMENSIONS: Final = ("share", "memory", "cores", "profile", "model")


def modes(node: Node, problems: list[Problem]) -> list[Mode]:
    """Read the modes of a back end, in their order; a back end has at least one."""
    if not node.elements():
        raise node.problem("needs at least one mode")
    return [mode for element in node.elements() for mode in _mode(element, problems)]


def completed(name: str, mode: Mode, injected: Outputs, companions: Companions | None) -> Mode:
    """The mode with what its back end, called `name`, injects and demands whatever the mode."""
    own = mode.outputs
    merged = Outputs(
        annotations=_said({**injected.annotations, **own.annotations}),
        labels=_said({**injected.labels, **own.labels}),
        env=_said({**injected.env, **own.env}),
        node_affinity=_said({**injected.node_affinity, **own.node_affinity}),
    )
    both = _both(companions, mode.companions)
    mode = replace(mode, marks=_marks(own), outputs=merged, selects=_selects(mode, merged), companions=both)
    return _counted(_named(name, mode))


def _said(outputs: Mapping[str, Output]) -> dict[str, Output]:
    """The outputs without those that write nothing, as a parameter that is empty makes them."""
    return {key: output for key, output in outputs.items() if not isinstance(output, Constant) or output.value != ""}


def _counted(mode: Mode) -> Mode:
    """The mode with what is known of its numbers before any request is."""
    numbers = {key: output for key, output in mode.outputs.node_affinity.items() if _is_number(output)}
    found = [output for output in (*mode.amounts.values(), *numbers.values()) if isinstance(output, Amount)]
    return replace(
        mode,
        node_numbers={key: output for key, output in numbers.items() if isinstance(output, Amount)},
        verbs=frozenset(output.what for output in found),
        all_cores=any((output.what, output.absent) == ("cores", "whole") for output in found),
    )


def _is_number(output: Output) -> bool:
    return isinstance(output, Amount) and output.what in amounts.UNITS


def _marks(own: Outputs) -> frozenset[str]:
    """The annotations that a mode insists on."""
    constants = {key: output for key, output in own.annotations.items() if isinstance(output, Constant)}
    return frozenset(f"{key}={output.value}" for key, output in constants.items() if output.enforce)


def _named(name: str, mode: Mode) -> Mode:
    """The mode with every output knowing the rule line it stands on."""

    def each(outputs: Mapping[str, Output]) -> dict[str, Output]:
        return {key: replace(output, rule=output.at.of(name)) for key, output in outputs.items()}

    own = mode.outputs
    named = Outputs(
        annotations=each(own.annotations),
        labels=each(own.labels),
        env=each(own.env),
        node_affinity=each(own.node_affinity),
    )
    claims = [replace(claim, rule=claim.at.of(name)) for claim in mode.claims]
    said = mode.companions and replace(mode.companions, rule=f"{name} ({mode.companions.rule})")
    return replace(
        mode, limits=each(mode.limits), claims=claims, amounts=each(mode.amounts), outputs=named, companions=said
    )


def _both(general: Companions | None, own: Companions | None) -> Companions | None:
    """What a back end demands, and one of its modes besides."""
    if general is None or own is None:
        return own or general
    return Companions(
        requires={**general.requires, **own.requires},
        forbids=(*general.forbids, *own.forbids),
        reserved=(*general.reserved, *own.reserved),
        containers=own.containers or general.containers,
        one_device=own.one_device or general.one_device,
        rule=own.rule,
    )


def _selects(mode: Mode, outputs: Outputs) -> str | None:
    written = [*outputs.annotations.values(), *outputs.labels.values(), *outputs.node_affinity.values(), *mode.claims]
    words = {word for output in written for word in _told(output)}
    return next((word for word in ("product", "model") if word in words), "model" if mode.when.models else None)


def _told(output: Output) -> list[str]:
    if isinstance(output, Amount):
        return [output.what]
    texts = output.value if isinstance(output.value, tuple) else (str(output.value),)
    return [hole for text in texts for hole in holes(text)]


def _mode(node: Node, problems: list[Problem]) -> Iterable[Mode]:
    section = Section(node, problems)
    when = section.take("when", lambda n: _when(n, problems), When())
    limits: Mapping[str, Output] = section.take("limits", lambda n: _limits(n, problems), {})
    written = written_outputs(section, problems)
    claims = section.take("claims", lambda n: [Constant(outputs.holes_of(e), e.at) for e in n.elements()], [])
    sizes = section.take("sizes", lambda n: _sizes(n, problems), ())
    read = Mode(
        name=section.take("name", Node.text, describe(when)),
        when=when,
        at=node.at,
        limits=limits,
        claims=claims,
        amounts={**limits, **_spoken("annotation", written.annotations), **_spoken("label", written.labels)},
        outputs=written,
        companions=companions(section, problems),
    )
    section.done()
    if not read.amounts and not read.claims and {"limits", "claims"}.isdisjoint(section.given()):
        section.complain('asks for no device: it needs the key "limits", "claims", or a number under annotations')
    return list(_of_sizes(read, sizes)) if sizes else [read]


def _spoken(section: str, written: Mapping[str, Output]) -> dict[str, Output]:
    """The numbers among labels or annotations: a request is read from them again, as from limits."""
    return {f"{section} {key}": output for key, output in written.items() if _is_number(output)}


def _sizes(node: Node, problems: list[Problem]) -> tuple[tuple[int, int], ...]:
    """Each number that a resource may be named after, with the bytes it stands for; the smallest first."""
    section = Section(node, problems)
    unit = section.need("unit", lambda n: amounts.memory_unit(n.text()) or _no_unit(n), amounts.GIB)
    most = section.need("max", lambda n: n.integer(1), 1)
    section.done()
    return tuple((number, int(number * unit)) for number in range(1, most + 1))


def _no_unit(node: Node) -> int:
    raise node.problem("has to be MiB or GiB")


def _of_sizes(mode: Mode, sizes: Iterable[tuple[int, int]]) -> Iterator[Mode]:
    for number, size in sizes:
        limits = {name.replace("{memory}", str(number)): output for name, output in mode.limits.items()}
        spoken = {key: output for key, output in mode.amounts.items() if key not in mode.limits}
        yield replace(mode, size=size, limits=limits, amounts={**limits, **spoken})


def written_outputs(section: Section, problems: list[Problem]) -> Outputs:
    """What is written beside limits, read from the keys of a mode or of `inject`."""
    return Outputs(
        annotations=section.take("annotations", lambda n: _each(n, outputs.text, problems), {}),
        labels=section.take("labels", lambda n: _each(n, outputs.text, problems), {}),
        env=section.take("env", lambda n: _each(n, outputs.text, problems), {}),
        node_affinity=section.take("nodeAffinity", lambda n: _each(n, outputs.labels, problems), {}),
    )


def companions(section: Section, problems: list[Problem]) -> Companions | None:
    """What the pod has to have or not to have, read from the keys of a mode or a back end; None if nothing."""
    per_pod = section.take("perPod", lambda n: _per_pod(n, problems), (None, False))
    read = Companions(
        requires=section.take("requires", lambda n: _requires(n, problems), {}),
        forbids=tuple(section.take("forbids", lambda n: [e.word(FORBIDDABLE) for e in n.elements()], [])),
        reserved=tuple(section.take("reserves", Node.texts, [])),
        containers=per_pod[0],
        one_device=per_pod[1],
        rule=section.node.at.line_only,
    )
    return None if read == Companions(rule=read.rule) else read


def _requires(node: Node, problems: list[Problem]) -> Mapping[str, str]:
    section = Section(node, problems)
    shared = section.take("hostIPC", Node.boolean, default=False)
    user: int | None = section.take("runAsUser", Node.integer, None)
    path: str | None = section.take("hostPath", Node.filled, None)
    section.done()
    wanted = {"hostIPC": "true" if shared else None, "runAsUser": user, "hostPath": path}
    return {key: str(value) for key, value in wanted.items() if value is not None}


def _per_pod(node: Node, problems: list[Problem]) -> tuple[int | None, bool]:
    section = Section(node, problems)
    containers: int | None = section.take("containers", lambda n: n.integer(1), None)
    devices: int | None = section.take("devices", lambda n: n.integer(1), None)
    section.done()
    if devices not in {None, 1}:
        section.complain("devices can only be 1: all containers of the pod share one device")
    return containers, devices == 1


def _limits(node: Node, problems: list[Problem]) -> Mapping[str, Output]:
    read = _each(node, outputs.limit, problems)
    for name in read:
        if not _RESOURCE.fullmatch(name) or name.startswith(PREFIX):
            at = node.keys.get(name, node.at)
            problems.append(Problem(at, node.path, f'"{name}" is not the name of an extended resource (domain/name)'))
    return read


def _each(node: Node, read: Callable[[Node], T], problems: list[Problem]) -> dict[str, T]:
    """A mapping whose keys are free and whose values all have one form."""
    section = Section(node, problems)
    found: dict[str, T] = {}
    for key in section.given():
        value: T | None = section.take(key, read, None)
        if value is not None:
            found[key] = value
    return found


def _when(node: Node, problems: list[Problem]) -> When:
    section = Section(node, problems)
    annotated: Mapping[str, str | None] = section.take("annotations", _annotated, {})
    when = When(
        devices=section.take("devices", lambda n: n.word(DEVICES), None),
        count=section.take("count", lambda n: _range(n, problems), (1, None)),
        has=frozenset(section.take("has", _dimensions, [])),
        lacks=frozenset(section.take("lacks", _dimensions, [])),
        models=frozenset(model.lower() for model in section.take("models", Node.texts, [])),
        sharing=section.take("sharing", lambda n: n.word(SHARINGS), None),
        marks=frozenset(f"{key}={value}" for key, value in annotated.items() if value is not None),
        unmarked=frozenset(key for key, value in annotated.items() if value is None),
    )
    section.done()
    return when


def _annotated(node: Node) -> dict[str, str | None]:
    """Annotations with the value they have to have, None for those that must be absent."""
    absent = {
        key for key, entry in node.items() if isinstance(entry.value, dict) and outputs.absent(entry).value == ()
    }
    return {key: None if key in absent else entry.text() for key, entry in node.items()}


def _dimensions(node: Node) -> list[str]:
    return [element.word(_DIMENSIONS) for element in node.elements()]


def _range(node: Node, problems: list[Problem]) -> tuple[int, int | None]:
    if isinstance(node.value, int):
        return node.integer(1), node.integer(1)
    section = Section(node, problems)
    low = section.take("min", lambda n: n.integer(1), 1)
    high: int | None = section.take("max", lambda n: n.integer(1), None)
    section.done()
    if high is not None and high < low:
        raise node.problem(f"no number is from {low} to {high}")
    return low, high
