"""What a stored pod counts is what was charged for it, and nothing but the pod and the rules decides it."""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.core.policy.tenants import held
from tests.edited import edited
from tests.laws import asking, clusters, every, tried
from tests.laws.asking import Asking
from tests.laws.outcome import stored
from webhook.cli import explanation
from webhook.core.backends.charge import charge
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.policy import usage
from webhook.core.rules.rulebook import Rulebook, Surroundings

CARDS = ("T4", "A100-40GB", "H200", "MI300X", "Ascend910B4")


def _around(rulebook: Rulebook, model: str) -> Rulebook:
    """The rulebook where only the nodes tell the card, and all of every back end that can have it have this one."""
    card = clusters.device(model)
    having = {name: [card] for name, backend in rulebook.backends.items() if backend.serves(card)}
    return replace(_unsaid(rulebook), surroundings=Surroundings(cards=having, present=frozenset(having)))


def _unsaid(rulebook: Rulebook) -> Rulebook:
    """The rulebook where nothing tells the card."""
    return replace(rulebook, cluster=replace(rulebook.cluster, device=None))


Charges = Mapping[str, Fraction]


def _charged(asked: Asking, rulebook: Rulebook) -> tuple[Charges | None, Charges | None]:
    done = stored(asked, rulebook)
    if done is None:
        return None, None
    found = usage.holdings(pod.read(as_served(done.pod)), rulebook)
    counted = {holding.container.name: holding.measure.devices for holding in found}
    return counted, {served.demand.container.name: _charge(served) for served in done.planned.assignments}


def _charge(served: Assignment) -> Fraction:
    """The whole device where the back end could have limited the compute of a part, and nobody asked for that."""
    request, modes = served.request, served.backend.modes
    limits = any("cores" in mode.verbs for mode in modes if mode.when.devices != "profile")
    limits &= "share" not in served.mode.verbs
    is_open = request.devices == "part" and request.cores is None and request.tflops is None and limits
    return max(charge(request, served.card), Fraction(request.count if is_open else 0))


UNTOLD = {("aliyun-gpushare-mib", clusters.ALL), ("aliyun-gpushare", clusters.ALL)}
"""Back ends whose nodes no label tells from those of another that gives more for the same number: GiB for MiB, or all
of the compute, which it could limit."""


SLICED = {("hami-vgpu", clusters.ALL)}
"""Back ends whose shares may land on nodes with MIG, unless the pod says how its card is divided."""


@every.backend(16, least=4)
def test_a_stored_pod_counts_what_was_charged_for_it(asked: Asking) -> bool:
    counted, charged = _charged(asked, asked.rulebook)
    if counted is None or charged is None:
        return False
    if counted == charged:
        return True
    untold = (asked.backend, asked.cluster) in UNTOLD and counted == {asked.container: 1}
    more = counted.keys() == charged.keys() and all(counted[name] >= charged[name] for name in charged)
    assert untold or ((asked.backend, asked.cluster) in SLICED and more)
    return True


def _sized(models: str, memory: str, rulebook: Rulebook) -> Mapping[str, Fraction] | None:
    """What a stored pod counts that asks for a size and a bit of the compute of one of these models, if any can."""
    words = {"gpu-memory": memory, "gpu-cores": "1"}
    annotations = {f"gpu-webhook.io/{key.removeprefix('gpu-')}": text for key, text in words.items()}
    raw = builders.pod(annotations={**annotations, "gpu-webhook.io/model": models})
    planned = plan.make(pod.read(raw), rulebook)
    return None if planned.violations else held(as_served(edited(planned.edits, raw)), rulebook).tally


@pytest.mark.large
@pytest.mark.parametrize("backend", ["hami-vgpu", "volcano-vgpu", "kai", "aliyun-gpushare", "tencent-qgpu"])
@tried(60)
@given(st.lists(st.integers(0, 999), min_size=2, max_size=4), asking.SIZES)
def test_a_size_on_any_of_several_cards_counts_the_most_that_it_counts_on_one(
    backend: str, places: list[int], memory: str
) -> None:
    rulebook = clusters.knowing(backend, None)
    cards = clusters.cards(backend)
    models = [cards[place % len(cards)].model for place in places]
    together = _sized(",".join(models), memory, rulebook)
    alone = [count for model in models if (count := _sized(model, memory, rulebook)) is not None]

    if together is not None:
        most = max(count["devices"] for count in alone)
        # One that is too small by itself may be the name of a part of another.
        assert together["devices"] >= most if len(alone) < len(models) else together["devices"] == most


@every.backend(16, least=1, also=[st.sampled_from(CARDS), st.sampled_from(CARDS)])
def test_what_a_pod_counts_does_not_change_with_the_nodes(asked: Asking, then: str, now: str) -> bool:
    before, after = _around(asked.rulebook, then), _around(asked.rulebook, now)
    done = stored(asked, before)
    if done is None:
        return False
    raw = as_served(done.pod)

    assert held(raw, before) == held(raw, after) == held(raw, _unsaid(asked.rulebook))
    return True


@every.backend(8, least=1, also=[st.sampled_from(CARDS)])
def test_explain_shows_what_the_stored_pod_counts(asked: Asking, card: str) -> bool:
    rulebook = _around(asked.rulebook, card)
    (explained,) = explanation.explain(asked.pod, rulebook)
    if not explained.charges or not explained.decision.allowed:
        return False
    found = usage.holdings(pod.read(as_served(explained.after)), _unsaid(asked.rulebook))

    assert explained.charges == {holding.container.name: holding.measure.devices for holding in found}
    return True


@every.backend(8, least=2)
def test_a_counter_remembers_nothing_wrong(asked: Asking) -> bool:
    done = stored(asked)
    if done is None:
        return False
    counter = usage.Counter(asked.rulebook)
    raws = [as_served(asked.pod), as_served(done.pod)] * 2

    assert [counter.held(raw) for raw in raws] == [held(raw, asked.rulebook) for raw in raws]
    return True
