"""What is said of policies and exemptions is so: a pod that a sentence speaks of meets what it says.

Worlds are policies, exemptions, namespaces and their labels, enforcement actions, dates, and what tenants use. Each
sentence has its witnesses, and the judge is asked about them; and what goes wrong for a witness by a tie is said.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Final, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.core.policy.tenants import NOW, RULES
from tests.laws import tried
from webhook.cli import explanation, policy_advice
from webhook.core.forms.labels import Expression
from webhook.core.policy.membership import NAME_LABEL, member
from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import (
    LIFTED,
    Ceiling,
    Defaults,
    Exemption,
    Kinds,
    Namespaces,
    Quota,
    Tenancy,
    TenantPolicy,
)
from webhook.core.violations import Action

ACTIONS: Sequence[Action] = get_args(Action)
NAMESPACES: Final = ("vision-dev", "vision-ci", "audio")
PODS: Final[Sequence[Mapping[str, str]]] = (
    {"gpu": "1"},
    {"gpu": "0.5", "gpu-model": "T4"},
    {"gpu": "1", "gpu-model": "A100-80GB"},
    {"gpu-memory": "4Gi", "gpu-model": "T4"},
)
FATES: Final = ("admitted", "admitted, and only logged", "admitted with a warning", "refused")
"""What becomes of a pod, the mildest first."""


def _kinds(draw: st.DrawFn) -> Kinds | None:
    models = draw(st.frozensets(st.sampled_from(["T4", "A100-80GB"]), max_size=2))
    sharing = draw(st.frozensets(st.sampled_from(["exclusive", "fractional", "mps"]), max_size=2))
    if not (models or sharing):
        return None
    return Kinds(models=models, sharing=sharing, action=draw(st.sampled_from(ACTIONS)), rule="lists")


def _policy(draw: st.DrawFn, name: str) -> TenantPolicy:
    names = draw(st.lists(st.sampled_from(["vision-dev", "vision-*", "*", "audio"]), max_size=2, unique=True))
    team = Expression(key="team", operator="In", values=("vision",))
    selector = draw(st.sampled_from([None, [], [team]])) if names else draw(st.sampled_from([[], [team]]))
    ceiling = st.none() | st.builds(
        Ceiling,
        devices=st.sampled_from([Fraction(1, 4), Fraction(2)]),
        action=st.sampled_from(ACTIONS),
        rule=st.just("c"),
    )
    hard = st.sampled_from([{tally.DEVICES: Fraction(1)}, {tally.MEMORY: Fraction(1 << 30)}])
    return TenantPolicy(
        name=name,
        rule=f"TenantPolicy/{name}",
        priority=draw(st.sampled_from([0, 0, 1])),
        action=draw(st.sampled_from(ACTIONS)),
        namespaces=Namespaces(names=tuple(names), selector=selector),
        container=draw(ceiling),
        pod=draw(ceiling),
        allowed=_kinds(draw),
        forbidden=_kinds(draw),
        defaults=Defaults(
            model=draw(st.sampled_from([None, "T4", "A100-80GB"])),
            sharing=draw(st.sampled_from([None, "exclusive", "fractional"])),
        ),
        quota=draw(st.none() | st.builds(Quota, hard=hard, action=st.sampled_from(ACTIONS), rule=st.just("quota"))),
        device_access=draw(st.sampled_from([None, "warn", "deny"])),
    )


def _exemption(draw: st.DrawFn, name: str) -> Exemption:
    return Exemption(
        name=name,
        rule=f"Exemption/{name}",
        namespaces=tuple(
            draw(st.lists(st.sampled_from(["vision-dev", "vision-*", "audio"]), min_size=1, max_size=2))
        ),
        users=draw(st.sampled_from([(), ("ada",)])),
        lifts=draw(st.frozensets(st.sampled_from(LIFTED), min_size=1)),
        owner="ada",
        reason="a deadline",
        expires=NOW + draw(st.sampled_from([-60, 0, 3600, 30 * 24 * 3600])),
    )


@st.composite
def worlds(draw: st.DrawFn) -> Tenancy:
    policies = [
        _policy(draw, name) for name in draw(st.sampled_from([["red"], ["red", "blue"], ["red", "blue", "green"]]))
    ]
    labels = {name: {NAME_LABEL: name, "team": draw(st.sampled_from(["vision", "audio"]))} for name in NAMESPACES}
    return Tenancy(
        policies=policies,
        exemptions=[_exemption(draw, name) for name in draw(st.sampled_from([[], ["night"], ["night", "day"]]))],
        labels=draw(st.sampled_from([labels, labels, {}])),
        observing=draw(st.sampled_from([False, False, True])),
    )


def _ledgers(rules: Rulebook, used: int) -> Mapping[str, Ledger]:
    """What tenants with a quota use: so many devices, and as many GiB, in one namespace of theirs."""
    held = {tally.DEVICES: Fraction(used), tally.MEMORY: Fraction(used << 30)}
    return {
        policy.name: Ledger(hard=policy.quota.hard, view=1, held={namespace: held})
        for policy in rules.tenancy.policies
        for namespace in _of(policy.name, rules)[:1]
        if policy.quota
    }


def _fate(
    namespace: str, words: Mapping[str, str], rules: Rulebook, ledgers: Mapping[str, Ledger] = MappingProxyType({})
) -> str:
    review = builders.creating(builders.pod(labels=dict(words)), namespace)._replace(at=NOW, user="ada")
    told = replace(explanation.foretell("Pod train", review, rules), namespace=namespace)
    [told] = explanation.foreseen([told], rules.tenancy, ledgers) if ledgers else [told]
    decision = told.decision
    if not decision.allowed:
        return "refused"
    if any("[GPU1" in warning for warning in decision.warnings):
        return "admitted with a warning"
    return "admitted, and only logged" if decision.findings else "admitted"


def _of(name: str, rules: Rulebook) -> list[str]:
    """The namespaces whose policy it is."""
    holders = {namespace: member(namespace, rules.tenancy).policy for namespace in NAMESPACES}
    return [namespace for namespace, policy in holders.items() if policy is not None and policy.name == name]


Witness = tuple[str, Mapping[str, str]]


def _listed(names: str) -> list[str]:
    return [name for name in NAMESPACES if re.search(rf"\b{name}\b", names)]


def _tied(found: re.Match[str], _: str, __: Rulebook) -> Iterator[Witness]:
    yield from ((namespace, words) for namespace in _listed(found[2]) for words in PODS)


def _all_pods(_: re.Match[str], name: str, rules: Rulebook) -> Iterator[Witness]:
    yield from ((namespace, words) for namespace in _of(name, rules) for words in PODS)


def _with_model(found: re.Match[str], name: str, rules: Rulebook) -> Iterator[Witness]:
    for model in ("T4", "A100-80GB"):
        if model in found[2]:
            yield from ((namespace, {"gpu": "1", "gpu-model": model}) for namespace in _of(name, rules))


def _unnamed(found: re.Match[str], name: str, rules: Rulebook) -> Iterator[Witness]:
    yield from ((namespace, {"gpu": "1"}) for namespace in _of(name, rules) if found[2] == "model")


def _unsized(_: re.Match[str], name: str, rules: Rulebook) -> Iterator[Witness]:
    yield from ((namespace, {"gpu": "1", "gpu-backend": "hami-vgpu"}) for namespace in _of(name, rules))


_FATE: Final = r"(refused|admitted with a warning|admitted, and only logged)"
SENTENCES: Final[Sequence[tuple[str, Callable[[re.Match[str], str, Rulebook], Iterator[Witness]]]]] = (
    (rf"each GPU pod is {_FATE} where both select a namespace.*: (.+)$", _tied),
    (rf"so each GPU pod here is {_FATE}$", _all_pods),
    (rf"(?=.*?pod with it is {_FATE})spec\.allowed\.models: (.+) stands in spec\.forbidden", _with_model),
    (rf"(?=.*that does not name another \w+ is {_FATE})spec\.defaults\.(\w+):", _unnamed),
    (rf"(?=.*what runs stays, and more is {_FATE} before)spec\.quota\.(devices|memory): ", _all_pods),
    (rf"a whole device without gpu-model is {_FATE} \(GPU107\)", _unsized),
)


def _without(rules: Rulebook, name: str, rule: str = "") -> Rulebook:
    """The world without an exemption, or in which it lifts one rule less."""
    kept = [
        replace(exemption, lifts=exemption.lifts - {rule}) if rule and exemption.name == name else exemption
        for exemption in rules.tenancy.exemptions
        if rule or exemption.name != name
    ]
    return replace(rules, tenancy=replace(rules.tenancy, exemptions=[e for e in kept if e.lifts]))


def _fates(rules: Rulebook) -> list[str]:
    return [_fate(namespace, words, rules) for namespace in NAMESPACES for words in PODS]


WORLDS: Final = 1000


@pytest.mark.large
@tried(WORLDS, soak=100)
@given(worlds(), st.sampled_from([0, 0, 2]))
def test_what_is_said_of_a_policy_or_an_exemption_holds_for_its_witnesses(tenancy: Tenancy, used: int) -> None:
    rules = replace(RULES, tenancy=tenancy)
    nobody_exempt = replace(rules, tenancy=replace(tenancy, exemptions=()))
    ledgers = _ledgers(rules, used)
    fates: dict[tuple[str, str], str] = {}  # a pod is the witness of several sentences
    for sentence in policy_advice.every(rules, NOW, ledgers):
        kind, name = re.match(r"(\w+)/(\w+)", sentence).groups()  # type: ignore[union-attr]
        text = sentence.partition(" ")[2]
        for pattern, witnesses in SENTENCES:
            if found := re.search(pattern, text):
                for namespace, words in witnesses(found, name, rules):
                    key = (namespace, str(words))
                    fate = fates[key] = fates.get(key) or _fate(namespace, words, nobody_exempt, ledgers)
                    assert FATES.index(fate) >= FATES.index(found[1]), f"{sentence}\n{namespace} {words}: {fate}"
        if "policies of a higher priority have all of its namespaces" in text:
            assert _of(name, rules) == [], sentence
        if kind == "Exemption" and "lifts nothing" in text:
            alone = replace(rules.tenancy, exemptions=[e for e in rules.tenancy.exemptions if e.name == name])
            only = replace(rules, tenancy=alone)
            assert _fates(only) == _fates(_without(only, name)), sentence


@pytest.mark.large
@tried(WORLDS, soak=100)
@given(worlds())
def test_a_tie_that_refuses_a_pod_is_said(tenancy: Tenancy) -> None:
    rules = replace(RULES, tenancy=tenancy)
    said = [*policy_advice.every(rules, NOW)]

    for namespace in rules.tenancy.labels:
        for rival in member(namespace, rules.tenancy).rivals:
            told = [text for text in said if text.startswith(f"{rival.rule} spec.priority: it is")]
            assert any(namespace in text for text in told), said
