"""What pods count: a table of pods and tallies, by the resources that stand on them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from tests import builders, tables
from tests.cases.served import as_served
from tests.core.policy import tenants
from tests.core.policy.tenants import held
from tests.edited import edited
from tests.laws import clusters
from webhook.core import inventory
from webhook.core.interpret import locations
from webhook.core.kube import pod
from webhook.core.plan import allocation, plan
from webhook.core.policy import usage
from webhook.core.quota import tally
from webhook.core.rules.rulebook import Rulebook, Surroundings, index, with_only

RULES = builders.rulebook(builders.shipped_files())
Object = Mapping[str, Any]

GPU = "nvidia.com/gpu"
MEMORY = "nvidia.com/gpumem"
ON_T4 = {"gpu-model": "T4"}


def _rules(fields: Object) -> Rulebook:
    """The shipped rules with one back end `only`, or in a cluster whose document says this."""
    if not fields or "only" in fields:
        return with_only(fields["only"], RULES) if fields else RULES
    spec = yaml.safe_dump(fields, default_flow_style=True, width=1000).strip()[1:-1]
    return builders.rulebook({**builders.shipped_files(), "cluster.yaml": builders.cluster(spec)})


def _with(limits: Object, labels: Object | None = None, annotations: Object | None = None) -> Object:
    return builders.pod(builders.container(limits=limits), labels=labels or {}, annotations=annotations or {})


def _made(raw: Object, rulebook: Rulebook) -> dict[str, Any]:
    return edited(plan.make(pod.read(raw), rulebook).edits, raw)


def _counted(raw: Object, rulebook: Rulebook = RULES) -> dict[str, str]:
    """The tally, as it stands in a TenantUsage."""
    raw = as_served(raw)
    count = held(raw, rulebook)
    assert usage.Counter(rulebook).held(raw) == count
    return tally.write(count.tally)


@tables.rows
def test_a_pod_counts(pod: Object, rules: Object, counted: Object) -> None:
    assert _counted(builders.written(pod), _rules(rules)) == counted


@tables.rows
def test_a_translated_pod_counts(labels: Object, rules: Object, counted: Object) -> None:
    rulebook = _rules(rules)

    assert _counted(_made(builders.pod(labels=labels), rulebook), rulebook) == counted


@tables.rows
def test_what_was_asked_counts_only_on_the_nodes_of_the_back_end(
    labels: Object, rules: Object, here: str, elsewhere: str
) -> None:
    rulebook = _rules(rules)
    made = _made(builders.pod(labels=labels), rulebook)
    moved = {**made, "spec": {**made["spec"], "affinity": {}}}

    assert (_counted(made, rulebook)["devices"], _counted(moved, rulebook)["devices"]) == (here, elsewhere)


@tables.rows
def test_containers_count_as_kubernetes_counts_them(
    init: list[tuple[str, Object]], containers: list[str], devices: str
) -> None:
    before = [builders.container(f"i{n}", limits={GPU: number}, **more) for n, (number, more) in enumerate(init)]
    main = [builders.container(f"c{n}", limits={GPU: number}) for n, number in enumerate(containers)]

    assert _counted(builders.pod(*main, initContainers=before)) == {"devices": devices}


@tables.rows
def test_a_share_counts_as_the_slice_that_it_may_become_unless_the_pod_says_how_the_card_is_divided(
    limits: Object, shared: str, sliced: str
) -> None:
    rules, labels = _rules({"backends": ["hami-vgpu", "hami-mig"]}), {"gpu-model": "A100-40GB"}
    for mode in ({}, {"nvidia.com/vgpu-mode": "mig"}, {"nvidia.com/vgpu-mode": "mig,hami-core"}):
        assert _counted(_with(limits, labels, mode), rules)["devices"] == sliced
    assert _counted(_with(limits, labels, {"nvidia.com/vgpu-mode": "hami-core"}), rules)["devices"] == shared
    assert _counted(_with(limits, labels), with_only("hami-vgpu", rules))["devices"] == shared


@tables.rows
def test_a_counter_tells_pods_apart_that_only_differ_in_the_nodes_they_select(
    rules: Object, pods: list[Object]
) -> None:
    counter = usage.Counter(_rules(rules))

    counted = [tally.write(counter.held(as_served(builders.written(row["pod"]))).tally) for row in pods]

    assert counted == [{"devices": row["devices"]} for row in pods]


def test_cores_of_another_chip_are_no_cores_of_the_one_that_the_pod_is_bound_to() -> None:
    order = ("ascend-vnpu-dynamic-910b", "ascend-vnpu-dynamic")
    cluster = replace(RULES.cluster, backends=order, tiers={}, whole=None, part=None)
    rules = index(cluster, RULES.backends, RULES.devices)
    chips = builders.pod(labels={"gpu": "2", "gpu-model": "Ascend910B2"})

    assert _counted(_made(chips, rules), rules)["devices"] == "2"
    assert _counted(_with({"huawei.com/npu-core": "48"}), rules)["devices"] == "6"


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


@tables.rows
def test_why_whole_devices_count_for_parts_is_known(limits: Object, labels: Object, gaps: list[str]) -> None:
    rulebook = with_only("hami-vgpu", RULES)
    [holding] = usage.holdings(pod.read(as_served(_with(limits, labels))), rulebook)

    assert list(holding.gaps.values()) == gaps


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
    """The cluster whose nodes of HAMi have these cards; None: nobody knows."""
    cards = {"hami-vgpu": [RULES.devices[name.lower()] for name in model.split(",")]} if model else {}
    return replace(RULES, surroundings=Surroundings(cards=cards))


ONCE = {"devices": "0.2", "memory": "3Gi"}
SIZE = builders.pod(labels={"gpu-memory": "3Gi", "gpu-cores": "20"})


def test_the_card_that_only_the_nodes_tell_is_kept_on_the_pod() -> None:
    made = _made(SIZE, _on("T4"))

    assert made["metadata"]["annotations"][locations.CARD] == "T4"
    assert _counted(made, _on("A100-80GB")) == _counted(made, _on(None)) == _counted(made, _on("T4"))
    assert _counted(made) == {"devices": "0.2", "devices/T4": "0.2", "memory": "3Gi", "memory/T4": "3Gi"}
    assert _made(made, _on("T4")) == made


def test_of_several_cards_of_the_nodes_the_one_counts_that_it_is_most_of() -> None:
    made = _made(SIZE, _on("A100-80GB,T4"))

    assert made["metadata"]["annotations"][locations.CARD] == "A100-80GB,T4"
    assert _counted(made, _on("A100-80GB")) == _counted(made, _on(None)) == _counted(made)
    alike = {f"{what}/{model}": amount for model in ("A100-80GB", "T4") for what, amount in ONCE.items()}
    assert _counted(made) == {**ONCE, **alike}
    assert _made(made, _on("A100-80GB,T4")) == made


def test_a_note_that_is_longer_than_mutate_writes_is_of_an_unknown_card() -> None:
    rulebook = replace(RULES)
    sized = builders.container(limits={GPU: "1", MEMORY: "1536", "nvidia.com/gpucores": "10"})

    counted = _counted(builders.pod(sized, annotations={locations.CARD: ",".join(["T4"] * 80_000)}), rulebook)

    assert counted == {"devices": "1", "memory": "1536Mi"}
    assert [*rulebook.cache[Surroundings]] == [""]


PRODUCT, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.sharing-strategy"
H100, NODE_OF_H100 = "H100-80GB", "NVIDIA-H100-80GB-HBM3"


def _where(backends: str, **nodes: dict[str, str]) -> Rulebook:
    """A cluster with a node of ten of NVIDIA's devices for each set of labels."""
    book = builders.rulebook(
        {**builders.shipped_files(), "cluster.yaml": builders.cluster(f"backends: [{backends}]")}
    )
    there = [
        {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "10"}}}
        for name, labels in nodes.items()
    ]
    return replace(book, surroundings=inventory.surroundings(inventory.read(there, book)))


def test_a_card_that_the_pod_selects_counts_though_no_node_has_it_now() -> None:
    rulebook = _where("nvidia-gpu", old={PRODUCT: "Tesla-T4"})
    selecting = builders.pod(labels={"gpu": "1"}, nodeSelector={PRODUCT: NODE_OF_H100})

    counted = _counted(_made(selecting, rulebook), replace(rulebook, surroundings=Surroundings()))

    assert counted["memory"] == counted[f"memory/{H100}"] == "81559Mi"
    assert counted[f"devices/{H100}"] == counted["devices"] == "1"


def test_a_pod_that_excludes_the_nodes_of_its_back_end_counts_as_on_those_of_the_others() -> None:
    shared = {PRODUCT: "Tesla-T4-SHARED", STRATEGY: "mps", "nvidia.com/gpu.replicas": "10"}
    rulebook = _where("nvidia-mps, nvidia-gpu", old=shared, new={PRODUCT: NODE_OF_H100})
    terms = [{"matchExpressions": [{"key": STRATEGY, "operator": "NotIn", "values": ["mps"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    raw = _with({GPU: "1"}, {}, {"gpu-webhook.io/sharing": "mps"})
    raw = {**raw, "spec": {**raw["spec"], "affinity": affinity}}

    counted = _counted(_made(raw, rulebook), replace(rulebook, surroundings=Surroundings()))

    assert (counted["devices"], counted[f"devices/{H100}"], counted["memory"]) == ("1", "1", "81559Mi")


def test_memory_that_a_rule_rounds_up_to_a_share_counts_as_the_share() -> None:
    rulebook = _rules({"backends": ["nvidia-mps"], "device": H100})

    small, tenth = (_made(builders.pod(labels=words), rulebook) for words in ({"gpu-memory": "1Gi"}, {"gpu": "0.1"}))

    assert _counted(small, rulebook) == _counted(tenth, rulebook)


def test_a_note_of_an_author_is_removed_from_a_pod_without_a_gpu() -> None:
    made = _made(_with({GPU: "0"}, {}, {locations.CARD: "T4"}), RULES)

    assert locations.CARD not in made["metadata"].get("annotations", {})


def test_of_any_number_of_notes_by_authors_few_are_remembered() -> None:
    rulebook = replace(RULES)
    for number in range(3 * allocation.MOST_NOTES):
        held(_with({GPU: "1"}, {}, {locations.CARD: f"T4,{number}"}), rulebook)

    assert len(rulebook.cache[Surroundings]) <= allocation.MOST_NOTES


@tables.rows
def test_an_authors_own_word_for_the_card_never_stands(pod: Object, model: str | None, kept: str | None) -> None:
    made = _made(builders.written(pod), _on(model))

    assert (made["metadata"].get("annotations") or {}).get(locations.CARD) == kept


def test_copies_of_a_pod_are_read_once_however_long_its_texts_are() -> None:
    counter = usage.Counter(RULES)
    usual = _with({GPU: "1"})
    long = _with({GPU: "1"}, {}, {locations.DEFAULT_CONTAINER: "x" * 250_000})

    assert counter.held(usual) is counter.held(usual)
    assert counter.held(long) == counter.held(usual)
    assert counter.held(long) is counter.held(long)
