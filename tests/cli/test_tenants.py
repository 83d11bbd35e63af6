"""`gpu-webhook tenants`: exemptions, whose end is told by the clock, and the cluster; transcripts show the rest."""

from datetime import timedelta
from pathlib import Path

import pytest

from tests import tables
from tests.cli.objects import exemption, listed, namespace, policy, usage
from tests.cli.program import RULES, run

OBJECTS = (
    policy("vision", "vision-*", quota={"devices": 16}),
    usage("vision", hard={"devices": "16"}, held={"vision-dev": {"devices": "9"}}),
    namespace("vision-dev"),
    exemption("deadline", timedelta(days=30, hours=1)),
)
TABLE = """\
EXEMPTION  ENDS        LIFTS  NAMESPACES  USERS      OWNER            REASON
deadline   in 30 days  quota  vision-dev  everybody  ada@example.com  a deadline
"""


def test_an_exemption_is_told_with_its_end() -> None:
    ran = run("tenants", "-", "--rules", RULES, given=listed(*OBJECTS))

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(f"\n\n{TABLE}")


def test_scripts_get_the_exemption() -> None:
    [contract] = run("tenants", "-", "--rules", RULES, "-o", "json", given=listed(*OBJECTS)).json["exemptions"]

    assert contract.pop("expires").endswith("Z")
    assert contract == {
        "name": "deadline",
        "namespaces": ["vision-dev"],
        "users": [],
        "lifts": ["quota"],
        "owner": "ada@example.com",
        "reason": "a deadline",
        "state": "holds",
    }


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (timedelta(days=2, hours=1), "ends in 2 days: ask ada@example.com whether it is still needed"),
        (-timedelta(hours=3, minutes=1), "ended 3 hours ago and lifts nothing: delete or renew it"),
    ],
)
def test_an_exemption_that_ends_soon_or_ended_has_to_be_looked_after(ends: timedelta, said: str) -> None:
    ran = run("tenants", "-", "--rules", RULES, given=listed(exemption("deadline", ends)))

    assert f"\nTO DO\n  the exemption deadline {said}\n" in ran.out


@tables.rows
def test_without_a_cluster_and_without_files_it_is_said_where_files_come_from(
    command: str, kinds: str, tmp_path: Path
) -> None:
    ran = run(command, "--rules", RULES, kubeconfig=tmp_path / "none")

    assert (ran.code, ran.out) == (2, "")
    assert f"or give files, from: kubectl get {kinds}" in ran.err
