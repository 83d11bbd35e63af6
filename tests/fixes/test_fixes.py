"""What a refusal says to do helps: a pod that was changed as the fix says is not refused for that again."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import pytest

from tests import builders, tables
from tests.fixes import corpus, follow, operators
from tests.fixes.corpus import Object, Refused
from tests.fixes.sentences import Step, alternatives
from tests.laws import asking, clusters
from webhook.core.backends import cards, charge
from webhook.core.kube.pod import read
from webhook.core.plan import plan
from webhook.core.rules.rulebook import Rulebook, with_only
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


def test_the_fix_of_every_container_of_a_pod_is_tried() -> None:
    asking = [builders.container(name, limits={"gpu": "500m"}) for name in ("a", "b", "c", "d", "e")]
    rules = with_only("nvidia-gpu", builders.rulebook(builders.shipped_files()))

    fixes = [violation.fix for violation in corpus.violations(builders.pod(*asking), rules)]

    assert fixes == ['ask for gpu: "1"'] * 5


class _Paths:
    """Where the fixes of a cluster's refusals lead, each followed to its end."""

    def __init__(self, rules: Rulebook) -> None:
        self._rules, self._remembered = rules, dict[str, list[Object] | None]()
        served = {card.model for backend in rules.enabled for card in cards.card_served(backend, rules)}
        self._models = sorted(served)[:6]

    def steps(self, pod: Object) -> Iterator[tuple[Step, Violation, Iterator[list[Object]]]]:
        """What the first refusal of a pod says to do, and the pods that each way to do it makes."""
        one = Refused("", pod, self._rules, corpus.violations(pod, self._rules))
        violation = one.violations[0]
        for step in alternatives(violation.fix):
            if step is None or step.verb in {"elsewhere", "choice", *operators.VERBS}:
                continue  # what is not understood is held above
            choices = [Step("set", "gpu-model", model) for model in self._models]
            ways = choices if step.verb == "choose model" else _ways(step, violation, one)
            made = (follow.followed(way, violation, pod) for way in ways)
            yield step, violation, (pods for pods in made if pods is not None)

    def end(self, pod: Object, steps: int) -> list[Object] | None:
        """The pods that are admitted at the end of some way of so many steps."""
        key = json.dumps([pod, steps], sort_keys=True)
        if key not in self._remembered:
            self._remembered[key] = self._end(pod, steps)
        return self._remembered[key]

    def _end(self, pod: Object, steps: int) -> list[Object] | None:
        if not corpus.violations(pod, self._rules):
            return [pod]
        ways = (pods for _, _, made in self.steps(pod) for pods in made) if steps else ()
        return next((end for pods in ways if (end := self.all(pods, steps - 1)) is not None), None)

    def all(self, pods: list[Object], steps: int) -> list[Object] | None:
        """The same, of all these pods."""
        ends = [self.end(pod, steps) for pod in pods]
        return None if None in ends else [pod for end in ends for pod in end or ()]

    def devices(self, pods: list[Object]) -> Fraction:
        """What pods hold together."""
        plans = (plan.make(read(pod), self._rules) for pod in pods)
        return sum((charge.charge(a.request, a.card) for made in plans for a in made.assignments), Fraction(0))


@pytest.mark.parametrize("known", [False, True], ids=["no card is known", "the card is known"])
def test_every_fix_of_every_ask_of_every_back_end_leads_to_what_was_asked(*, known: bool) -> None:
    """An author does one thing, beside what the fix says that the pod needs, and gets no less, and not much more."""
    wrong, helped = [], 0
    for name in clusters.names()[1:]:
        rules = clusters.rulebook(name) if known else with_only(name, builders.rulebook(builders.shipped_files()))
        paths = _Paths(rules)
        for ask, pod in corpus.asked(name):
            if not (before := corpus.violations(pod, rules)):
                continue
            two = ask == "for two containers"
            for step, violation, made in paths.steps(pod):
                tried = [*made]
                ends = [(pods, end) for pods in tried if (end := paths.all(pods, 5 if two else 2)) is not None]
                told = [pods for pods, _ in ends if two or _only_told(pods, rules, violation, before)]
                text = f"{name}, {ask}: {step}\n{violation}"
                if not told:
                    wrong.append(f"{'no end' if not ends else 'not told at once'}: {text}")
                elif known and not _is_enough(paths, name, ask, violation, step, ends[0][1]):
                    wrong.append(f"not what was asked: {text}")
                helped += 1

    assert "\n".join(wrong) == ""
    assert helped > 500


def _only_told(pods: list[Object], rules: Rulebook, violation: Violation, before: Sequence[Violation]) -> bool:
    """Whether pods are admitted, or need only what was told with the first fix."""
    later = [after for pod in pods for after in corpus.violations(pod, rules) if after not in before]
    return all(all(need in violation.fix for need in NEEDS.findall(after.fix) or ["-"]) for after in later)


NEEDS = re.compile(r"hostIPC: true|runAsUser: [0-9]+|/[^ ,]+")
"""What a back end needs of the rest of a pod."""


def _is_enough(paths: _Paths, name: str, ask: str, violation: Violation, step: Step, end: list[Object]) -> bool:
    """Whether pods have what was asked: no less if the back end gives that, nor over twice that if it gives parts."""
    words = corpus.ASKS.get(ask, {}).get("labels", {})
    another = {"MODEL", "PROFILE", "H100"} & {*words.values()} or step.key in {"gpu-model", "gpu-cores"}
    request = asking.request_of({key: text for key, text in words.items() if key != "gpu-sharing"})
    if another or request is None or request.tflops:
        return True  # of another card, or no amount was said
    amount = charge.charge(request, clusters.card(name))
    pods = int((re.findall("use ([0-9]+) pods", violation.fix) or ["1"])[0])
    held = pods * paths.devices(end)
    least = min(0.8 * amount, 0.9 * corpus.AT_MOST.get(name, request.count))
    half = corpus.violations(builders.pod(labels={"gpu": "0.5"}), clusters.rulebook(name))
    return held >= least and (held <= 2 * amount or bool(half and held <= 2 * request.count))


NOT_FOLLOWED: Mapping[str, Any] = tables.table(__file__, "not followed")
"""Codes of no pod that is created in these tests, and what shows or says instead how its author gets on."""


@pytest.mark.large
def test_the_fixes_of_every_other_code_are_followed() -> None:
    pods = chain(corpus.golden_cases(), corpus.of_every_back_end(), corpus.generated())

    followed = {violation.code for one in pods for violation in one.violations}

    assert sorted(CODES.keys() - followed) == sorted(NOT_FOLLOWED)
