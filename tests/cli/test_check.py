"""`gpu-webhook check`: what an author of rules is told."""

import shutil
from pathlib import Path

import pytest

from tests.cli.program import RULES, SHIPPED, changed_rules, run
from webhook.core.policy.membership import STRICT


def test_rules_that_are_fine_are_counted() -> None:
    ran = run("check", RULES)

    assert (ran.code, ran.err) == (0, "")
    assert "3 back ends, 1 card model" in ran.out
    assert "4 examples: all fine" in ran.out


def test_the_same_for_scripts() -> None:
    ran = run("check", RULES, "-o", "json")

    assert ran.code == 0
    assert ran.json == {
        "fine": True,
        "problems": [],
        "warnings": [],
        "backends": 3,
        "enabled": 2,
        "devices": 1,
        "examples": 4,
    }


def test_losses_are_listed_only_when_they_are_asked_for() -> None:
    plain, asked = run("check", SHIPPED), run("check", SHIPPED, "--losses")

    assert plain.out.count("\n") == 1
    assert asked.out.startswith(plain.out)
    assert "cannot be recovered from a pod's resources" in asked.out
    listed = [line.strip() for line in asked.out.splitlines()[2:]]
    assert listed
    assert run("check", SHIPPED, "--losses", "-o", "json").json["losses"] == listed


def test_the_shipped_rules_are_what_is_checked_by_default() -> None:
    assert run("check", "-o", "json") == run("check", SHIPPED, "-o", "json")


def test_every_problem_has_its_place_and_the_nearest_word(tmp_path: Path) -> None:
    ran = run("check", changed_rules(tmp_path, "systemNamespaces", "systemNamespace"))

    assert (ran.code, ran.err) == (1, "")
    assert ran.out.strip().endswith(
        'cluster.yaml:7:3: spec: unknown key "systemNamespace" (did you mean "systemNamespaces"?)'
    )


def test_the_nearest_word_is_found_whatever_its_capitals(tmp_path: Path) -> None:
    ran = run("check", changed_rules(tmp_path, "systemNamespaces", "SYSTEMNAMESPACES"))

    assert ran.out.strip().endswith('unknown key "SYSTEMNAMESPACES" (did you mean "systemNamespaces"?)')


def test_problems_for_scripts(tmp_path: Path) -> None:
    ran = run("check", changed_rules(tmp_path, "systemNamespaces", "systemNamespace"), "-o", "json")

    assert ran.code == 1
    assert ran.json["fine"] is False
    (problem,) = ran.json["problems"]
    assert list(problem) == ["file", "line", "column", "path", "message"]
    assert (problem["line"], problem["column"], problem["path"]) == (7, 3, "spec")


def test_an_example_that_does_not_come_out_is_a_problem(tmp_path: Path) -> None:
    ran = run("check", changed_rules(tmp_path, "acme.example/share: 30,", "acme.example/share: 31,", "acme.yaml"))

    assert ran.code == 1
    assert 'the example "three tenths of a card" expects limits' in ran.out


def test_a_file_that_is_not_yaml_is_a_problem_with_its_line(tmp_path: Path) -> None:
    ran = run("check", changed_rules(tmp_path, "metadata: {name: made-up}", "metadata: {name: made-up"))

    assert ran.code == 1
    assert "cluster.yaml:4" in ran.out
    assert "is not YAML" in ran.out


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_directory_that_is_none_is_exit_code_2(tmp_path: Path, output: str) -> None:
    ran = run("check", tmp_path / "nowhere", "-o", output)

    assert (ran.code, ran.out) == (2, "")
    assert "is not a directory" in ran.err


def test_a_directory_without_rules_says_what_is_missing(tmp_path: Path) -> None:
    ran = run("check", tmp_path)

    assert ran.code == 1
    assert "no Cluster document" in ran.out


EXEMPT = "[kube-system, gpu-webhook-system, acme-system]"


@pytest.mark.parametrize(
    ("old", "new", "place"), [(EXEMPT, "[acme-system]", "7:3"), (f"  systemNamespaces: {EXEMPT}\n", "", "5:3")]
)
def test_that_kubernetes_own_namespace_is_not_exempt_is_a_problem_before_webhooks_are_rendered(
    tmp_path: Path, old: str, new: str, place: str
) -> None:
    rules = changed_rules(tmp_path, old, new)

    checked, rendered = run("check", rules), run("render", "webhooks", "--rules", rules)

    needed = "has no kube-system: while no replica answers reviews, the cluster could not start; add it"
    said = f"cluster.yaml:{place}: spec.systemNamespaces: {needed}\n"
    assert (checked.code, checked.out) == (1, said)
    assert (rendered.code, rendered.err) == (2, f"gpu-webhook: {said}")


def test_that_the_webhooks_own_namespace_is_not_exempt_is_a_warning_as_it_may_be_another_one(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, EXEMPT, "[kube-system]")

    ran, for_scripts = run("check", rules), run("check", rules, "-o", "json")

    needed = (
        "while no replica answers reviews, this webhook could not start; add it if the webhook is installed there"
    )
    warning = f"cluster.yaml:7:3: spec.systemNamespaces: has no gpu-webhook-system: {needed}"
    assert (ran.code, ran.out.splitlines()[1:]) == (0, [warning])
    assert for_scripts.json["warnings"] == [warning]


def test_a_quota_says_what_it_refuses_beside_unless_somebody_has_decided(tmp_path: Path) -> None:
    for name, unknown in (("vision", ""), ("speech", ", unknownDevices: deny")):
        spec = f"{{namespaces: {{names: [{name}]}}, quota: {{devices: 2}}{unknown}}}"
        document = (
            f"apiVersion: gpu-webhook.io/v1alpha1\nkind: TenantPolicy\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
        (tmp_path / f"{name}.yaml").write_text(document)
    for file in RULES.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())

    ran = run("check", tmp_path)

    assert (ran.code, ran.err) == (0, "")
    [said] = ran.out.splitlines()[1:]
    assert said == f"vision: {STRICT}"


def test_a_file_that_the_cluster_would_not_get_is_a_problem(tmp_path: Path) -> None:
    folder = shutil.copytree(RULES, tmp_path / "rules")
    listing = "configMapGenerator:\n- name: rules\n  files: [cluster.yaml{}]\n"
    (folder / "kustomization.yaml").write_text(listing.format(", cards=acme.yaml"))
    assert run("check", folder).code == 0

    (folder / "kustomization.yaml").write_text(listing.format(""))
    ran = run("check", folder)

    assert (ran.code, ran.out) == (
        1,
        (
            "kustomization.yaml:1:1: names no acme.yaml in any configMapGenerator: the cluster would not get it;"
            " add it to files there, or apply what is a policy as an object, and keep it elsewhere\n"
        ),
    )


POLICIES = """\
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {name: vision}
spec:
  namespaces: {names: ["vision-*"]}
  ceilings: {container: {devices: 8}, pod: {devices: 4}}
---
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {name: dev}
spec:
  namespaces: {names: ["*-a"]}
---
apiVersion: gpu-webhook.io/v1alpha1
kind: Exemption
metadata: {name: deadline}
spec:
  namespaces: [vision-dev]
  lifts: [pod]
  owner: ada@example.com
  reason: a deadline
  expires: "2020-01-01T00:00:00Z"
"""


def test_policies_are_judged_as_the_webhook_judges_them_and_that_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(POLICIES)
    for file in RULES.glob("*.yaml"):
        (tmp_path / file.name).write_text(file.read_text())

    ran, for_scripts = run("check", tmp_path), run("check", tmp_path, "-o", "json")

    assert (ran.code, ran.err) == (0, "")
    first, *warnings = ran.out.splitlines()
    assert first.endswith("4 examples: fine, but 4 warnings")
    assert (for_scripts.code, for_scripts.json["warnings"]) == (0, warnings)
    tie = "and no pod gets a GPU where both select a namespace, until one of them is raised: such as vision-a"
    larger = "8 is more than the 4 of spec.ceilings.pod.devices, which is reached first; raise that, or lower this"
    *others, ended = warnings
    assert others == [
        f"vision (policies.yaml:5) spec.priority: it is 0, as that of dev, {tie}",
        f"vision (policies.yaml:5) spec.ceilings.container.devices: {larger}",
        f"dev (policies.yaml:12) spec.priority: it is 0, as that of vision, {tie}",
    ]
    assert ended.startswith("deadline (policies.yaml:18) spec.expires: it ended ")
    assert ended.endswith(" days ago and lifts nothing; write a later time, or delete it")


def test_a_file_that_says_nothing_and_one_that_nobody_reads_are_problems(tmp_path: Path) -> None:
    folder = shutil.copytree(RULES, tmp_path / "rules")
    (folder / "empty.yaml").write_text("# nothing\n---\n")
    (folder / "more.json").write_text("{}")

    ran = run("check", folder)

    unread = "is not read: rules stand in .yaml files, and JSON is YAML; name it more.yaml"
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"more.json:1:1: {unread}",
        "empty.yaml:1:1: holds no document; write one, or delete it",
    ]


def test_a_mode_that_no_request_reaches_is_told_and_is_no_failure(tmp_path: Path) -> None:
    folder = shutil.copytree(RULES, tmp_path / "rules")
    rule = folder / "acme.yaml"
    whole = "    limits: {acme.example/card: count}\n"
    three = "  - {name: three, when: {devices: whole, count: 3}, limits: {acme.example/card: count}}\n"
    rule.write_text(rule.read_text().replace(whole, f"{whole}{three}"))

    ran, for_scripts = run("check", folder), run("check", folder, "-o", "json")

    taken = 'as "whole cards" (acme.yaml:8) takes them all; it only reads what pods bring along'
    warning = f'acme-card (acme.yaml:11) spec.modes: no request becomes "three", {taken}'
    assert (ran.code, ran.out.splitlines()[1:]) == (0, [warning])
    assert for_scripts.json["warnings"] == [warning]
