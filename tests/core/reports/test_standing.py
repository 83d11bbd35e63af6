"""Policies, ledgers and pods that stand in a cluster, and what its version lacks."""

from dataclasses import replace
from typing import Any

import pytest

from tests import builders
from webhook.cli import doctor
from webhook.cli.doctor import Reading, Refused
from webhook.cli.tenants import Problem
from webhook.core.policy.membership import Tie
from webhook.core.quota.ledger import Ledger
from webhook.core.rules import load
from webhook.core.rules.tenant_policy import Tenancy

FILES = builders.shipped_files()
RULEBOOK = builders.rulebook(FILES)
CLAIMING = builders.rulebook(
    {**FILES, "cluster.yaml": FILES["cluster.yaml"].replace("[nvidia-gpu,", "[nvidia-gpu, dra-claim-template,")}
)
BY_CLASS = builders.rulebook(
    {**FILES, "cluster.yaml": FILES["cluster.yaml"].replace("[nvidia-gpu,", "[dra-extended-resource, nvidia-gpu,")}
)


def policy(*conditions: tuple[str, str], generation: int = 1, **spec: Any) -> dict[str, Any]:
    said = [{"type": kind, "status": status, "message": "that is why"} for kind, status in conditions]
    return {
        "metadata": {"name": "vision", "generation": generation},
        "spec": {"namespaces": {"names": ["vision"]}, **spec},
        "status": {"observedGeneration": 1, "conditions": said},
    }


WITH_QUOTA = policy(quota={"devices": 4})
TENANCY = Tenancy(policies=list(load.policies_from([WITH_QUOTA], RULEBOOK).read.values()))


@pytest.mark.parametrize(
    ("conditions", "result", "found"),
    [
        ([("Accepted", "True"), ("Ambiguous", "False")], "ok", "1 policy is in force"),
        ([("Accepted", "False"), ("Ambiguous", "False")], "fail", "vision: Accepted=False: that is why"),
        ([("Accepted", "True"), ("Ambiguous", "True")], "fail", "vision: Ambiguous=True: that is why"),
    ],
)
def test_the_conditions_of_policies_are_told(conditions: list[tuple[str, str]], result: str, found: str) -> None:
    check = doctor.policies([policy(*conditions)], [], {})

    assert (check.result, check.found) == (result, found)


def test_what_no_settler_has_told_yet_is_found_all_the_same() -> None:
    unread = doctor.policies([policy()], [Problem("vision", "its policy cannot be used: spec")], {})
    tied = doctor.policies([policy()], [], {"vision": Tie(["vision"], {"speech"})})

    assert unread.found == "vision: its policy cannot be used: spec"
    assert tied.found == "vision: it conflicts with speech"


def reading(ledger: Ledger | None, **changed: Any) -> Reading:
    return Reading([policy(**changed)], {} if ledger is None else {"vision": ledger})


COUNTED = Ledger(view=7)
ASKED = Ledger(view=7, recount=2, recounted=1)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (reading(None), reading(None), "vision has a quota, and nobody has counted what it uses"),
        (reading(Ledger()), reading(Ledger()), "vision has a quota, and nobody has counted what it uses"),
        (reading(ASKED), reading(ASKED), "vision: a recount was asked for and not made"),
        (
            reading(COUNTED, generation=2),
            reading(COUNTED, generation=2),
            "the status of the policy vision is of an older generation",
        ),
    ],
)
def test_a_settler_that_does_not_answer_within_seconds_is_a_failure(
    first: Reading, second: Reading, found: str
) -> None:
    check = doctor.ledgers(first, second, TENANCY, [])

    assert (check.result, check.found) == (
        "fail",
        f"the settler has not done its work: {found}; GPU pods there are told to wait",
    )
    assert check.fix == doctor.SETTLER


@pytest.mark.parametrize("first", [reading(ASKED), reading(COUNTED, generation=2), reading(None)])
def test_a_settler_that_has_answered_at_the_second_look_is_fine(first: Reading) -> None:
    check = doctor.ledgers(first, reading(COUNTED), TENANCY, [])

    assert (check.result, check.found) == ("ok", "1 ledger, counted")


def test_a_ledger_that_cannot_be_read_is_a_warning() -> None:
    check = doctor.ledgers(reading(COUNTED), reading(COUNTED), TENANCY, [Problem("speech", "nobody can read it")])

    assert (check.result, check.found) == ("warn", "speech: nobody can read it")


def pod(name: str, **more: Any) -> dict[str, Any]:
    limits = more.pop("limits", {})
    metadata = {"name": name, "namespace": "default", "uid": name, **more}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def test_pods_from_before_are_judged_as_if_they_were_created_now() -> None:
    found = [
        pod("web"),
        pod("whole", limits={"nvidia.com/gpu": "1"}),
        pod("untranslated", labels={"gpu": "1"}),
        {**pod("exempt", labels={"gpu": "1"}), "metadata": {"name": "exempt", "namespace": "kube-system"}},
    ]

    (refused,) = doctor.refused(found, RULEBOOK, at=0)

    assert refused.pod == "default/untranslated"
    assert refused.why.startswith("[GPU601] ")


def test_only_the_first_refused_pods_are_named() -> None:
    check = doctor.pods([Refused(f"default/{number}", "[GPU601] no") for number in range(5)], seen=9)

    named = "default/0: [GPU601] no; default/1: [GPU601] no; default/2: [GPU601] no; and 2 more"
    assert (check.result, check.found) == ("warn", f"5 pods of 9 would be refused today: {named}")
    assert doctor.pods([], seen=9).result == "ok"


def version(minor: str) -> dict[str, str]:
    return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"}


@pytest.mark.parametrize(
    ("minor", "result"), [("27", "fail"), ("28", "warn"), ("29+", "warn"), ("30", "ok"), ("36+", "ok")]
)
def test_a_version_without_match_conditions_is_named(minor: str, result: str) -> None:
    check = doctor.check_release(version(minor), ["apps"], RULEBOOK)

    assert check.result == result
    assert ("matchConditions" in check.found) == (result != "ok")


def test_a_cluster_without_resource_claims_is_named_if_an_enabled_back_end_gives_some() -> None:
    without = doctor.check_release(version("36"), ["apps"], CLAIMING)

    assert (without.result, doctor.check_release(version("36"), ["apps", doctor.CLAIMS], CLAIMING).result) == (
        "fail",
        "ok",
    )
    assert without.found == "v1.36.0: it has no resource claims (DRA), which dra-claim-template gives pods"


def test_a_version_with_the_gate_of_an_enabled_back_end_off_is_a_warning() -> None:
    groups = [doctor.CLAIMS]

    assert [doctor.check_release(version(minor), groups, BY_CLASS).result for minor in ("35", "36")] == ["warn", "ok"]


def test_a_version_that_cannot_be_read_is_a_warning() -> None:
    assert doctor.check_release({"gitVersion": "custom"}, [], replace(RULEBOOK)).result == "warn"
