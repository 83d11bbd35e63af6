"""A pod that asks for a GPU and has too much of anything is refused at once, and nothing costs more than its size."""

from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest

from tests import builders, tables
from tests.attacks.monsters import MONSTERS, without_gpu
from tests.bench.trace import calls
from tests.core.policy.tenants import EVERYTHING, RULES, policy, quota, rules
from webhook.cli import workload_advice
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.interpret import interpret
from webhook.core.kube import pod
from webhook.core.mutate import mutate
from webhook.core.plan import allocation
from webhook.core.policy import defaults, usage
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces
from webhook.core.validate import validate

Object = dict[str, Any]

UNREAD = "leave out those that nothing reads"
FEWER = "make several pods of it"
MOST: Mapping[str, Any] = tables.table(__file__, "most")


def texts(decision: Decision) -> list[str]:
    return [str(violation) for violation in decision.violations]


def asking(raw: Mapping[str, Any], namespace: str = "vision-dev") -> Any:
    return builders.creating(raw, namespace)


def refusal(found: int, most: int, what: str, path: str, fix: str) -> str:
    return (
        f"[GPU003] the pod has {found} {what}, and one that asks for a GPU may have {most}: "
        f"all other reviews wait while they are read\n  at   {path}\n  fix  {fix}"
    )


@pytest.mark.parametrize("name", MOST)
def test_a_pod_with_one_too_many_of_anything_is_refused_and_told_the_most(name: str) -> None:
    most, beside, what, path, fix = MOST[name]
    just, over = (MONSTERS[name](most - beside + more) for more in (0, 1))

    for judge in (mutate, validate):
        assert texts(judge(asking(over), RULES)) == [refusal(most + 1, most, what, path, fix)]
        assert "GPU003" not in "".join(texts(judge(asking(just), RULES)))


def test_names_and_values_that_are_read_have_a_most_together() -> None:
    refused = mutate(asking(builders.pod(labels={"gpu": "1"}, nodeSelector={"zone": "x" * (256 << 10)})), RULES)

    found, most, what = 262246, 262144, "bytes of names and values that rules read"
    assert texts(refused) == [refusal(found, most, what, "spec", "write shorter ones")]


WITHOUT_GPU = {
    name: plain
    for name, monster in MONSTERS.items()
    if not interpret.amounts_concern_gpus(interpret.amounts(plain := without_gpu(monster(6000))), RULES)
}


@pytest.mark.parametrize("name", WITHOUT_GPU)
def test_a_pod_that_asks_for_no_gpu_may_be_of_any_size(name: str) -> None:
    raw = WITHOUT_GPU[name]

    for judge in (mutate, validate):
        assert judge(asking(raw), RULES) == UNTOUCHED
    assert workload_advice.warn(template_of(raw), RULES) == UNTOUCHED


def test_what_mutate_adds_to_a_pod_takes_it_over_no_limit() -> None:
    raw = MONSTERS["labels of others"](499)
    raw["metadata"]["annotations"] = {f"a{number}": "1" for number in range(1000)}

    stored = jsonpatch.apply_patch(raw, mutate(asking(raw), EVERYTHING).patch)
    stored["metadata"]["uid"] = "u-1"

    assert len(stored["metadata"]["labels"]) > 500
    assert len(stored["metadata"]["annotations"]) > 1000
    assert texts(validate(asking(stored), EVERYTHING)) == []


def test_claims_without_end_are_refused_where_a_policy_would_have_to_judge_them() -> None:
    raw = without_gpu(MONSTERS["resourceClaims"](101))

    assert validate(asking(raw), RULES) == UNTOUCHED
    assert texts(validate(asking(raw), EVERYTHING)) == [
        refusal(101, 100, "resource claims", "spec.resourceClaims", FEWER)
    ]


COUNT = {"gpu.gpu-webhook.io/main": "1"}


def stored_pod(labels: int, **metadata: Any) -> Object:
    """A pod with a whole device that exists."""
    raw = builders.pod(builders.container(limits={"nvidia.com/gpu": "1"}))
    many = {f"gpu-{number}": "1" for number in range(labels)}
    return {**raw, "metadata": {"uid": "u-1", "labels": many, **metadata}}


def test_an_update_to_more_than_the_budget_is_refused() -> None:
    refused = validate(builders.updating(stored_pod(10), stored_pod(1001)), RULES)

    assert texts(refused) == [refusal(1001, 1000, "labels", "metadata.labels", UNREAD)]


@pytest.mark.parametrize(
    ("old", "new", "codes"),
    [
        pytest.param(stored_pod(2000, finalizers=["a.b/c"]), stored_pod(2000, finalizers=[]), [], id="finalizers"),
        pytest.param(stored_pod(1001), stored_pod(10), [], id="back to less"),
        pytest.param(stored_pod(2000, annotations=COUNT), stored_pod(10), ["GPU109"], id="not its count"),
    ],
)
def test_a_pod_that_is_over_the_budget_can_change(old: Object, new: Object, codes: list[str]) -> None:
    refused = validate(builders.updating(old, new), RULES)

    assert [violation.code for violation in refused.violations] == codes


@pytest.mark.parametrize("selected", ["nodeSelector", "nodeSelectorTerms"])
def test_a_gated_pod_selects_no_more_nodes_than_can_be_read(selected: str) -> None:
    """What it counts depends on them."""
    old = stored_pod(1)
    selecting = MONSTERS[selected](601)["spec"]
    nodes = {key: selecting[key] for key in ("nodeSelector", "affinity") if key in selecting}

    refused = validate(builders.updating(old, {**old, "spec": {**old["spec"], **nodes}}), RULES)

    assert [violation.code for violation in refused.violations] == ["GPU003"]


def test_an_update_of_a_pod_without_a_gpu_is_free_at_any_size() -> None:
    old = {"metadata": {"uid": "u-1", "labels": {f"gpu-{number}": "1" for number in range(2000)}}, "spec": {}}
    new = {**old, "metadata": {"uid": "u-1", "labels": {f"gpu-{number}": "2" for number in range(3000)}}}

    assert validate(builders.updating(old, new), RULES) == UNTOUCHED


@pytest.mark.parametrize("stored", [MONSTERS["env"](2001), builders.pod()], ids=["it was", "the update makes it so"])
def test_a_pod_that_is_over_the_budget_gets_no_device_by_an_ephemeral_container(stored: Object) -> None:
    old = {**without_gpu(stored), "metadata": {"uid": "u-1"}}
    harmless = [builders.container(f"debug-{number}") for number in range(300)]
    asking_all = builders.container("last", env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    quoted = rules(policy(namespaces=Namespaces(names=("default",)), quota=quota(devices=1)))

    refused, admitted = (
        validate(builders.updating(old, {**old, "spec": {**old["spec"], "ephemeralContainers": added}}), quoted)
        for added in ([*harmless, asking_all], harmless)
    )

    assert [violation.code for violation in refused.violations] == ["GPU003"]
    assert admitted == UNTOUCHED


def _binding(stored: Object, *, uid: str, **metadata: Any) -> Any:
    bound = {"kind": "Binding", "metadata": {"name": "train", "uid": uid, **metadata}}
    return builders.creating(bound)._replace(subresource="binding", old_pod=stored)


@pytest.mark.parametrize("uid", ["u-1", ""])
def test_a_binding_that_makes_a_pod_with_a_gpu_too_large_is_refused_unread(uid: str) -> None:
    many = {"gpu-memory": "1Gi"} | {f"gpu-memory-{number}": "1" for number in range(3999)}

    refused = validate(_binding(stored_pod(1), uid=uid, labels=many), RULES)

    assert texts(refused) == [refusal(4001, 1000, "labels", "metadata.labels", UNREAD)]


@pytest.mark.parametrize("uid", ["u-1", ""])
def test_of_a_large_binding_of_a_pod_without_a_gpu_nothing_is_looked_at_one_by_one(uid: str) -> None:
    stored = {"metadata": {"uid": "u-1"}, "spec": {}}
    once, twice = ({f"note.example/{number}": "1" for number in range(size)} for size in (20_000, 40_000))

    first, second = (_binding(stored, uid=uid, annotations=many) for many in (once, twice))

    assert validate(second, RULES) == UNTOUCHED
    assert calls(lambda: validate(second, RULES)) == calls(lambda: validate(first, RULES))


@pytest.mark.parametrize("wrong", ["text", ["limits"], {"limits": "all"}, None])
def test_a_wrong_shape_in_one_container_hides_no_other_of_a_pod_that_is_over_the_budget(wrong: Any) -> None:
    containers = [{"name": f"c{number}", "resources": wrong} for number in range(200)]
    gpu = builders.container(limits={"nvidia.com/gpu": "1"})

    for judge in (mutate, validate):
        [violation] = judge(asking(builders.pod(*containers, gpu)), RULES).violations
        assert violation.code == "GPU003"


SAID = (
    "[GPU003] the pod has 129 containers, and one that asks for a GPU may have 128: "
    "all other reviews wait while they are read; make several pods of it"
)


def test_observe_mode_says_it_as_a_warning() -> None:
    observing = rules(*EVERYTHING.tenancy.policies, observing=True)

    for judge in (mutate, validate):
        decision = judge(asking(MONSTERS["containers"](129)), observing)
        assert decision == Decision(allowed=True, warnings=[f"would be refused: {SAID}"], findings=[])


def template_of(raw: Object) -> Any:
    kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
    deployment = {**kind, "metadata": {"name": "d"}, "spec": {"template": raw}}
    return asking(raw)._replace(resource="deployments", pod=deployment)


def test_the_author_of_a_template_is_told() -> None:
    warned = workload_advice.warn(template_of(MONSTERS["containers"](129)), RULES)

    assert warned.warnings == [f"pods of this template will be refused: {SAID}"]


# What it costs


def unlimited(raw: Object, rulebook: Rulebook) -> None:
    """What both webhooks do with a pod that is within the budget, here of any size; and what a settler counts."""
    seen = pod.read(raw, "vision-dev")
    defaults.plan_for_tenant(seen, rulebook)
    checked = allocation.check_sufficient(seen, rulebook)
    usage.holdings(seen, rulebook, checked.interpretation, checked.allocations)
    usage.pod_usage(usage.holdings(pod.read(raw, "vision-dev"), rulebook))


@pytest.mark.parametrize("name", MONSTERS)
def test_a_pod_of_twice_the_size_takes_twice_the_calls_at_most(name: str) -> None:
    once, twice = (MONSTERS[name](count) for count in (150, 300))

    assert calls(lambda: unlimited(twice, EVERYTHING)) <= 2 * calls(lambda: unlimited(once, EVERYTHING))


@pytest.mark.parametrize("containers", [1, 60, 300], ids=["one container", "thousands of letters", "over the budget"])
def test_a_settler_reads_a_pod_once_however_large_it_is_and_however_often_it_changes(containers: int) -> None:
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}
    raw = builders.pod(*(builders.container(f"{number}-{'x' * 50}", limits=amounts) for number in range(containers)))
    counter = usage.Counter(EVERYTHING)

    assert counter.held(raw).tally["memory"] == containers * (8 << 30)
    assert calls(lambda: counter.held({**raw, "status": {"phase": "Running"}}), to="holdings") == 0


@pytest.mark.parametrize("name", MONSTERS)
def test_a_review_of_twice_the_size_takes_twice_the_calls_at_most(name: str) -> None:
    once, twice = (MONSTERS[name](count) for count in (4000, 8000))

    for judge in (mutate, validate, workload_advice.warn):
        first, second = (
            asking(raw) if judge is not workload_advice.warn else template_of(raw) for raw in (once, twice)
        )
        assert calls(lambda: judge(second, EVERYTHING)) <= 2 * calls(lambda: judge(first, EVERYTHING))  # noqa: B023 - called here


@pytest.mark.parametrize("name", MONSTERS)
def test_no_review_costs_more_than_two_hundred_thousand_calls(name: str) -> None:
    for raw in (MONSTERS[name](count) for count in (100, 128, 499, 1000, 20_000)):
        for judge in (mutate, validate):
            assert calls(lambda: judge(asking(raw), EVERYTHING)) < 200_000  # noqa: B023 - called here


@pytest.mark.parametrize("name", MONSTERS)
def test_the_nearest_word_is_looked_for_a_few_times_in_a_review(name: str) -> None:
    raw = MONSTERS[name](120)

    for judge in (mutate, validate):
        reviews = 2  # with a policy a pod is read again, with the policy's labels
        assert calls(lambda: judge(asking(raw), EVERYTHING), to="nearest") <= reviews * interpret.WORDS  # noqa: B023


SHIPPED = builders.rulebook(builders.shipped_files())
DISABLED = [name for name, of in SHIPPED.resources.items() if "/" in name and " " not in name and not of.owners]
BAD = {"gpu": "7/3", "memory": "8GB", "cores": "30%", "tflops": "3e", "sharing": "exclusve"}


def _wishes(containers: int, absent: int) -> Object:
    """Containers that ask for what cannot be read, beside the requests of containers that are not there."""
    asked = {f"{key}.gpu-webhook.io/c{number}": text for number in range(containers) for key, text in BAD.items()}
    others = {f"gpu.gpu-webhook.io/x{number}": "0.333333" for number in range(absent)}
    return builders.pod(
        *(builders.container(f"c{number}") for number in range(containers)), annotations={**asked, **others}
    )


def _disabled(containers: int, resources: int) -> Object:
    """Containers with devices of systems that the cluster does not have."""
    limits = dict.fromkeys(DISABLED[:resources], "1")
    return builders.pod(*(builders.container(f"c{number}", limits=limits) for number in range(containers)))


@pytest.mark.parametrize(
    "raw",
    [_disabled(1, 60), _disabled(16, 38), _disabled(128, 11), _wishes(1, 0), _wishes(2, 950), _wishes(24, 40)],
    ids=["one container", "many resources", "many containers", "wrong values", "absent containers", "many of both"],
)
def test_fixes_are_tried_within_a_budget_however_much_there_is_to_read(raw: Object) -> None:
    assert calls(lambda: mutate(asking(raw), SHIPPED)) < 200_000
