"""A `Protection`: what of a pod gives devices that it does not ask for, or lifts a limit on those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal, get_args

from webhook.core.forms import forms
from webhook.core.forms.document import Location, Node
from webhook.core.forms.forms import FILLED, TEXT, derived, form, list_of, map_of, optional, required, word
from webhook.core.rules.catalog import BACKEND, VENDOR

# A `Protection`: what of a pod gives devices that it does not ask for, or lifts a limit on those that it has.

Access = Literal["warn", "deny", "remove"]
"""What becomes of a pod that would get by a protected name what it does not ask for."""

ACCESS: Final[tuple[Access, ...]] = get_args(Access)
ANY: Final = "*"
FLAGS: Final = ("privileged", "hostProcess", "hostPID")
"""What a security context, or the pod's spec, may say with `true`."""


FATE: Final = (
    "What becomes of a pod that would reach devices which it does not ask for, as a Protection says: it is admitted"
    " with a warning (`warn`), refused (`deny`), or loses the variable, label or annotation and is refused for"
    " anything else (`remove`)."
)


def matches(glob: str, text: str) -> bool:
    """Whether a text is what the glob says; one that ends in `*` says how the text begins."""
    return text.startswith(glob[:-1]) if glob.endswith(ANY) else text == glob


def _glob(node: Node, _: forms.Scope) -> str:
    if ANY in node.text()[:-1]:
        raise node.problem("may have * at its end only")
    return node.text()


_GLOB: Final = forms.Shape(_glob, {"type": "string", "pattern": r"^[^*]*\*?$"}, "")
_FILLED: Final = forms.Shape(
    lambda node, scope: FILLED.read(node, scope) and _glob(node, scope), {"pattern": r"^[^*]+\*?$"}, ""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """One name, or all that begin as it says, and the values with which it gives nothing.

    A value that is taken from elsewhere is compared as `fieldRef PATH`, `configMapKeyRef NAME` and the like.
    """

    name: str = derived(forms.key)
    rule: str = derived(forms.line)
    at: Location = derived(forms.place)
    gives: str = required(
        FILLED, "What a pod gets by it. Messages name the field of the pod before it.", "gives any card"
    )
    harmless: tuple[str, ...] = optional(
        list_of(_GLOB),
        "Values with which it gives nothing. A `*` at the end is any text. If a policy says `remove`, the first"
        " one replaces the value of a container without a GPU.",
        ["void", "none"],
    )
    backends: Mapping[str, tuple[str, ...]] = optional(
        map_of(list_of(_GLOB), BACKEND),
        "Values that a container may have if this back end serves it.",
        {"acme": ["configMapKeyRef *"]},
    )

    def allows(self, value: str, backends: Iterable[str]) -> bool:
        """Whether it gives nothing with a value, in a pod or a container that these back ends serve."""
        globs = [*self.harmless, *(glob for backend in backends for glob in self.backends.get(backend, ()))]
        return any(matches(glob, value) for glob in globs)


_BY_NAME: Final = map_of(form(Protected), _FILLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What of a pod gives devices, of one vendor or of all, or lifts limits."""

    name: str = derived(forms.document)
    description: str = optional(TEXT, "One line for people.", default="")
    source: str = optional(FILLED, "Where it is described.", default="")
    vendors: tuple[str, ...] = optional(
        list_of(VENDOR), "Whose runtime reads the variables, as catalogues name vendors.", ["nvidia"]
    )
    env: Mapping[str, Protected] = optional(
        _BY_NAME,
        "Environment variables of containers. A `*` at the end of a name is any text.",
        {"ACME_VISIBLE_DEVICES": {"gives": "gives any card of the node", "harmless": ["none"]}},
    )
    annotations: Mapping[str, Protected] = optional(_BY_NAME, "Annotations of pods.")
    labels: Mapping[str, Protected] = optional(_BY_NAME, "Labels of pods.")
    runtime_classes: Mapping[str, Protected] = optional(
        _BY_NAME, "Runtime classes that a pod without a GPU may not name.", key="runtimeClasses"
    )
    mount_paths: Mapping[str, Protected] = optional(
        _BY_NAME, "Paths at which, and below which, a container may mount nothing.", key="mountPaths"
    )
    host_paths: Mapping[str, Protected] = optional(
        _BY_NAME, "Paths of a node that no volume may have, with the paths below them and their parent directories.",
        key="hostPaths",
    )  # fmt: skip
    capabilities: Mapping[str, Protected] = optional(
        _BY_NAME, "Capabilities that no container may add, without `CAP_`."
    )
    flags: Mapping[str, Protected] = optional(
        map_of(form(Protected), word(FLAGS)),
        "Settings that may not be `true`: `privileged`, `hostProcess`, and in a pod with a runtime class `hostPID`.",
    )

    def protected(self) -> Iterator[tuple[str, Protected]]:
        """Every entry with the name of its section."""
        yield from ((section, protected) for section in SECTIONS for protected in getattr(self, section).values())


PROTECTION: Final = form(Protection)

SECTIONS: Final = tuple(
    each.name for each in fields(Protection) if each.name not in {"name", "description", "source", "vendors"}
)
"""The fields with protected names."""


# The protected names of all Protections, indexed: which entry a name, or a path, falls under.


class ProtectedNames:
    """The protected names of one section, of all Protections."""

    def __init__(self, entries: Mapping[str, Protected]) -> None:
        self.exact: Final = {name: protected for name, protected in entries.items() if not name.endswith(ANY)}
        self.heads: Final = [protected for name, protected in entries.items() if name.endswith(ANY)]
        self.beginnings: Final = tuple(protected.name[:-1] for protected in self.heads)
        self._starts: Final = (*self.exact, *self.beginnings)
        self._depth: Final = max((name.count("/") for name in entries), default=0)
        self._inside: Final[dict[str, list[Protected]]] = {}
        for name, protected in entries.items():
            for parent in parents(name):
                self._inside.setdefault(parent, []).append(protected)

    @property
    def every(self) -> list[str]:
        """All names, as Protections have them."""
        return [*self.exact, *(protected.name for protected in self.heads)]

    def find(self, name: str) -> Protected | None:
        """The entry for a name, or None."""
        if name in self.exact:
            return self.exact[name]
        if not name.startswith(self.beginnings):
            return None
        return next(protected for protected in self.heads if matches(protected.name, name))

    def may_hold(self, path: str) -> bool:
        """Whether a path, in any spelling, may be one of the names, or below one. It is quick; its no is sure."""
        odd = "//" in path or "/." in path or not path.startswith("/")
        return path.startswith(self._starts) or (odd and bool(self._starts))

    def below(self, path: str) -> Iterator[Protected]:
        """The entries for a path that it is, or is below."""
        steps = path.split("/", self._depth + 1)[: self._depth + 1]
        upward = ("/".join(steps[:count]) for count in range(len(steps), 1, -1))
        yield from (self.exact[path] for path in upward if path in self.exact)
        if path.startswith(self.beginnings):
            yield from (protected for protected in self.heads if matches(protected.name, path))

    def at_path(self, path: str) -> Iterator[Protected]:
        """The same, and those that are below the path."""
        yield from self.below(path)
        yield from self._inside.get(path, ())


def protected_names(protections: Sequence[Protection]) -> Mapping[str, ProtectedNames]:
    """The protected names by section; no two Protections have the same."""
    return {
        section: ProtectedNames(
            {
                name: protected
                for protection in protections
                for name, protected in getattr(protection, section).items()
            }
        )
        for section in SECTIONS
    }


def parents(path: str) -> list[str]:
    """The folders that an absolute path is in."""
    steps = path.split("/")
    return ["/".join(steps[:count]) or "/" for count in range(len(steps) - 1, 0, -1)]
