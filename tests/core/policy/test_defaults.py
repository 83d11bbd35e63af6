"""What a policy puts on the pods of its tenant before they are translated."""

from fractions import Fraction
from typing import Any

import pytest

from tests import builders
from tests.core.policy import tenants
from tests.core.policy.tenants import Fate, fate, policy, quota, shorthand, whole
from webhook.core.rules.tenant_policy import Ceiling, Defaults, Kinds, TenantPolicy
from webhook.core.validate import validate

GIB = 1 << 30
QUEUE = "kai.scheduler/queue"
POOL = {"key": "pool", "operator": "In", "values": ["vision"]}
SLOW = {"key": "slow", "operator": "NotIn", "values": ["true"]}
TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def _annotations(found: Fate) -> dict[str, Any]:
    annotations: dict[str, Any] = found.stored["metadata"]["annotations"]
    return annotations


def _terms(found: Fate) -> list[Any]:
    terms: list[Any] = found.stored["spec"]["affinity"]["nodeAffinity"][TERMS]["nodeSelectorTerms"]
    return terms


def _affine(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {TERMS: {"nodeSelectorTerms": list(terms)}}}


def _defaults(**defaults: Any) -> TenantPolicy:
    return policy(defaults=Defaults(**defaults, rule="vision (tenants.yaml:30)"))


def test_the_back_end_that_a_tenant_prefers_comes_first() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(_defaults(backend="hami-vgpu")))

    assert found.mutated.backends == {"main": "hami-vgpu"}
    assert _annotations(found)["backend.gpu-webhook.io/main"] == "hami-vgpu"


def test_it_comes_first_for_the_words_of_a_back_end_that_several_own() -> None:
    assert fate(whole(), tenants.rules(_defaults(backend="hami-vgpu"))).mutated.backends == {"main": "hami-vgpu"}


def test_the_pods_own_word_for_a_back_end_overrides_it() -> None:
    pod = shorthand(gpu="1", backend="nvidia-gpu")

    assert fate(pod, tenants.rules(_defaults(backend="hami-vgpu"))).mutated.backends == {"main": "nvidia-gpu"}


def test_a_preferred_back_end_that_cannot_serve_is_passed_over() -> None:
    found = fate(shorthand(gpu="0.5"), tenants.rules(_defaults(backend="nvidia-gpu")))

    assert (found.codes, found.mutated.backends) == ([], {"main": "hami-vgpu"})


def test_a_bare_gpu_becomes_a_share_of_the_default_size_and_the_author_is_told() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(_defaults(memory=8 * GIB)))

    limits: dict[str, Any] = found.stored["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}
    assert _annotations(found)["memory.gpu-webhook.io/main"] == "8Gi"
    assert found.mutated.warnings[0] == (
        'the policy "vision" gives the container "main" gpu-memory: 8Gi; say otherwise for another'
    )


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(shorthand(gpu="2"), id="two devices"),
        pytest.param(shorthand(gpu="0.5"), id="a share"),
        pytest.param(shorthand(gpu="1", memory="4Gi"), id="a size"),
        pytest.param(shorthand(gpu="1", sharing="exclusive"), id="one for itself"),
        pytest.param(whole(), id="the words of a plugin"),
    ],
)
def test_who_says_how_much_gets_that(pod: dict[str, Any]) -> None:
    with_default, without = (fate(pod, tenants.rules(one)) for one in (_defaults(memory=8 * GIB), policy()))

    assert with_default.stored == without.stored


def test_a_default_model_is_a_word_on_the_pod_so_that_it_counts_the_same_later() -> None:
    tenant = policy(defaults=Defaults(model="A100-80GB"), quota=quota(**{"devices/A100-80GB": 4}))

    found = fate(shorthand(gpu="0.5"), tenants.rules(tenant))

    assert _annotations(found)["model.gpu-webhook.io/main"] == "A100-80GB"
    assert found.validated.reservation is not None
    assert found.validated.reservation.ask.amount["devices/A100-80GB"] * 2 == 1


def test_a_default_that_nothing_can_serve_is_left_out() -> None:
    with_default = fate(shorthand(gpu="1", memory="60Gi"), tenants.rules(_defaults(model="T4")))

    assert with_default.stored == fate(shorthand(gpu="1", memory="60Gi"), tenants.rules(policy())).stored


@pytest.mark.parametrize(
    ("sharing", "pod", "given"),
    [
        ("fractional", shorthand(gpu="0.5"), True),
        ("fractional", shorthand(gpu="1"), False),
        ("exclusive", shorthand(gpu="1"), True),
        ("exclusive", shorthand(gpu="0.5"), False),
    ],
)
def test_a_default_way_of_sharing_is_for_what_can_be_shared_so(
    sharing: str, pod: dict[str, Any], *, given: bool
) -> None:
    found = fate(pod, tenants.rules(_defaults(sharing=sharing)))

    assert (found.codes, "sharing.gpu-webhook.io/main" in _annotations(found)) == ([], given)


def test_queue_labels_and_annotations_are_put_on_the_pod() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(policy(labels={QUEUE: "vision"}, annotations={"team": "v"})))

    assert (found.stored["metadata"]["labels"][QUEUE], _annotations(found)["team"]) == ("vision", "v")


def test_a_queue_is_not_for_the_pod_to_choose() -> None:
    pod = builders.pod(labels={"gpu": "1", QUEUE: "audio"})

    found = fate(pod, tenants.rules(policy(labels={QUEUE: "vision"})))

    assert found.said == (
        f'[GPU110] metadata.labels["{QUEUE}"] is "audio", and the policy "vision" sets it to "vision"\n'
        f'  at   metadata.labels["{QUEUE}"]\n'
        "  rule vision (tenants.yaml:1)\n"
        f"  fix  leave {QUEUE} out; the policy writes it"
    )
    assert found.mutated.code == 403


def test_what_else_the_policy_minds_is_said_with_it() -> None:
    pod = builders.pod(labels={"gpu": "4", QUEUE: "audio"})
    tight = policy(labels={QUEUE: "vision"}, container=Ceiling(devices=Fraction(2), rule="r"), quota=quota(devices=4))

    decision = fate(pod, tenants.rules(tight)).mutated

    assert ([violation.code for violation in decision.violations], decision.code) == (["GPU110", "GPU102"], 403)
    assert tenants.names(decision.findings) == [("GPU110", "deny"), ("GPU102", "deny")]
    assert decision.reservation is None


def test_a_policy_that_only_warns_keeps_what_the_pod_says() -> None:
    pod = builders.pod(labels={"gpu": "1", QUEUE: "audio"})

    found = fate(pod, tenants.rules(policy(labels={QUEUE: "vision"}, annotations={"team": "v"}, action="warn")))

    assert (found.codes, found.stored["metadata"]["labels"][QUEUE], _annotations(found)["team"]) == ([], "audio", "v")
    assert found.validated.warnings == [
        (
            f'[GPU110] metadata.labels["{QUEUE}"] is "audio", and the policy "vision" sets it to "vision"; '
            f"leave {QUEUE} out; the policy writes it"
        )
    ]


def test_a_policy_that_is_only_tried_puts_nothing_on_any_pod_and_notes_what_contradicts() -> None:
    tried = policy(
        defaults=Defaults(memory=8 * GIB, backend="hami-vgpu"),
        labels={QUEUE: "vision"},
        affinity=[POOL],
        action="dryrun",
    )
    pod = builders.pod(labels={"gpu": "1", QUEUE: "audio"})

    found = fate(pod, tenants.rules(tried))

    assert found.stored == fate(pod, tenants.rules(policy())).stored
    assert (found.codes, found.validated.warnings) == ([], [])
    assert tenants.names(found.validated.findings) == [("GPU110", "dryrun")]


def test_a_pod_without_its_marks_has_to_come_again() -> None:
    request = builders.creating(whole(), "vision-dev")

    decision = validate(request, tenants.rules(policy(labels={QUEUE: "vision"}, affinity=[POOL])))

    assert ([violation.code for violation in decision.violations], decision.code) == (["GPU112", "GPU112"], 503)


def test_the_nodes_of_a_tenant_are_required_of_a_pod_that_says_nothing() -> None:
    found = fate(shorthand(gpu="1"), tenants.rules(policy(affinity=[POOL, SLOW])))

    assert (found.codes, _terms(found)) == ([], [{"matchExpressions": [POOL, SLOW]}])


def test_they_are_required_in_every_term_as_one_of_them_is_enough() -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]

    found = fate(
        builders.pod(labels={"gpu": "1"}, affinity=_affine(*zones)), tenants.rules(policy(affinity=[POOL, SLOW]))
    )

    assert _terms(found) == [{"matchExpressions": [*zone["matchExpressions"], POOL, SLOW]} for zone in zones]
    assert found.codes == []


def test_they_go_together_with_those_of_the_back_end() -> None:
    model = {"key": "nvidia.com/gpu.product", "operator": "In"}

    found = fate(shorthand(gpu="1", model="A100-80GB"), tenants.rules(policy(affinity=[POOL, SLOW])))

    (term,) = _terms(found)
    assert term["matchExpressions"][:2] == [POOL, SLOW]
    assert [model | one for one in term["matchExpressions"][2:]] == term["matchExpressions"][2:]
    assert len(term["matchExpressions"]) == 3


@pytest.mark.parametrize(
    "where",
    [
        {"nodeSelector": {"pool": "audio"}},
        {"affinity": _affine({"matchExpressions": [{**POOL, "values": ["audio"]}]})},
        {"affinity": _affine({"matchExpressions": [{**POOL, "operator": "NotIn"}]})},
    ],
)
def test_a_pod_that_excludes_them_all_is_refused_instead_of_waiting_for_ever(where: dict[str, Any]) -> None:
    found = fate(builders.pod(labels={"gpu": "1"}, **where), tenants.rules(policy(affinity=[POOL])))

    assert [(violation.code, violation.fix) for violation in found.mutated.violations] == [
        ("GPU110", "leave pool out of the pod's node selection; the policy writes it")
    ]


STRICT = policy(
    defaults=Defaults(backend="hami-vgpu", model="A100-80GB", sharing="fractional", memory=8 * GIB),
    labels={QUEUE: "vision"},
    annotations={"team": "vision"},
    affinity=[POOL, SLOW],
    forbidden=Kinds(backends=frozenset({"nvidia-gpu"})),
    quota=quota(devices=4),
)


@pytest.mark.parametrize(
    "pod",
    [
        whole(),
        shorthand(gpu="1"),
        shorthand(gpu="0.5"),
        shorthand(gpu="2", model="H100-80GB"),
        shorthand(gpu="1", memory="60Gi"),
        builders.pod(builders.container("a", limits={"gpu": "1"}), builders.container("b", limits={"gpu": "500m"})),
        builders.pod(
            builders.container("a", limits={"gpu": "1"}), builders.container("b", limits={"nvidia.com/gpu": "1"})
        ),
    ],
)
@pytest.mark.parametrize("tenant", [STRICT, _defaults(model="T4", memory=8 * GIB), policy(affinity=[SLOW])])
def test_a_pod_that_has_it_all_is_changed_no_more(pod: dict[str, Any], tenant: TenantPolicy) -> None:
    rules = tenants.rules(tenant)
    found = fate(pod, rules)

    again = fate(found.stored, rules)

    assert found.codes == []
    assert (again.codes, list(again.mutated.patch), again.mutated.backends) == ([], [], found.mutated.backends)


def test_observing_changes_nothing_refuses_nothing_and_tells() -> None:
    tight = policy(
        labels={QUEUE: "vision"}, quota=quota(devices=4), container=Ceiling(devices=Fraction(1, 4), rule="r")
    )

    found = fate(shorthand(gpu="0.5"), tenants.rules(tight, observing=True))

    assert (list(found.mutated.patch), found.codes, found.validated.reservation) == ([], [], None)
    assert found.mutated.warnings == [
        (
            "the pod would become nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50, "
            "nvidia.com/gpucores: 50 (hami-vgpu)"
        )
    ]
    assert found.validated.warnings == [
        (
            'would be refused: [GPU102] the container "main" asks for 0.5 devices, and the policy "vision" lets a '
            "container have 0.25; ask for 0.25 or less of one device, of its memory and of its compute"
        )
    ]
    assert tenants.names(found.validated.findings) == [("GPU102", "warn")]


def test_observing_tells_what_would_not_be_understood() -> None:
    found = fate(shorthand(gpu="1.5"), tenants.rules(observing=True))

    assert (found.mutated.allowed, found.validated.allowed) == (True, True)
    assert found.mutated.warnings[0].startswith("would be refused: [GPU201] gpu: 1.5 is neither a share")
