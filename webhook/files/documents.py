"""YAML read into documents that know the line and column of every key and value.

Built from the parser's events, not from PyYAML's node tree. PyYAML's composer recurses in C, so a page of `[` ends
the process, and it lets a small file of aliases grow without bound. Here depth and size are limited, and a duplicate
key is an error, as in the API server's strict decoding.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson
import yaml

from webhook.core.forms.document import DocumentError, Location, Node, Problem, UnreadableError

MAX_DEPTH: Final = 100
MAX_NUMBER: Final = 2**63
MAX_NODES: Final = 500_000
"""Values in all documents of a file; an alias counts as often as it is used. A thousand large pods have a quarter."""

_TAG: Final = "tag:yaml.org,2002:"
_TEXTS: Final = {_TAG + "str", _TAG + "timestamp", _TAG + "value"}
"""Tags read as text: JSON, and so Kubernetes, has no dates."""

_NUMBERS: Final = {_TAG + "int", _TAG + "float"}
_HEADS: Final = {"apiVersion", "kind"}
_PLAIN: Final = _TEXTS | _NUMBERS | {_TAG + "bool", _TAG + "null"}

_MENDED: Final[Mapping[str, str]] = {
    "did not find expected alphabetic or numeric character": '; quote a text that begins with * or &, as "*"',
    "did not find expected key": "; look at the indentation and quotes here and above",
    "found character that cannot start any token": "; indent with spaces, not tabs, and quote a text that begins so",
    "mapping values are not allowed in this context": "; indent it as its neighbours, or quote a text with a colon",
}
"""What is likely meant where libyaml gives up."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def objects(content: bytes, name: str, most: int = MAX_NODES, *, of_kinds: bool = False) -> list[Mapping[str, Any]]:
    """The objects of one YAML file, without their places; raises DocumentError, `of_kinds` also for one of none."""
    nodes = parse(content, name, most)
    for node in nodes:
        if not isinstance(node.value, dict):
            raise node.problem("is not an object")
        if of_kinds and "kind" not in node.value:
            raise node.problem("has no kind; write what the object is, as apiVersion: v1 and kind: Pod")
    return [node.plain() for node in nodes]


def parse(content: bytes, name: str, most: int = MAX_NODES) -> list[Node]:
    """The documents of one YAML file, with at most `most` values in all.

    Raises DocumentError for what is not YAML, and for a duplicate key.
    """
    try:
        return list(_Composer(content, name, most).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = Location(name, mark.line + 1, mark.column + 1) if mark else Location(name, 1)
        problem = f"{error.problem or error.context}"
        raise DocumentError(Problem(at, "", f"is not YAML: {problem}{_MENDED.get(problem, '')}")) from None
    except yaml.reader.ReaderError as error:
        before = content[: error.position].rpartition(b"\n")
        at = Location(name, before[0].count(b"\n") + bool(before[1]) + 1, len(before[2]) + 1)
        raise DocumentError(Problem(at, "", f"is no text in UTF-8: {error.reason}")) from None
    except (yaml.YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        raise DocumentError(Problem(Location(name, 1), "", f"is not YAML: {text}")) from None


class _Composer:
    """Makes nodes of the events of one file. `size` counts all nodes; `anchors` are of the present document."""

    def __init__(self, content: bytes, name: str, most: int) -> None:
        self.name, self.most = name, most
        self.loader = _LOADER(content)
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.size = 0

    def documents(self) -> Iterator[Node]:
        try:
            self.loader.get_event()  # the stream begins
            while not self.loader.check_event(yaml.StreamEndEvent):
                self.loader.get_event()  # a document begins
                self.anchors = {}
                node = self._node(0)
                self.loader.get_event()  # it ends
                if node.value is not None:
                    yield node
        finally:
            self.loader.dispose()

    def _at(self, event: Any) -> Location:
        return Location(self.name, event.start_mark.line + 1, event.start_mark.column + 1)

    def _error(self, event: Any, message: str) -> DocumentError:
        return DocumentError(Problem(self._at(event), "", message))

    def _node(self, depth: int) -> Node:
        event = self.loader.get_event()
        if depth > MAX_DEPTH:
            raise self._error(event, f"is nested more than {MAX_DEPTH} deep")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self._error(event, f'the anchor "{event.anchor}" is not defined before')
            node, size = self.anchors[event.anchor]
            self._count(event, size)
            return node
        before = self.size
        self._count(event, 1)
        if isinstance(event, yaml.SequenceStartEvent):
            elements = []
            while not self.loader.check_event(yaml.SequenceEndEvent):
                elements.append(self._node(depth + 1))
            self.loader.get_event()
            node = Node(elements, self._at(event))
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            node = Node(self._scalar(event), self._at(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = node, self.size - before
        return node

    def _count(self, event: Any, size: int) -> None:
        self.size += size
        if self.size > self.most:
            raise self._error(event, f"holds more than {self.most} values")

    def _mapping(self, event: Any, depth: int) -> Node:
        entries: dict[str, Node] = {}
        keys: dict[str, Location] = {}
        while not self.loader.check_event(yaml.MappingEndEvent):
            key_event = self.loader.get_event()
            if not isinstance(key_event, yaml.ScalarEvent):
                template = isinstance(key_event, yaml.MappingStartEvent) and key_event.flow_style
                hint = "; what stands in {{ }} has to be rendered first, as by helm template" if template else ""
                raise self._error(key_event, f"has to be a plain key{hint}")
            key = key_event.value
            if key == "<<" and key_event.implicit[0]:
                raise self._error(key_event, "merge keys (<<) are not read; write the keys out")
            if key in entries:
                hint = "; if another document begins here, write --- above it" if key in _HEADS and not depth else ""
                message = f'the key "{key}" stands here a second time; first at {keys[key].line_only}{hint}'
                raise self._error(key_event, message)
            keys[key] = self._at(key_event)
            entries[key] = self._node(depth + 1)
        self.loader.get_event()
        return Node(entries, self._at(event), keys=keys)

    def _scalar(self, event: Any) -> Any:
        tag = event.tag or self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag not in _PLAIN:
            raise self._error(event, f"has the tag {tag.replace(_TAG, '!!')}, which JSON and so Kubernetes has not")
        if tag in _TEXTS or (tag in _NUMBERS and ":" in event.value):
            return event.value  # YAML 1.1 reads 1:30 in base 60; every other reader takes it as text
        value = self.loader.construct_object(yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark))
        if tag in _NUMBERS and not abs(value) < MAX_NUMBER:
            raise self._error(event, "is no number that JSON can hold")
        return value


# The input of `explain`: YAML or JSON files with objects of any kind, as kubectl reads them.

MAX_BYTES = 8 << 20


def parse_manifests(content: bytes, name: str, most: int = MAX_NODES) -> list[Mapping[str, Any]]:
    """Every object of a manifest; raises UnreadableError. They may have at most `most` values in all."""
    if len(content) > MAX_BYTES:
        raise UnreadableError(f"{name} is larger than {MAX_BYTES >> 20} MiB")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise UnreadableError(f'the key "{twice}" stands twice in an object')
        return dict(pairs)

    # Recorded reviews are an object a line: JSON reads thousands at once, for which YAML takes seconds.
    lines = content.strip().splitlines()
    if len(lines) > 1 and all(line[:1] + line[-1:] == b"{}" for line in lines):
        read: list[Any] = []
        for number, line in enumerate(lines, 1):
            try:
                read.append(orjson.loads(line))
                read[-1]["kind"]
            except (ValueError, KeyError) as error:
                wrong = f"is no JSON object with a kind: {error}"
                raise DocumentError(Problem(Location(name, number), "", wrong)) from None
        level = read
        for _ in range(MAX_DEPTH):
            values = (inner for value in level for inner in (value.values() if isinstance(value, dict) else value))
            level = [value for value in values if isinstance(value, dict | list)]
        if level:
            raise UnreadableError(f"{name} is nested more than {MAX_DEPTH} deep")
        return read

    # YAML reads all of JSON but escaped surrogate pairs, as of an emoji.
    if b"\\ud" in content.lower() and content.lstrip()[:1] in b"{[":
        with contextlib.suppress(ValueError, RecursionError):
            content = json.dumps(json.loads(content, object_pairs_hook=unique), ensure_ascii=False).encode()
    return objects(content, name, most, of_kinds=True)
