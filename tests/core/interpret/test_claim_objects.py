"""Containers that ask by the name of an object: what stands in it becomes their own words, once."""

from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import pytest

from tests import builders, tables
from tests.cases.served import as_served
from tests.core.policy import tenants
from webhook.cli import convert, explanation
from webhook.cli.inventory import demand
from webhook.core.decision import UNTOUCHED, Decision
from webhook.core.interpret import claims
from webhook.core.inventory import Inventory
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate

Object = dict[str, Any]

CLUSTER = (
    "backends: [nvidia-gpu, hami-vgpu, tencent-qgpu%s], defaults: {whole: nvidia-gpu, part: hami-vgpu}, "
    "provisioners: {gpushare.provisioner.elasticgpu.io: hami-vgpu, elasticgpu.io/qgpu: tencent-qgpu}"
)
ANNOTATION = "elasticgpu.io/egpuc-main"
AT = f'metadata.annotations["{ANNOTATION}"]'
SHARE = {"elasticgpu.com/gpu-core": 50, "elasticgpu.com/gpu-memory": 8192}


def rules(*, more: str = "") -> Rulebook:
    return builders.rulebook(builders.shipped_files() | {"cluster.yaml": builders.cluster(CLUSTER % more)})


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


@tables.rows
def test_a_pod_names_claims(pod: Object, given: Object, becomes: Object) -> None:
    """Objects are a `claim` by its resources, name and fields, or a `class` by its name and provisioner."""
    objects = [class_(*fields["class"]) if "class" in fields else claim(**fields) for fields in given["objects"]]
    raw, rulebook = builders.written(pod), rules(more=given.get("more", ""))
    decision = mutated(raw, *objects, rulebook=rulebook, namespace=given.get("namespace", "default"))

    seen = tenants.seen(tenants.Fate(decision, jsonpatch.apply_patch(raw, decision.patch), UNTOUCHED))
    assert {key: seen[key]() for key in becomes} == becomes


@tables.rows
def test_a_claim_that_means_nothing_is_refused(resources: Mapping[str, Any], message: str) -> None:
    decision = mutated(naming(), claim(resources))

    assert int(decision.code) == 422
    assert [(violation.code, violation.path, violation.message) for violation in decision.violations] == [
        ("GPU206", AT, f'the ElasticGPUClaim "default/train" cannot be understood: {message}')
    ]


@pytest.mark.parametrize("spec", [None, [], {"resources": 3}, {"resources": {"limits": [1]}}], ids=str)
def test_a_claim_of_another_shape_is_refused(spec: Any) -> None:
    [violation] = mutated(naming(), claim({}) | {"spec": spec}).violations

    assert violation.code == "GPU206"


@pytest.mark.parametrize("pod", [naming(), builders.pod(labels={"gpu-claim": "train"})], ids=["annotation", "word"])
def test_once_read_a_claim_may_change_and_go(pod: Object) -> None:
    first = mutated(pod, claim(SHARE, elasticGPUClassName="gpushare"), GPUSHARE)
    stored = as_served(jsonpatch.apply_patch(pod, first.patch))

    for objects in ((), (claim({"nvidia.com/gpu": 4}),), (claim(SHARE, name="another"),)):
        again = mutated(stored, *objects)
        final = validate(builders.creating(stored), claims.given(objects, RULES))
        assert (again.allowed, again.patch, again.backends, final.allowed) == (True, [], first.backends, True)


# Refusals


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
