"""A request means the same in whatever form it is written."""

from typing import Any

import jsonpatch
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import asking, clusters, tried
from tests.laws.asking import SHAPES, Words
from webhook.core import admit

ANYWHERE = ("labels", "qualified annotations", "container annotations", "bare limits", "bare requests")
"""The forms in which every amount but a count of shares can be said."""


def _become(form: str, words: Words, backend: str) -> Any:
    """What becomes of a pod that says the words in this form: what was written beside the shorthand, or why not."""
    pod = builders.pod()
    asking.say(form, words, backend, pod, pod["spec"]["containers"][0])
    arrives = as_served(pod)
    decision = admit.mutate(builders.creating(arrives), clusters.rulebook(backend))
    if not decision.allowed:
        return sorted(violation.code for violation in decision.violations)
    stored = as_served(jsonpatch.apply_patch(arrives, decision.patch))
    metadata = stored["metadata"]
    annotations = {
        key: value for key, value in metadata.get("annotations", {}).items() if "gpu-webhook.io" not in key
    }
    labels = {key: value for key, value in metadata.get("labels", {}).items() if not key.startswith("gpu")}
    return stored["spec"], annotations, labels, metadata["annotations"]["gpu-webhook.io/translated"]


@tried(1_000)
@given(
    st.sampled_from(clusters.names()),
    st.sampled_from(
        ["whole", "share", "memory", "memories", "cores", "memory and cores", "share and memory", "tflops"]
    ).flatmap(SHAPES.__getitem__),
)
def test_the_same_words_become_the_same_everywhere(backend: str, words: Words) -> None:
    first, *others = (_become(form, words, backend) for form in ANYWHERE)

    assert others == [first] * len(others)
