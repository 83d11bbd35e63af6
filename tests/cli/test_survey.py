"""`gpu-webhook survey`: what kubectl prints in, the Cluster document of that cluster out."""

import shutil
from pathlib import Path

from tests import tables
from tests.cli.objects import listed, node
from tests.cli.program import RULES, SHIPPED, run

NOTHING: str = tables.table(__file__, "nothing")


def test_a_directory_is_read_with_its_folders_in_yaml_and_json(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "nodes.json").write_text(listed(node("n1", card="4")))
    (tmp_path / "others.yaml").write_text(listed(node("n2", card="4"), node("n3")))

    ran = run("survey", tmp_path, "--rules", RULES)

    assert (ran.code, ran.err) == (0, "")
    assert "  - acme-card  # acme.example/card on 2 nodes (n1, n2)\n" in ran.out
    assert ran.out.startswith("# Written by `gpu-webhook survey`, which read 3 nodes, 2 with devices, 0 workloads.\n")


def test_a_cluster_without_devices_gets_a_document_without_back_ends_and_another_exit_code() -> None:
    ran = run("survey", "-", "--rules", RULES, given=listed(node("n3")))

    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith(NOTHING)


def test_a_survey_needs_no_cluster_document_so_that_it_can_write_it(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    shutil.copytree(SHIPPED, rules)
    (rules / "cluster.yaml").write_text("")  # what a shell leaves before `survey > rules/cluster.yaml` runs
    (rules / "cluster.yaml").write_text(run("survey", "-", "--rules", rules, given=listed(node())).out)

    assert run("check", rules).code == 0


def test_what_cannot_be_read_as_a_dump_is_wrong_usage() -> None:
    ran = run("survey", "-", "--rules", RULES, given="[")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("gpu-webhook: standard input:")
