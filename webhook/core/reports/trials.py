"""Pods that are tried at each API server by a dry run, and what the answers say of the way to us and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple

from webhook.core.decision import POLICY, Decision
from webhook.core.kube import paths
from webhook.core.kube.pod import CORE
from webhook.core.mutate import mutate
from webhook.core.reports.checkup import Check, Result, number, several
from webhook.core.review import creating
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy

Pod = Mapping[str, Any]
Purpose = Literal["translated", "refused", "bystander"]

OURS: Final = re.compile(r'admission webhook "[a-z]+\.gpu-webhook\.io" denied')
UNCALLED: Final = re.compile(r'failed calling webhook "[a-z]+\.gpu-webhook\.io"')
_NO_RIGHT: Final = 'cannot create resource "pods"'
CODE: Final = re.compile(r"\[(GPU[0-9]{3})\]")
_UNTRANSLATED: Final = "GPU6"
"""The beginning of the codes of the final check: the pod came to /validate as it was written."""

_OF_TLS: Final = re.compile(r"x509:|tls:|unable to load root certificates")
_ASKING: Final[Sequence[Mapping[str, str]]] = (
    {"gpu": "1"},
    {"gpu": "0.5"},
    {"gpu-memory": "1Gi"},
    {"gpu-profile": "1g.5gb"},
)
_WRONG: Final[Sequence[Mapping[str, str]]] = ({"gpu": "1.5"}, {"gpu": "-1"}, {"gpu": "1", "gpu-memory": "-1Gi"})


class Tried(NamedTuple):
    """A pod to try; `labels` are its request, `code` that of its refusal."""

    purpose: Purpose
    labels: Mapping[str, str]
    code: str = ""

    @property
    def pod(self) -> dict[str, Any]:
        """The pod, such as any namespace takes it."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "gpu-webhook-doctor-", "labels": dict(self.labels)},
            "spec": _SPEC,
        }


_AMOUNTS: Final = {"cpu": "10m", "memory": "16Mi"}
_SPEC: Final[Mapping[str, Any]] = {
    "automountServiceAccountToken": False,
    "restartPolicy": "Never",
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "registry.invalid/never-pulled:dry-run",
            "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an API server answered to one pod: the pod if it would be created, else a Status."""

    status: int
    said: Mapping[str, Any]
    warnings: Sequence[str] = ()

    @property
    def is_created(self) -> bool:
        """Whether the pod would be stored."""
        return self.status < HTTPStatus.BAD_REQUEST

    @property
    def is_forbidden(self) -> bool:
        """Whether the account may not create pods at all, so that nobody was asked."""
        return self.status == HTTPStatus.UNAUTHORIZED or _NO_RIGHT in self.message

    @property
    def message(self) -> str:
        """The first line of a refusal."""
        return str(self.said.get("message", "")).partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One API server, and its answers by purpose. `unreachable`: why it cannot be asked from here.

    `was_called` for the bystander: whether a replica was asked about it; None where that cannot be told.
    """

    address: str
    unreachable: str = ""
    answers: Mapping[Purpose, Answer] = field(default_factory=dict)
    was_called: bool | None = None


def pods(rulebook: Rulebook) -> Sequence[Tried]:
    """The pods to try: one that these rules translate, one that they refuse, and one without a GPU."""
    alone = replace(rulebook, tenancy=Tenancy())

    def decided(labels: Mapping[str, str]) -> Decision:
        return mutate(creating(Tried("translated", labels).pod, uid="doctor", namespace="default"), alone)

    asking = next((labels for labels in _ASKING if decided(labels).patch), None)
    wrong = next(((labels, denied) for labels in _WRONG if not (denied := decided(labels)).allowed), None)
    found = [] if asking is None else [Tried("translated", asking)]
    found += [] if wrong is None else [Tried("refused", wrong[0], wrong[1].violations[0].code)]
    return [*found, Tried("bystander", {"app": "doctor"})]


def check(tried: Sequence[Tried], servers: Sequence[Server], *, observing: bool, certified: bool) -> Check:
    """Whether each API server has us translate and refuse pods, and leave others alone.

    `observing`: in observe mode pods are warned of, and neither changed nor refused. `certified`: the checks of the
    certificate found nothing. If they did, API servers that cannot verify it follow from that.
    """
    asked = [server for server in servers if not server.unreachable]
    hidden = [f"{server.address}: {server.unreachable}" for server in servers if server.unreachable]
    if not asked:
        fix = "run it in a pod of the cluster, with an account that may create pods there"
        return Check("admission", "fail", f"no API server can be asked: {several(hidden)}", fix, examined=False)
    problems = [problem for server in asked for problem in _of_server(tried, server, observing=observing)]
    failed = [problem for problem in problems if problem.result == "fail"]
    if failed and not certified and all(_OF_TLS.search(problem.text) for problem in failed):
        text = "API servers cannot verify what is served: `certificate` or `expiry` says why"
        return Check("admission", "warn", text, "first fix that")
    if failed:
        return Check("admission", "fail", several([each.text for each in failed]), _fix(failed))
    if problems:
        return Check("admission", "warn", several([each.text for each in problems]), problems[0].fix)
    if hidden:
        fix = "run it in a pod of the cluster, which reaches each of them"
        text = f"fine at {number(len(asked), 'API server')}; not asked from here: {several(hidden)}"
        return Check("admission", "warn", text, fix)
    did = "warned of" if observing else "translated or refused"
    text = f"at {number(len(asked), 'API server')} pods with GPUs are {did}, and others are not sent to us"
    return Check("admission", "ok", text)


class _Problem(NamedTuple):
    text: str
    result: Result = "fail"
    fix: str = ""


_ELSEWHERE: Final = "try them where they are admitted: --try-in NAMESPACE"


def _fix(failed: Sequence[_Problem]) -> str:
    text = " ".join(each.text for each in failed)
    if _OF_TLS.search(text):
        return "the API server cannot verify what is served: see the log of gpu-webhook-certs, and caBundle"
    if UNCALLED.search(text):
        return (
            "look whether replicas run (kubectl -n gpu-webhook-system get pods), and whether a firewall or "
            "NetworkPolicy keeps API servers from their port (components gke, eks)"
        )
    return next((each.fix for each in failed if each.fix), "see `configurations`, `namespaces` and `rules`")


def _of_server(tried: Sequence[Tried], server: Server, *, observing: bool) -> Iterator[_Problem]:
    judges = {"translated": _translated, "refused": _refused}
    for one in tried:
        answer = server.answers[one.purpose]
        what = f"{server.address}: the pod with {_words(one)}"
        if not answer.is_created and UNCALLED.search(answer.message):
            yield _Problem(f"{what}: {answer.message}")
        elif one.purpose == "bystander":
            yield from _bystander(what, server, answer)
        elif observing:
            if not any("would b" in warning for warning in answer.warnings):
                yield _Problem(f"{what}: nobody was warned of what would become of it")
        else:
            yield from judges[one.purpose](what, one, answer)


def _words(one: Tried) -> str:
    if one.purpose == "bystander":
        return "no GPU"
    return ", ".join(f"{key}: {value}" for key, value in one.labels.items())


def _translated(what: str, _: Tried, answer: Answer) -> Iterator[_Problem]:
    if answer.is_created:
        if not _has_a_device(answer.said):
            yield _Problem(f"{what} came back without a device: nobody translated it, or somebody undid that")
    elif not OURS.search(answer.message):
        yield _Problem(f"{what} was refused by others: {answer.message}", "warn", _ELSEWHERE)
    else:
        codes = CODE.findall(str(answer.said.get("message")))
        if any(code.startswith(_UNTRANSLATED) for code in codes):
            yield _Problem(f"{what} came to /validate untranslated: {answer.message}")
        elif not all(code.startswith(POLICY) for code in codes):
            yield _Problem(f"{what} was refused: {answer.message}", "warn", _ELSEWHERE)


def _refused(what: str, one: Tried, answer: Answer) -> Iterator[_Problem]:
    if answer.is_created:
        yield _Problem(f"{what} was admitted, and should have been refused with {one.code}")
    elif not OURS.search(answer.message):
        yield _Problem(f"{what} was refused by others: {answer.message}", "warn", _ELSEWHERE)
    elif f"[{one.code}]" not in str(answer.said.get("message")) and f"[{POLICY}" not in answer.message:
        yield _Problem(f"{what} was not refused with {one.code}: {answer.message}", fix="see `rules`")


def _bystander(what: str, server: Server, answer: Answer) -> Iterator[_Problem]:
    if not answer.is_created:
        ours = OURS.search(answer.message) is not None
        by = "by us" if ours else "by others"
        yield _Problem(f"{what} was refused {by}: {answer.message}", "fail" if ours else "warn", _ELSEWHERE)
    elif _has_a_device(answer.said):
        yield _Problem(f"{what} came back with a device")
    elif server.was_called:
        fix = "see `configurations`: matchConditions keep such pods from us; on a busy cluster, try again"
        yield _Problem(f"{what}: a replica was asked about a pod each time one without a GPU was tried", "warn", fix)
    elif server.was_called is None:
        yield _Problem(f"{what}: whether it was sent to us cannot be told from here", "warn", "see `replicas`")


def _has_a_device(pod: Pod) -> bool:
    """Whether something else than what every pod of ours has is on a container, or a claim on the pod."""
    spec = paths.mapping(pod, "spec")
    limits = [paths.mapping(each, "resources", "limits") for each in paths.objects(spec.get("containers"))]
    return bool(spec.get("resourceClaims")) or any(each.keys() - {*CORE} for each in limits)
