"""What edits of an object mean, written apart from their JSON Patch: that both come to the same is a law."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.core.kube.fields import Append, Edit, Path, Put, Remove


def edited(edits: Iterable[Edit], pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the edits made; `pod` itself is left as it is."""
    result = dict(pod)
    for edit in edits:
        match edit:
            case Put(path, value):
                _holder(result, path)[path[-1]] = value
            case Append(path, value):
                holder = _holder(result, path)
                holder[path[-1]] = [*(holder.get(path[-1]) or ()), value]
            case Remove(path):
                del _holder(result, path)[path[-1]]
    return result


def _holder(root: Any, path: Path) -> Any:
    """The holder of the last step, with every holder on the way copied, and made where it is missing."""
    at = root
    for step in path[:-1]:
        child = at[step] if isinstance(step, int) else at.get(step)
        at[step] = list(child) if isinstance(child, list) else dict(child or {})
        at = at[step]
    return at


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value in an object."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in entries:
        yield from places(inner, (*path, step))
