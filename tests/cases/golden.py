"""One case: its files, what really happens to its pod, and the two compared."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

from tests import builders
from tests.cases.served import NeverServedError, as_served
from webhook.cli import policy_advice, snapshot, workload_advice
from webhook.core.decision import Decision
from webhook.core.interpret import claims
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.files import surroundings
from webhook.files.rule_files import RuleFilesError

CASES = Path(__file__).parent
APPLIED = ("applied.yaml", "deleted.yaml")
APPLIED_AT = datetime(2026, 11, 23, tzinfo=UTC).timestamp()
EXPECTATIONS = ("mutated.yaml", "denied.txt", "refused.txt", "warnings.txt", "problems.txt")

Outcome = Mapping[str, str]
"""What happens, as the files that say so: name to content."""


@dataclass(frozen=True, slots=True)
class Case:
    """A folder; `name` is `group/the-sentence`."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder.relative_to(CASES))

    @property
    def has_pod(self) -> bool:
        return (self.folder / "pod.yaml").exists()

    @property
    def is_applied(self) -> bool:
        return any((self.folder / name).exists() for name in APPLIED)

    def pod(self) -> dict[str, Any]:
        """The pod as its author wrote it."""
        pod: dict[str, Any]
        [pod] = builders.documents((self.folder / "pod.yaml").read_text())
        return pod

    def rulebook(self) -> Rulebook:
        """The shipped rules with those of the case laid over them; raises RuleFilesError.

        `around.yaml` is what the cluster has: claims and their classes.
        """
        own = sorted((self.folder / "rules").glob("*.yaml"))
        rules = builders.rulebook(builders.shipped_files() | {file.name: file.read_text() for file in own})
        around = self.folder / "around.yaml"
        return claims.given(builders.documents(around.read_text()), rules) if around.exists() else rules

    def expected(self) -> Outcome:
        """The expectations as they stand in the folder."""
        files = (self.folder / name for name in EXPECTATIONS)
        return {file.name: file.read_text() for file in files if file.exists()}


def find() -> list[Case]:
    """Every case, in the order of names."""
    folders = {file.parent for name in ("pod.yaml", "problems.txt", *APPLIED) for file in CASES.glob(f"*/*/{name}")}
    folders |= {file.parent.parent for file in CASES.glob("*/*/rules/*.yaml")}
    return [Case(folder) for folder in sorted(folders)]


def outcome(case: Case) -> Outcome:
    """What happens in truth."""
    try:
        rules = case.rulebook()
    except RuleFilesError as error:
        return {"problems.txt": f"{error}\n"}
    if case.is_applied:
        return _applied(case, rules)
    if not case.has_pod:
        return {}
    seen = _seen(case.pod())
    decision, after = _mutated(seen, rules)
    if not decision.allowed:
        return _warned(decision) | {"denied.txt": f"{message(decision)}\n"}
    final = validate(builders.creating(as_served(after)), rules)
    refused = {} if final.allowed else {"refused.txt": f"{message(final)}\n"}
    return _warned(decision, final) | refused | {"mutated.yaml": dump(_mutated(case.pod(), rules)[1])}


def _applied(case: Case, rules: Rulebook) -> Outcome:
    """What POST /policies or /templates answers, in a cluster with the objects of `around.yaml`."""
    around = case.folder / "around.yaml"
    documents = builders.documents(around.read_text()) if around.exists() else []
    objects = snapshot.Snapshot(snapshot.TENANTS)
    for document in documents:
        objects.add(document)
    nodes = [document for document in documents if document["kind"] == "Node"]
    rules = surroundings.concluded(replace(rules, tenancy=objects.tenancy(rules)[0]), {"nodes": nodes})
    review = _of_applied(case, documents)
    warn = policy_advice.warn if review.resource in {"tenantpolicies", "exemptions"} else workload_advice.warn
    decision = warn(review, rules, objects.ledgers()[0])
    return _warned(decision) | ({} if decision.allowed else {"denied.txt": f"{message(decision)}\n"})


def _of_applied(case: Case, documents: list[dict[str, Any]]) -> AdmissionRequest:
    """The review of the object: it is created, changed if it is around, or deleted."""
    [[which, made]] = [
        (name, document)
        for name in APPLIED
        if (case.folder / name).exists()
        for document in builders.documents((case.folder / name).read_text())
    ]
    kind, metadata = made["kind"], made["metadata"]
    around = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    old = around.get((kind, metadata["name"]))
    gone = which == "deleted.yaml"
    return builders.creating(None if gone else made, metadata.get("namespace", ""))._replace(
        operation="DELETE" if gone else "UPDATE" if old else "CREATE",
        resource="tenantpolicies" if kind == "TenantPolicy" else f"{kind.lower()}s",
        name=metadata["name"],
        old_pod=made if gone else old,
        at=APPLIED_AT,
    )


def _warned(*decisions: Decision) -> dict[str, str]:
    warnings = [warning for decision in decisions for warning in decision.warnings]
    return {"warnings.txt": "".join(f"{warning}\n" for warning in warnings)} if warnings else {}


def _seen(pod: dict[str, Any]) -> dict[str, Any]:
    try:
        return as_served(pod)
    except NeverServedError:
        return pod


def message(decision: Decision) -> str:
    """The text that the author of a denied pod reads."""
    return "\n".join(map(str, decision.violations))


def dump(pod: Mapping[str, Any]) -> str:
    """A pod as YAML, its keys in their order."""
    text: str = yaml.dump(pod, Dumper=_Dumper, sort_keys=False, width=120)
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the signature is PyYAML's
        return True


def _mutated(pod: dict[str, Any], rules: Rulebook) -> tuple[Decision, dict[str, Any]]:
    decision = mutate(builders.creating(pod), rules)
    after: dict[str, Any] = jsonpatch.apply_patch(pod, decision.patch)
    return decision, after


def broken_promises(case: Case) -> Iterator[str]:
    """What holds for every pod, and does not for this one; in both of its forms."""
    if not case.has_pod:
        return
    rules, written = case.rulebook(), case.pod()
    results: dict[str, Any] = {}
    for form, pod in {"as written": written, "as served": _seen(written)}.items():
        before = copy.deepcopy(pod)
        decision, after = _mutated(pod, rules)
        if pod != before:
            yield f"{form}: the pod itself was modified"
        results[form] = (
            as_served(after) if decision.allowed else sorted((v.code, v.path) for v in decision.violations),
            len(decision.warnings),
        )
        if decision.allowed:
            yield from (f"{form}: {promise}" for promise in _once_stored(as_served(after), rules))
    if any(result != results["as written"] for result in results.values()):
        yield f"the two forms differ: {results}"


def _once_stored(pod: dict[str, Any], rules: Rulebook) -> Iterator[str]:
    again = mutate(builders.creating(pod), rules)
    if again.patch or not again.allowed:
        yield f"/mutate changes its own result: {again.patch or message(again)}"
    final = validate(builders.creating(pod), rules)
    if final.code not in {HTTPStatus.OK, HTTPStatus.FORBIDDEN}:
        yield f"/validate refuses the result of /mutate, and no policy is why: {message(final)}"
