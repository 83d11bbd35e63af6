"""What a pod with a GPU counts by stays as it is; everything else may change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from webhook.core.interpret import locations
from webhook.core.rules.rulebook import Rulebook, with_every_backend, with_only
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy
from webhook.core.validate import validate

RULES = builders.rulebook(builders.shipped_files())
EVERY = with_every_backend(RULES)
KAI = with_only("kai", RULES)

GPU = builders.container(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"})
Object = Mapping[str, Any]


def _pod(labels: Object, annotations: Object, *, gpu: bool = True) -> Object:
    return builders.pod(GPU if gpu else builders.container(), labels=labels, annotations=annotations)


def _updated(old: Object, new: Object, user: str = "alice", rulebook: Any = RULES) -> list[str]:
    """The code and path of each violation."""
    request = builders.updating(old, new)._replace(user=user)
    return [f"{v.code} {v.path}" for v in validate(request, rulebook).violations]


@tables.rows
def test_shorthand_of_a_pod_with_a_gpu_cannot_change(before: Object, after: Object, refused: str) -> None:
    assert _updated(_pod(before, {}), _pod(after, {})) == [f"GPU109 metadata.labels.{refused}"]


@tables.rows
def test_annotations_that_amounts_are_read_from_cannot_change(key: str) -> None:
    before, after = _pod({}, {key: "1Gi"}), _pod({}, {key: "2Gi"})

    assert _updated(before, after) == [f'GPU109 metadata.annotations["{key}"]']


def test_a_refusal_says_both_values_and_what_to_do() -> None:
    request = builders.updating(_pod({"gpu-memory": "8Gi"}, {}), _pod({}, {}))
    decision = validate(request, RULES)

    assert decision.code == 403
    (violation,) = decision.violations
    lines = str(violation).split("\n")
    assert lines[0] == (
        '[GPU109] the label gpu-memory of a pod with a GPU cannot change: it is "8Gi" and would be gone, '
        "and what the pod counts is read from it"
    )
    assert lines[1:] == [
        "  at   metadata.labels.gpu-memory",
        "  fix  create the pod again with it; this one keeps the GPU that it was created with",
    ]


@tables.rows
def test_labels_that_mean_nothing_may_change(before: Object, after: Object) -> None:
    assert _updated(_pod(before, {}), _pod(after, {})) == []


def _reserved(back_ends: Iterable[str]) -> Object:
    """An annotation for each that these back ends reserve."""
    demands = [mode.companions for name in back_ends for mode in EVERY.backends[name].modes if mode.companions]
    return {key.replace("*", "x"): "written" for each in demands for key in sorted(each.reserved)}


def test_what_schedulers_and_device_plugins_write_on_live_pods_is_written_by_them_alone() -> None:
    written = _reserved(EVERY.backends)
    before, after = _pod({"gpu": "0.3"}, {}), _pod({"gpu": "0.3"}, written)
    assert len(written) > 40

    for user in ("system:kube-scheduler", "system:node:gpu-7"):
        assert _updated(before, after, user, EVERY) == []
    assert _updated(after, after, rulebook=EVERY) == []
    alone = {key: _updated(before, _pod({"gpu": "0.3"}, {key: "written"}), rulebook=EVERY) for key in written}
    assert [key for key, refused in alone.items() if len(refused) != 1] == []


@pytest.mark.parametrize("user", ["", "system:anonymous", "system:serviceaccount:default:builder"])
def test_who_is_nobody_in_particular_writes_nothing_that_is_reserved(user: str) -> None:
    assert len(_updated(_pod({}, {}), _pod({}, TO_ALLOCATE), user)) == 1


TO_ALLOCATE = {"hami.io/vgpu-devices-to-allocate": "GPU-0,NVIDIA,81920,100:;"}
HAMI = "system:serviceaccount:hami-system:hami-scheduler"


def _of(*namespaces: str) -> Rulebook:
    """The rules, with one policy for these namespaces."""
    policy = replace(VISION, namespaces=Namespaces(names=namespaces))
    return replace(RULES, tenancy=Tenancy(policies=[policy]))


@tables.rows
def test_without_writers_in_the_rule_only_accounts_of_others_write_what_it_reserves(
    user: str, namespaces: Sequence[str], *, let: bool
) -> None:
    rules = _of(*namespaces) if namespaces else RULES
    before, after = _pod({}, {}), _pod({}, TO_ALLOCATE)

    refused = [] if let else ['GPU109 metadata.annotations["hami.io/vgpu-devices-to-allocate"]']
    assert _updated(before, after, user, rules) == refused
    assert _updated(after, before, user, rules) == refused
    assert _bound(_stored(before), user, rules, annotations=TO_ALLOCATE) == refused
    assert _bound(_stored(before), user, rules, annotations=TO_ALLOCATE, uid="") == refused


def test_writers_in_the_rule_are_the_only_accounts() -> None:
    before, after = _pod({}, FRACTION, gpu=False), _pod({}, {**FRACTION, **_reserved(["kai"])}, gpu=False)

    assert _updated(before, after, "system:serviceaccount:kai-scheduler:binder", KAI) == []
    assert len(_updated(before, after, HAMI, KAI)) == len(_reserved(["kai"]))


def test_a_refusal_names_the_back_end_and_where_its_parts_are_listed() -> None:
    request = builders.updating(_pod({}, {}), _pod({}, TO_ALLOCATE))._replace(user="ada")

    [violation] = validate(request, RULES).violations

    message, *rest = str(violation).split("\n")
    assert message == (
        "[GPU109] the annotation hami.io/vgpu-devices-to-allocate of a pod with a GPU cannot change: it is not there"
        ' and would be "GPU-0,NVIDIA,81920,100:;", and only the scheduler of hami-vgpu writes it'
    )
    assert rest == [
        '  at   metadata.annotations["hami.io/vgpu-devices-to-allocate"]',
        f"  rule {RULES.backends['hami-vgpu'].rule}",
        "  fix  leave it; if ada is a part of hami-vgpu, add it to writers: in the rule",
    ]


def test_a_pod_without_a_gpu_has_nothing_that_is_reserved() -> None:
    assert _updated(_pod({}, {}, gpu=False), _pod({}, TO_ALLOCATE, gpu=False)) == []


def test_metadata_can_be_cleaned_up_whatever_stands_there() -> None:
    old = _pod({"gpu": "1.5", "gpu-memory": "lots"}, {"gpu-webhook.io/nonsense": "2", locations.CARD: "a toaster"})
    metadata = {**old["metadata"], "finalizers": []}

    assert _updated(old, {**old, "metadata": metadata}) == []
    assert _updated({**old, "metadata": {**metadata, "finalizers": ["a/b"]}}, {**old, "metadata": metadata}) == []


def test_a_pod_without_a_gpu_is_not_hindered() -> None:
    before, after = _pod({"gpu": "0.3"}, {}, gpu=False), _pod({"gpu": "2"}, {locations.CARD: "T4"}, gpu=False)

    assert _updated(before, after) == []


FRACTION = {"gpu-fraction": "0.5"}


@tables.rows
def test_what_a_back_end_is_asked_in_cannot_change(before: Object, after: Object, refused: list[str]) -> None:
    old, new = _pod({}, before, gpu=False), _pod({}, after, gpu=False)

    assert _updated(old, new, rulebook=KAI) == [f"GPU109 metadata.annotations.{key}" for key in refused]


@tables.rows
def test_a_part_of_the_back_end_may_change_what_it_reads(user: str, *, let: bool) -> None:
    old, new = _pod({}, FRACTION, gpu=False), _pod({}, {"gpu-fraction": "0.1"}, gpu=False)

    assert (_updated(old, new, user, KAI) == []) == let


PORTION = "kai.scheduler/container.main.gpu-memory.portion.limit"


@tables.rows
def test_an_annotation_for_one_container_changes_by_the_back_end_alone(
    before: Object, after: Object, refused: str
) -> None:
    old, new = _pod({}, before, gpu=False), _pod({}, after, gpu=False)

    assert _updated(old, new, rulebook=KAI) == [f'GPU109 metadata.annotations["{refused}"]']
    assert _updated(old, new, "system:serviceaccount:kai-scheduler:binder", KAI) == []
    assert _bound(_stored(old), rulebook=KAI, annotations={PORTION: "0.9"}) == [
        f'GPU109 metadata.annotations["{PORTION}"]'
    ]


@tables.rows
def test_how_a_card_is_divided_cannot_change(key: str, before: str | None, after: str | None) -> None:
    old, new = ({key: value} if value is not None else {} for value in (before, after))

    assert _updated(_pod({}, old), _pod({}, new), rulebook=EVERY) == [f'GPU109 metadata.annotations["{key}"]']


ISOLATION = "koordinator.sh/gpu-isolation-provider"
SHARED = {"koordinator.sh/gpu.shared": "1", "koordinator.sh/gpu-core": "30", "koordinator.sh/gpu-memory-ratio": "30"}


@pytest.mark.parametrize("after", [{}, {ISOLATION: "none"}, {ISOLATION: ""}])
def test_what_isolates_a_share_stays(after: Object) -> None:
    share = builders.container(limits=SHARED)
    before, changed = (builders.pod(share, labels=labels) for labels in ({ISOLATION: "HAMi-core"}, after))

    assert _updated(before, changed, rulebook=EVERY) == [f'GPU109 metadata.labels["{ISOLATION}"]']
    assert _bound(_stored(before), rulebook=EVERY, labels={ISOLATION: "none"}) == [
        f'GPU109 metadata.labels["{ISOLATION}"]'
    ]


POLICY = "huawei.com/schedule_policy"


@tables.rows
def test_what_a_rule_writes_as_it_stands_is_how_the_pod_is_served(
    before: str | None, after: str | None, *, refused: bool
) -> None:
    old, new = (_pod({}, {POLICY: value} if value is not None else {}) for value in (before, after))

    found = [f'GPU109 metadata.annotations["{POLICY}"]'] if refused else []
    assert _updated(old, new, rulebook=EVERY) == found
    assert _updated(old, new, "system:serviceaccount:volcano-system:volcano-scheduler", EVERY) == []
    assert _updated(old, new, rulebook=KAI) == []


def test_a_queue_is_no_part_of_how_a_pod_is_served() -> None:
    assert _updated(_pod({QUEUE: "a"}, FRACTION), _pod({QUEUE: "b"}, FRACTION), rulebook=KAI) == []


def test_a_part_of_a_back_end_may_not_change_the_shorthand() -> None:
    old, new = _pod({"gpu-memory": "8Gi"}, {}), _pod({"gpu-memory": "1Gi"}, {})

    assert _updated(old, new, "system:serviceaccount:kai-scheduler:binder", EVERY) == [
        "GPU109 metadata.labels.gpu-memory"
    ]


QUEUE = "kai.scheduler/queue"
QUEUED = builders.shipped_files() | {
    "cluster.yaml": "apiVersion: gpu-webhook.io/v1alpha1\nkind: Cluster\nmetadata: {name: queued}\n"
    "spec: {backends: [kai], parameters: {kai: {queue: default-queue}}}\n"
}
"""A cluster whose back end writes the label, so that its own parts may change it."""

VISION = TenantPolicy(
    name="vision", rule="vision (tenants.yaml:4)", namespaces=Namespaces(names=("default",)), labels={QUEUE: "vision"}
)


@tables.rows
def test_a_label_that_a_policy_sets_stays(before: str, after: str, user: str, *, refused: bool) -> None:
    rulebook = replace(with_every_backend(builders.rulebook(QUEUED)), tenancy=Tenancy(policies=[VISION]))

    found = _updated(_pod({QUEUE: before}, {}), _pod({QUEUE: after}, {}), user, rulebook)

    assert found == ([f'GPU109 metadata.labels["{QUEUE}"]'] if refused else [])


def test_who_only_observes_refuses_nothing() -> None:
    rulebook = replace(RULES, tenancy=Tenancy(observing=True))

    assert _updated(_pod({"gpu-memory": "8Gi"}, {}), _pod({}, {}), rulebook=rulebook) == []


def test_the_match_condition_sees_every_pod_that_asks_without_a_resource() -> None:
    """It lets those through that have a resource which is not of Kubernetes, or a key with `gpu` in it."""
    alone = {one.name for by_key in EVERY.all_slots.values() for one in by_key.values() if one.alone}

    assert alone
    assert {name for name in alone if "gpu" not in name} == set()


@pytest.mark.parametrize("after", [{}, {"nvidia.com/use-gputype": "A100"}])
def test_what_a_system_is_told_of_the_card_cannot_change(after: Object) -> None:
    words = {"gpu-model": "T4"}
    before = _pod(words, {"nvidia.com/use-gputype": "Tesla T4"})
    assert _updated(before, _pod(words, after)) == ['GPU109 metadata.annotations["nvidia.com/use-gputype"]']


def _bound(stored: Object, user: str = "scheduler", rulebook: Any = RULES, **metadata: Any) -> list[str]:
    """The code and path of each violation of a Binding of the stored pod, with the pod's UID unless told."""
    binding = {"kind": "Binding", "metadata": {"name": "train", "uid": "u-1", **metadata}, "target": {"name": "n1"}}
    request = builders.creating(binding)._replace(subresource="binding", old_pod=stored, user=user)
    return [f"{v.code} {v.path}" for v in validate(request, rulebook).violations]


def _stored(pod: Object) -> Object:
    return {**pod, "metadata": {**pod["metadata"], "uid": "u-1"}}


def test_a_binding_is_the_update_of_the_pod_that_the_api_server_makes_of_it() -> None:
    stored = _stored(_pod({"gpu-memory": "8Gi"}, {"gpu-webhook.io/memory": "8Gi"}))

    assert _bound(stored, labels={"gpu-memory": "1Gi"}) == ["GPU109 metadata.labels.gpu-memory"]
    assert _bound(stored, annotations={"gpu-webhook.io/memory": "1Gi"}) == [
        'GPU109 metadata.annotations["gpu-webhook.io/memory"]'
    ]
    assert _bound(stored, labels={"gpu-memory": "8Gi", "team": "a"}, annotations={"a.example/b": "c"}) == []
    assert _bound(stored) == []


def test_a_binding_of_another_pod_of_the_name_is_left_to_the_api_server() -> None:
    stored = _stored(_pod({"gpu-memory": "8Gi"}, {}))

    assert _bound(stored, uid="u-2", labels={"gpu-memory": "1Gi"}) == []


@pytest.mark.parametrize("uid", [None, ""])
def test_a_binding_without_a_uid_may_not_carry_what_a_pod_counts_by(uid: str | None) -> None:
    stored = _stored(_pod({"gpu-memory": "8Gi"}, {}))

    assert _bound(stored, uid=uid, labels={"gpu-memory": "8Gi", "team": "b"}) == ["GPU109 metadata.labels.gpu-memory"]
    assert _bound(stored, uid=uid, labels={"team": "b", "topology.kubernetes.io/zone": "a"}) == []


def test_a_back_ends_own_binder_writes_what_it_is_asked_in_as_it_binds() -> None:
    stored, less = _stored(_pod({}, FRACTION)), {"gpu-fraction": "0.25"}
    binder = "system:serviceaccount:kai-scheduler:binder"

    assert _bound(stored, rulebook=KAI, annotations=less) == ["GPU109 metadata.annotations.gpu-fraction"]
    assert _bound(stored, binder, KAI, annotations=less) == []
    assert _bound(stored, binder, KAI, annotations=less, uid="") == []


def test_labels_of_the_tenants_policy_stay_when_a_pod_is_bound() -> None:
    rulebook = replace(RULES, tenancy=Tenancy(policies=(VISION,)))
    stored = _stored(_pod({QUEUE: "vision"}, {}))

    assert _bound(stored, rulebook=rulebook, labels={QUEUE: "other"}) == [f'GPU109 metadata.labels["{QUEUE}"]']
    assert _bound(stored, rulebook=rulebook, labels={QUEUE: "vision"}) == []


@pytest.mark.parametrize("binding", [{}, {"metadata": None}, {"metadata": {"labels": [], "uid": "u-1"}}])
def test_a_binding_of_another_form_changes_nothing(binding: Object) -> None:
    request = builders.creating(binding)._replace(subresource="binding", old_pod=_stored(_pod({"gpu": "1"}, {})))

    assert validate(request, RULES).allowed


def test_a_pods_status_is_written_with_what_it_counts_by() -> None:
    before, after = _pod({"gpu-memory": "8Gi"}, {}), _pod({"gpu-memory": "1Gi"}, {})
    request = builders.updating(before, after)._replace(subresource="status")

    assert [v.path for v in validate(request, RULES).violations] == ["metadata.labels.gpu-memory"]


def test_while_policies_are_tried_a_binding_is_only_warned_of() -> None:
    observing = replace(RULES, tenancy=Tenancy(observing=True))
    binding = {"metadata": {"name": "train", "labels": {"gpu-memory": "1Gi"}}}
    stored = _stored(_pod({"gpu-memory": "8Gi"}, {}))
    request = builders.creating(binding)._replace(subresource="binding", old_pod=stored)

    decision = validate(request, observing)

    assert decision.allowed
    [warning] = decision.warnings
    assert warning.startswith("would be refused: [GPU109] the Binding carries the label gpu-memory")
