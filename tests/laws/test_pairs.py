"""All pairs of features go through every command and front door: none breaks, and all give one answer."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from tests import builders
from tests.cases.served import as_served
from tests.cli.program import run
from webhook.cli import policy_advice, snapshot, workload_advice
from webhook.console import create_app
from webhook.core.kube.quantity import parse_time
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import rule_files

World = Mapping[str, Any]
FEATURES: Mapping[str, Sequence[Any]] = yaml.safe_load(Path(__file__).with_name("pairs.yaml").read_text())
API_VERSION = "gpu-webhook.io/v1alpha1"
AT = "2026-11-26T00:00:00Z"
USED = {"devices": "1", "memory": "16Gi", "devices/T4": "1", "memory/T4": "16Gi"}


def _worlds() -> Iterator[World]:
    """Worlds in which every two features of different rows come together; each row has what brings most new pairs."""
    every_pair = {
        frozenset({(one, first), (other, second)})
        for one, other in itertools.combinations(FEATURES, 2)
        for first, second in itertools.product(range(len(FEATURES[one])), range(len(FEATURES[other])))
    }
    while every_pair:
        chosen = dict(min(every_pair, key=sorted))
        for row in [row for row in FEATURES if row not in chosen]:
            chosen[row] = max(
                range(len(FEATURES[row])),
                key=lambda place: sum(frozenset({(row, place), pair}) in every_pair for pair in chosen.items()),
            )
        every_pair -= {frozenset(pair) for pair in itertools.combinations(chosen.items(), 2)}
        yield {row: FEATURES[row][place] for row, place in sorted(chosen.items())}


WORLDS = list(_worlds())


def _objects(world: World) -> list[dict[str, Any]]:
    """The tenant's objects, and the namespaces."""
    spec = {"namespaces": world["selection"], "enforcementAction": world["action"], **world["rule"]}
    objects: list[dict[str, Any]] = [{"kind": "TenantPolicy", "metadata": {"name": "red"}, "spec": spec}]
    if world["exemption"]:
        why = {"owner": "ada", "reason": "a deadline", "namespaces": ["vision"]}
        objects.append({"kind": "Exemption", "metadata": {"name": "night"}, "spec": {**why, **world["exemption"]}})
    if world["usage"] != "unknown":
        held = USED if world["usage"] == "full" else {}
        hard = {"devices": "1", "memory": "8Gi", "devices/T4": "1"}
        status = {"view": "1", "hard": hard, "held": {"vision": held}}
        objects.append({"kind": "TenantUsage", "metadata": {"name": "red"}, "status": status})
    objects = [{"apiVersion": API_VERSION, **made} for made in objects]
    for name, team in (("vision", "vision"), ("audio", "audio")):
        labels = {"kubernetes.io/metadata.name": name, "team": team}
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    return objects


def _rules(world: World, folder: Path) -> Path:
    """The shipped rules in the cluster of a world."""
    folder.mkdir()
    shipped = builders.shipped_files()
    spec = {"systemNamespaces": ["kube-system"], **world["cluster"]}
    document = {"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": "default"}, "spec": spec}
    for name, text in {**shipped, "cluster.yaml": yaml.safe_dump(document)}.items():
        (folder / name).write_text(text)
    return folder


def _judged(made: dict[str, Any], rulebook: Rulebook) -> tuple[bool, list[str], bool]:
    """Whether the server admits a pod, the codes if not, and whether a ledger has to be asked."""
    review = builders.creating(as_served(made), "vision")._replace(user="ada", at=parse_time(AT))
    decision = mutate(review, rulebook)
    if decision.allowed:
        stored = jsonpatch.apply_patch(review.pod, decision.patch)
        decision = validate(review._replace(pod=as_served(stored)), rulebook)
    codes = [violation.code for violation in decision.violations]
    return decision.allowed, codes, decision.reservation is not None


@pytest.mark.parametrize("world", WORLDS, ids=range(len(WORLDS)))
def test_every_command_and_front_door_gives_one_answer(world: World, tmp_path: Path) -> None:
    folder, objects = _rules(world, tmp_path / "rules"), _objects(world)
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text(yaml.safe_dump_all(objects))
    made = builders.written(world["pod"])
    told = snapshot.Snapshot(snapshot.TENANTS)
    for document in objects:
        told.add(document)
    rulebook = rule_files.load_cached(folder)
    rulebook = replace(rulebook, tenancy=told.tenancy(rulebook)[0])

    options = ("--rules", folder, "--with", tenants, "-n", "vision", "--user", "ada", "--at", AT, "-o", "json")
    explained = run("explain", *options, "-", given=yaml.safe_dump(made))
    query = {"namespace": "vision", "user": "ada", "at": AT, "around": tenants.read_text()}
    client = create_app(folder).test_client()
    answered = client.post("/api/explain", data=yaml.safe_dump(made), query_string=query)
    table = run("tenants", "--rules", folder, tenants)
    page = client.post("/", data={"text": yaml.safe_dump(made), **query})
    [policy, *_] = objects
    applied = builders.creating(policy, "")._replace(resource="tenantpolicies", name="red", at=parse_time(AT))
    advised = policy_advice.warn(applied, rulebook, told.ledgers()[0])
    template = {"metadata": made["metadata"], "spec": made["spec"]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": template},
    }
    review = builders.creating(workload, "vision")._replace(resource="deployments", at=parse_time(AT))
    foretold = workload_advice.warn(review, rulebook, told.ledgers()[0])

    record = explained.json
    assert explained.code == int(not record["allowed"])
    assert answered.json == record
    assert (table.code in {0, 1}, table.err) == (True, "")
    assert page.status_code == 200
    assert (advised.violations, foretold.violations) == ((), ())
    allowed, codes, asks_a_ledger = _judged(made, rulebook)
    if not asks_a_ledger:
        assert (record["allowed"], [violation["code"] for violation in record["violations"]]) == (allowed, codes)
