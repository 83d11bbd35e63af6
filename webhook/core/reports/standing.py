"""What stands in a cluster: policies, ledgers, and the GPU pods that would be refused today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.core import review
from webhook.core.kube import paths
from webhook.core.policy.status import Tie
from webhook.core.quota import suspects
from webhook.core.quota.ledger import Ledger
from webhook.core.reports.checkup import Check, number, several
from webhook.core.reports.tenants import Problem
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.validate import validate

Object = Mapping[str, Any]

SETTLER: Final = "look whether the settler runs: kubectl -n gpu-webhook-system logs deploy/gpu-webhook-settler"


def policies(found: Sequence[Object], problems: Sequence[Problem], ties: Mapping[str, Tie]) -> Check:
    """Whether each TenantPolicy is in force; `problems` and `ties` are what this program has found itself."""
    wrong = {name: f"it conflicts with {', '.join(sorted(tie.others))}" for name, tie in ties.items()}
    wrong |= {problem.tenant: problem.message for problem in problems}
    for policy in found:
        for condition in _conditions(policy):
            if (condition.get("type"), condition.get("status")) in {("Accepted", "False"), ("Ambiguous", "True")}:
                wrong[_name(policy)] = f"{condition['type']}={condition['status']}: {condition.get('message', '')}"
    if wrong:
        text = several([f"{name}: {message}".removeprefix(": ") for name, message in sorted(wrong.items())])
        return Check("policies", "fail", text, "mend it: kubectl describe tenantpolicy NAME says the same")
    return Check("policies", "ok", _count(len(found)))


def _count(count: int) -> str:
    return {0: "there are none in the cluster", 1: "1 policy is in force"}.get(
        count, f"{count} policies are in force"
    )


def _conditions(found: Object) -> Sequence[Object]:
    return paths.objects(paths.at(found, "status", "conditions"))


def _name(found: Object) -> str:
    return str(paths.mapping(found, "metadata").get("name", ""))


class Reading(NamedTuple):
    """The policies of a cluster, and its ledgers by tenant, as they were at one moment."""

    policies: Sequence[Object]
    ledgers: Mapping[str, Ledger]


def ledgers(first: Reading, second: Reading, tenancy: Tenancy, problems: Sequence[Problem]) -> Check:
    """Whether the settler counts, by two readings some seconds apart: it answers what is asked within a second."""
    late = [
        f"the status of the policy {name} is of an older generation" for name in _both(map(_unseen, (first, second)))
    ]
    late += [f"{name}: a recount was asked for and not made" for name in _both(map(_unanswered, (first, second)))]
    quotas = [policy.name for policy in tenancy.policies if policy.quota is not None]
    nobody = [
        f"{name} has a quota, and nobody has counted what it uses" for name in quotas if not _counted(second, name)
    ]
    if late or nobody:
        text = f"the settler has not done its work: {several([*nobody, *late])}; GPU pods there are told to wait"
        return Check("ledgers", "fail", text, SETTLER)
    unread = [f"{problem.tenant}: {problem.message}" for problem in problems]
    suspected = {name: suspects.namespaces(one.suspects) for name, one in second.ledgers.items()}
    unread += [
        f"{name}: {', '.join(found)} reserved and stored no pods" for name, found in suspected.items() if found
    ]
    if unread:
        return Check("ledgers", "warn", several(unread), "gpu-webhook tenants shows each of them")
    return Check(
        "ledgers",
        "ok",
        f"{number(len(second.ledgers), 'ledger')}, counted" if second.ledgers else "no quota has to be counted",
    )


def _both(found: Iterable[set[str]]) -> Sequence[str]:
    return sorted(set.intersection(*found))


def _unseen(reading: Reading) -> set[str]:
    """The policies that no settler has looked at since they changed."""
    return {
        _name(each)
        for each in reading.policies
        if paths.at(each, "status", "observedGeneration") != paths.at(each, "metadata", "generation")
    }


def _unanswered(reading: Reading) -> set[str]:
    return {name for name, ledger in reading.ledgers.items() if ledger.recounted < ledger.recount}


def _counted(reading: Reading, name: str) -> bool:
    return name in reading.ledgers and reading.ledgers[name].view > 0


class Refused(NamedTuple):
    """A pod that would be refused today: `namespace/name`, and the first line of why."""

    pod: str
    why: str


def refused(pods: Iterable[Object], rulebook: Rulebook, at: float) -> Iterator[Refused]:
    """The pods of these that /validate would refuse if they were created now; no quota is asked."""
    for pod in pods:
        metadata = paths.mapping(pod, "metadata")
        namespace = str(metadata.get("namespace", ""))
        decision = validate(review.creating(pod, str(metadata.get("uid", "")), namespace, at), rulebook)
        if not decision.allowed:
            yield Refused(f"{namespace}/{metadata.get('name')}", review.line(decision.violations[0]))


def pods(found: Sequence[Refused], seen: int) -> Check:
    """GPU pods that exist and would be refused today."""
    if not found:
        return Check("pods", "ok", f"none of {number(seen, 'pod')} would be refused today")
    named = several([f"{one.pod}: {one.why}" for one in found])
    fix = "none is needed for what runs; fix their workloads before they create pods again (gpu-webhook explain FILE)"
    return Check("pods", "warn", f"{number(len(found), 'pod')} of {seen} would be refused today: {named}", fix)
