"""Whatever stands in an object of a cluster, reading it raises nothing, and no number of it is large."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import builders, tables
from tests.laws import clusters, tried
from webhook.cli.inventory import demand
from webhook.core import inventory
from webhook.core.backends import cards as card_models
from webhook.core.kube import quantity
from webhook.core.policy import usage
from webhook.core.quota import stored
from webhook.core.quota.tally import DIGITS
from webhook.core.rules import load

Object = dict[str, Any]

RULES = clusters.rulebook(clusters.ALL)
BITS = 4 * DIGITS
"""The largest numerator or denominator that may come of a text, in bits."""

NUMBERS = st.one_of(
    st.integers(-(10**30), 10**30).map(str),
    st.fractions(max_denominator=10**9).map(str),
    st.builds("{}e{}".format, st.integers(-99, 99), st.sampled_from([3, 300, 100_000, -100_000])),
    st.sampled_from(
        ["9" * 4000, "9" * 5000, f"1/{'9' * 5000}", "0x10", "1_0", "٣", "²", "NaN", "inf", "-0", "1e", ""]
    ),
    st.sampled_from([f"{'9' * 4000}Gi", "1e99999Gi", "-1Gi", "1.0000000000000000001Gi", "1.5Ei", "99999999999E"]),
)
SCALARS: st.SearchStrategy[Any] = st.one_of(
    NUMBERS, st.text(max_size=20), st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats()
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)
AMOUNTS = st.dictionaries(st.sampled_from(["devices", "memory", "devices/T4", "x"]), SCALARS, max_size=3)
LINES = st.builds("dev/one {} devices={}".format, st.text(max_size=9), NUMBERS) | st.text(max_size=30)
STATUS: Mapping[str, st.SearchStrategy[Any]] = {
    "hard": AMOUNTS,
    "held": st.dictionaries(st.sampled_from(["dev", "ci", "../x"]), AMOUNTS | ANYTHING, max_size=2),
    "view": SCALARS,
    "pending": st.lists(LINES | ANYTHING, max_size=3),
    "advances": st.lists(LINES | ANYTHING, max_size=3),
    "joining": st.dictionaries(st.text(max_size=9), SCALARS, max_size=2),
    "recount": SCALARS,
    "recounted": SCALARS,
    "repaired": SCALARS,
}
NAMES = sorted(RULES.resources)
LABELS = sorted(
    {*RULES.slots["label"], *RULES.slots["annotation"], *RULES.all_slots["annotation"], "gpu", "gpu-memory"}
)
NODE_LABELS = sorted(card_models.labels(RULES).keys)
POLICY_KEYS: Sequence[str] = tables.table(__file__, "keys of policies")
QUOTA = st.dictionaries(st.sampled_from(["devices", "memory", "models", "enforcementAction"]), ANYTHING, max_size=3)


def numbers(found: Any) -> Iterator[int]:
    """The numerators and denominators in a value, however deep."""
    if isinstance(found, int | Fraction):
        yield from (found.numerator, found.denominator)
    elif isinstance(found, Mapping):
        for value in found.values():
            yield from numbers(value)
    elif isinstance(found, list | tuple):
        for value in found:
            yield from numbers(value)


def assert_small(found: Any) -> None:
    assert max((abs(number).bit_length() for number in numbers(found)), default=0) < BITS


@tried(300)
@example({"held": {"dev": {"devices": "0"}}, "advances": ["dev/one 0 devices=0"]})
@given(st.fixed_dictionaries({}, optional=STATUS) | st.dictionaries(st.sampled_from([*STATUS]), ANYTHING) | ANYTHING)
def test_any_status_of_a_tenant_usage_is_a_ledger(status: Any) -> None:
    ledger = stored.read(status)

    assert_small([getattr(ledger, name) for name in ledger.__slots__])
    again = stored.read(stored.write(ledger))
    assert stored.read(stored.write(again)) == again


@pytest.mark.large
@tried(200)
@given(
    st.dictionaries(st.sampled_from(NAMES), NUMBERS, max_size=3),
    st.dictionaries(st.sampled_from(LABELS), NUMBERS | st.text(max_size=9), max_size=3),
)
def test_any_amounts_on_a_pod_are_counted(limits: Mapping[str, str], said: Mapping[str, str]) -> None:
    pod = builders.pod(builders.container(limits=limits), labels=said, annotations=said)
    pod["metadata"] |= {"name": "p", "namespace": "dev", "uid": "u"}

    assert_small(usage.Counter(RULES).held(pod).tally)
    used = demand([pod], inventory.read([], RULES), RULES).uses
    assert_small([(use.asked.devices, use.asked.memory) for use in used])


@pytest.mark.large
@tried(200)
@given(
    st.dictionaries(st.sampled_from(NAMES), SCALARS, max_size=4),
    st.dictionaries(st.sampled_from(NODE_LABELS), NUMBERS),
)
def test_any_amounts_on_a_node_are_an_inventory(advertised: Object, labels: Mapping[str, str]) -> None:
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": advertised}}

    found = inventory.read([node], RULES)

    for one in found.nodes.values():
        assert_small([(offer.devices, offer.memory, offer.resources) for offer in one.offers.values()])


@tried(200)
@given(st.dictionaries(st.sampled_from(POLICY_KEYS), ANYTHING | QUOTA, max_size=4) | ANYTHING)
def test_any_policy_and_exemption_is_one_or_has_problems(spec: Any) -> None:
    one = [{"metadata": {"name": "one"}, "spec": spec}]

    policies = load.policies_from(one, RULES)
    exemptions = load.exemptions_from(one, RULES)

    assert len(policies.read) + len(policies.broken) == len(exemptions.read) + len(exemptions.broken) == 1
    assert_small([each.quota.hard for each in policies.read.values() if each.quota])


@tried(300)
@given(SCALARS)
def test_any_quantity_is_read_or_refused(value: Any) -> None:
    quantity.is_whole(value)
    quantity.same(value, "1")
    assert_small(inventory._amount(value))  # noqa: SLF001 - what a node says of one resource
