"""`gpu-webhook explain` in a cluster with tenants: would this be admitted, and what is left."""

import itertools
import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import RULES, Ran, run, spec
from tests.cli.test_tenants import Object, exemption, listed, namespace, policy, resource, usage

QUOTA = {"devices": 4}
VISION = policy("vision", "vision-*", quota=QUOTA)
USED = usage(
    "vision",
    hard={"devices": "4"},
    held={"vision-dev": {"devices": "2"}, "vision-ci": {"devices": "0.5"}},
)


def pod(gpu: str, name: str = "train", **metadata: Any) -> Object:
    return {"kind": "Pod", "metadata": {"name": name, "labels": {"gpu": gpu}, **metadata}, "spec": spec()}


def workload(gpu: str, kind: str = "Deployment", **fields: Any) -> Object:
    made = pod(gpu)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    return {"kind": kind, "metadata": {"name": "web"}, "spec": {**fields, "template": template}}


def explain(*objects: Object, options: tuple[str, ...] = ("-n", "vision-dev")) -> Ran:
    return run("explain", "-", "--rules", RULES, *options, given=listed(*objects))


def quota(ran: Ran) -> list[str]:
    """The lines that are about tenants, and the denial."""
    lines = [line.strip() for line in ran.out.splitlines() if not line.startswith("  missing ")]
    first = next(number for number, line in enumerate(lines) if line.startswith("tenant "))
    return list(itertools.takewhile(lambda line: not line.startswith(("set ", "warning", "denied")), lines[first:]))


def test_what_is_left_beside_a_pod_is_told() -> None:
    ran = explain(pod("0.5"), VISION, USED)

    assert (ran.code, ran.err) == (0, "")
    assert quota(ran) == [
        "tenant    vision, by TenantPolicy/vision",
        "quota     devices: 2.5 used, 0.5 asked, 4 at most: 1 left",
        "2 more pods like this would fit",
    ]


def test_a_pod_over_the_quota_is_denied_with_what_would_fit() -> None:
    ran = explain(pod("2"), VISION, USED)

    assert ran.code == 1
    assert quota(ran)[1:] == [
        "quota     devices: 2.5 used, 2 asked, 4 at most: 0.5 too many",
        "the pod does not fit",
    ]
    assert '[GPU104] tenant "vision" is over its GPU quota: uses 2.5, asks 2, limit 4 devices' in ran.out
    assert "fix  ask for 1 or fewer, or free some: namespace vision-dev holds 2, vision-ci 0.5" in ran.out


def test_the_way_out_that_it_names_is_one() -> None:
    assert explain(pod("1"), VISION, USED).code == 0


def test_without_usage_nothing_is_used() -> None:
    assert quota(explain(pod("1"), VISION))[1:] == [
        "quota     devices: 0 used, 1 asked, 4 at most: 3 left",
        "3 more pods like this would fit",
    ]


def missing(ran: Ran) -> list[str]:
    """What nobody gave, and what it may change."""
    return [line.removeprefix("  missing   ") for line in ran.out.splitlines() if line.startswith("  missing ")]


NOT_COUNTED = "nothing is counted as used, and its quota may refuse this pod"


@pytest.mark.parametrize("beside", [(), (usage("another"),), (resource("TenantUsage", "vision"),)])
def test_without_the_usage_of_its_tenant_a_pod_is_judged_and_the_answer_says_what_may_change(
    beside: tuple[Object, ...],
) -> None:
    ran = explain(pod("1"), VISION, *beside)

    assert ran.code == 0
    assert quota(ran)[1] == "quota     devices: 0 used, 1 asked, 4 at most: 3 left"
    assert missing(ran) == [f"no TenantUsage of vision was given: {NOT_COUNTED}"]


def test_nothing_is_missing_where_everything_was_given() -> None:
    assert missing(explain(pod("1"), VISION, USED)) == []
    assert explain(pod("1"), VISION, USED, options=("-n", "vision-dev", "-o", "json")).json["missing"] == []


def test_what_is_missing_is_told_to_scripts_too() -> None:
    assert explain(pod("1"), options=("-o", "json")).json["missing"] == [
        {
            "input": "TenantPolicy",
            "effect": "no TenantPolicy was given: one may refuse this pod, or give it defaults",
        }
    ]


def test_a_pod_that_asks_for_nothing_misses_nothing() -> None:
    bare = {"kind": "Pod", "metadata": {"name": "web"}, "spec": spec()}

    assert missing(explain(bare)) == []
    assert missing(explain(bare, VISION, options=())) == []


def test_a_namespace_that_nobody_said_is_assumed_and_said() -> None:
    everybody = policy("everybody", "*")

    assert missing(explain(pod("1"), everybody, options=())) == [
        "no namespace was given, and default was assumed: another may have another policy"
    ]
    assert missing(explain(pod("1", namespace="dev"), everybody, options=())) == []


def test_labels_of_the_namespace_that_nobody_gave_are_missed_where_they_decide() -> None:
    gold = policy("gold", priority=1)
    gold["spec"] = {"namespaces": {"selector": {"matchLabels": {"tier": "gold"}}}, "priority": 1}
    low = {**gold, "spec": {**gold["spec"], "priority": -1}}
    asked = "no Namespace vision-dev was given: its labels decide whether TenantPolicy/gold is for it"

    assert missing(explain(pod("1"), VISION, USED, gold)) == [asked]
    assert missing(explain(pod("1"), VISION, USED, gold, namespace("vision-dev"))) == []
    assert missing(explain(pod("1"), VISION, USED, low)) == []


def test_the_name_of_a_namespace_is_a_label_that_everybody_knows() -> None:
    by_name = policy("vision")
    by_name["spec"] = {"namespaces": {"selector": {"matchLabels": {"kubernetes.io/metadata.name": "vision-dev"}}}}

    ran = explain(pod("1"), by_name)

    assert (quota(ran), missing(ran)) == (["tenant    vision, by TenantPolicy/vision: no quota"], [])


def test_a_user_whom_nobody_named_is_missed_where_an_exemption_is_for_some() -> None:
    made = exemption("deadline", timedelta(days=30))
    for_ada = {**made, "spec": {**made["spec"], "users": ["ada"]}}
    asked = "no user was given: for ada the exemption Exemption/deadline lifts quota"

    assert missing(explain(pod("2"), VISION, USED, for_ada)) == [asked]
    assert missing(explain(pod("2"), VISION, USED, for_ada, options=("-n", "vision-dev", "--user", "eve"))) == []


def test_a_denial_by_a_policy_says_that_no_exemption_was_given() -> None:
    small = policy("vision", "vision-*", ceilings={"container": {"devices": 1}})

    assert missing(explain(pod("2"), small)) == [
        "no Exemption was given: one may lift what refuses this pod",
    ]


def test_an_exemption_holds_at_the_time_that_is_asked_about() -> None:
    made = exemption("deadline", timedelta(days=30))
    in_time, too_late = "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z"

    assert explain(pod("2"), VISION, USED, made, options=("-n", "vision-dev", "--at", in_time)).code == 0
    assert explain(pod("2"), VISION, USED, made, options=("-n", "vision-dev", "--at", too_late)).code == 1
    assert "is no time; write day, time and zone" in explain(pod("2"), options=("--at", "tomorrow")).err


def test_a_pod_that_is_over_counts_nothing() -> None:
    over = {**pod("4", "done"), "status": {"phase": "Succeeded"}}

    ran = explain(over, pod("1"), VISION, USED)

    assert ran.code == 0
    assert "warning   the pod is over: it holds nothing of a quota any more" in ran.out
    assert "quota     devices: 2.5 used, 1 asked, 4 at most: 0.5 left" in ran.out


def test_a_policy_of_the_cluster_that_the_rule_files_have_too_is_one_policy(tmp_path: Path) -> None:
    rules, dump = tmp_path / "rules", tmp_path / "dump.json"
    shutil.copytree(RULES, rules)
    rules.joinpath("tenants.yaml").write_text(json.dumps(policy("vision", "vision-*", quota={"devices": 1})))
    dump.write_text(listed(VISION, USED))
    options = ("-n", "vision-dev", "--rules", str(rules))

    by_usage = explain(pod("1"), options=(*options, "--usage", str(dump)))
    tried = explain(pod("1"), VISION, USED, options=options)

    assert "limit 1 device" in by_usage.out  # the server ignores that of the cluster, too
    assert (by_usage.code, tried.code) == (1, 0)


def test_policies_and_usage_may_stand_in_files_of_their_own(tmp_path: Path) -> None:
    policies, used = tmp_path / "policies.json", tmp_path / "usage.json"
    policies.write_text(listed(VISION))
    used.write_text(listed(USED))
    options = ("--namespace", "vision-dev", "--with", str(policies), "--usage", str(used))

    assert explain(pod("0.5"), options=options).out == explain(pod("0.5"), VISION, USED).out


def test_the_namespace_of_the_pod_counts_where_none_is_named() -> None:
    assert "tenant    vision" in explain(pod("1", namespace="vision-ci"), VISION, options=()).out
    assert "[GPU105] no TenantPolicy selects the namespace default" in explain(pod("1"), VISION, options=()).out


def test_namespaces_are_selected_by_the_labels_that_they_are_given_with() -> None:
    spec_of = {"namespaces": {"selector": {"matchLabels": {"team": "vision"}}}}
    by_label = {**VISION, "spec": spec_of}

    assert quota(explain(pod("1"), by_label, namespace("vision-dev", team="vision"))) == [
        "tenant    vision, by TenantPolicy/vision: no quota"
    ]
    assert "[GPU105]" in explain(pod("1"), by_label, namespace("vision-dev")).out


def test_several_pods_are_counted_one_after_another() -> None:
    ran = explain(pod("1", "one"), pod("1", "two"), VISION, USED, options=("-n", "vision-dev", "-o", "json"))

    first, second = ran.json
    assert (first["allowed"], second["allowed"], second["code"]) == (True, False, 403)
    assert second["tenant"]["totals"]["devices"] == {"used": 3.5, "asked": 1, "limit": 4, "left": -0.5}


def test_several_workloads_are_counted_one_after_another() -> None:
    one, two = workload("1"), workload("1")

    ran = explain(one, two, VISION, USED, options=("-n", "vision-dev", "-o", "json"))

    assert [each["allowed"] for each in ran.json] == [True, False]


@pytest.mark.parametrize(
    "object_",
    [
        pytest.param(workload("1", replicas=3), id="a Deployment"),
        pytest.param(workload("1", "Job", parallelism=3, completions=9), id="a Job"),
    ],
)
def test_a_workload_asks_for_all_of_its_pods(object_: Object) -> None:
    ran = explain(object_, VISION, USED)

    assert ran.code == 0
    assert quota(ran)[1:] == [
        "quota     devices: 2.5 used, 3 asked by 3 pods, 4 at most: 1.5 too many",
        "of the 3 pods 1 would fit",
    ]
    assert (
        'warning   of its 3 pods 1 fit, and the others will be refused: [GPU104] tenant "vision" is over' in ran.out
    )


@pytest.mark.parametrize(("completions", "asked"), [(1, "0.5 asked,"), (9, "1 asked by 2 pods,")])
def test_of_a_job_no_more_pods_run_at_a_time_than_it_wants_in_all(completions: int, asked: str) -> None:
    ran = explain(workload("0.5", "Job", parallelism=2, completions=completions), VISION, USED)

    assert quota(ran)[1].startswith(f"quota     devices: 2.5 used, {asked}")


def test_a_rule_that_is_tried_says_what_it_would_refuse() -> None:
    tried = {"container": {"devices": "0.2", "enforcementAction": "dryrun"}}
    ran = explain(pod("0.5"), policy("vision", "vision-*", ceilings=tried))

    assert ran.code == 0
    assert "dryrun    [GPU102] TenantPolicy/vision spec.ceilings.container would refuse it if it were enforced" in [
        line.strip() for line in ran.out.splitlines()
    ]


def test_a_quota_that_only_warns_says_so() -> None:
    warns = policy("vision", "vision-*", quota={**QUOTA, "enforcementAction": "warn"})

    ran = explain(pod("2"), warns, USED)

    assert ran.code == 0
    assert quota(ran)[0] == "tenant    vision, by TenantPolicy/vision: its quota only warns"
    assert 'warning   [GPU104] tenant "vision" is over its GPU quota: uses 2.5, asks 2, limit 4 devices' in ran.out


def test_an_exemption_that_lifts_the_quota_says_so() -> None:
    ran = explain(pod("2"), VISION, USED, exemption("deadline", timedelta(days=30)))

    assert ran.code == 0
    assert quota(ran) == [
        "tenant    vision, by TenantPolicy/vision: an exemption lifts its quota",
        "quota     devices: 2.5 used, 2 asked, 4 at most: 0.5 too many",
    ]
    assert "dryrun" not in ran.out


def test_a_pod_whose_quota_is_lifted_is_not_said_to_be_refused_by_usage_that_nobody_gave() -> None:
    ran = explain(pod("2"), VISION, exemption("deadline", timedelta(days=30)))

    assert (ran.code, missing(ran)) == (0, [])


def test_an_exemption_for_some_users_lifts_nothing_for_others() -> None:
    made = exemption("deadline", timedelta(days=30))
    for_ada = {**made, "spec": {**made["spec"], "users": ["ada"]}}

    assert explain(pod("2"), VISION, USED, for_ada).code == 1
    assert explain(pod("2"), VISION, USED, for_ada, options=("-n", "vision-dev", "--user", "ada")).code == 0


def test_a_namespace_that_nobody_counts_yet_is_judged_and_said() -> None:
    ran = explain(pod("1"), VISION, USED, options=("-n", "vision-new"))

    assert ran.code == 0
    assert missing(ran) == [
        "the TenantUsage of vision does not count vision-new yet: GPU pods wait there for the settler"
    ]


def test_the_same_for_scripts() -> None:
    ran = explain(pod("0.5"), VISION, USED, options=("-n", "vision-dev", "-o", "json"))

    assert ran.json["tenant"] == {
        "name": "vision",
        "policy": "TenantPolicy/vision",
        "namespace": "vision-dev",
        "pods": 1,
        "fit": 3,
        "enforcementAction": "deny",
        "lifted": False,
        "totals": {
            "devices": {"used": 2.5, "asked": 0.5, "limit": 4, "left": 1},
        },
    }


def test_without_policies_there_is_no_tenant() -> None:
    ran = explain(pod("1"), options=("-o", "json"))

    assert ran.json["tenant"] is None


def test_a_usage_that_cannot_be_read_is_wrong_usage() -> None:
    ran = explain(pod("1"), usage("vision", held={"v": {"devices": "many"}}))

    assert (ran.code, ran.out) == (2, "")
    assert "vision: its TenantUsage holds what nobody can read" in ran.err


def test_a_policy_that_cannot_be_used_is_the_matter_of_its_own_namespaces() -> None:
    broken = policy("audio", "audio", quota={"memory": "40"})

    ran = explain(pod("1"), pod("1", "other", namespace="audio"), VISION, broken, options=())
    fine = explain(pod("1"), VISION, broken)

    assert ran.code == 1
    assert '[GPU113] the policy "audio" cannot be used, so its namespaces get no GPU: spec.quota.memory: ' in ran.out
    assert (fine.code, fine.err.partition(" TenantPolicy")[0]) == (0, "audio: its policy cannot be used:")


def test_a_file_of_usage_that_is_not_there_is_said(tmp_path: Path) -> None:
    ran = run("explain", "-", "--usage", tmp_path / "none", given=json.dumps(pod("1")))

    assert (ran.code, ran.err) == (2, f"gpu-webhook: {tmp_path / 'none'}: No such file or directory\n")


def test_without_a_usage_all_namespaces_of_all_tenants_begin_with_nothing() -> None:
    audio = policy("audio", "audio", quota={"devices": 1})
    pods = [pod("1", name, namespace=there) for name, there in (("a", "vision-a"), ("b", "vision-b"), ("c", "audio"))]

    ran = explain(*pods, VISION, audio, options=())

    assert (ran.code, ran.err) == (0, "")
    assert [line.strip() for line in ran.out.splitlines() if " used, " in line and "quota" in line[:9]] == [
        "quota     devices: 0 used, 1 asked, 4 at most: 3 left",
        "quota     devices: 1 used, 1 asked, 4 at most: 2 left",
        "quota     devices: 0 used, 1 asked, 1 at most: 0 left",
    ]


def test_a_policy_is_explained_as_the_webhook_judges_it(tmp_path: Path) -> None:
    in_force = tmp_path / "cluster.json"
    in_force.write_text(listed(VISION, USED, namespace("vision-dev"), namespace("vision-ci"), namespace("speech")))
    changed = policy("vision", "vision-dev", "speech", quota={"devices": 2})
    options = ("--usage", str(in_force))

    ran, for_scripts = explain(changed, options=options), explain(changed, options=(*options, "-o", "json"))

    warnings = [
        "TenantPolicy/vision spec.namespaces: no TenantPolicy selects vision-ci any more, so no pod there gets a GPU",
        (
            "TenantPolicy/vision spec.quota.devices: 2 is less than the 2.5 that the tenant uses: what runs stays, "
            "and nothing more is admitted before 0.5 are free"
        ),
    ]
    assert (ran.code, ran.err, ran.out.splitlines()) == (0, "", warnings)
    assert (for_scripts.code, for_scripts.json) == (0, {"warnings": warnings, "problems": []})


def test_a_policy_with_nothing_wrong_is_fine() -> None:
    assert explain(VISION, USED, options=()).out == "TenantPolicy/vision: fine\n"


def test_a_policy_or_an_exemption_that_cannot_be_used_is_never_fine() -> None:
    broken = policy("audio", "audio", quota={"devices": "40%"})
    ends = exemption("deadline", timedelta(days=30))
    endless = {**ends, "spec": {**ends["spec"], "expires": "soon"}}

    ran = explain(VISION, broken, endless, options=())
    for_scripts = explain(broken, options=("-o", "json"))

    assert (ran.code, ran.out) == (1, "TenantPolicy/vision: fine\n")
    said = 'its policy cannot be used: TenantPolicy/audio: spec.quota.devices: "40%" is no number of devices;'
    assert ran.err.startswith(f"audio: {said}")
    assert "\nthe exemption deadline cannot be used: Exemption/deadline: spec.expires: " in ran.err
    [problem] = for_scripts.json["problems"]
    assert (for_scripts.code, problem["tenant"], problem["message"].startswith(said)) == (1, "audio", True)


def test_of_a_policy_that_cannot_be_used_it_is_not_said_that_an_exemption_finds_no_rule_there() -> None:
    broken = policy("vision", "vision-*", quota={"devices": "40%"})

    ran = explain(broken, exemption("deadline", timedelta(days=30)), options=())

    assert (ran.code, ran.out) == (1, "Exemption/deadline: fine\n")


def test_a_policy_of_a_version_that_there_is_not_is_wrong_usage() -> None:
    ran = explain({**VISION, "apiVersion": "gpu-webhook.io/v1"}, options=())

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "gpu-webhook: TenantPolicy/vision: there is no apiVersion gpu-webhook.io/v1; write gpu-webhook.io/v1alpha1\n"
    )


def test_beside_pods_what_is_wrong_with_policies_is_an_aside() -> None:
    larger = policy("vision", "vision-*", quota=QUOTA, ceilings={"pod": {"devices": 8}})

    ran = explain(pod("1"), larger)

    assert (ran.code, ran.err) == (
        0,
        (
            "TenantPolicy/vision spec.ceilings.pod.devices: 8 is more than the 4 of spec.quota.devices, "
            "which is reached first; raise that, or lower this\n"
        ),
    )
    assert quota(ran)[1:] == quota(explain(pod("1"), VISION))[1:]


def test_a_policy_takes_the_place_of_that_of_the_rules_with_its_name(tmp_path: Path) -> None:
    for file in RULES.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "vision.yaml").write_text(json.dumps(VISION))

    ran = run("explain", "-", "--rules", tmp_path, "-n", "vision-dev", given=listed(pod("1"), VISION))

    assert (ran.code, ran.err) == (0, "")
