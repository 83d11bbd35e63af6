"""What a refusal says to do helps: a pod that was changed as the fix says is not refused for that again."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import pytest

from tests import tables
from tests.fixes import corpus, follow, operators
from tests.fixes.corpus import Object, Refused
from tests.fixes.sentences import Step, alternatives
from webhook.core.violations import CODES, Violation

LESS = ("1", "0.5", "0.25", "10", "1Gi", "4Gi", "1024")
MOST = 100
"""The most ways to do one step that are tried."""

TRIED = ("1", "2", "5", "10", "12", "30", "50", "100", "1024", "8192")
"""Amounts that an author may choose where a fix only says which resource is missing."""


def _outcome(step: Step | None, violation: Violation, one: Refused) -> str:
    """`helps`, or what happens instead to the author who does as the fix says."""
    if step is None:
        return "not understood"
    if step.verb in {"elsewhere", "choice"}:
        return step.verb
    results = [*islice(_results(step, violation, one), MOST)]
    if violation.code == "GPU201" and (step.verb == "remove" or step.value == "none") and "gives no GPU" in results:
        return "helps"  # what could not be understood may ask for none
    return "helps" if "helps" in results else (results or ["cannot be done"])[0]


def _results(step: Step, violation: Violation, one: Refused) -> Iterator[str]:
    """What comes of each way to do a step, until one helps."""
    tried: Iterator[tuple[list[Object] | None, Refused]] = (
        (([one.pod], changed) for changed in operators.done(step, violation, one))
        if step.verb in operators.VERBS
        else ((follow.followed(each, violation, one.pod), one) for each in _ways(step, violation, one))
    )
    for pods, where in tried:
        result = _again(pods, violation, where)
        yield result
        if result == "helps":
            return


def _ways(step: Step, violation: Violation, one: Refused) -> Iterator[Step]:
    """The step, or each way to do one that leaves its author a choice."""
    if step.verb == "choose model":
        yield from (
            Step("set", "gpu-model", name) for name in sorted({card.model for card in one.rules.devices.values()})
        )
    elif step.verb == "choose":
        yield from (Step("set", step.key, value) for value in TRIED)
    elif step.verb == "choose back end":
        yield from (Step("set", "gpu-backend", name) for name in one.rules.cluster.backends)
    elif step.verb == "choose less":
        keys = ("", "gpu") if "resources" in violation.path or violation.path.startswith("metadata") else ("gpu",)
        yield from (Step("set", key, value) for key in keys for value in LESS)
    else:
        yield step


def _again(pods: list[Object] | None, violation: Violation, one: Refused) -> str:
    if pods is None:
        return "cannot be done"
    before = {_known(each) for each in one.violations if each is not violation}
    for pod in pods:
        for after in corpus.violations(pod, one.rules, one.namespace):
            if _known(after) not in before and _same(violation, after):
                return f"refused again: {after}"
        if (
            violation.code in OF_REQUESTS
            and corpus.asks(one.pod)
            and not corpus.may_get(pod, one.rules, one.namespace)
        ):
            return "gives no GPU"
    return "helps"


OF_REQUESTS = ("GPU001", "GPU201", "GPU202", "GPU204", "GPU301")
"""Codes whose fix has to leave a pod that asks for a GPU with one, or refused for another reason."""


def _known(violation: Violation) -> tuple[str, str, str]:
    """By what another violation is known, whose numbers a fix may change."""
    return violation.code, _NUMBER.sub("", violation.path), _NUMBER.sub("", violation.message)


_CONTAINER = re.compile(r'the container "([^"]+)"')
_NUMBER = re.compile(r"\d+[a-zA-Z]*")


def _same(violation: Violation, after: Violation) -> bool:
    """Whether what is wrong afterwards is the fault of the fix: the same wherever it stands now, or its kin there.

    A policy can forbid what it is; which back end serves what the author may have then is another question.
    """
    whose = [_CONTAINER.findall(each.message) for each in (violation, after)]
    if after.code == violation.code and (whose[0] == whose[1] or not all(whose)):
        another = re.compile(ANOTHER.get(after.code, "$."))
        return after.message == violation.message or not another.search(after.message)
    policy = violation.code.startswith("GPU1")
    if policy and after.code != "GPU203":
        return False
    later = (violation.code, after.code) in LATER or after.code in {"GPU205", "GPU206"}
    return (after.code[:4], after.path) == (violation.code[:4], violation.path) and not later


ANOTHER: Mapping[str, str] = {
    "GPU102": "of a device's compute",
    "GPU107": "counts .* apart",
    "GPU305": "needs to know|the most it can express|is not one of|the largest has",
    "GPU405": "the annotation .* excludes|is missing|the nearest it can|the most it can express",
}
"""Another limit of the same code, which shows when the first is kept: words of its message."""

LATER = {
    ("GPU201", "GPU202"): "one of the words is for whole devices, and the pod asks for a part",
    ("GPU301", "GPU304"): "the back end serves shares, of cards whose size has to be known",
    ("GPU301", "GPU305"): "it serves such a request, and not the amount",
    ("GPU303", "GPU305"): "the name is of a card of this cluster, and the rest of the request does not fit that card",
    ("GPU305", "GPU301"): "a card has as much, and the back end does not give parts of it",
    ("GPU402", "GPU405"): "whether a number goes with the others, and with the card, shows when all can be read",
    ("GPU403", "GPU405"): "the same",
}
"""What is wrong at the same place, by another code, and shows only when the first is gone."""


def _outcomes(pods: Iterable[Refused]) -> Iterator[tuple[str, str]]:
    for one in pods:
        for violation in one.violations:
            for step in alternatives(violation.fix):
                outcome = _outcome(step, violation, one)
                yield outcome.partition(":")[0], f"{one.name}\n{violation}\n{step}\n{outcome}\n"


def _wrong(pods: Iterable[Refused]) -> tuple[Counter[str], list[str]]:
    """How often each outcome is, and the fixes that do not help."""
    count: Counter[str] = Counter()
    wrong = []
    for outcome, text in _outcomes(pods):
        count[outcome] += 1
        if outcome not in {"helps", "elsewhere", "choice"}:
            wrong.append(text)
    return count, wrong


@pytest.mark.large
def test_every_fix_of_a_golden_case_helps() -> None:
    count, wrong = _wrong(corpus.golden_cases())

    assert "\n".join(wrong) == ""
    assert count["helps"] > 500
    assert (count["choice"], count["elsewhere"]) == (4, 10)


@pytest.mark.large
def test_every_fix_of_every_back_end_helps() -> None:
    refused = list(corpus.of_every_back_end())

    count, wrong = _wrong(refused)

    assert "\n".join(wrong) == ""
    assert count["helps"] > 2500
    assert count.keys() == {"helps"}


@pytest.mark.large
def test_every_fix_of_a_mistake_in_a_pod_that_would_be_right_helps() -> None:
    refused = list(corpus.generated())

    count, wrong = _wrong(refused)

    assert "\n".join(wrong) == ""
    assert sum(len(one.violations) for one in refused) > 2000
    assert count["helps"] > 5000
    assert count["choice"] < 40


def test_every_fix_of_a_contradiction_and_of_a_value_without_quotes_helps() -> None:
    count, wrong = _wrong(corpus.contradicting())

    assert "\n".join(wrong) == ""
    assert count["helps"] > 500


NOT_FOLLOWED: Mapping[str, Any] = tables.table(__file__, "not followed")
"""Codes of no pod that is created in these tests, and what shows or says instead how its author gets on."""


@pytest.mark.large
def test_the_fixes_of_every_other_code_are_followed() -> None:
    pods = chain(corpus.golden_cases(), corpus.of_every_back_end(), corpus.generated())

    followed = {violation.code for one in pods for violation in one.violations}

    assert sorted(CODES.keys() - followed) == sorted(NOT_FOLLOWED)
