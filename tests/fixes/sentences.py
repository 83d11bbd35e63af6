"""What a fix says to do: the alternatives of its sentence, each a step that a person would take."""

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple


class Step(NamedTuple):
    """One thing to do. `key` is what is changed: empty for the field that the violation names."""

    verb: str
    key: str = ""
    value: str = ""


ELSEWHERE: Final = {
    "create it, and the client retries": "the claim or class that the pod names is not there yet",
    "name another in the claim": "a claim is an object of another system",
    "in the claim": "the same",
    "give explain the claim": "the same; it is another argument of a command",
    "have gpu-webhook watch run": "a program is started",
}
"""Words of a fix that is done to something that these tests do not have, and why."""

CHOICE: Final = {
    "another number of GPUs": "what stands before it is a number",
    "make several pods of it": "which containers belong together is the author's to say",
    "ask for the same": "two containers differ, and which of them is right is the author's to say",
}
"""Words of a fix that leaves the author a choice which no step can make, and why."""

SPLIT: Final = re.compile(r"(?:or )?(?:use )?(?:two pods|two containers|a pod for each of them)")
_OR: Final = re.compile(r"; or |; if the pod needs it, |, or (?=[a-z]+ )")
_ASIDE: Final = re.compile(r"; .*$| for no GPU$|, if your cluster allows it$|,? if nothing gives a GPU for it$")
"""What no fix says to do, but why or when."""

_KEY: Final = (
    r"(?:[A-Za-z0-9._-]+/[A-Za-z0-9._-]+|gpu(?:-[a-z]+)?|[A-Z][A-Z_]+|[a-zA-Z]+\.[a-z.A-Z-]+|[a-z]+[A-Z][A-Za-z]+)"
)
_ANY: Final = r"[A-Za-z0-9./_-]+?"
_VALUE: Final = r'"[^"]*"|[^\s",;)}]+'
_PAIR: Final = re.compile(rf"({_KEY}): ({_VALUE})")
_QUOTED: Final = re.compile(r'^"(.*)"$')

Found = re.Match[str]


def alternatives(fix: str) -> Iterator[Step | None]:
    """The steps that a fix offers; None for what this does not understand."""
    for clause in _OR.split(fix):
        yield from _clause(clause.strip())


def _clause(clause: str) -> Iterator[Step | None]:
    if SPLIT.fullmatch(clause):
        yield Step("split")
    elif any(words in clause for words in ELSEWHERE):
        yield Step("elsewhere")
    elif any(words in clause for words in CHOICE):
        yield Step("choice")
    else:
        yield from _steps(_ASIDE.sub("", clause))


def _steps(clause: str) -> Iterator[Step | None]:
    for pattern, made in _SENTENCES:
        if match := pattern.fullmatch(clause):
            yield from made(match)
            return
    yield None


def _values(text: str) -> list[str]:
    """The values of a list in words: `1, 2 or 2x0.5`."""
    parts = re.split(r", or |, | or ", re.sub(r" (?:or less|or fewer).*$|, in quotes$", "", text))
    return [_QUOTED.sub(r"\1", part) for part in parts if part not in {"...", ""}]


def _pairs(text: str) -> str:
    """The keys and values of a text, a pair in a line."""
    return "\n".join("=".join((key, _QUOTED.sub(r"\1", value))) for key, value in _PAIR.findall(text))


def _instead(found: Found) -> Iterator[Step]:
    gone, (head, _, listed) = found[2].partition(",")[0], found[1].partition(": ")
    values = _values(listed) if " or " in listed else []
    lines = [f"{head.split()[-1]}={value}" for value in values] or [_pairs(found[1])]
    yield from (Step("instead", gone, line) for line in lines)


def _set_each(found: Found) -> Iterator[Step]:
    key, rest = found[1], found[2]
    if " and " in rest:
        yield Step("set all", "", _pairs(f"{key}: {rest}"))
        return
    listed = re.sub(r" of each device.*$|, which is .*$", "", rest)
    yield from (Step("set", key, value) for value in _values(listed))


def _set_here(found: Found) -> Iterator[Step]:
    yield from (Step("set", "", value) for value in _values(found[1]))


def _all(verb: str, separator: str) -> Callable[[Found], Iterator[Step]]:
    return lambda found: iter([Step(verb, "", "\n".join(found[1].split(separator)))])


def _one(verb: str, *, key: int = 0, value: int = 0) -> Callable[[Found], Iterator[Step]]:
    return lambda found: iter([Step(verb, found[key] if key else "", found[value] if value else "")])


def _renamed(found: Found) -> Iterator[Step]:
    yield from (Step("rename", name) for name in found[1].split(", ") if name != "...")


def _enabled(found: Found) -> Iterator[Step]:
    yield from (Step("enable", name) for name in re.split(r", | or ", found[1]))


_DONE: Final = r"(?:remove it, and write|write|remove|quote it:|ask for) [^,]*"
_PLACE: Final = r"(?:metadata|spec)\.[^ ]+"
_SENTENCES: Final = tuple(
    (re.compile(pattern), made)
    for pattern, made in (
        (
            r"((?:write|remove|quote it:|ask for) [^,]*), and ((?:ask|add|leave|use|remove|write) .+)",
            _one("both", key=1, value=2),
        ),
        (r"have spec\.backends of the Cluster document enable (.+)", _enabled),
        (
            rf"have spec\.backends of the Cluster document name ({_ANY}) instead of ({_ANY}), if .*",
            _one("enable instead", key=1, value=2),
        ),
        (r"an administrator enables .* \(gpu-webhook survey\)", _one("enable any")),
        (r'list "(.*)" there under otherDevices', _one("list", key=1)),
        (r"have it listed in the Cluster document under otherDevices if it is no GPU", _one("list")),
        (r"have the Cluster document name the card \(device:\)", _one("name the card")),
        (r"ask an operator of the cluster for an Exemption that lifts (\w+)", _one("exempt", key=1)),
        (r"ask an operator of the cluster to add it to spec\.namespaces of a TenantPolicy", _one("adopt")),
        (
            r"ask an operator of the cluster to write spec\.priority: 1 in the policy that is to hold there",
            _one("prefer"),
        ),
        (r"use a namespace of a tenant", _one("go to a tenant")),
        (r"write the hostPath volume (\S+), mounted at the same path", _one("mount", key=1)),
        (rf"leave it out, and ask for GPUs as ({_KEY}): (\S+)", _one("leave out, and ask", key=1, value=2)),
        (r"ask for less", _one("choose less")),
        (r"ask for one model in the whole pod", _one("choose model")),
        (r"name one back end for the whole pod with gpu-backend", _one("choose back end")),
        (rf"((?:ask for|write) (?:.*)?{_KEY}: .*?) instead of (.+)", _instead),
        (r"write limits: (.*) instead of (requests)", _instead),
        (rf"leave ({_ANY}(?: and {_ANY})*) out, and (.+)", _one("leave out, then", key=1, value=2)),
        (rf"use [0-9]+ pods, each with ({_KEY}: .*?) instead of (.+)", _instead),
        (rf"use [0-9]+ pods, each with ({_KEY}: .+)", lambda found: iter([Step("set all", "", _pairs(found[1]))])),
        (rf"ask for ({_KEY})(?:, of [a-z0-9-]+,)? instead of ({_ANY})", _one("exchange", key=2, value=1)),
        (rf"(ask for {_KEY}: \S+) instead", lambda found: iter([Step("instead", "it", _pairs(found[1]))])),
        (rf"ask for ({_KEY}) instead", _one("exchange", value=1)),
        (
            rf"write it as an annotation: ({_KEY}): (?:\"([^\"]*)\"|(\S+))",
            lambda found: iter([Step("move to annotations", found[1], found[2] or found[3] or "")]),
        ),
        (
            rf"remove it, and write ({_KEY}: \S+)",
            lambda found: (
                Step("remove it, and write", *pair.split("=", 1)) for pair in _pairs(found[1]).split("\n")
            ),
        ),
        (r"(?:remove (?:it|them).*|leave the key out.*|leave it out)", _one("remove")),
        (rf"remove ({_PLACE}(?: and {_PLACE})*)", _all("remove all", " and ")),
        (rf"remove ({_ANY}) from requests", _one("remove from requests", key=1)),
        (rf"remove ({_ANY}) from the pod's node selection", _one("remove from the pod's node selection", key=1)),
        (rf"remove ({_ANY}(?: and {_ANY})+)", _all("drop all", " and ")),
        (rf"remove ({_ANY}(?:, {_ANY})+)", _all("drop all", ", ")),
        (
            rf"(?:remove|leave) (?:the annotation |the label |annotation |label )?({_ANY})(?: out| from the pod)?",
            _one("remove", key=1),
        ),
        (r"rename it to (?:one of: )?(.+)", _renamed),
        (rf"annotate the pod ({_KEY}): (\S+)", _one("annotate", key=1, value=2)),
        (r"ask in a container", _one("move")),
        (r"(?:(?:add|say|name|ask for) )?(?:one |another )?(?:gpu-)?model(?![:.]).*", _one("choose model")),
        (rf"add (?:label |annotation )?({_KEY})", _one("choose", key=1)),
        (rf"quote it: ({_KEY}): (?:\"([^\"]*)\")", _one("set", key=1, value=2)),
        (rf"write a value of the shorthand, as ({_KEY}): (.+)", _set_each),
        (r"(?:write|name) (?:a|the) .*, as (.+)", _set_here),
        (r".*whole devices, as (gpu): (.+)", _set_each),
        (rf"(?:write|add|ask for|ask|say it:) ({_KEY}): (.+)", _set_each),
        (
            r"(?:write|ask for) (\S+) to (\S+)",
            lambda found: iter([Step("set", "", found[1]), Step("set", "", found[2])]),
        ),
        (r"(?:write|ask for|ask|name|use) (?:it in Mi, as )?(?:one of:? )?(.+)", _set_here),
        (r"(none)", _set_here),
    )
)
"""The forms of a clause, the special ones first, each with the steps that it means."""
