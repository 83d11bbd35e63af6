"""No mistake of a team goes without an answer, and what is meant stands in it, where anybody can tell."""

from typing import Any

import pytest
import yaml

from tests.fixes import follow
from tests.fixes.sentences import alternatives
from tests.mistakes import book
from tests.mistakes.book import Mistake
from webhook.core.request import pasteable

MISTAKES = list(book.find())
ANSWERS: dict[str, str] = yaml.safe_load(book.ANSWERS.read_text())


def test_there_are_three_hundred_and_none_is_told_twice() -> None:
    names = [mistake.name for mistake in MISTAKES]

    assert (len(names) >= 300, sorted(names)) == (True, sorted(ANSWERS))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_answered(mistake: Mistake) -> None:
    answer = book.answer(mistake)

    assert answer == ANSWERS[mistake.name]
    assert answer


@pytest.mark.parametrize("mistake", [made for made in MISTAKES if made.means], ids=lambda mistake: mistake.name)
def test_the_first_thing_to_do_is_what_was_meant(mistake: Mistake) -> None:
    assert mistake.means is not None
    if any(violation for decision in book.decisions(mistake.made) for violation in decision.violations):
        assert _gets(_corrected(mistake)) == _gets(book.meant(mistake.means))
    else:
        [words] = (pasteable(*pair) for pair in mistake.means.items())
        assert ANSWERS[mistake.name].startswith(f"write {words}")


def _corrected(mistake: Mistake) -> book.Object:
    """The pod after all that is wrong has been mended as the first words of each fix say."""
    made = mistake.made
    for _ in range(3):
        violations = [violation for decision in book.decisions(made) for violation in decision.violations]
        if not violations:
            break
        step = next(alternatives(violations[0].fix))
        pods = follow.followed(step, violations[0], made) if step else None
        assert pods, f"nothing to do in {violations[0]}"
        [made] = pods
    return made


def _gets(made: book.Object) -> tuple[bool, Any]:
    """Whether a pod is admitted, and with which resources."""
    *_, last = book.decisions(made)
    stored = book.stored(made)
    return last.allowed, [container.get("resources") for container in stored["spec"]["containers"]]
