"""`gpu-webhook explain`: what becomes of everything that people paste."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import RULES, SHIPPED, changed_rules, explain, pod, run, spec

CONTRACT = ["object", "allowed", "code", "violations", "warnings", "backends", "patch", "pod", "tenant", "missing"]

TRANSLATED = {"acme.example/share": "30", "acme.example/compute": "30"}


def limits(contract: Any) -> Any:
    spec_of = contract["pod"]["spec"]
    return spec_of["containers"][0].get("resources", {}).get("limits")


def test_a_pod_is_shown_before_and_after_with_who_serves_it_and_why() -> None:
    ran = explain(pod("0.3"))

    assert (ran.code, ran.err) == (0, "")
    assert "Pod demo\n" in ran.out
    assert "served    main: by acme-share (acme.yaml:19)" in ran.out
    assert "acme-card cannot: it serves only: whole cards" in ran.out
    assert "[\"acme.example/share\"]: '30'    [acme-share (acme.yaml:25)]" in ran.out
    assert "\n+         acme.example/share: '30'\n" in ran.out


def test_where_no_enabled_back_end_serves_it_is_said_that_others_exist() -> None:
    served, refused = explain(pod("0.3")), explain(pod("2x0.3"))

    assert "1 more back end is not enabled (spec.backends of the Cluster document)\n" in refused.out
    assert "not enabled" not in served.out


def test_the_shipped_cluster_document_serves_what_any_cluster_has_and_says_what_a_share_needs() -> None:
    whole, share = (
        run("explain", "-", "--rules", SHIPPED, "-o", "json", given=pod(gpu)).json for gpu in ("2", "0.3")
    )

    assert (whole["backends"], limits(whole)) == ({"main": "nvidia-gpu"}, {"nvidia.com/gpu": "2"})
    [violation] = share["violations"]
    assert violation["message"] == (
        "this cluster shares no GPUs; no enabled back end can serve gpu=0.3: it serves only: whole cards"
    )
    assert violation["fix"] == (
        'ask for gpu: "1"; or an administrator enables a back end that shares GPUs (gpu-webhook survey)'
    )


def test_a_pod_that_another_system_cannot_have_is_told_so_and_nothing_of_this_cluster() -> None:
    ran = explain(
        json.dumps({"kind": "Pod", "metadata": {"name": "demo"}, "spec": asking_for_a_share()}), "--to", "acme-card"
    )

    assert ran.code == 1
    assert "[GPU301] acme-card cannot serve" in ran.out
    assert "this cluster" not in ran.out
    assert "not enabled" not in ran.out


def asking_for_a_share() -> Any:
    limits = {"acme.example/share": "30", "acme.example/compute": "30"}
    return {"containers": [{"name": "main", "image": "demo", "resources": {"limits": limits}}]}


def test_scripts_are_told_of_which_object_each_answer_is() -> None:
    review = {"kind": "AdmissionReview", "request": {"namespace": "dev", "object": json.loads(pod("0.3", "train"))}}
    template = {"metadata": {"labels": {"gpu": "0.3"}}, "spec": spec()}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "prod"},
        "spec": {"template": template},
    }
    unnamed = {"kind": "Pod", "spec": spec()}
    documents = "\n---\n".join(map(json.dumps, [review, deployment, unnamed, {"kind": "Strange"}]))

    assert [each["object"] for each in explain(documents, "-o", "json").json] == [
        {"kind": "Pod", "namespace": "dev", "name": "train"},
        {"kind": "Deployment", "namespace": "prod", "name": "web"},
        {"kind": "Pod", "namespace": "default", "name": None},
        {"kind": "Strange", "namespace": "default", "name": None},
    ]
    assert explain(pod("0.3"), "-n", "dev", "-o", "json").json["object"]["namespace"] == "dev"


def test_a_denial_is_exit_code_1_and_says_how_to_help_oneself() -> None:
    ran = explain(pod("1.5"))

    assert (ran.code, ran.err) == (1, "")
    assert "denied" in ran.out
    assert "[GPU201]" in ran.out
    assert "at   metadata.labels.gpu" in ran.out
    assert "fix  ask for 1, 2 or 2x0.75" in ran.out


def test_the_contract_of_an_allowed_pod() -> None:
    ran = explain(pod("0.3"), "-o", "json")

    assert ran.code == 0
    assert list(ran.json) == CONTRACT
    assert ran.json["allowed"] is True
    assert ran.json["code"] == 200
    assert ran.json["violations"] == []
    assert ran.json["backends"] == {"main": "acme-share"}
    assert {operation["op"] for operation in ran.json["patch"]} == {"add"}
    assert limits(ran.json) == TRANSLATED
    assert ran.json["pod"]["spec"]["schedulerName"] == "acme-scheduler"


def test_the_contract_of_a_denied_pod() -> None:
    ran = explain(pod("1.5"), "-o", "json")

    assert ran.code == 1
    assert list(ran.json) == CONTRACT
    assert ran.json["allowed"] is False
    assert ran.json["code"] == 422
    assert [list(violation) for violation in ran.json["violations"]] == [["code", "path", "message", "rule", "fix"]]
    assert ran.json["patch"] == []
    assert ran.json["pod"] == json.loads(pod("1.5"))


def test_several_pods_are_an_array_and_one_denial_among_them_is_exit_code_1() -> None:
    ran = explain("\n---\n".join([pod("0.3"), pod("1.5"), pod("2")]), "-o", "json")

    assert ran.code == 1
    assert [contract["allowed"] for contract in ran.json] == [True, False, True]


def test_no_gpu_no_change() -> None:
    ran = explain(json.dumps({"kind": "Pod", "spec": spec()}))

    assert ran.code == 0
    assert "admitted as it is: no container asks for a GPU" in ran.out


def test_resource_claims_are_not_called_no_gpu() -> None:
    claims = {"resourceClaims": [{"name": "card", "resourceClaimTemplateName": "gpu"}]}

    ran = explain(json.dumps({"kind": "Pod", "spec": {**spec(), **claims}}))

    assert ran.code == 0
    assert "admitted as it is: what its resource claims hold, only their objects in the cluster tell" in ran.out


def workload(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    whole = {"metadata": {"labels": {"gpu": "0.3"}}, "spec": spec(), **template}
    if kind == "CronJob":
        return {"kind": kind, "metadata": {"name": "w"}, "spec": {"jobTemplate": {"spec": {"template": whole}}}}
    if kind == "PodTemplate":
        return {"kind": kind, "metadata": {"name": "w"}, "template": whole}
    return {"kind": kind, "metadata": {"name": "w"}, "spec": {"template": whole}}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "PodTemplate"])
def test_a_workload_is_explained_by_its_template(kind: str) -> None:
    ran = explain(json.dumps(workload(kind, {})), "-o", "json")

    assert ran.code == 0
    assert limits(ran.json) == TRANSLATED
    assert f"{kind} w\n" in explain(json.dumps(workload(kind, {}))).out


def test_what_kubernetes_takes_in_no_template_is_denied_there() -> None:
    containers = [{"name": "main", "resources": {"limits": {"gpu": "0.3"}}}]
    ran = explain(json.dumps(workload("Deployment", {"spec": {"containers": containers}})), "-o", "json")

    assert ran.code == 1
    assert {violation["code"] for violation in ran.json["violations"]} == {"GPU002"}


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_a_list_is_everything_in_it(kind: str) -> None:
    items = [json.loads(pod("0.3")), json.loads(pod("2"))]
    if kind == "PodList":
        for item in items:
            del item["kind"]
    ran = explain(json.dumps({"kind": kind, "items": items}), "-o", "json")

    assert [contract["backends"]["main"] for contract in ran.json] == ["acme-share", "acme-card"]


def review(**request: Any) -> str:
    return json.dumps({"kind": "AdmissionReview", "request": {"object": json.loads(pod("0.3")), **request}})


def test_a_review_is_the_pod_in_it() -> None:
    ran = explain(review(), "-o", "json")

    assert ran.code == 0
    assert limits(ran.json) == TRANSLATED


def test_a_review_of_an_exempt_namespace_changes_nothing() -> None:
    ran = explain(review(namespace="acme-system"), "-o", "json")

    assert (ran.code, ran.json["patch"]) == (0, [])


def test_an_unquoted_number_is_told_apart_from_a_string_as_kubernetes_does() -> None:
    ran = explain("kind: Pod\nmetadata: {labels: {gpu: 0.3}}\nspec: {containers: [{name: main}]}\n")

    assert ran.code == 1
    assert "0.3 without quotes" in ran.out
    assert 'fix  quote it: gpu: "0.3"' in ran.out


def test_a_file_is_read_as_standard_input_is(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(pod("0.3"))

    assert run("explain", file, "--rules", RULES) == explain(pod("0.3"))


def test_one_back_end_can_be_tried_alone() -> None:
    ran = explain(pod("1"), "--backend", "acme-slice", "-o", "json")

    assert ran.json["backends"] == {"main": "acme-slice"}


CLAIM = """
apiVersion: elasticgpu.io/v1alpha1
kind: ElasticGPUClaim
metadata: {name: mine}
spec: {resources: {requests: {elasticgpu.com/gpu-core: 100}}}
"""
CLAIMING = """
apiVersion: v1
kind: Pod
metadata: {name: demo, annotations: {elasticgpu.io/egpuc-main: mine}}
spec: {containers: [{name: main, image: demo}]}
"""


def test_a_claim_is_found_beside_the_pod_or_in_another_file(tmp_path: Path) -> None:
    beside = tmp_path / "claims.yaml"
    beside.write_text(CLAIM)

    together = run("explain", "-", "-o", "json", given=f"{CLAIM}---{CLAIMING}")
    apart = run("explain", "-", "-o", "json", "--with", beside, given=CLAIMING)
    alone = run("explain", "-", "-o", "json", "--with", beside, "--backend", "amd-gpu", given=CLAIMING)

    assert [(ran.code, ran.json["backends"]) for ran in (together, apart, alone)] == [
        (0, {"main": "nvidia-gpu"}),
        (0, {"main": "nvidia-gpu"}),
        (0, {"main": "amd-gpu"}),
    ]


def test_a_claim_that_nobody_gives_is_asked_for() -> None:
    ran = run("explain", "-", given=CLAIMING)

    assert (ran.code, ran.err) == (1, "")
    assert '[GPU206] nothing here knows any ElasticGPUClaim, so nobody can tell what "mine" asks for' in ran.out
    assert "or give explain the claim" in ran.out


def test_a_back_end_that_nobody_knows_is_answered_with_those_there_are() -> None:
    ran = explain(pod(), "--backend", "acme-slices")

    assert (ran.code, ran.out) == (2, "")
    assert "acme-card, acme-share, acme-slice" in ran.err


def test_json_with_an_emoji_as_two_escapes_is_read() -> None:
    ran = explain(pod(annotations={"mood": "\N{GRINNING FACE}"}), "-o", "json")

    assert ran.json["pod"]["metadata"]["annotations"]["mood"] == "\N{GRINNING FACE}"


def test_explaining_what_was_explained_changes_nothing() -> None:
    once = explain(pod("0.3"), "-o", "json")
    twice = explain(yaml.safe_dump(once.json["pod"]), "-o", "json")

    assert (twice.code, twice.json["patch"]) == (0, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Pod\nmetadata:\n  name: a\n labels: {}\n", "standard input:4:2: is not YAML"),
        ("kind: Pod\nkind: Job\n", 'standard input:2:1: the key "kind" stands here a second time'),
        ("- 1\n", "holds something that is not an object"),
        ("", "no pod"),
        ("kind: ConfigMap\nmetadata: {name: a}\n", "no pod"),
        ("kind: List\nitems: [1, null]\n", "no pod"),
        ("kind: AdmissionReview\nrequest: 5\n", "no pod"),
        ("kind: AdmissionReview\nrequest: {object: [1]}\n", "no pod"),
        ("a: !!binary aGk=\n", "standard input:1:4: has the tag !!binary"),
        ("a: .nan\n", "standard input:1:4: is no number"),
        ("a: 0x" + "1" * 100_000, "standard input:1:4: is no number"),
        ("a: &a [*a]\n", 'the anchor "a" is not defined before'),
        ("[" * 100_000, "nested more than"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2_and_one_sentence_with_its_place(text: str, said: str) -> None:
    ran = explain(text)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_aliases_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    ran = explain("\n".join(lines))

    assert ran.code == 2
    assert "values" in ran.err


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"\n" * (9 << 20))
    ran = run("explain", file)

    assert (ran.code, ran.out) == (2, "")
    assert "larger than 8 MiB" in ran.err


def test_rules_that_do_not_load_are_exit_code_2_with_every_problem(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, "acme-share]", "acme-shar]")
    ran = run("explain", "-", "--rules", rules, given=pod())

    assert (ran.code, ran.out) == (2, "")
    assert 'cluster.yaml:5:25: spec.backends[1]: no rule defines the back end "acme-shar"' in ran.err
    assert 'did you mean "acme-share"?' in ran.err
    assert "spec.defaults.part" in ran.err
