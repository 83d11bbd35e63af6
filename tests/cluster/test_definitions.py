"""TenantPolicy, Exemption and TenantUsage as the API server knows them: what it takes, refuses, shows and stores."""

import copy
import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
import yaml

from tests import readme, tables
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, RefusedError
from tests.cluster.plane import control_plane
from tests.cluster.tenancy import world
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT
from tests.core.rules.test_schema import RULES
from webhook.core.forms.document import API_VERSION
from webhook.core.quota import stored
from webhook.core.quota.ledger import MOST_PENDING, Ledger

pytestmark = pytest.mark.cluster

POLICY = RULES["tenantpolicy.yaml"]
EXEMPTION = RULES["exemption.yaml"]
"""With every key and every word there is."""

DOCUMENTED = (ROOT / "rules" / "README.md").read_text()


@pytest.fixture(scope="module")
def defined(programs: Binaries) -> Iterator[Client]:
    """A control plane with the definitions and nothing else."""
    with control_plane(programs) as plane:
        world.define(plane.client)
        yield plane.client


def _changed(obj: Any, place: str, value: Any) -> Any:
    """The object with another value at `spec.quota.memory`, or without it if that is None."""
    changed = copy.deepcopy(obj)
    *path, last = place.split(".")
    inner = changed
    for step in path:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed


def _refusal(client: Client, obj: Any) -> list[str]:
    """What the API server finds wrong, each with its field; of every cause, as there may be several."""
    with pytest.raises(RefusedError) as refused:
        client.create(obj, dry_run=True)
    assert refused.value.code == 422
    causes = refused.value.status["details"]["causes"]
    return [f"{cause['field']}: {cause['message']}" for cause in causes if cause["field"] != "<nil>"]


@pytest.mark.parametrize("kind", ["tenantpolicies", "exemptions", "tenantusages"])
def test_definitions_are_established_and_have_no_warnings(defined: Client, kind: str) -> None:
    stored = defined.get(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind}.gpu-webhook.io"},
        }
    )

    conditions = {one["type"]: one["status"] for one in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize(
    "obj",
    [POLICY, EXEMPTION, *yaml.safe_load_all(readme.block("tenants", DOCUMENTED))],
    ids=lambda obj: str(obj["kind"]),
)
def test_whatever_the_readers_take_is_taken_and_kept_whole(defined: Client, obj: Any) -> None:
    written = json.loads(json.dumps(obj, default=lambda when: when.strftime("%Y-%m-%dT%H:%M:%SZ")))

    stored = defined.create(written, dry_run=True)

    assert stored.warnings == ()
    defaults = {"priority": 0, "enforcementAction": "deny"} if obj["kind"] == "TenantPolicy" else {}
    assert stored["spec"] == defaults | written["spec"]


LABELS = 'at most 63 letters, digits, "-", "_" and "." that begin and end with a letter or digit'
KEY = f"write each key as team or example.com/team: {LABELS}"
SIZE = "write a size with its unit, as 40Gi or 40960Mi"
NUMBER = 'write a number of devices, as 2 or "0.5" in quotes'


@tables.rows
def test_a_mistake_in_a_policy_is_answered_with_what_to_write(
    defined: Client, place: str, value: Any, said: list[str]
) -> None:
    refusal = _refusal(defined, _changed(POLICY, place, value))

    assert all(any(part in line for line in refusal) for part in said), refusal
    assert all(line.startswith(place.partition("[")[0]) for line in refusal)


@tables.rows
def test_a_mistake_in_an_exemption_is_answered_with_what_to_write(
    defined: Client, place: str, value: Any, said: str
) -> None:
    refusal = _refusal(defined, _changed(EXEMPTION, place, value))

    assert [line for line in refusal if said in line], refusal
    assert all(line.startswith(place) for line in refusal)


def _full() -> Ledger:
    """A ledger with as many reservations as it may have."""
    return Ledger(
        hard={"devices": Fraction(16), "memory": Fraction(640 << 30), "devices/A100-80GB": Fraction(4)},
        held={"vision-dev": {"devices": Fraction(9)}, "vision-ci": {"devices": Fraction(1, 2)}},
        view=4711,
        pending={
            f"vision-dev/train-{number}": {f"8f2f8d4e-0000-4000-8000-{number:012d}": {"devices": Fraction(1, 400)}}
            for number in range(MOST_PENDING)
        },
        joining={"vision-new": "settler-1"},
        recount=7,
        recounted=6,
    )


def _usage(name: str, status: Any, version: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"resourceVersion": version} if version else {})}
    return {"apiVersion": API_VERSION, "kind": stored.KIND, "metadata": metadata, "status": status}


def test_a_ledger_is_stored_as_it_is_written_and_nothing_with_it(defined: Client) -> None:
    ledger = _full()
    made = defined.create(_usage("stored", {}))

    answer = defined.update(
        _usage("stored", stored.write(ledger), made["metadata"]["resourceVersion"]), subresource="status"
    )

    assert stored.read(answer["status"]) == ledger
    assert answer["status"] == stored.write(ledger)
    found = defined.get(_usage("stored", {}))
    assert sorted(found["metadata"]) == ["creationTimestamp", "generation", "name", "resourceVersion", "uid"]


def test_who_applies_a_ledger_owns_it_in_one_entry(defined: Client) -> None:
    defined.create(_usage("applied", {}))
    path = f"{defined.path(_usage('applied', {}))}/status"

    answer = defined.send(
        "PATCH",
        path,
        _usage("applied", stored.write(_full())),
        query={"fieldManager": "tests"},
        content_type="application/apply-patch+yaml",
    )

    assert [one["fieldsV1"] for one in answer["metadata"]["managedFields"]] == [{"f:status": {}}]


def test_a_ledger_holds_no_more_reservations_than_the_limit(defined: Client) -> None:
    made = defined.create(_usage("crowded", {}))
    status = stored.write(_full())
    status["pending"] += [f"vision-dev/drawn-{number} uid devices=1" for number in range(MOST_PENDING + 1)]

    with pytest.raises(RefusedError, match=r"status\.pending: Too many: 4001: must have at most 4000 items"):
        defined.update(_usage("crowded", status, made["metadata"]["resourceVersion"]), subresource="status")


def test_a_stale_write_of_a_ledger_is_a_conflict(defined: Client) -> None:
    made = defined.create(_usage("contended", {}))
    version = made["metadata"]["resourceVersion"]
    defined.update(_usage("contended", stored.write(Ledger(view=1)), version), subresource="status")

    with pytest.raises(RefusedError) as refused:
        defined.update(_usage("contended", stored.write(Ledger(view=2)), version), subresource="status")

    assert refused.value.code == 409


def _table(client: Client, *args: str) -> list[list[str]]:
    """What kubectl prints, word by word, without the ages."""
    done = client.kubectl("get", *args)
    assert done.returncode == 0, done.stderr
    return [line.split()[:-1] for line in done.stdout.splitlines()]


def test_kubectl_shows_what_matters(defined: Client) -> None:
    defined.create(POLICY | {"metadata": {"name": "shown"}})
    defined.create(EXEMPTION | {"metadata": {"name": "shown"}})
    made = defined.create(_usage("shown", {}))
    defined.update(
        _usage("shown", stored.write(_full()) | {"pending": []}, made["metadata"]["resourceVersion"]),
        subresource="status",
    )

    assert _table(defined, "tpol", "shown") == [
        ["NAME", "PRIORITY", "DEVICES", "MEMORY", "ACTION", "ACCEPTED"],
        ["shown", "10", "16", "640Gi", "warn"],
    ]
    assert _table(defined, "exemption", "shown", "-o", "wide") == [
        ["NAME", "OWNER", "LIFTS", "NAMESPACES", "EXPIRES", "REASON"],
        [
            "shown",
            "platform@acme.example",
            '["container","pod","allowed","forbidden","quota"]',
            '["acme-dev","acme-*"]',
            "2027-01-31T00:00:00+01:00",
            *("the", "yearly", "retraining"),
        ],
    ]
    assert _table(defined, "tu", "shown") == [
        ["NAME", "USED%", "DEVICES", "OF", "MEMORY", "OF-MEMORY"],
        ["shown", "90", "14.5", "16", "0", "640Gi"],
    ]


def test_kubectl_explains_every_part_of_a_policy(defined: Client) -> None:
    for part in (
        "namespaces",
        "priority",
        "enforcementAction",
        "ceilings",
        "allowed",
        "defaults",
        "affinity",
        "quota",
    ):
        explained = defined.kubectl("explain", f"tenantpolicy.spec.{part}").stdout

        assert "<empty>" not in explained, explained


def test_a_condition_of_a_policy_is_stored_apart_from_what_people_write(defined: Client) -> None:
    made = defined.create(POLICY | {"metadata": {"name": "judged"}})
    condition = {
        "type": "Ambiguous",
        "status": "True",
        "observedGeneration": made["metadata"]["generation"],
        "lastTransitionTime": "2026-11-21T00:00:00Z",
        "reason": "SamePriority",
        "message": "TenantPolicy/other selects vision-dev with priority 10 too",
    }

    judged = defined.update(dict(made) | {"status": {"conditions": [condition]}}, subresource="status")

    assert judged["status"] == {"conditions": [condition]}
    assert judged["metadata"]["generation"] == made["metadata"]["generation"]


def _may(client: Client, user: str, group: str, *args: str) -> bool:
    done = client.kubectl(f"--as={user}", f"--as-group={group}", "get", *args)
    return done.returncode == 0


def test_a_tenant_reads_its_own_usage_and_no_others(defined: Client) -> None:
    for role in yaml.safe_load_all(readme.block("own usage", DOCUMENTED)):
        defined.create(role)
    for tenant in ("vision", "speech"):
        defined.create(_usage(tenant, {}))

    until(lambda: _may(defined, "ada", "vision", "tu", "vision"), "the role holds")

    assert not _may(defined, "ada", "vision", "tu", "speech")
    assert not _may(defined, "ada", "vision", "tu")
    assert not _may(defined, "bob", "speech", "tu", "vision")


def test_a_reader_of_usage_reads_all_of_it_and_no_policy(defined: Client) -> None:
    done = defined.kubectl("apply", "-f", str(ROOT / "manifests" / "base" / "readers.yaml"))
    assert (done.returncode, done.stderr) == (0, "")
    role = "--clusterrole=gpu-webhook-tenantusage-reader"
    done = defined.kubectl("create", "clusterrolebinding", "readers", role, "--group=readers")
    assert done.returncode == 0, done.stderr

    until(lambda: _may(defined, "eve", "readers", "tu"), "the role holds")

    assert not _may(defined, "eve", "readers", "tpol")
    assert not _may(defined, "eve", "others", "tu")
