"""A survey as a Cluster document in YAML, with a comment on each line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from webhook.core.forms.document import API_VERSION
from webhook.core.reports.settings import Line
from webhook.core.reports.survey import Survey

WIDTH: Final = 118


def text(found: Survey) -> str:
    """The document."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Survey) -> Iterator[str]:
    yield f"# Written by `gpu-webhook survey`, which read {found.read}."
    yield from (f"apiVersion: {API_VERSION}", "kind: Cluster", "metadata:", "  name: default", "spec:")
    yield from _backends(found)
    yield from _defaults(found)
    if found.device:
        yield from _commented(f"  device: {found.device.value}", found.device.why)
    yield from _parameters(found)
    if found.provisioners:
        yield "  provisioners:"
    for name, line in found.provisioners.items():
        yield from _commented(f"    {name}: {line.value}", line.why)
    yield "  unknownValue: warn"
    yield "  systemNamespaces:"
    for line in found.namespaces:
        yield from _commented(f"  - {line.value}", line.why)
    if found.open:
        yield "# Not decided:"
    for sentence in found.open:
        yield from textwrap.wrap(
            sentence, WIDTH, initial_indent="# - ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _backends(found: Survey) -> Iterator[str]:
    if not found.backends:
        yield "  # No back end was seen: pods that ask for a GPU are refused. List those that there will be."
    yield "  backends:" if found.backends else "  backends: []"
    for line in found.backends:
        yield from _commented(f"  - {line.value}", line.why)
    for line in found.doubtful:
        yield from _commented(f"  # - {line.value}", line.why)


def _parameters(found: Survey) -> Iterator[str]:
    if found.parameters:
        yield "  parameters:"
    for name, values in found.parameters.items():
        yield f"    {name}:"
        for parameter, line in values.items():
            yield from _commented(f"      {parameter}: {json.dumps(line.value)}", line.why)


def _defaults(found: Survey) -> Iterator[str]:
    named: Sequence[tuple[str, Line | None, str]] = (
        ("whole", found.whole, "nothing here serves whole devices"),
        ("part", found.part, "nothing here shares a device: gpu: 0.3 is refused"),
    )
    yield "  defaults:" if found.whole or found.part else "  # defaults:"
    for key, line, nothing in named:
        yield from _commented(f"    {key}: {line.value}", line.why) if line else [f"    # {key}: {nothing}"]


def _commented(line: str, why: str) -> Iterator[str]:
    """A line with its comment, which goes on below it if it is long."""
    if not why:
        yield line
        return
    first, *more = textwrap.wrap(why, WIDTH - len(line) - len("  # "), break_long_words=False, break_on_hyphens=False)
    yield f"{line}  # {first}"
    yield from (f"{' ' * len(line)}  # {part}" for part in more)
