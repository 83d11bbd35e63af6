"""What pods count: a table of pods and tallies, by the resources that stand on them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from tests.cases.served import as_served
from tests.core.policy import tenants
from tests.core.policy.tenants import held
from tests.edited import edited
from tests.laws import clusters
from webhook.core.interpret import locations
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.policy import usage
from webhook.core.quota import tally
from webhook.core.rules.rulebook import Rulebook, Surroundings, index, with_only

RULES = builders.rulebook(builders.shipped_files())
Object = Mapping[str, Any]

GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
PERCENTAGE = "nvidia.com/gpumem-percentage"
KAI = "gpu-fraction"
OF_MAIN = "nvidia.com/container.main.gpu-memory"
ON_T4 = {"gpu-model": "T4"}

SHARED = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata: {name: test}
spec:
  backends: [nvidia-gpu, nvidia-time-slicing]
  defaults: {whole: nvidia-gpu, part: nvidia-time-slicing}
"""


def _cluster(text: str) -> Rulebook:
    return builders.rulebook({**builders.shipped_files(), "cluster.yaml": text})


TURNS = _cluster(SHARED)


SHARE = builders.pod(labels={"gpu": "0.1"})


def _having(name: str, more: Object | None = None, **fields: Any) -> dict[str, Any]:
    return builders.container(name, limits={GPU: "1"} if more is None else more, **fields)


def _with(limits: Object, labels: Object | None = None, annotations: Object | None = None) -> Object:
    return builders.pod(builders.container(limits=limits), labels=labels or {}, annotations=annotations or {})


def _on_nodes(*strategies: str, labels: Object | None = None) -> Object:
    """A pod that asks for one, on nodes that share their cards in one of these ways."""
    expression = {"key": "nvidia.com/gpu.sharing-strategy", "operator": "In", "values": list(strategies)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return builders.pod(builders.container(limits={GPU: "1"}), labels=labels or {}, affinity=affinity)


def _counted(raw: Object, rulebook: Rulebook = RULES) -> dict[str, str]:
    """The tally, as it stands in a TenantUsage."""
    raw = as_served(raw)
    count = held(raw, rulebook)
    assert usage.Counter(rulebook).held(raw) == count
    return tally.write(count.tally)


@tables.rows
def test_containers_count_as_kubernetes_counts_them(
    init: list[tuple[str, Object]], containers: list[str], devices: str
) -> None:
    before = [_having(f"i{n}", {GPU: number}, **more) for n, (number, more) in enumerate(init)]
    main = [_having(f"c{n}", {GPU: number}) for n, number in enumerate(containers)]

    assert _counted(builders.pod(*main, initContainers=before)) == {"devices": devices}


def test_each_kind_of_amount_has_a_maximum_of_its_own() -> None:
    init = builders.container("init", limits={GPU: "2", PERCENTAGE: "10"})
    main = builders.container("main", limits={GPU: "1", PERCENTAGE: "50"})

    counted = _counted(builders.pod(main, initContainers=[init], labels=ON_T4))

    assert counted == {"devices": "0.5", "memory": "7680Mi", "devices/T4": "0.5", "memory/T4": "7680Mi"}


def test_resources_of_the_whole_pod_are_none_of_devices() -> None:
    """Kubernetes takes only cpu, memory and huge pages in spec.resources [validation.go, v1.36]."""
    assert _counted(builders.pod(resources={"limits": {GPU: "4"}})) == {}


@pytest.mark.parametrize(
    ("backend", "raw", "counted"),
    [
        pytest.param("nvidia-gpu", _with({GPU: "2"}), {"devices": "2"}, id="whole devices"),
        pytest.param("nvidia-time-slicing", _on_nodes("time-slicing"), {"devices": "0.1"}, id="a turn"),
        pytest.param("nvidia-time-slicing", _with({GPU: "1"}), {"devices": "1"}, id="a turn, or a card elsewhere"),
        pytest.param(
            "hami-vgpu",
            _with({GPU: "2", MEMORY: "1024"}, ON_T4),
            {"devices": "2/15", "devices/T4": "2/15", "memory": "2Gi", "memory/T4": "2Gi"},
            id="sizes on a card that is named",
        ),
        pytest.param(
            "hami-vgpu", _with({GPU: "1", MEMORY: "1024"}), {"devices": "1", "memory": "1Gi"}, id="any card"
        ),
        pytest.param("hami-vgpu", _with({GPU: "1", PERCENTAGE: "30"}), {"devices": "0.3"}, id="a share of any card"),
        pytest.param(
            "nvidia-mig-mixed",
            _with({"nvidia.com/mig-3g.40gb": "1"}, {"gpu-model": "A100-80GB"}),
            {"devices": "0.5", "devices/A100-80GB": "0.5", "memory": "40192Mi", "memory/A100-80GB": "40192Mi"},
            id="a slice with more memory than compute",
        ),
        pytest.param(
            "nvidia-mig-mixed",
            _with({"nvidia.com/mig-1g.10gb": "2"}, {"gpu-model": "A100-80GB"}),
            {"devices": "2/7", "devices/A100-80GB": "2/7", "memory": "19Gi", "memory/A100-80GB": "19Gi"},
            id="slices with more compute than memory",
        ),
        pytest.param(
            "nvidia-mig-mixed",
            _with({"nvidia.com/mig-3g.40gb": "1"}),
            {"devices": "0.5", "memory": "40192Mi"},
            id="a slice of any card that has it",
        ),
        pytest.param(
            "kai", _with({}, {}, {KAI: "0.25", f"{KAI}-num-devices": "2"}), {"devices": "0.5"}, id="annotations"
        ),
        pytest.param(
            "kai",
            _with({}, ON_T4, {f"{OF_MAIN}.request": "2Gi", f"{OF_MAIN}.limit": "3Gi", f"{KAI}-num-devices": "2"}),
            {"devices": "0.4", "devices/T4": "0.4", "memory": "6Gi", "memory/T4": "6Gi"},
            id="annotations for one container",
        ),
        pytest.param(
            "kai",
            _with({}, {}, {KAI: "0.25", f"{OF_MAIN}.request": "3840Mi", f"{OF_MAIN}.limit": "7680Mi"}),
            {"devices": "0.25"},
            id="a fraction, and what the binder made of it",
        ),
        pytest.param(
            "kai", _with({}, {}, {KAI: "0.25", f"{KAI}.limit": "0.75"}), {"devices": "0.75"}, id="up to a limit"
        ),
        pytest.param(
            "aliyun-cgpu",
            _with({"aliyun.com/gpu-mem": "8"}, {"aliyun.com/gpu-count": "2"}),
            {"devices": "2", "memory": "8Gi"},
            id="a label",
        ),
        pytest.param("tencent-qgpu", _with({"amd.com/gpu": "2"}), {"devices": "2"}, id="one that is not enabled"),
    ],
)
def test_every_back_end_is_read_in_its_own_words(backend: str, raw: Object, counted: Object) -> None:
    assert _counted(raw, with_only(backend, RULES)) == counted


@tables.rows
def test_a_model_counts_as_every_model_that_the_back_end_may_give_for_its_name(
    backend: str, model: str, counted: Object
) -> None:
    rulebook = with_only(backend, RULES)
    raw = builders.pod(labels={"gpu": "0.5", "gpu-model": model})

    assert _counted(edited(plan.make(pod.read(raw), rulebook).edits, raw), rulebook) == counted


@pytest.mark.parametrize(("labels", "devices"), [({"gpu": "0.1"}, "0.1"), ({"gpu": "1"}, "1"), ({"gpu": "2"}, "2")])
def test_the_shorthand_says_what_resources_alone_do_not_tell(labels: Object, devices: str) -> None:
    """A turn and a whole card are both 1 of the same resource."""
    raw = builders.pod(labels=labels)

    assert _counted(edited(plan.make(pod.read(raw), TURNS).edits, raw), TURNS) == {"devices": devices}


def test_own_words_that_may_be_two_things_are_counted_as_the_nodes_in_reach_give_them() -> None:
    named = {"gpu-backend": "nvidia-time-slicing"}

    assert _counted(_with({GPU: "1"}), TURNS) == {"devices": "1"}
    assert _counted(_with({GPU: "1"}, named), TURNS) == {"devices": "1"}
    assert _counted(_on_nodes("time-slicing", labels=named), TURNS) == {"devices": "0.1"}
    assert _counted(_on_nodes("time-slicing"), TURNS) == {"devices": "0.1"}
    assert _counted(_on_nodes("time-slicing", "none"), TURNS) == {"devices": "1"}


def test_a_share_counts_as_what_was_asked_only_on_the_nodes_of_its_back_end() -> None:
    translated = edited(plan.make(pod.read(SHARE), TURNS).edits, SHARE)
    elsewhere = {**translated, "spec": {**translated["spec"], "affinity": {}}}

    assert _counted(translated, TURNS) == {"devices": "0.1"}
    assert _counted(elsewhere, TURNS) == {"devices": "1"}


BOTH = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata: {name: test}
spec:
  backends: [hami-vgpu, hami-mig]
"""
A100 = {"gpu-model": "A100-40GB"}


@tables.rows
def test_a_share_counts_as_the_slice_that_it_may_become_unless_the_pod_says_how_the_card_is_divided(
    limits: Object, shared: str, sliced: str
) -> None:
    rules = _cluster(BOTH)
    for mode in ({}, {"nvidia.com/vgpu-mode": "mig"}, {"nvidia.com/vgpu-mode": "mig,hami-core"}):
        assert _counted(_with(limits, A100, mode), rules)["devices"] == sliced
    assert _counted(_with(limits, A100, {"nvidia.com/vgpu-mode": "hami-core"}), rules)["devices"] == shared
    assert _counted(_with(limits, A100), with_only("hami-vgpu", rules))["devices"] == shared


def test_a_share_of_an_unknown_card_counts_as_the_largest_slice_that_it_may_become() -> None:
    assert _counted(_with({GPU: "1", PERCENTAGE: "10"}), _cluster(BOTH))["devices"] == "0.25"


def test_a_partition_counts_as_the_card_unless_the_pod_is_bound_to_nodes_that_are_cut() -> None:
    rules = with_only("nvidia-mig-single", RULES)
    raw = builders.pod(labels={"gpu-profile": "3g.20gb", "gpu-model": "A100-40GB"})
    translated = edited(plan.make(pod.read(raw), rules).edits, raw)
    elsewhere = {**translated, "spec": {**translated["spec"], "affinity": {}}}

    assert _counted(translated, rules)["devices"] == "0.5"
    assert _counted(elsewhere, rules)["devices"] == "1"


def test_a_counter_tells_pods_apart_that_only_differ_in_the_nodes_they_select() -> None:
    counter = usage.Counter(TURNS)
    pods = [as_served(raw) for raw in (_on_nodes("time-slicing"), _on_nodes("none"), _with({GPU: "1"}))]

    assert [tally.write(counter.held(raw).tally) for raw in pods] == [{"devices": "0.1"}, *[{"devices": "1"}] * 2]


def test_cores_of_another_chip_are_no_cores_of_the_one_that_the_pod_is_bound_to() -> None:
    order = ("ascend-vnpu-dynamic-910b", "ascend-vnpu-dynamic")
    cluster = replace(RULES.cluster, backends=order, tiers={}, whole=None, part=None)
    rules = index(cluster, RULES.backends, RULES.devices)
    chips = builders.pod(labels={"gpu": "2", "gpu-model": "Ascend910B2"})
    translated = edited(plan.make(pod.read(chips), rules).edits, chips)

    assert _counted(translated, rules)["devices"] == "2"
    assert _counted(_with({"huawei.com/npu-core": "48"}), rules)["devices"] == "6"


def test_of_back_ends_that_are_preferred_alike_the_one_that_reads_more_counts() -> None:
    tied = _cluster(
        SHARED.replace("[nvidia-gpu, nvidia-time-slicing]", "[[nvidia-time-slicing, hami-vgpu]]").replace(
            "  defaults: {whole: nvidia-gpu, part: nvidia-time-slicing}\n", ""
        )
    )

    assert _counted(_with({GPU: "1"}), tied) == {"devices": "1"}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(builders.pod(), id="nothing"),
        pytest.param(builders.pod(labels={"gpu": "4"}), id="shorthand that nobody translated"),
        pytest.param(_with({GPU: "0"}), id="none"),
        pytest.param(_with({"example.com/fpga": "2", "cpu": "1"}), id="what no rule knows"),
        pytest.param(builders.pod(annotations={KAI: "0.5"}), id="words of a back end that is not there"),
    ],
)
def test_who_holds_nothing_counts_nothing(raw: Object) -> None:
    assert _counted(raw) == {}


def test_several_models_count_under_each_that_it_may_be() -> None:
    raw = _with({GPU: "1", MEMORY: "1024"}, {}, {"gpu-webhook.io/model": "A100-40GB, A100-80GB"})
    each = {"devices/A100-40GB": "1", "devices/A100-80GB": "1", "memory/A100-40GB": "1Gi", "memory/A100-80GB": "1Gi"}

    assert _counted(raw) == {"devices": "1", "memory": "1Gi", **each}


def test_whole_devices_of_several_models_have_the_memory_of_the_largest() -> None:
    raw = _with({GPU: "2"}, {}, {"gpu-webhook.io/model": "T4, A100-80GB"})

    assert _counted(raw)["memory"] == "160Gi"


@tables.rows
def test_what_nobody_can_read_counts_as_whole_devices(limits: Object, devices: str) -> None:
    raw = builders.pod(builders.container(limits=limits))

    assert tally.write(held(raw, RULES).tally) == {"devices": devices}
    assert [holding.unread != "" for holding in usage.holdings(pod.read(raw), RULES)] == [True]


@tables.rows
def test_a_share_that_is_rounded_up_to_a_whole_device_counts_as_one(backend: str, share: str, limits: Object) -> None:
    rulebook = tenants.rules(tenants.policy(quota=tenants.quota(devices=4)), rulebook=clusters.rulebook(backend))
    fate = tenants.fate(tenants.shorthand(gpu=share), rulebook)

    assert fate.stored["spec"]["containers"][0]["resources"]["limits"] == limits
    assert fate.validated.reservation is not None
    assert fate.validated.reservation.ask.amount[tally.DEVICES] == 1


def test_shorthand_that_nobody_understands_does_not_hide_what_stands_there() -> None:
    assert _counted(_with({GPU: "2"}, {"gpu": "1.5"})) == {"devices": "2"}
    assert _counted(_with({GPU: "2"}, {"gpu": "none"})) == {"devices": "2"}


def test_what_a_tally_lacks_is_said() -> None:
    assert held(_with({GPU: "1"}), RULES)[1:] == (True, True)
    assert held(_with({GPU: "1", MEMORY: "1024"}), RULES)[1:] == (False, True)
    assert held(_with({GPU: "1"}, ON_T4), RULES)[1:] == (False, False)


@tables.rows
def test_pods_that_are_over_do_not_count(status: Object | None, *, live: bool) -> None:
    deleted = {"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}}

    assert pod.live({"status": status}) == live
    assert pod.live({"status": status, **deleted}) == live


def _on(model: str | None) -> Rulebook:
    """The cluster whose nodes of HAMi all have one card; None: nobody knows."""
    cards = {"hami-vgpu": RULES.devices[model.lower()]} if model else {}
    return replace(RULES, surroundings=Surroundings(cards=cards))


def _made(raw: Object, rulebook: Rulebook) -> dict[str, Any]:
    return edited(plan.make(pod.read(raw), rulebook).edits, raw)


SIZE = builders.pod(labels={"gpu-memory": "3Gi"})


def test_the_card_that_only_the_nodes_tell_is_kept_on_the_pod() -> None:
    made = _made(SIZE, _on("T4"))

    assert made["metadata"]["annotations"][locations.CARD] == "T4"
    assert _counted(made, _on("A100-80GB")) == _counted(made, _on(None)) == _counted(made, _on("T4"))
    assert _counted(made) == {"devices": "0.2", "devices/T4": "0.2", "memory": "3Gi", "memory/T4": "3Gi"}
    assert _made(made, _on("T4")) == made


@pytest.mark.parametrize(
    ("raw", "model", "kept"),
    [
        pytest.param(SIZE, None, None, id="nobody knows"),
        pytest.param(builders.pod(labels={"gpu-memory": "3Gi", **ON_T4}), "A100-80GB", None, id="the author says"),
        pytest.param(
            builders.pod(labels={"gpu-memory": "3Gi"}, annotations={locations.CARD: "H200"}),
            "T4",
            "T4",
            id="replaced",
        ),
        pytest.param(
            builders.pod(labels={"gpu-memory": "3Gi"}, annotations={locations.CARD: "H200"}), None, None, id="removed"
        ),
        pytest.param(_with({GPU: "1", MEMORY: "99"}, {}, {locations.CARD: "H200"}), None, None, id="own words"),
        pytest.param(_with({GPU: "1", MEMORY: "99"}), "T4", "T4", id="own words on a card that is known"),
    ],
)
def test_an_authors_own_word_for_the_card_never_stands(raw: Object, model: str | None, kept: str | None) -> None:
    assert (_made(raw, _on(model))["metadata"].get("annotations") or {}).get(locations.CARD) == kept


def test_a_kind_of_pods_is_remembered_unless_it_takes_up_more_than_it_saves() -> None:
    counter = usage.Counter(RULES)
    usual = _with({GPU: "1"})
    long = _with({GPU: "1"}, {}, {locations.DEFAULT_CONTAINER: "x" * 250_000})

    assert counter.held(usual) is counter.held(usual)
    assert counter.held(long) == counter.held(usual)
    assert counter.held(long) is not counter.held(long)
