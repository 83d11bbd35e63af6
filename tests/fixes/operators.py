"""The steps of a fix that an operator of the cluster does: to its Cluster document, a policy, an exemption."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.fixes.corpus import Refused
from tests.fixes.sentences import Step
from webhook.core.rules import rulebook
from webhook.core.rules.tenant_policy import Exemption
from webhook.core.violations import Violation

MODELS = ("T4", "A100-80GB", "MI300X")
"""Cards that a Cluster document may name."""


def done(step: Step, violation: Violation, one: Refused) -> Iterator[Refused]:
    """The pod in each cluster that the step may make."""
    yield from VERBS[step.verb](step, violation, one)


def _with_cluster(one: Refused, **fields: Any) -> Refused:
    cluster = replace(one.rules.cluster, **fields)
    whole, part = (name if name in cluster.backends else None for name in (cluster.whole, cluster.part))
    made = rulebook.of_cluster(replace(cluster, whole=whole, part=part), one.rules)
    return one._replace(rules=replace(made, tenancy=one.rules.tenancy))


def _with_tenancy(one: Refused, **fields: Any) -> Refused:
    return one._replace(rules=replace(one.rules, tenancy=replace(one.rules.tenancy, **fields)))


def _enabled(one: Refused, names: Sequence[str], without: str = "") -> Iterator[Refused]:
    kept = [name for name in one.rules.cluster.backends if name != without]
    for name in names:
        yield _with_cluster(one, backends=(*kept, name), tiers={})


def _listed(step: Step, violation: Violation, one: Refused) -> Iterator[Refused]:
    name = step.key or violation.path.partition('["')[2].removesuffix('"]')
    yield _with_cluster(one, other_devices=(*one.rules.cluster.other_devices, name))


def _exempted(rule: str, one: Refused) -> Iterator[Refused]:
    made = Exemption(
        name="asked",
        rule="asked (exemptions.yaml:1)",
        namespaces=(one.namespace,),
        owner="ada",
        reason="the pod needs it",
        expires=2.0e9,
        lifts=frozenset({rule}),
    )
    yield _with_tenancy(one, exemptions=(*one.rules.tenancy.exemptions, made))


def _adopted(one: Refused) -> Iterator[Refused]:
    first, *rest = one.rules.tenancy.policies
    namespaces = replace(first.namespaces, names=(*first.namespaces.names, one.namespace))
    yield _with_tenancy(one, policies=(replace(first, namespaces=namespaces), *rest))


def _preferred(one: Refused) -> Iterator[Refused]:
    for policy in (policies := one.rules.tenancy.policies):
        others = [each for each in policies if each is not policy]
        yield _with_tenancy(one, policies=(replace(policy, priority=1), *others))


def _of_a_tenant(one: Refused) -> Iterator[Refused]:
    for policy in one.rules.tenancy.policies:
        for name in policy.namespaces.names:
            yield one._replace(namespace=name.replace("*", "one"))


VERBS: Mapping[str, Callable[[Step, Violation, Refused], Iterator[Refused]]] = {
    "enable": lambda step, _, one: _enabled(one, [step.key]),
    "enable instead": lambda step, _, one: _enabled(one, [step.key], step.value),
    "enable any": lambda _, __, one: _enabled(one, sorted(one.rules.backends)),
    "list": _listed,
    "name the card": lambda _, __, one: (_with_cluster(one, device=model) for model in MODELS),
    "exempt": lambda step, _, one: _exempted(step.key, one),
    "adopt": lambda _, __, one: _adopted(one),
    "prefer": lambda _, __, one: _preferred(one),
    "go to a tenant": lambda _, __, one: _of_a_tenant(one),
}
