"""The words of the rule language, and those who interpret them."""

from webhook.core.plan.inject import FORBIDDABLE, REQUIRABLE
from webhook.core.rules.modes import REQUIRES
from webhook.core.rules.verbs import EXCLUSIONS


def test_every_word_about_the_rest_of_a_pod_is_interpreted() -> None:
    assert (tuple(REQUIRABLE), tuple(FORBIDDABLE)) == (tuple(REQUIRES.schema["properties"]), EXCLUSIONS)
