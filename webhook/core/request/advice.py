"""What to write instead of a request that cannot be served, as a fix says it: to be pasted, and complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.core.request.request import ASKING, GpuRequest
from webhook.core.request.shorthand import pasteable

WHOLE: Final = {"gpu": "1"}


def ask_for(words: Mapping[str, str], request: GpuRequest) -> str:
    """`ask for gpu: "1" instead of gpu-profile`: the keys to write, and those of the request that have to go."""
    wish = " and ".join(pasteable(key, text) for key, text in words.items())
    wish = wish if request.claim is None else f"what the claim has, as {wish},"
    gone = [_written(key, request) for key in ASKING if key in request.stated and key not in words]
    return f"ask for {wish} instead of {' and '.join(gone)}" if gone else f"ask for {wish}"


def _written(key: str, request: GpuRequest) -> str:
    """The key as its author wrote it: the name of a resource, which may be another than that of the key."""
    path = request.stated[key].path
    return path.rpartition("limits")[2].strip('[".]') if "limits" in path else key
