"""No mistake of a team goes without an answer, and whatever its fix says to do leads to a GPU."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fixes import follow, operators
from tests.fixes.sentences import Step, alternatives
from tests.mistakes import book
from tests.mistakes.book import Mistake
from webhook.core.request import pasteable
from webhook.core.rules.rulebook import Rulebook

MISTAKES = list(book.find())
ANSWERS: dict[str, str] = yaml.safe_load(book.ANSWERS.read_text())


OF_THE_AUTHOR = {"none": "no GPU may be what is meant", "my-claim": "a name that its author knows"}


def test_there_are_four_hundred_and_none_is_told_twice() -> None:
    names = [mistake.name for mistake in MISTAKES]

    assert (len(names) >= 400, sorted(names)) == (True, sorted(ANSWERS))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_answered(mistake: Mistake) -> None:
    answer = book.answer(mistake)

    assert answer == ANSWERS[mistake.name]
    assert answer or mistake.cluster


@pytest.mark.parametrize("mistake", [made for made in MISTAKES if made.means], ids=lambda mistake: mistake.name)
def test_the_first_thing_to_do_is_what_was_meant(mistake: Mistake) -> None:
    assert mistake.means is not None
    rules = mistake.rules()
    if violations(mistake.made, rules):
        end = next(ends(mistake.made, rules))
        assert gets(end, rules) == gets(book.meant(mistake.means), rules)
    else:
        [words] = (pasteable(*pair) for pair in mistake.means.items())
        assert ANSWERS[mistake.name].startswith((f"write {words}", f"ask for {words}"))


PODS = [mistake for mistake in MISTAKES if mistake.made.get("kind") == "Pod"]


@pytest.mark.parametrize("mistake", PODS, ids=lambda mistake: mistake.name)
def test_each_thing_to_do_leads_to_a_gpu(mistake: Mistake) -> None:
    """It is done literally, and after it what is said of the rest of the pod: no fix is one for another fix."""
    rules = mistake.rules()
    wrong = [
        f"{step}: {fix}"
        for violation in violations(mistake.made, rules)
        for fix, step in ((violation.fix, step) for step in alternatives(violation.fix))
        if step is None or not done(step, violation, mistake.made, rules)
    ]

    assert wrong == []


def violations(made: book.Object, rules: Rulebook) -> list[Any]:
    return [violation for decision in book.decisions(made, rules) for violation in decision.violations]


def done(step: Any, violation: Any, made: book.Object, rules: Rulebook) -> bool:
    """Whether every pod that a step makes gets a GPU, or ends so when its other mistakes are mended, too."""
    if step.verb in {"elsewhere", "choice", *operators.VERBS} or step.value in OF_THE_AUTHOR:
        return True
    pods, others = follow.followed(step, violation, made) or [], len(violations(made, rules)) - 1
    if step == Step("remove") and "remove it" in violation.fix:
        return pods != []  # which is for those who want no GPU
    return pods != [] and all(next(ends(pod, rules, others), None) is not None for pod in pods)


def ends(made: book.Object, rules: Rulebook, steps: int = 3) -> Iterator[book.Object]:
    """The pods with a GPU after so many steps, each the first thing to do that leads to one."""
    wrong = violations(made, rules)
    if not wrong and book.decisions(made, rules)[0].backends:
        yield made
    for violation in wrong if steps else ():
        for step in alternatives(violation.fix):
            pods = follow.followed(step, violation, made) if step and step.verb in follow.DOABLE else None
            for pod in pods or ():
                yield from ends(pod, rules, steps - 1)


def gets(made: book.Object, rules: Rulebook) -> tuple[bool, Any]:
    """Whether a pod is admitted, and with which resources and annotations of a back end."""
    *_, last = book.decisions(made, rules)
    stored = book.stored(made, rules)
    return last.allowed, [container.get("resources") for container in stored["spec"]["containers"]]
