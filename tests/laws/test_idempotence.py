"""Mutating a mutated pod changes nothing, whatever it asked, in whatever form, of whatever back end."""

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import asking, clusters, every, tried
from webhook.core.mutate import mutate

PODS = 10_000
"""So many in all."""

PAIRS = [(backend, form) for backend in clusters.names() for form in asking.forms(backend)]


@pytest.mark.large
@pytest.mark.parametrize("backend", clusters.names())
def test_the_second_patch_is_always_empty(backend: str) -> None:
    forms = asking.forms(backend)
    met = {form: _second_patches(backend, form) for form in forms}

    assert {form for form in forms if met[form]} == {form for form in forms if asking.can_be_served(form, backend)}


def _second_patches(backend: str, form: str) -> int:
    """Try the law on pods of one form, and count those that the back end serves."""
    met = 0

    @tried(-(-PODS // len(PAIRS)))
    @given(asking.askings(backend, [form]))
    def law(asked: asking.Asking) -> None:
        nonlocal met
        decision = mutate(builders.creating(asked.pod), asked.rulebook)
        met += backend in decision.backends.values()
        if decision.allowed:
            after = jsonpatch.apply_patch(asked.pod, decision.patch)
            for pod in (after, as_served(after)):
                again = mutate(builders.creating(pod), asked.rulebook)
                assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)

    law()
    return met


@every.backend(16, least=4, also=[st.sampled_from([0, 99])])
def test_a_container_that_another_webhook_adds_gets_nothing_and_changes_nothing(
    asked: asking.Asking, at: int
) -> bool:
    decision = mutate(builders.creating(asked.pod), asked.rulebook)
    if not decision.allowed:
        return False
    after = as_served(jsonpatch.apply_patch(asked.pod, decision.patch))
    after["spec"]["containers"].insert(at, builders.container("added"))

    again = mutate(builders.creating(after), asked.rulebook)

    assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)
    return True
