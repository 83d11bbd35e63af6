"""An `Exemption`: who is spared which rules of policies, until when, and who answers for it."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from webhook.core.forms.document import Node
from webhook.core.forms.form import document, form, found, line, need, take
from webhook.core.forms.shape import FILLED, Shape, many, pattern, some, word
from webhook.core.kube import time as times
from webhook.core.rules.tenant_policy import GLOBS, LIFTED

_EMPTY: Final = "has to name something"


def _time(node: Node) -> float:
    try:
        return times.seconds(node.text())
    except ValueError as error:
        raise node.problem(str(error)) from None


TIME: Final[Shape[float]] = pattern(f"^{times.FORM}$", "write day, time and zone, as 2027-01-31T00:00:00Z", _time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """Who is spared some rules of policies until a time: `expires`, in seconds since 1970 (UTC)."""

    name: str = found(document)
    rule: str = found(line)
    namespaces: tuple[str, ...] = need(
        GLOBS, "Names, where * stands for any characters and ? for one.", ["vision-dev"]
    )
    users: tuple[str, ...] = take(
        many(FILLED, _EMPTY),
        "Names of users, where * stands for any characters; if left out, everybody who may create pods there.",
        ["system:serviceaccount:ci:*"],
    )
    lifts: frozenset[str] = need(
        some(word(LIFTED), _EMPTY),
        "Which rules are lifted. Where several exemptions hold for a pod, only what all of them lift.",
        ["quota"],
    )
    owner: str = need(FILLED, "Whom to ask about it.", "ml-platform@example.com")
    reason: str = need(FILLED, "Why it is there.", "the yearly retraining")
    expires: float = need(TIME, "Until when it holds, with the zone.", "2027-01-31T00:00:00Z")

    def covers(self, namespace: str) -> bool:
        """Whether it is for pods of a namespace."""
        return any(fnmatchcase(namespace, glob) for glob in self.namespaces)


EXEMPTION: Final = form(Exemption)
