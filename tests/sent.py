"""What the API server makes of what a client sends, before a webhook sees it."""

from collections.abc import Mapping
from typing import Any

_MERGED = {"env": "name", "containers": "name", "initContainers": "name"}
"""Lists whose elements are merged by a key; of the others the API server takes the new one."""


def applied(stored: Any, written: Any, key: str = "") -> Any:
    """What it makes of an apply, whichever side merges: what is written lies over what is stored."""
    if isinstance(written, Mapping) and isinstance(stored, Mapping):
        return {**stored, **{name: applied(stored.get(name), value, name) for name, value in written.items()}}
    if key not in _MERGED or stored is None or len({each[_MERGED[key]] for each in written}) < len(written):
        return written
    there = {each[_MERGED[key]]: each for each in stored}
    here = {each[_MERGED[key]]: applied(there.get(each[_MERGED[key]]), each) for each in written}
    return list({**there, **here}.values())
