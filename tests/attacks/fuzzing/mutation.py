"""Good inputs made bad: values, keys, texts, bytes, lines. Each mutation is one throw of the dice."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson

from tests import tables

Containers = list[tuple[str, Any]]
"""The mappings and lists of a document, each with the key that it stands under."""

MOST_CONTAINERS: Final = 400
LONGEST: Final = 500
"""Characters of a text that is repeated."""

_NESTED: Final = 300
"""Deeper than orjson writes."""

_DEEP: Final = 1010
"""Nearly as deep as orjson reads."""
_RAW: Final = (
    b"1e999", b"-0", b"0.1e-400", b"1" * 400, b"18446744073709551616", b"-9223372036854775809", b"NaN", b"Infinity",
    b"1.7976931348623157e308", b"0.30000000000000000001", b"1E2", b"01", b"'x'", b"tru", b"",
    b"[" * _DEEP + b"]" * _DEEP, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    b"[" * _NESTED + b"]" * _NESTED, b'{"a":' * _NESTED + b"1" + b"}" * _NESTED, b"[" * 5000,
    b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff\xfe"', b'"\\x41"',
    b'{"gpu":"1","gpu":"0.5"}', b'{"limits":{"nvidia.com/gpu":1},"limits":{}}', b'{"":""}', b'"\\u0067pu"',
)  # fmt: skip
"""Values that JSON may not have, or that only a text of JSON can say; each is written for a placeholder."""

PLACEHOLDER: Final = "\ue000%d\ue001"

_SAID: Final[Mapping[str, Sequence[str]]] = tables.table(__file__, "texts")
NUMBERS: Final = (*_SAID["numbers"], "0" * 30 + "1", "1" + "0" * 400, "0.1" * 9)
WORDS: Final = (*_SAID["words"], "a" * 64, "b" * 300, "x" * 5000)
KEYS: Final = _SAID["keys"]
_LETTERS: Final = "0123456789.xX%eEkKmMgGiI+-_/, :\"'\\{}[]#&*!|>\t\n\r\x00\x7f\u200b\u202e\u0660\uff11é\U0001f4a9"


def evil(dice: Random) -> Any:
    """A value that stands where it should not."""
    kind = dice.randrange(8)
    if kind == 0:
        return PLACEHOLDER % dice.randrange(len(_RAW))
    if kind < 3:
        return dice.choice(NUMBERS)
    if kind < 5:
        return dice.choice(WORDS)
    return dice.choice(
        (
            None,
            True,
            False,
            0,
            1,
            -1,
            2**31,
            2**63 - 1,
            2**63,
            0.3,
            1.5,
            [],
            {},
            [[]],
            [None],
            {"": ""},
            [{}],
            {"a": {}},
        )
    )


def text(said: str, dice: Random) -> str:
    """A text that is nearly the same."""
    at, letter = dice.randrange(len(said) + 1), dice.choice(_LETTERS)
    others = (
        said[:at] + letter + said[at:],
        said[:at] + said[at + 1 :],
        said[:at] + letter + said[at + 1 :],
        said.swapcase(),
        said + dice.choice(NUMBERS),
        said[: min(at, LONGEST)] * dice.choice((2, 3, 40)),
        dice.choice(NUMBERS) + said[at:],
        dice.choice(WORDS),
        dice.choice(NUMBERS),
    )
    return dice.choice(others)


def raw(content: bytes, dice: Random) -> bytes:
    """Bytes of which a few are others, missing, or twice there."""
    for _ in range(dice.choice((1, 1, 2, 8))):
        at, to = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        to = min(to, at + dice.choice((1, 1, 4, 100)))
        match dice.randrange(4):
            case 0:
                content = content[:at] + bytes([dice.randrange(256)]) + content[to:]
            case 1:
                content = content[:at] + content[to:]
            case 2:
                content = content[:to] + content[at:]
            case _:
                content = content[:at] + dice.choice(_RAW) + content[to:]
    return content


def encoded(document: Any) -> bytes:
    """The JSON of a mutated document, with what JSON cannot say."""
    content = orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS)
    if b"\xee\x80\x80" in content:
        for number, value in enumerate(_RAW):
            content = content.replace(b'"%s"' % (PLACEHOLDER % number).encode(), value)
    return content


class Mutator:
    """Mutates documents; what stands in one may come into another, under the same key or any."""

    def __init__(self, documents: Iterable[Any]) -> None:
        entries: dict[str, dict[bytes, tuple[str, Any]]] = defaultdict(dict)
        for document in documents:
            for holder, key, value in _entries(document):
                if len(there := orjson.dumps([key, value])) < 2000:
                    entries[holder][there] = (key, value)
        self._entries = {holder: list(found.values()) for holder, found in entries.items()}
        self._all = [each for found in self._entries.values() for each in found]
        self._by_key: dict[str, list[Any]] = defaultdict(list)
        for key, value in self._all:
            self._by_key[key].append(value)

    def mutate(self, document: Any, dice: Random) -> None:
        """Change a document at a few places."""
        for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
            found = containers(document)
            holder, container = dice.choice(found)
            name = dice.choice(_OF_MAPPINGS if isinstance(container, dict) else _OF_LISTS)
            getattr(self, f"_{name}")(holder, container, dice)

    def known(self, key: str, dice: Random) -> Any:
        """A value that stands under a key somewhere."""
        there = self._by_key.get(key)
        return _copied(dice.choice(there)) if there else evil(dice)

    def entry(self, holder: str, dice: Random) -> tuple[str, Any]:
        """An entry of a mapping that stands under such a key."""
        there = self._entries.get(holder)
        key, value = dice.choice(there if there and dice.random() < 0.9 else self._all)
        return key, _copied(value)

    def _add(self, holder: str, there: dict[str, Any], dice: Random) -> None:
        key, value = self.entry(holder, dice)
        there[key] = value

    def _add_known_key(self, _: str, there: dict[str, Any], dice: Random) -> None:
        key = dice.choice(KEYS)
        there[key] = dice.choice(NUMBERS) if dice.random() < 0.5 else self.known(key, dice)

    def _other_value(self, _: str, there: dict[str, Any], dice: Random) -> None:
        if there:
            key = dice.choice(list(there))
            there[key] = self.known(key, dice)

    def _evil_value(self, _: str, there: dict[str, Any], dice: Random) -> None:
        if there:
            there[dice.choice(list(there))] = evil(dice)

    def _near_value(self, holder: str, there: dict[str, Any], dice: Random) -> None:
        texts = [key for key, value in there.items() if isinstance(value, str)]
        if texts:
            key = dice.choice(texts)
            there[key] = text(there[key], dice)
        else:
            self._other_value(holder, there, dice)

    def _near_key(self, _: str, there: dict[str, Any], dice: Random) -> None:
        if there:
            key = dice.choice(list(there))
            there[dice.choice(KEYS) if dice.random() < 0.3 else text(key, dice)] = _copied(there[key])

    def _leave_out(self, _: str, there: dict[str, Any], dice: Random) -> None:
        if there:
            del there[dice.choice(list(there))]

    def _exchange(self, _: str, there: dict[str, Any], dice: Random) -> None:
        if len(there) > 1:
            one, other = dice.sample(list(there), 2)
            there[one], there[other] = there[other], there[one]

    def _another(self, holder: str, there: list[Any], dice: Random) -> None:
        other = self.known(holder, dice)
        there.extend(other if isinstance(other, list) else [other])

    def _twice(self, _: str, there: list[Any], dice: Random) -> None:
        if there:
            there.insert(dice.randrange(len(there) + 1), _copied(dice.choice(there)))

    def _evil_element(self, _: str, there: list[Any], dice: Random) -> None:
        there.insert(dice.randrange(len(there) + 1), evil(dice))

    def _without(self, _: str, there: list[Any], dice: Random) -> None:
        if there:
            del there[dice.randrange(len(there))]


_OF_MAPPINGS: Final = (
    "add", "add", "add_known_key", "other_value", "other_value", "evil_value", "near_value", "near_value", "near_key",
    "leave_out", "exchange",
)  # fmt: skip
_OF_LISTS: Final = ("another", "twice", "evil_element", "without")
"""The mutations of `Mutator`; some are likelier."""


def containers(document: Any) -> Containers:
    """The mappings and lists of a document."""
    found: Containers = [("", document)]
    for holder, container in found:
        inner = container.items() if isinstance(container, dict) else ((holder, each) for each in container)
        found += [(key, value) for key, value in inner if isinstance(value, dict | list)]
        if len(found) > MOST_CONTAINERS:
            break
    return found


def _entries(document: Any) -> Iterator[tuple[str, str, Any]]:
    for holder, container in containers(document):
        if isinstance(container, dict):
            yield from ((holder, str(key), value) for key, value in container.items())


def _copied(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value)) if isinstance(value, dict | list) else value


def lines(page: str, others: Sequence[str], dice: Random) -> str:
    """A page of YAML with other lines, values or indents."""
    there = page.split("\n")
    for _ in range(dice.choice((1, 1, 2, 3))):
        at = dice.randrange(len(there))
        line = there[at]
        key, colon, value = line.partition(": ")
        match dice.randrange(8):
            case 0:
                del there[at : at + dice.choice((1, 1, 1, 3))]
                there = there or [""]
            case 1:
                there.insert(at, dice.choice(there))
            case 2:
                there.insert(at, dice.choice(others))
            case 3:
                there[at] = " " * dice.choice((1, 2, 4)) + line if dice.random() < 0.5 else line.removeprefix("  ")
            case 4 if colon:
                there[at] = (
                    key + colon + dice.choice((*NUMBERS, *WORDS, "[]", "{}", "[a, b]", "*a", "&a 1", "!!int 1"))
                )
            case 5 if colon:
                there[at] = key + colon + dice.choice(others).partition(": ")[2]
            case 6 if colon:
                there[at] = text(key, dice) + colon + value
            case _:
                there[at] = text(line, dice)
    return "\n".join(there)
