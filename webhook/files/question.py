"""What a person asks at a command or on a page, answered: the pods, and all that is known around them.

Documents are one pile: pods and what makes them are asked about; claims, policies, exemptions, usage and namespaces
among them are taken as if they were in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from webhook.core.forms.document import nearest
from webhook.core.interpret import claim_objects
from webhook.core.reports import applied, convert, explain
from webhook.core.reports.explain import Explanation
from webhook.core.reports.missing import NOWHERE, Setting
from webhook.core.reports.tenants import Problem
from webhook.core.rules import index
from webhook.core.rules.rulebook import Rulebook
from webhook.files import tenant_objects
from webhook.files.documents import UnreadableError

Object = Mapping[str, Any]


class Question(NamedTuple):
    """What becomes of the pods in `documents`, with what is `around` them.

    `backend`: as if the cluster had only this one. `to`: rewritten for this one, from the words of `source`.
    """

    documents: Sequence[Object]
    around: Sequence[Object] = ()
    setting: Setting = NOWHERE
    backend: str = ""
    to: str = ""
    source: str = ""


class Answer(NamedTuple):
    """An explanation for each pod, and what is wrong with the policies and exemptions that were given.

    Those are `tried`, as `TenantPolicy/vision`, and of them the `usable` ones have no mistake; `advice` is what their
    author is told when they are applied.
    """

    found: Sequence[Explanation]
    problems: Sequence[Problem]
    tried: Sequence[str] = ()
    usable: Sequence[str] = ()
    advice: Sequence[str] = ()


def answer(asked: Question, rulebook: Rulebook, there: tenant_objects.Objects) -> Answer:
    """The answer, by the rules and by the tenants that are there; raises UnreadableError.

    Policies and usage among the documents stand in for those of their name that are there.
    """
    _check_names(asked, rulebook)
    given = [*asked.documents, *asked.around]
    tried = tenant_objects.Objects()
    for document in given:
        tried.add(document)
    known, broken = there.tenancy(rulebook)
    tenancy, wrong = tried.tenancy(replace(rulebook, tenancy=known), tried=True)
    (used, unread), (used_as_given, also_unread) = there.ledgers(), tried.ledgers()
    if unread or also_unread:
        raise UnreadableError("; ".join(f"{one.tenant}: {one.message}" for one in (*unread, *also_unread)))
    judging = index.only(asked.backend, rulebook) if asked.backend else rulebook
    judging = claim_objects.given(given, replace(judging, tenancy=tenancy))
    setting = asked.setting._replace(whole=there.whole)
    explained = _explained(asked, judging, setting)
    ledgers = {**used, **used_as_given}
    found = [*explain.foreseen(explained, tenancy, ledgers, setting)]
    with_them, before = replace(rulebook, tenancy=tenancy), replace(known, labels=tenancy.labels)
    advice = applied.every(with_them, setting.at, ledgers, own=tried.written, before=before)
    sound = {one.rule for one in tenancy.policies if not one.broken} | {one.rule for one in tenancy.exemptions}
    usable = [name for name in tried.written if name in sound]
    return Answer(found, [*broken, *wrong], tried.written, usable, [*advice])


def _check_names(asked: Question, rulebook: Rulebook) -> None:
    for name in filter(None, (asked.backend, asked.to, asked.source)):
        if name not in rulebook.backends:
            known = f"{nearest(name[:63], rulebook.backends)}; there are {', '.join(sorted(rulebook.backends))}"
            raise UnreadableError(f'no back end is called "{name[:63]}"{known}')


def _explained(asked: Question, rulebook: Rulebook, setting: Setting) -> Iterator[Explanation]:
    for document in asked.documents:
        if asked.to:
            yield from convert.convert(document, asked.to, rulebook, asked.source or None, setting)
        else:
            yield from explain.explain(document, rulebook, setting)
