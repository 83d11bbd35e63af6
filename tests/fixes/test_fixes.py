"""What a refusal says to do helps: a pod that was changed as the fix says is not refused for that again."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tests.fixes import corpus, follow, sentences
from tests.fixes.corpus import Object, Refused
from tests.fixes.sentences import Step
from webhook.core.violations import Violation

TRIED = ("1", "2", "5", "10", "30", "50", "100", "1024", "8192")
"""Amounts that an author may choose where a fix only says which resource is missing."""


def _outcome(step: Step | None, violation: Violation, one: Refused) -> str:
    """`helps`, or what happens instead to the author who does as the fix says."""
    if step is None:
        return "not understood"
    if step.verb in {"apart", "choice"}:
        return step.verb
    tries = [step]
    if step.verb == "choose model":
        tries = [
            Step("set", "gpu-model", name) for name in sorted({card.model for card in one.rules.devices.values()})
        ]
    if step.verb == "choose":
        tries = [Step("set", step.key, value) for value in TRIED]
    results = (_again(follow.followed(each, violation, one.pod), violation, one) for each in tries)
    found = next((result for result in results if result == "helps"), "")
    return found or _again(follow.followed(tries[0], violation, one.pod), violation, one)


def _again(pods: list[Object] | None, violation: Violation, one: Refused) -> str:
    if pods is None:
        return "cannot be done"
    before = {(each.code, each.path, each.message) for each in one.violations if each is not violation}
    for pod in pods:
        for after in corpus.violations(pod, one.rules):
            if (after.code, after.path, after.message) not in before and _same(violation, after):
                return f"refused again: {after}"
    return "helps"


def _same(violation: Violation, after: Violation) -> bool:
    """Whether what is wrong afterwards is the fault of the fix.

    A policy can forbid what it is; which back end serves what the author may have then is another question.
    """
    if (after.code, after.path) == (violation.code, violation.path):
        return True
    policy = violation.code.startswith("GPU1")
    if policy and after.code != "GPU203":
        return False
    later = {"GPU205", "GPU206"}
    return (after.code[:4], after.path) == (violation.code[:4], violation.path) and after.code not in later


def _outcomes(pods: Iterable[Refused]) -> Iterator[tuple[str, str]]:
    for one in pods:
        for violation in one.violations:
            for step in sentences.alternatives(violation.fix):
                outcome = _outcome(step, violation, one)
                yield outcome.partition(":")[0], f"{one.name}\n{violation}\n{step}\n{outcome}\n"


def _wrong(pods: Iterable[Refused], known: Mapping[tuple[str, str], str]) -> tuple[Counter[str], list[str]]:
    """How often each outcome is, and the fixes that do not help and are of no known cause."""
    count: Counter[str] = Counter()
    wrong = []
    for outcome, text in _outcomes(pods):
        count[outcome] += 1
        codes = _CODE.findall(text)
        if outcome not in {"helps", "apart", "choice"} and (codes[0], codes[-1]) not in known:
            wrong.append(text)
    return count, wrong


_CODE = re.compile(r"^(?:refused again: )?\[(GPU[0-9]+)\]", re.MULTILINE)

GOLDEN = {
    ("GPU102", "GPU102"): "a pod is over two limits of a policy, and each fix is for one of them",
    ("GPU101", "GPU101"): "HAMi takes A10 for a part of the name A100, which the policy forbids",
    ("GPU107", "GPU107"): "two rules of a policy ask for the model",
}
GENERATED = {
    ("GPU303", "GPU305"): "the name is of a card of this cluster, and the rest of the request does not fit that card",
    ("GPU201", "GPU202"): "one of the words is for whole devices, and the pod asks for a part",
    ("GPU402", "GPU405"): "the resource is of a back end that is not enabled, which is told when it can be read",
    ("GPU403", "GPU405"): "the resource is of a back end that is not enabled, which is told when it can be read",
    ("GPU301", "GPU304"): "the back end serves shares, of cards whose size has to be known",
}
"""Refusals after a fix was followed that are not the fault of the fix, by the codes before and after."""


def test_every_fix_of_a_golden_case_helps() -> None:
    count, wrong = _wrong(corpus.golden_cases(), GOLDEN)

    assert "\n".join(wrong) == ""
    assert count["helps"] > 400
    assert count["choice"] < 30


def test_every_fix_of_a_mistake_in_a_pod_that_would_be_right_helps() -> None:
    refused = list(corpus.generated())

    count, wrong = _wrong(refused, GENERATED)

    assert "\n".join(wrong) == ""
    assert sum(len(one.violations) for one in refused) > 2000
    assert count["helps"] > 3500
    assert count["refused again"] < 200
