"""What a pod with a GPU counts by stays as it is; everything else may change."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from tests.core.policy import tenants
from webhook.core.decision import Decision
from webhook.core.interpret import locations
from webhook.core.rules.rulebook import Rulebook, with_every_backend, with_only
from webhook.core.rules.tenant_policy import Kinds, Namespaces, Tenancy, TenantPolicy
from webhook.core.validate import validate

RULES = builders.rulebook(builders.shipped_files())
EVERY = with_every_backend(RULES)
KAI = with_only("kai", RULES)

Object = Mapping[str, Any]

ALLOCATE = "hami.io/vgpu-devices-to-allocate"
TO_ALLOCATE = {ALLOCATE: "GPU-0,NVIDIA,81920,100:;"}
BINDER = "system:serviceaccount:kai-scheduler:binder"
HAMI = "system:serviceaccount:hami-system:hami-scheduler"
FRACTION = {"gpu-fraction": "0.5"}
QUEUE = "kai.scheduler/queue"
QUEUE_PARAMETER = builders.cluster("backends: [kai], parameters: {kai: {queue: default-queue}}")
QUEUED = builders.rulebook({**builders.shipped_files(), "cluster.yaml": QUEUE_PARAMETER})
"""A cluster whose back end writes the label, so that its own parts may change it."""

VISION = TenantPolicy(
    name="vision", rule="vision (tenants.yaml:4)", namespaces=Namespaces(names=("default",)), labels={QUEUE: "vision"}
)
CLUSTERS: Mapping[str, Rulebook] = {
    "shipped": RULES,
    "every": EVERY,
    "kai": KAI,
    "observing": replace(RULES, tenancy=Tenancy(observing=True)),
    "vision": replace(RULES, tenancy=Tenancy(policies=(VISION,))),
    "queued": replace(with_every_backend(QUEUED), tenancy=Tenancy(policies=[VISION])),
}
"""The rules of tables: as shipped, with each back end, with one, while policies are tried, with a policy's label."""


POOLED = builders.rulebook({**builders.shipped_files(), **tenants.card_pools()})


def _sized(amounts: Object) -> dict[str, Any]:
    return {key: builders.size(amount) if "memory" in key else amount for key, amount in amounts.items()}


MAKING: Mapping[str, Callable[..., Any]] = {
    "quota": lambda action="deny", **hard: tenants.quota(action, **_sized(hard)),
    "pod": lambda **fields: tenants.ceiling(**_sized(fields)),
    "forbidden": lambda models: Kinds(models=frozenset(models), rule="vision (tenants.yaml:20)"),
}
"""The rules of a policy in tables."""


def _pod(labels: Object, annotations: Object, *, gpu: bool = True) -> Object:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"} if gpu else None
    return builders.pod(builders.container(limits=limits), labels=labels, annotations=annotations)


def _stored(pod: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "uid": "u-1"}}


def _updated(old: Object, new: Object, user: str = "alice", rulebook: Rulebook = RULES) -> list[str]:
    """The path of each violation, all of which say that something cannot change."""
    request = builders.updating(old, new)._replace(user=user)
    return _paths(validate(request, rulebook))


def _bound(stored: Object, user: str = "scheduler", rulebook: Rulebook = RULES, **metadata: Any) -> list[str]:
    """The same of a Binding of the stored pod, with the pod's UID unless told."""
    binding = {"kind": "Binding", "metadata": {"name": "train", "uid": "u-1", **metadata}, "target": {"name": "n1"}}
    request = builders.creating(binding)._replace(subresource="binding", old_pod=stored, user=user)
    return _paths(validate(request, rulebook))


def _paths(decision: Decision) -> list[str]:
    assert {violation.code for violation in decision.violations} <= {"GPU109"}
    return [violation.path for violation in decision.violations]


def _reserved(back_ends: Iterable[str]) -> Object:
    """An annotation for each that these back ends reserve."""
    demands = [mode.companions for name in back_ends for mode in EVERY.backends[name].modes if mode.companions]
    return {key.replace("*", "x"): "written" for each in demands for key in sorted(each.reserved)}


@tables.rows
def test_an_update(rules: str, user: str, before: Object, after: Object, refused: list[str]) -> None:
    old, new = (builders.written(pod) for pod in (before, after))

    assert _updated(old, new, user, CLUSTERS[rules]) == refused


@tables.rows
def test_a_binding(rules: str, user: str, stored: Object, binding: Object, refused: list[str]) -> None:
    assert _bound(_stored(builders.written(stored)), user, CLUSTERS[rules], **binding) == refused


@tables.rows
def test_a_refusal_says_both_values_and_what_to_do(before: Object, after: Object, said: str) -> None:
    old, new = (builders.written(pod) for pod in (before, after))
    decision = validate(builders.updating(old, new)._replace(user="ada"), RULES)

    assert decision.code == 403
    assert "\n".join(map(str, decision.violations)) == said.replace("RULE", RULES.backends["hami-vgpu"].rule)


@tables.rows
def test_while_a_pod_is_gated_no_update_of_its_nodes_lets_it_have_or_count_more(
    policy: Object, before: Object, after: Object, said: list[str]
) -> None:
    """What is said is the violations, or else the warnings."""
    namespaces = Namespaces(names=("default",))
    ruled = tenants.policy(namespaces=namespaces, **{name: MAKING[name](**fields) for name, fields in policy.items()})
    old, new = (builders.written({"limits": {"nvidia.com/gpu": "1"}, **nodes}) for nodes in (before, after))

    decision = validate(builders.updating(old, new)._replace(user="kueue"), tenants.rules(ruled, rulebook=POOLED))

    assert [*map(str, decision.violations), *decision.warnings] == said


@tables.rows
def test_annotations_that_amounts_are_read_from_cannot_change(key: str) -> None:
    before, after = _pod({}, {key: "1Gi"}), _pod({}, {key: "2Gi"})

    assert _updated(before, after) == [f'metadata.annotations["{key}"]']


def test_what_schedulers_and_device_plugins_write_on_live_pods_is_written_by_them_alone() -> None:
    written = _reserved(EVERY.backends)
    before, after = _pod({"gpu": "0.3"}, {}), _pod({"gpu": "0.3"}, written)
    assert len(written) > 40

    for user in ("system:kube-scheduler", "system:node:gpu-7"):
        assert _updated(before, after, user, EVERY) == []
    assert _updated(after, after, rulebook=EVERY) == []
    alone = {key: _updated(before, _pod({"gpu": "0.3"}, {key: "written"}), rulebook=EVERY) for key in written}
    assert [key for key, refused in alone.items() if len(refused) != 1] == []


@tables.rows
def test_what_a_rule_reserves_is_written_by_those_that_are_listed(
    user: str, namespaces: Sequence[str], listed: Sequence[str], *, let: bool
) -> None:
    policy = replace(VISION, namespaces=Namespaces(names=tuple(namespaces)))
    tenancy = Tenancy(policies=[policy] if namespaces else [])
    rules = replace(RULES, tenancy=tenancy, cluster=replace(RULES.cluster, platform_accounts=tuple(listed)))
    before, after = _pod({}, {}), _pod({}, TO_ALLOCATE)

    refused = [] if let else [f'metadata.annotations["{ALLOCATE}"]']
    assert _updated(before, after, user, rules) == refused
    assert _updated(after, before, user, rules) == refused
    assert _bound(_stored(before), user, rules, annotations=TO_ALLOCATE) == refused
    assert _bound(_stored(before), user, rules, annotations=TO_ALLOCATE, uid="") == refused


def test_writers_in_the_rule_are_the_only_accounts() -> None:
    before, after = _pod({}, FRACTION, gpu=False), _pod({}, {**FRACTION, **_reserved(["kai"])}, gpu=False)

    assert _updated(before, after, BINDER, KAI) == []
    assert len(_updated(before, after, HAMI, KAI)) == len(_reserved(["kai"]))


def test_metadata_can_be_cleaned_up_whatever_stands_there() -> None:
    old = _pod({"gpu": "1.5", "gpu-memory": "lots"}, {"gpu-webhook.io/nonsense": "2", locations.CARD: "a toaster"})
    metadata = {**old["metadata"], "finalizers": []}

    assert _updated(old, {**old, "metadata": metadata}) == []
    assert _updated({**old, "metadata": {**metadata, "finalizers": ["a/b"]}}, {**old, "metadata": metadata}) == []


PORTION = "kai.scheduler/container.main.gpu-memory.portion.limit"


@tables.rows
def test_an_annotation_for_one_container_changes_by_the_back_end_alone(
    before: Object, after: Object, refused: str
) -> None:
    old, new = _pod({}, before, gpu=False), _pod({}, after, gpu=False)

    assert _updated(old, new, rulebook=KAI) == [f'metadata.annotations["{refused}"]']
    assert _updated(old, new, BINDER, KAI) == []
    assert _bound(_stored(old), rulebook=KAI, annotations={PORTION: "0.9"}) == [f'metadata.annotations["{PORTION}"]']


def test_the_match_condition_sees_every_pod_that_asks_without_a_resource() -> None:
    """It lets those through that have a resource which is not of Kubernetes, or a key with `gpu` in it."""
    alone = {one.name for by_key in EVERY.all_slots.values() for one in by_key.values() if one.alone}

    assert alone
    assert {name for name in alone if "gpu" not in name} == set()


@pytest.mark.parametrize("binding", [{}, {"metadata": None}, {"metadata": {"labels": [], "uid": "u-1"}}])
def test_a_binding_of_another_form_changes_nothing(binding: Object) -> None:
    request = builders.creating(binding)._replace(subresource="binding", old_pod=_stored(_pod({"gpu": "1"}, {})))

    assert validate(request, RULES).allowed


def test_a_pods_status_is_written_with_what_it_counts_by() -> None:
    before, after = _pod({"gpu-memory": "8Gi"}, {}), _pod({"gpu-memory": "1Gi"}, {})
    request = builders.updating(before, after)._replace(subresource="status")

    assert _paths(validate(request, RULES)) == ["metadata.labels.gpu-memory"]


def test_while_policies_are_tried_a_binding_is_only_warned_of() -> None:
    binding = {"metadata": {"name": "train", "labels": {"gpu-memory": "1Gi"}}}
    stored = _stored(_pod({"gpu-memory": "8Gi"}, {}))
    request = builders.creating(binding)._replace(subresource="binding", old_pod=stored)

    decision = validate(request, CLUSTERS["observing"])

    assert decision.allowed
    [warning] = decision.warnings
    assert warning.startswith("would be refused: [GPU109] bind through pods/binding with the pod's UID")
    assert "; because the Binding carries the label gpu-memory" in warning
