"""A record as a table for a terminal, with numbers in one unit so that columns compare, and for scripts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from webhook.core.backends.charge import Measure
from webhook.core.kube.quantity import GIB, Fraction, shown
from webhook.core.quota import tally

NAMED: Final = 3
"""How many of several are named."""

SHOWN: Final = frozenset({"selection", "ends", "known", "shut", "beyond"})
"""Keys of records that only people are told: the namespaces that a policy selects, when an exemption ends or how long
ago, whether anything tells how many devices there are, and what a sum needs: what is not asked on nodes that take no
pods, and what is asked beyond what exists."""


def several(names: Sequence[str], between: str = "; ") -> str:
    """The first of several, and how many more there are."""
    more = len(names) - NAMED
    return between.join([*names[:NAMED], *([f"and {more} more"] if more > 0 else [])])


def number(count: int, what: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def short(exact: Fraction) -> str:
    """A number with at most two decimals, which are shown only where there are some."""
    return f"{float(exact):.2f}".rstrip("0").rstrip(".")


def memory(measure: Measure) -> str:
    """Memory in one unit, so that columns compare; a star where some is missing from the sum."""
    if measure.unsized and not measure.memory:
        return "?"
    return f"{gib(measure.memory)}{'*' if measure.unsized else ''}"


def gib(amount: Fraction | int) -> str:
    """Memory in one unit, so that columns compare."""
    return f"{float(amount / GIB):.1f}".removesuffix(".0") + "Gi"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> Iterator[str]:
    """Columns, the first `texts` of them aligned to the left; nothing where there are no rows."""
    if not rows:
        return
    lines = [headings, *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    yield ""
    for line in lines:
        cells = (
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def contract(told: Any) -> Any:
    """A record for scripts: with numbers instead of exact amounts, and without what is only SHOWN."""
    if isinstance(told, Measure):
        # Decimals to six places, less than any device is sold in.
        sums = {"devices": told.devices, "computePercent": told.compute, "unsizedDevices": told.unsized}
        plain = {key: round(tally.plain(amount), 6) for key, amount in sums.items()}
        return {"devices": plain.pop("devices"), "memoryBytes": told.memory, **plain}
    if isinstance(told, Fraction):
        return tally.plain(told)
    if isinstance(told, dict):
        return {key: contract(inner) for key, inner in told.items() if key not in SHOWN}
    return [contract(inner) for inner in told] if isinstance(told, list) else told


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # in C where there is C
    """YAML as people write it: a text of several lines stays one, and nothing is referred to by an anchor."""


Dumper.ignore_aliases = lambda _self, _value: True
Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


class Compact(Dumper):
    """The same with leaves such as `[a, b]` on one line."""


Compact.add_representer(
    list,
    lambda dumper, values: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", values, flow_style=all(isinstance(value, str) for value in values)
    ),
)


def yaml_text(objects: Iterable[Mapping[str, Any]], dumper: type[Dumper] = Dumper, width: int = 10**6) -> str:
    """The objects as one YAML stream."""
    return str(yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=width, allow_unicode=True))
