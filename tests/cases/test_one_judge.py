"""Every pod of every case through all front doors: the command, the page, /mutate with /validate, and /templates.

They have the same inputs here, so they have to say the same: admitted or not, every violation with its code, place,
message, rule and fix, every warning, the patch, and what a quota says after the pods before.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from tests import builders
from tests.cases import golden
from tests.cli.program import run
from webhook.cli import explanation, workload_advice
from webhook.console import create_app
from webhook.core.decision import Decision
from webhook.core.interpret import claims
from webhook.core.kube import quantity
from webhook.core.mutate import mutate
from webhook.core.policy import quota_words
from webhook.core.quota.tally import Ask
from webhook.core.review import AdmissionRequest, creating, warning_text
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import rule_files
from webhook.server.handler import OfflineReservations

AT = "2026-11-22T12:00:00Z"
API_SERVER = "GPU007"
"""Our webhooks leave to the API server what it refuses by itself."""

Around = str
Group = tuple[tuple[tuple[str, str], ...], Around]


def _groups() -> Mapping[Group, list[golden.Case]]:
    """The cases by the inputs that they share: rules, and objects around their pods."""
    found: dict[Group, list[golden.Case]] = defaultdict(list)
    for case in golden.find():
        own = tuple((file.name, file.read_text()) for file in sorted((case.folder / "rules").glob("*.yaml")))
        around = case.folder / "around.yaml"
        if case.has_pod:
            found[own, around.read_text() if around.exists() else ""].append(case)
    return found


def _params() -> Iterator[Any]:
    for (own, around), cases in _groups().items():
        quick = not own or cases[0].name.startswith("tenants/")
        name = cases[0].name if own or around else "shipped rules"
        yield pytest.param(own, around, cases, id=name, marks=() if quick else pytest.mark.large)


@pytest.mark.parametrize(("own", "around", "cases"), [*_params()])
def test_all_front_doors_give_one_answer(
    own: tuple[tuple[str, str], ...],
    around: Around,
    cases: list[golden.Case],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = rule_files.load  # which remembers what it has read before
    monkeypatch.setattr(rule_files, "load_cached", lambda rules, _cluster="": load(rules))
    pods = [{"apiVersion": "v1", "kind": "Pod", **case.pod()} for case in cases]
    given = "\n---\n".join(json.dumps(pod) for pod in pods)
    (tmp_path / "rules").mkdir()
    for name, text in (builders.shipped_files() | dict(own)).items():
        (tmp_path / "rules" / name).write_text(text)
    (tmp_path / "around.yaml").write_text(around)
    beside = ("--with", tmp_path / "around.yaml") if around else ()

    said = run("explain", "-", "--rules", tmp_path / "rules", "--at", AT, "-o", "json", *beside, given=given)
    page = create_app(tmp_path / "rules").test_client()
    shown = page.post(f"/api/explain?at={AT}", data=f"{given}\n---\n{around}" if around else given)
    rulebook = rule_files.load(tmp_path / "rules")
    rulebook = claims.given(builders.documents(around), rulebook) if around else rulebook
    reviewed = [*_reviewed(pods, rulebook)]

    answers = said.json if len(pods) > 1 else [said.json]
    assert (shown.json if len(pods) > 1 else [shown.json]) == answers
    names = [case.name for case in cases]
    by_command = dict(zip(names, map(_told, answers), strict=True))
    by_server = dict(zip(names, map(_decided, reviewed), strict=True))
    assert {name: by_command[name] for name in names if by_command[name] != by_server[name]} == {}
    made = {
        name: (_of_templates(pod, rulebook), _of_deployment(pod, rulebook))
        for name, pod in zip(names, pods, strict=True)
    }
    assert {name: told for name, told in made.items() if told[0] != told[1]} == {}


def _told(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an answer for scripts says, without what the API server would refuse."""
    violations = [each for each in answer["violations"] if each["code"] != API_SERVER]
    by_server = len(violations) < len(answer["violations"])
    assert not (by_server and answer["allowed"])
    return {
        "allowed": answer["allowed"] or (by_server and not violations),
        "code": 200 if by_server and not violations else answer["code"],
        "violations": violations,
        "warnings": answer["warnings"],
        "patch": answer["patch"] if answer["allowed"] else [],
    }


def _decided(decision: Decision) -> Mapping[str, Any]:
    keys = ("code", "path", "message", "rule", "fix")
    return {
        "allowed": decision.allowed,
        "code": int(decision.code),
        "violations": [{key: getattr(each, key) for key in keys} for each in decision.violations],
        "warnings": list(decision.warnings),
        "patch": [dict(operation) for operation in decision.patch],
    }


def _reviewed(pods: list[dict[str, Any]], rulebook: Rulebook) -> Iterator[Decision]:
    """What a server without a cluster answers when the pods are created one after another."""
    ledger = OfflineReservations()
    for number, pod in enumerate(pods):
        request = creating(pod, "review", pod["metadata"].get("namespace") or "default", quantity.parse_time(AT))
        mutated = mutate(request, rulebook)
        if not mutated.allowed:
            yield mutated
            continue
        stored = jsonpatch.apply_patch(pod, mutated.patch)
        judged = validate(request._replace(pod=stored), rulebook)
        if judged.reservation is not None:
            ask: Ask = judged.reservation.ask._replace(name=f"pod-{number}", uid=f"uid-{number}")
            wanted = replace(judged.reservation, ask=ask)
            answered = ledger.draw(wanted.tenant, ask)
            judged = quota_words.after_ledger(judged, wanted, answered.outcome, answered.ledger)
        warnings = [*mutated.warnings, *judged.warnings]
        yield (judged if not judged.allowed else mutated)._replace(warnings=warnings)


def _of_deployment(pod: dict[str, Any], rulebook: Rulebook) -> list[str]:
    """The refusals and warnings of an explanation of a Deployment with this pod."""
    (found,) = explanation.explain(_deployment(pod), rulebook)
    refused = [warning_text(each, "pods of this template will be refused: ") for each in found.decision.violations]
    return refused + [f"pods of this template: {warning}" for warning in found.decision.warnings]


def _of_templates(pod: dict[str, Any], rulebook: Rulebook) -> list[str]:
    """What the author of the Deployment is told, without the words for what pods become."""
    request: AdmissionRequest = creating(_deployment(pod), "review", "default")
    told = workload_advice.warn(request._replace(resource="deployments"), rulebook).warnings
    return [
        warning.replace("have to wait for now", "will be refused")
        for warning in told
        if not warning.startswith("pods of this template become ")
    ]


def _deployment(pod: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {**pod["metadata"]}, "spec": pod["spec"]}
    template["metadata"].pop("namespace", None)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": template},
    }
