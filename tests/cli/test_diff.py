"""`gpu-webhook diff`: how records are read, and what authors of stored pods wrote; transcripts show the rest."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.cases import golden
from tests.cases.served import NeverServedError, as_served
from tests.cli import objects, program
from tests.cli.program import RULES, changed_rules, run
from webhook.cli import diff
from webhook.core.kube import fields, pod
from webhook.core.mutate import mutate
from webhook.core.validate import validate


def created(name: str, at: str, gpu: str = "1") -> dict[str, Any]:
    """A create as an API server's audit log has it, of a pod without a namespace of its own."""
    wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"gpu": gpu}}}
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Event",
        "verb": "create",
        "user": {"username": "ada"},
        "objectRef": {"resource": "pods", "namespace": "vision"},
        "requestReceivedTimestamp": at,
        "requestObject": {**wanted, "spec": {"containers": [{"name": "main"}]}},
    }


def limited(folder: Path, devices: int) -> Path:
    """A policy for the namespace vision."""
    file = folder / f"{devices}.json"
    file.write_text(json.dumps(objects.policy("vision", "vision", quota={"devices": devices})))
    return file


def test_creates_of_an_audit_log_are_tried_in_their_order_until_their_deletes(tmp_path: Path) -> None:
    late, early = created("late", "2026-11-26T08:00:02Z"), created("early", "2026-11-26T08:00:01Z")
    about = {"resource": "pods", "namespace": "vision"}
    ended = {**early, "verb": "delete", "objectRef": {**about, "name": "early"}}
    ended["requestReceivedTimestamp"] = "2026-11-26T08:00:03Z"
    last = created("last", "2026-11-26T08:00:04Z")
    lines = [late, early, {**late, "objectRef": {**about, "subresource": "binding"}}, ended, last]
    record = tmp_path / "audit.log"
    record.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    sides = limited(tmp_path, 2), limited(tmp_path, 1)
    [place] = run("diff", *sides, "--pods", record, "--rules", RULES, "-o", "json").json["namespaces"]

    [change] = place["changes"]
    assert (place["pods"], place["counts"], change["names"]) == (3, {"refused": 1}, ["Pod late"])


def test_a_list_of_the_api_is_read_object_by_object() -> None:
    head = '{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": ['
    content = f'{head}{{"metadata": {{"name": "a"}}}},\n {{"metadata": {{"name": "b"}}}}]}}'

    assert [*diff.stream(content.encode(), "pods.json")] == [
        {"kind": "Pod", "metadata": {"name": name}} for name in ("a", "b")
    ]


def test_a_side_may_be_a_revision_of_the_git_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = changed_rules(tmp_path, "part: acme-share", "part: acme-share")
    monkeypatch.chdir(tmp_path)
    (rules / "tenants.json").write_text(json.dumps(objects.policy("vision", "default", quota={"devices": 1})))
    (tmp_path / "none.json").write_text("{}")
    for command in (["init", "-q"], ["add", "rules"], ["commit", "-qm", "the rules"]):
        subprocess.run(["git", "-c", "user.name=ada", "-c", "user.email=ada@example.com", *command], check=True)
    (rules / "acme.yaml").write_text((rules / "acme.yaml").read_text().replace("acme-scheduler", "acme-other"))
    (tmp_path / "pod.json").write_text(program.pod(gpu="2"))

    same = run("diff", "HEAD:rules", "rules", "--pods", "pod.json")
    unknown = run("diff", "HEAD:nothing", "rules", "--pods", "pod.json")
    monkeypatch.chdir(rules)
    file = run(
        "diff", "HEAD:rules/tenants.json", "../none.json", "--pods", "../pod.json", "--rules", ".", "-o", "json"
    )

    assert (same.code, same.out) == (0, "0 of 1 pod change; devices 2\n")
    assert file.json["namespaces"][0]["counts"] == {"admitted": 1}
    assert (unknown.code, unknown.err.startswith("gpu-webhook: HEAD:nothing: git says: fatal: ")) == (2, True)


@pytest.mark.large
def test_every_golden_pod_that_is_stored_gets_the_same_again_as_its_author_wrote_it() -> None:
    differing = []
    stored_cases = (case for case in golden.find() if case.has_pod and (case.folder / "mutated.yaml").exists())
    for case in stored_cases:
        rules = case.rulebook()
        try:
            before = as_served(case.pod())
            stored = as_served(fields.applied(mutate(builders.creating(before), rules).patch, before))
        except NeverServedError:
            continue
        review = builders.creating(stored)
        if not validate(review, rules).allowed:
            continue
        author = diff.submitted(stored, review.namespace, rules)
        again = mutate(builders.creating(author), rules)

        if not again.allowed or not gets(fields.applied(again.patch, author)) <= gets(stored):
            differing.append(case.name)
    assert differing == []


def gets(raw: Any) -> set[tuple[str, str, Any]]:
    """What each container gets; other mutators may have added to it."""
    containers = pod.read(raw).containers
    return {(container.name, *limit) for container in containers for limit in container.limits.items()}
