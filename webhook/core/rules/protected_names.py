"""The protected names of all Protections, indexed: which entry a name, or a path, falls under."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from webhook.core.rules.protection import ANY, SECTIONS, Protected, Protection, matches


class Names:
    """The protected names of one section, of all Protections."""

    def __init__(self, found: Mapping[str, Protected]) -> None:
        self.exact: Final = {name: one for name, one in found.items() if not name.endswith(ANY)}
        self.heads: Final = [one for name, one in found.items() if name.endswith(ANY)]
        self.beginnings: Final = tuple(one.name[:-1] for one in self.heads)
        self._starts: Final = (*self.exact, *self.beginnings)
        self._depth: Final = max((name.count("/") for name in found), default=0)
        self._inside: Final[dict[str, list[Protected]]] = {}
        for name, one in found.items():
            for parent in parents(name):
                self._inside.setdefault(parent, []).append(one)

    @property
    def every(self) -> list[str]:
        """All names, as Protections have them."""
        return [*self.exact, *(one.name for one in self.heads)]

    def find(self, name: str) -> Protected | None:
        """The entry for a name, or None."""
        if name in self.exact:
            return self.exact[name]
        if not name.startswith(self.beginnings):
            return None
        return next(one for one in self.heads if matches(one.name, name))

    def may_hold(self, path: str) -> bool:
        """Whether a path, in any spelling, may be one of the names, or below one. It is quick; its no is sure."""
        odd = "//" in path or "/." in path or not path.startswith("/")
        return path.startswith(self._starts) or (odd and bool(self._starts))

    def below(self, path: str) -> Iterator[Protected]:
        """The entries for a path that it is, or is below."""
        steps = path.split("/", self._depth + 1)[: self._depth + 1]
        upward = ("/".join(steps[:count]) for count in range(len(steps), 1, -1))
        yield from (self.exact[each] for each in upward if each in self.exact)
        if path.startswith(self.beginnings):
            yield from (one for one in self.heads if matches(one.name, path))

    def at_path(self, path: str) -> Iterator[Protected]:
        """The same, and those that are below the path."""
        yield from self.below(path)
        yield from self._inside.get(path, ())


def names(protections: Sequence[Protection]) -> Mapping[str, Names]:
    """The protected names by section; no two Protections have the same."""
    return {
        section: Names({name: one for each in protections for name, one in getattr(each, section).items()})
        for section in SECTIONS
    }


def parents(path: str) -> list[str]:
    """The folders that an absolute path is in."""
    steps = path.split("/")
    return ["/".join(steps[:count]) or "/" for count in range(len(steps) - 1, 0, -1)]
