"""A request means the same in whatever form it is written."""

import random
from typing import Any

import jsonpatch
import pytest
from hypothesis import given

from tests import builders
from tests.cases.served import as_served
from tests.laws import asking, clusters, tried
from webhook.core.mutate import mutate

ANYWHERE = ("labels", "qualified annotations", "container annotations", "bare limits", "bare requests")
"""The forms in which every amount but a count of shares can be said."""

Outcome = list[str] | tuple[Any, ...]


def _become(form: str, words: asking.Words, backend: str) -> Outcome:
    """What becomes of a pod that says the words in this form: what was written beside the shorthand, or why not."""
    pod = builders.pod()
    asking.accompany(backend, pod, pod["spec"]["containers"][0])
    asking.say(form, words, backend, pod, pod["spec"]["containers"][0], random.Random(0))  # noqa: S311  no secret
    arrives = as_served(pod)
    decision = mutate(builders.creating(arrives), clusters.rulebook(backend))
    if not decision.allowed:
        return sorted(violation.code for violation in decision.violations)
    stored = as_served(jsonpatch.apply_patch(arrives, decision.patch))
    metadata = stored["metadata"]
    annotations = {
        key: value for key, value in metadata.get("annotations", {}).items() if "gpu-webhook.io" not in key
    }
    labels = {key: value for key, value in metadata.get("labels", {}).items() if key not in words}
    return stored["spec"], annotations, labels, metadata["annotations"]["gpu-webhook.io/translated"]


@pytest.mark.large
@pytest.mark.parametrize("backend", clusters.names())
def test_the_same_words_become_the_same_everywhere(backend: str) -> None:
    served = 0

    @tried(16)
    @given(asking.words(backend, "bare limits"))
    def law(words: asking.Words) -> None:
        nonlocal served
        said = {**asking.needed(backend), **words}
        first, *others = (_become(form, said, backend) for form in ANYWHERE)
        served += isinstance(first, tuple)

        assert others == [first] * len(others)

    law()

    assert served >= 4
