"""Mutating a mutated pod changes nothing, whatever it asked, in whatever form, of whatever back end."""

from collections import Counter

import jsonpatch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import asking, tried
from tests.laws.asking import Asking, askings
from webhook.core import admit


def test_the_second_patch_is_always_empty() -> None:
    pods, changed = 0, 0
    served: Counter[tuple[str, str]] = Counter()

    @tried(10_000)
    @given(askings())
    def law(asked: Asking) -> None:
        nonlocal pods, changed
        decision = admit.mutate(builders.creating(asked.pod), asked.rulebook)
        pods += 1
        changed += bool(decision.patch)
        served[asked.form, asked.backend] += asked.backend in decision.backends.values()
        if decision.allowed:
            after = jsonpatch.apply_patch(asked.pod, decision.patch)
            for pod in (after, as_served(after)):
                again = admit.mutate(builders.creating(pod), asked.rulebook)
                assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)

    law()

    assert {pair for pair in asking.pairs() if served[pair]} == {
        (form, backend) for form, backend in asking.pairs() if asking.can_be_served(form, backend)
    }
    assert changed >= pods / 2


@tried(1_000)
@given(askings(), st.sampled_from([0, 99]))
def test_a_container_that_another_webhook_adds_gets_nothing_and_changes_nothing(asked: Asking, at: int) -> None:
    decision = admit.mutate(builders.creating(asked.pod), asked.rulebook)
    assume(decision.allowed)
    after = as_served(jsonpatch.apply_patch(asked.pod, decision.patch))
    after["spec"]["containers"].insert(at, builders.container("added"))

    again = admit.mutate(builders.creating(after), asked.rulebook)

    assert (again.allowed, list(again.patch), again.backends) == (True, [], decision.backends)
