"""Objects for the API server as YAML that people read: long text as a block, short lists on one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

WIDTH: Final = 100


class _Dumper(yaml.SafeDumper):
    """Block style, with leaves such as `[a, b]` on one line; nothing is referred to by an anchor."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _sequence(dumper: _Dumper, data: Sequence[Any]) -> yaml.Node:
    flat = all(isinstance(element, str) for element in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat)


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _text)


def text(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as one YAML stream."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
