"""`gpu-webhook tenants`: who has used what of what he may, and what somebody has to do about it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import RULES, SHIPPED, run, start

Object = dict[str, Any]


def resource(kind: str, name: str, **fields: Any) -> Object:
    return {"apiVersion": "gpu-webhook.io/v1alpha1", "kind": kind, "metadata": {"name": name}, **fields}


def policy(name: str, *namespaces: str, **spec: Any) -> Object:
    return resource("TenantPolicy", name, spec={"namespaces": {"names": list(namespaces)}, **spec})


def usage(name: str, **status: Any) -> Object:
    return resource("TenantUsage", name, status={"view": "77", **status})


def exemption(name: str, ends: timedelta) -> Object:
    expires = (datetime.now(UTC) + ends).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = {
        "namespaces": ["vision-dev"],
        "lifts": ["quota"],
        "owner": "ada@example.com",
        "reason": "a deadline",
        "expires": expires,
    }
    return resource("Exemption", name, spec=spec)


def namespace(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def listed(*objects: Object) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


VISION = policy(
    "vision", "vision-*", quota={"devices": 16, "memory": "640Gi", "models": {"A100-80GB": {"devices": 4}}}
)
USED = usage(
    "vision",
    hard={"devices": "16", "memory": "640Gi", "devices/A100-80GB": "4"},
    held={"vision-dev": {"devices": "9", "memory": "400Gi", "devices/A100-80GB": "3"}, "vision-ci": {}},
    pending=["vision-ci/train u1 devices=0.3 memory=8Gi"],
)
OBJECTS = (
    VISION,
    USED,
    policy("guests", "guests"),
    namespace("vision-dev"),
    namespace("vision-ci"),
    exemption("deadline", timedelta(days=30, hours=1)),
)

TEXT = """\
2 tenants hold 9.3 devices; 1 pod is on the way into the cluster

TENANT  NAMESPACES  FULL                DEVICES  LEFT          MEMORY   LEFT  PENDING  OVER LIMIT
vision  vision-*     75%  #######...  9.3 of 16   6.7  408Gi of 640Gi  232Gi        1     refused
guests  guests      -                         -     -               -      -        -           -

CARD       TENANT  DEVICES  LEFT  MEMORY  LEFT
A100-80GB  vision   3 of 4     1     0Gi     -

NAMESPACE   TENANT  DEVICES  MEMORY
vision-ci   vision      0.3     8Gi
vision-dev  vision        9   400Gi

EXEMPTION  ENDS        LIFTS  NAMESPACES  USERS      OWNER            REASON
deadline   in 30 days  quota  vision-dev  everybody  ada@example.com  a deadline
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The made-up rules, with a catalogue that has the card."""
    for file in [*RULES.glob("*.yaml"), SHIPPED / "catalog-nvidia.yaml"]:
        (tmp_path / file.name).write_text(file.read_text())
    return tmp_path


def told(*objects: Object, rules: Path = RULES) -> str:
    ran = run("tenants", "-", "--rules", rules, given=listed(*objects))
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def todo(*objects: Object) -> list[str]:
    """What has to be done."""
    _, _, after = told(*objects).partition("\nTO DO\n")
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()]


def test_tenants_are_told_in_tables(rules: Path) -> None:
    assert told(*OBJECTS, rules=rules) == TEXT


def test_several_files_of_yaml_and_of_json_are_one_cluster(rules: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.yml.txt", tmp_path / "two.json"
    one.write_text(yaml.safe_dump_all(OBJECTS[:2]))
    two.write_text(listed(*OBJECTS[2:]))

    assert run("tenants", one, two, "--rules", rules).out == TEXT


def test_policies_of_the_rule_files_are_tenants_too(rules: Path) -> None:
    (rules / "tenants.yaml").write_text(yaml.safe_dump(VISION))

    assert told(*OBJECTS[1:], rules=rules) == TEXT


def test_the_same_for_scripts(rules: Path) -> None:
    ran = run("tenants", "-", "--rules", rules, "-o", "json", given=listed(*OBJECTS))

    assert list(ran.json) == ["tenants", "problems", "exemptions"]
    assert ran.json["problems"] == []
    assert ran.json["tenants"][0] == {
        "name": "vision",
        "policy": "TenantPolicy/vision",
        "priority": 0,
        "enforcementAction": "deny",
        "percent": 75,
        "counted": True,
        "pending": 1,
        "devices": {"used": 9.3, "limit": 16, "left": 6.7},
        "memoryBytes": {"used": 408 << 30, "limit": 640 << 30, "left": 232 << 30},
        "models": {
            "A100-80GB": {
                "devices": {"used": 3, "limit": 4, "left": 1},
                "memoryBytes": {"used": 0, "limit": None, "left": None},
            }
        },
        "namespaces": [
            {"name": "vision-ci", "devices": 0.3, "memoryBytes": 8 << 30, "counted": True},
            {"name": "vision-dev", "devices": 9, "memoryBytes": 400 << 30, "counted": True},
        ],
    }
    [one] = ran.json["exemptions"]
    assert one.pop("expires").endswith("Z")
    assert one == {
        "name": "deadline",
        "namespaces": ["vision-dev"],
        "users": [],
        "lifts": ["quota"],
        "owner": "ada@example.com",
        "reason": "a deadline",
        "state": "holds",
    }


def test_policies_that_tie_for_a_namespace_are_named() -> None:
    said = todo(policy("vision", "vision-*"), policy("speech", "vision-ci"), namespace("vision-ci"))

    assert len(said) == 1
    assert said[0] == (
        "the namespace vision-ci is selected by TenantPolicy/vision and TenantPolicy/speech, both of priority 0: "
        "its GPU pods are refused until one has another priority"
    )


def test_what_the_cluster_says_of_a_tie_is_passed_on_where_namespaces_are_not_at_hand() -> None:
    condition = {"type": "Ambiguous", "status": "True", "message": "it ties with speech for vision-ci"}
    tied = {**policy("vision", "vision-*"), "status": {"conditions": [condition]}}

    assert todo(tied) == ["vision: it ties with speech for vision-ci"]


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        pytest.param(
            (policy("vision", "vision", quota={"devices": 4}), usage("other", hard={}, held={})),
            "vision: has a quota, and nobody counts what it uses: GPU pods wait for the settler (gpu-webhook settle)",
            id="not counted",
        ),
        pytest.param(
            (policy("vision", "v", quota={"devices": 4}), usage("vision", hard={"devices": "9"}, held={"v": {}})),
            "vision: its ledger still has another limit than its policy; the settler writes it there",
            id="another limit",
        ),
        pytest.param(
            (
                policy("vision", "v*", quota={"devices": 4}),
                usage("vision", hard={"devices": "4"}, held={"v1": {}}),
                namespace("v2"),
            ),
            "vision: GPU pods have to wait in namespaces that are not counted yet: v2",
            id="a new namespace",
        ),
        pytest.param(
            (
                policy("vision", "v", quota={"devices": 4}),
                usage("vision", hard={"devices": "4"}, held={"v": {"devices": "5.5"}}),
            ),
            "vision: holds 5.5 of 4 devices: what runs stays, and nothing more is admitted",
            id="over",
        ),
        pytest.param(
            (
                policy("vision", "v", quota={"devices": 4, "enforcementAction": "warn"}),
                usage("vision", hard={"devices": "4"}, held={"v": {"devices": "5.5"}}),
            ),
            "vision: holds 5.5 of 4 devices: more is admitted, as its policy only warns",
            id="over where that is only warned of",
        ),
        pytest.param(
            (usage("retired", hard={"devices": "4"}, held={"r": {}}),),
            "retired: no policy has this name any more; its TenantUsage counts for nothing",
            id="left over",
        ),
        pytest.param(
            (
                policy("vision", "v*", quota={"devices": 4}),
                usage(
                    "vision", hard={"devices": "4"}, held={"v": {}}, suspects={"v": 3, "v ann": 2, "w": 4, "x b": 1}
                ),
            ),
            "vision: pods in v, w were admitted and never stored, again and again, as their creates were "
            "refused after the review: their authors may reserve no more than 1/8 of the quota at once",
            id="reservations that came to nothing",
        ),
        pytest.param(
            (policy("vision", "v"), usage("vision", held={"v": {"devices": "x"}})),
            "vision: its TenantUsage holds what nobody can read: held.v: "
            'devices: "x" is no amount, as "3", "0.5" or "8Gi"',
            id="unreadable",
        ),
        pytest.param(
            (exemption("deadline", timedelta(days=2, hours=1)),),
            "the exemption deadline ends in 2 days: ask ada@example.com whether it is still needed",
            id="ends soon",
        ),
        pytest.param(
            (exemption("deadline", -timedelta(hours=3, minutes=1)),),
            "the exemption deadline ended 3 hours ago and lifts nothing: delete or renew it",
            id="ended",
        ),
    ],
)
def test_what_has_to_be_done_is_said(objects: tuple[Object, ...], said: str) -> None:
    assert said in todo(*objects)


def test_a_policy_that_cannot_be_used_is_said_and_still_is_a_tenant() -> None:
    [said] = todo(policy("vision", "vision", quota={"memory": "40"}))

    assert said.startswith("vision: its policy cannot be used: TenantPolicy/vision")
    assert "40Gi" in said


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([VISION], "1 tenant; no TenantUsage says what it holds"),
        ([VISION, policy("sound", "b", quota={"devices": 1})], "2 tenants; no TenantUsage says what they hold"),
        (
            [*OBJECTS, policy("sound", "sound", quota={"devices": 1})],
            (
                "3 tenants hold 9.3 devices, and of 1 no TenantUsage says what is held; "
                "1 pod is on the way into the cluster"
            ),
        ),
    ],
    ids=["one", "several", "some"],
)
def test_what_nobody_has_counted_is_not_said_to_be_nothing(objects: list[Object], said: str, rules: Path) -> None:
    assert told(*objects, rules=rules).splitlines()[0] == said


def test_a_pod_is_no_tenant() -> None:
    assert told({"kind": "Pod", "metadata": {"name": "p"}}) == (
        "no tenants: there is neither a TenantPolicy nor a TenantUsage\n"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("[]", "standard input holds something that is not an object"),
        ('{"kind": "TenantUsage"}', "there is a TenantUsage without a name"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(given: str, said: str) -> None:
    ran = run("tenants", "-", "--rules", RULES, given=given)

    assert (ran.code, ran.out, ran.err) == (2, "", f"gpu-webhook: {said}\n")


def test_without_a_cluster_and_without_files_it_says_where_files_come_from(tmp_path: Path) -> None:
    ran = start("tenants", "--rules", RULES, env={"KUBECONFIG": str(tmp_path / "none")})

    assert ran.code == 2
    assert "or give files, from: kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json" in ran.err
