"""`gpu-webhook check` of the shipped rules; transcripts show what authors are told."""

from pathlib import Path

import pytest

from tests import readme, tables
from tests.cli.program import RULES, SHIPPED, changed_rules, run


@pytest.mark.large
def test_losses_are_listed_only_when_they_are_asked_for() -> None:
    plain, asked = run("check", SHIPPED), run("check", SHIPPED, "--losses")

    assert plain.out.count("\n") == 1
    assert asked.out.startswith(plain.out)
    assert "cannot be recovered from a pod's resources" in asked.out
    listed_losses = [line.strip() for line in asked.out.splitlines()[2:]]
    assert listed_losses
    assert run("check", SHIPPED, "--losses", "-o", "json").json["losses"] == listed_losses


def test_the_shipped_rules_are_what_is_checked_by_default() -> None:
    assert run("check", "-o", "json") == run("check", SHIPPED, "-o", "json")


MISTAKE = "limits: {acme.example/card: cuont}"
SAID = ':10:33: spec.modes[0].limits["acme.example/card"]: "cuont" is not one of count, memory, cores, share (did'
COUNTED = "3 back ends, 1 card models, 4 examples: all fine\n"


def test_files_are_checked_by_the_rules_beside_them_as_they_are_now(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, "limits: {acme.example/card: count}", MISTAKE, "acme.yaml")
    wrong = run("check", rules / "acme.yaml")
    (rules / "acme.yaml").write_text((RULES / "acme.yaml").read_text())

    several = run("check", rules / "acme.yaml", rules / "cluster.yaml")

    assert (wrong.code, wrong.out.partition(" you mean")[0]) == (1, f"{rules / 'acme.yaml'}{SAID}")
    assert (several.code, several.out) == (0, f"{rules / 'acme.yaml'}, {rules / 'cluster.yaml'}: {COUNTED}")


@tables.rows
def test_a_wrong_guess_is_answered_with_what_is_meant(kind: str, spec: str, answer: str, tmp_path: Path) -> None:
    guess = tmp_path / "guess.yaml"
    head = f"apiVersion: gpu-webhook.io/v1alpha1\nkind: {kind}\nmetadata: {{name: guess}}\n"
    guess.write_text(f"{head}spec:\n  {spec}\n")

    assert answer in [line.partition(": ")[2].partition(": ")[2] for line in run("check", guess).out.splitlines()]


def test_a_file_stands_in_for_the_documents_of_its_names(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, "made-up", "made-up")
    renamed = rules / "renamed.yaml"
    renamed.write_text((RULES / "acme.yaml").read_text())

    assert run("check", renamed) == (0, f"{renamed}: {COUNTED}", "")


@pytest.mark.large
def test_what_is_alone_or_on_standard_input_is_checked_by_the_rules_of_the_program(tmp_path: Path) -> None:
    """A back end that no cluster enables: its doubts are told, too."""
    alone = tmp_path / "acme.yaml"
    alone.write_text(readme.block("rules/acme.yaml", readme.BACKENDS.read_text()))
    unshown = alone.read_text().replace(
        "  modes:\n", "  modes:\n  - {name: two, when: {count: 2}, limits: {acme.example/card: count}}\n"
    )

    fine, told = (
        run("check", alone),
        run("check", "-", given=unshown.replace('"2"', '"4"').replace("card: 2", "card: 4")),
    )

    assert (fine.code, fine.out.startswith(f"{alone}: 80 back ends, "), fine.out.endswith(": all fine\n")) == (
        0,
        True,
        True,
    )
    assert told.out.splitlines()[1:] == ['standard input:8:5: spec.modes: no example shows "two"']


def test_files_that_are_none_are_a_failure_of_use(tmp_path: Path) -> None:
    assert run("check", tmp_path / "none.yaml").code == run("check", RULES, RULES).code == 2
