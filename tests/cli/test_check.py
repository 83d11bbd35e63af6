"""`gpu-webhook check` of the shipped rules; transcripts show what authors are told."""

import pytest

from tests.cli.program import SHIPPED, run


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
