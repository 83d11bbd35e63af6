"""A chunked body (RFC 9112, section 7.1), read strictly.

The parser of gunicorn reads it too, but a chunk size of 17 digits wraps around [0.6.9]: `10000000000000007` is 7, and
what follows those bytes would be another request. A body here has no trailers, and sizes of at most 8 digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

END: Final = b"\r\n"

_LINE = re.compile(rb"\r\n([0-9A-Fa-f]{1,8})(?:;[^\r\n]*)?\r\n")
"""What is between two chunks: the end of one, and the size of the next."""


class Chunks:
    """One body, fed piece by piece."""

    def __init__(self) -> None:
        self.rest: bytes | None = None
        """What follows the body; None until it is whole."""
        self._kept = END  # as if a chunk had ended
        self._left = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The parts of the body in these bytes; raises ValueError if they are no chunks."""
        self._kept += data
        while self.rest is None:
            part, self._kept = self._kept[: self._left], self._kept[self._left :]
            if part:
                self._left -= len(part)
                yield part
            if self._left or not self._next():
                return

    def _next(self) -> bool:
        """Read the line before the next chunk, or the end of the body; False if it is not whole yet."""
        found = _LINE.match(self._kept)
        if found is None:
            if not END.startswith(self._kept[:2]) or END in self._kept[2:]:
                raise ValueError("no chunk begins where one should")
            return False
        after = self._kept[found.end() :]
        self._left = int(found[1], 16)
        if self._left:
            self._kept = after
        elif after.startswith(END):
            self.rest = after[2:]
        elif not END.startswith(after):
            raise ValueError("a chunked body has no trailers here")
        return bool(self._left)
