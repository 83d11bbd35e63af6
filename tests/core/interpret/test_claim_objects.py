"""Containers that ask by the name of an object: what stands in it becomes their own words, once."""

from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import pytest

from tests import builders, tables
from tests.cases.served import as_served
from webhook.cli import convert, explanation
from webhook.cli.inventory import demand
from webhook.core.decision import Decision
from webhook.core.interpret import claims
from webhook.core.inventory import Inventory
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

Object = dict[str, Any]

CLUSTER = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata: {name: claims}
spec:
  backends: [nvidia-gpu, hami-vgpu, tencent-qgpu%s]
  defaults: {whole: nvidia-gpu, part: hami-vgpu}
  provisioners:
    gpushare.provisioner.elasticgpu.io: hami-vgpu
    elasticgpu.io/qgpu: tencent-qgpu
"""
ANNOTATION = "elasticgpu.io/egpuc-main"
AT = f'metadata.annotations["{ANNOTATION}"]'
SHARE = {"elasticgpu.com/gpu-core": 50, "elasticgpu.com/gpu-memory": 8192}


def rules(*, more: str = "") -> Rulebook:
    return builders.rulebook(builders.shipped_files() | {"cluster.yaml": CLUSTER % more})


RULES = rules()


def claim(resources: Mapping[str, Any], name: str = "train", namespace: str = "default", **spec: Any) -> Object:
    return {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPUClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"resources": {"requests": dict(resources)}, **spec},
    }


def class_(name: str, provisioner: str) -> Object:
    return {
        "apiVersion": "elasticgpu.io/v1alpha",
        "kind": "ElasticGPUClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
    }


GPUSHARE, QGPU = class_("gpushare", "gpushare.provisioner.elasticgpu.io"), class_("qgpu", "elasticgpu.io/qgpu")


def mutated(pod: Object, *objects: Object, rulebook: Rulebook = RULES, namespace: str = "default") -> Decision:
    """The decision where these objects are known; no objects: where nobody watches."""
    return mutate(builders.creating(pod, namespace), claims.given(objects, rulebook))


def naming(name: str = "train", **more: str) -> Object:
    return builders.pod(annotations={ANNOTATION: name, **more})


def said(decision: Decision) -> list[tuple[str, str, str]]:
    return [(violation.code, violation.path, violation.message) for violation in decision.violations]


def annotated(pod: Object, decision: Decision) -> Object:
    """The annotations of the pod as it is stored, without the author's."""
    after = jsonpatch.apply_patch(pod, decision.patch)
    before = pod["metadata"].get("annotations") or {}
    return {key: text for key, text in after["metadata"].get("annotations", {}).items() if key not in before}


def test_what_stands_in_a_claim_is_kept_as_words_of_the_container() -> None:
    decision = mutated(naming(), claim(SHARE, elasticGPUClassName="gpushare"), GPUSHARE)

    assert (decision.allowed, decision.backends, decision.warnings) == (True, {"main": "hami-vgpu"}, [])
    assert annotated(naming(), decision) == {
        "gpu.gpu-webhook.io/main": "1",
        "memory.gpu-webhook.io/main": "8Gi",
        "cores.gpu-webhook.io/main": "50",
        "backend.gpu-webhook.io/main": "hami-vgpu",
        "claimed.gpu-webhook.io/main": "train",
        "gpu-webhook.io/translated": "gpu-memory=8Gi gpu-cores=50 -> hami-vgpu",
    }


@pytest.mark.parametrize("field", ["elasticGPUClassName", "egpuClassName", "storageClassName"])
def test_the_class_is_read_from_whichever_field_names_it(field: str) -> None:
    decision = mutated(naming(), claim(SHARE, **{field: "qgpu"}), GPUSHARE, QGPU)

    assert decision.backends == {"main": "tencent-qgpu"}


@pytest.mark.parametrize(
    "annotations",
    [{"elasticgpu.io/egpuc-main": "train"}, {"egpuc.elasticgpu.io/main": "train"}, {"gpu-webhook.io/claim": "train"}],
    ids=str,
)
def test_a_claim_is_named_by_either_annotation_or_in_shorthand(annotations: Mapping[str, str]) -> None:
    assert mutated(builders.pod(annotations=annotations), claim(SHARE)).backends == {"main": "hami-vgpu"}


def test_a_claim_is_that_of_the_namespace_of_the_review() -> None:
    here, there = claim(SHARE), claim({"nvidia.com/gpu": 2}, namespace="team-a")

    assert mutated(naming(), here, there, namespace="team-a").backends == {"main": "nvidia-gpu"}


@pytest.mark.parametrize("pod", [naming(), builders.pod(labels={"gpu-claim": "train"})], ids=["annotation", "word"])
def test_once_read_a_claim_may_change_and_go(pod: Object) -> None:
    first = mutated(pod, claim(SHARE, elasticGPUClassName="gpushare"), GPUSHARE)
    stored = as_served(jsonpatch.apply_patch(pod, first.patch))

    for objects in ((), (claim({"nvidia.com/gpu": 4}),), (claim(SHARE, name="another"),)):
        again = mutated(stored, *objects)
        final = validate(builders.creating(stored), claims.given(objects, RULES))
        assert (again.allowed, again.patch, again.backends, final.allowed) == (True, [], first.backends, True)


def test_two_containers_name_a_claim_each() -> None:
    pod = builders.pod(
        builders.container("a"),
        builders.container("b"),
        annotations={"elasticgpu.io/egpuc-a": "whole", "elasticgpu.io/egpuc-b": "part"},
    )

    decision = mutated(pod, claim({"nvidia.com/gpu": 1}, "whole"), claim(SHARE, "part"))

    assert decision.backends == {"a": "nvidia-gpu", "b": "hami-vgpu"}


def test_one_claim_serves_several_containers() -> None:
    pod = builders.pod(
        initContainers=[builders.container("warm")],
        annotations={"elasticgpu.io/egpuc-main": "train", "elasticgpu.io/egpuc-warm": "train"},
    )

    assert mutated(pod, claim(SHARE)).backends == {"warm": "hami-vgpu", "main": "hami-vgpu"}


def test_the_pods_own_back_end_counts_before_that_of_the_class() -> None:
    decision = mutated(naming(**{"gpu-webhook.io/backend": "hami-vgpu"}), claim(SHARE, egpuClassName="qgpu"), QGPU)

    assert decision.backends == {"main": "hami-vgpu"}


def test_what_a_claim_does_not_say_the_pod_may() -> None:
    pod = naming(**{"gpu-webhook.io/model": "T4"})

    decision = mutated(pod, claim({"elasticgpu.com/gpu-memory": 4096}))

    assert annotated(pod, decision)["gpu-webhook.io/translated"] == "gpu-memory=4Gi gpu-model=T4 -> hami-vgpu"


# Refusals


def test_a_claim_that_is_not_there_yet_is_asked_for_again() -> None:
    decision = mutated(naming(), claim(SHARE, name="other"))

    assert (decision.allowed, int(decision.code)) == (False, 503)
    assert said(decision) == [
        ("GPU205", AT, 'the namespace default has no ElasticGPUClaim "train", or it is not seen yet')
    ]


def test_a_class_that_is_not_there_yet_is_asked_for_again() -> None:
    decision = mutated(naming(), claim(SHARE, elasticGPUClassName="fast"), GPUSHARE)

    assert int(decision.code) == 503
    assert said(decision) == [
        (
            "GPU205",
            AT,
            (
                'the ElasticGPUClaim "default/train" is of the ElasticGPUClass "fast", which does not exist, '
                "or is not seen yet"
            ),
        )
    ]


def test_a_pod_with_a_mistake_of_its_own_is_not_to_come_again() -> None:
    decision = mutated(naming(**{"gpu-webhook.io/cores": "300"}), claim(SHARE, name="other"))

    assert int(decision.code) == 422
    assert {violation.code for violation in decision.violations} == {"GPU201", "GPU205"}


def test_where_nobody_watches_claims_that_is_said_and_what_helps() -> None:
    [violation] = mutated(naming()).violations

    assert str(violation).splitlines() == [
        '[GPU206] nothing here knows any ElasticGPUClaim, so nobody can tell what "train" asks for',
        f"  at   {AT}",
        f"  rule {RULES.sources[0].rule}",
        (
            '  fix  ask for gpu: "0.3" instead of the claim, or have gpu-webhook watch run beside the server and '
            "elasticgpuclaims.elasticgpu.io installed, or give explain the claim"
        ),
    ]


@tables.rows
def test_a_claim_that_means_nothing_is_refused(resources: Mapping[str, Any], message: str) -> None:
    decision = mutated(naming(), claim(resources))

    assert int(decision.code) == 422
    assert said(decision) == [("GPU206", AT, f'the ElasticGPUClaim "default/train" cannot be understood: {message}')]


@pytest.mark.parametrize("spec", [None, [], {"resources": 3}, {"resources": {"limits": [1]}}], ids=str)
def test_a_claim_of_another_shape_is_refused(spec: Any) -> None:
    [violation] = mutated(naming(), claim({}) | {"spec": spec}).violations

    assert violation.code == "GPU206"


def test_two_annotations_for_one_container_that_differ_are_refused_by_name() -> None:
    decision = mutated(naming(**{"egpuc.elasticgpu.io/main": "other"}), claim(SHARE))

    assert said(decision) == [
        (
            "GPU202",
            AT,
            (
                'two places ask for a different claim: metadata.annotations["egpuc.elasticgpu.io/main"] says '
                f'"other", and {AT} says "train"'
            ),
        )
    ]


def test_a_claim_and_words_for_the_same_container_that_differ_are_refused_by_name() -> None:
    decision = mutated(naming(**{"memory.gpu-webhook.io/main": "4Gi"}), claim(SHARE))

    assert said(decision) == [
        (
            "GPU202",
            'metadata.annotations["memory.gpu-webhook.io/main"]',
            (
                f'two places ask for a different gpu-memory: {AT} says "train (ElasticGPUClaim: gpu=1 gpu-memory=8Gi '
                'gpu-cores=50)", and metadata.annotations["memory.gpu-webhook.io/main"] says "4Gi"'
            ),
        )
    ]


@tables.rows
def test_an_annotation_for_no_container_that_can_have_a_gpu_is_refused(spec: Mapping[str, Any]) -> None:
    pod = builders.pod(annotations={"elasticgpu.io/egpuc-nobody": "train"}, **spec)

    [violation] = mutated(pod, claim(SHARE)).violations

    assert (violation.code, violation.fix) == ("GPU204", "rename it to one of: elasticgpu.io/egpuc-main")


@pytest.mark.parametrize(("text", "code"), [("Not A Name", "GPU201"), (True, "GPU001")])
def test_an_annotation_that_is_no_name_is_refused(text: Any, code: str) -> None:
    assert [violation.code for violation in mutated(naming(text), claim(SHARE)).violations] == [code]


def test_a_provisioner_that_nobody_maps_leaves_the_choice_to_the_cluster_and_says_so() -> None:
    decision = mutated(naming(), claim(SHARE, egpuClassName="odd"), class_("odd", "odd.example"))

    assert decision.backends == {"main": "hami-vgpu"}
    assert decision.warnings == [
        (
            'the provisioner odd.example of the ElasticGPUClass "odd" is nobody\'s by the Cluster document '
            '(provisioners:), so the cluster chooses who serves the ElasticGPUClaim "default/train"'
        )
    ]


def test_where_nobody_watches_classes_the_choice_is_the_clusters() -> None:
    decision = mutated(naming(), claim(SHARE, egpuClassName="qgpu"))

    assert (decision.backends, len(decision.warnings)) == ({"main": "hami-vgpu"}, 1)


# gpu-claim is also for templates of resource claims


def test_a_name_that_is_no_claim_is_a_template_where_some_back_end_takes_templates() -> None:
    book = rules(more=", dra-claim-template")
    pod = builders.pod(labels={"gpu-claim": "train"})

    assert mutated(pod, claim(SHARE, name="other"), rulebook=book).backends == {"main": "dra-claim-template"}
    assert mutated(pod, claim(SHARE), rulebook=book).backends == {"main": "hami-vgpu"}


def test_a_name_that_is_no_claim_is_asked_for_again_where_nobody_takes_templates() -> None:
    decision = mutated(builders.pod(labels={"gpu-claim": "train"}), claim(SHARE, name="other"))

    assert [violation.code for violation in decision.violations] == ["GPU205"]


def test_a_label_with_a_claim_is_for_the_container_that_pod_wide_words_are_for() -> None:
    pod = builders.pod(builders.container("a"), builders.container("b"), labels={"gpu-claim": "train"})

    decision = mutated(pod, claim(SHARE, egpuClassName="qgpu"), QGPU)

    assert decision.backends == {"a": "tencent-qgpu"}
    assert "claimed.gpu-webhook.io/b" not in annotated(pod, decision)


# Elsewhere


def test_explain_finds_claims_in_lists_and_takes_the_namespace_from_the_document() -> None:
    pod = naming() | {"metadata": {"name": "a", "namespace": "team-a", "annotations": {ANNOTATION: "train"}}}
    documents: Sequence[Object] = [
        {"apiVersion": "v1", "kind": "List", "items": [claim(SHARE, namespace="team-a"), GPUSHARE]},
        pod,
    ]

    [explained] = explanation.explain(pod, claims.given(documents, RULES))

    assert explained.decision.backends == {"main": "hami-vgpu"}


def test_a_pod_with_a_claim_is_rewritten_for_another_system() -> None:
    book = claims.given([claim(SHARE, egpuClassName="gpushare"), GPUSHARE], RULES)

    for pod in (naming(), builders.pod(labels={"gpu-claim": "train"})):
        [converted] = convert.convert(pod, "tencent-qgpu", book)
        assert converted.decision.allowed
        assert converted.after["spec"]["containers"][0]["resources"]["limits"] == {
            "tke.cloud.tencent.com/qgpu-core": "50",
            "tke.cloud.tencent.com/qgpu-memory": "8",
        }
        assert "claim" not in str(converted.after["metadata"])


def test_what_pods_with_claims_ask_is_counted_from_their_resources() -> None:
    running = naming() | {"spec": {"containers": [builders.container(limits={"nvidia.com/gpu": 1})]}}

    counted = demand([running], Inventory(nodes={}), RULES)

    assert (len(counted.uses), counted.unread) == (1, [])
