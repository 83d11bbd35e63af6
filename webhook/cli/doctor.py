"""The command that examines an installation: doctor."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from webhook.cli import options
from webhook.cli.checkup import Check, Result, number, several
from webhook.cli.options import FAILED, FINE, NOT_FINE, UsageError
from webhook.cli.tenants import Problem
from webhook.core import review
from webhook.core.decision import POLICY, Decision
from webhook.core.kube import fields
from webhook.core.kube.pod import CORE
from webhook.core.mutate import mutate
from webhook.core.policy.membership import Tie
from webhook.core.quota import ledger
from webhook.core.quota.ledger import Ledger
from webhook.core.review import creating
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Tenancy
from webhook.core.validate import validate

# The command that examines an installation: doctor.


def doctor_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook doctor` takes."""
    from webhook.core.rules import cluster

    command.add_argument(
        "--rules",
        type=Path,
        metavar="DIR",
        help="the rules that should be in force; default: the ConfigMaps that the admission server mounts",
    )
    command.add_argument(
        "--namespace",
        default=cluster.OWN,
        metavar="NAME",
        help="where the server runs (default: %(default)s)",
    )
    command.add_argument(
        "--try-in", default="default", metavar="NAME", help="namespace for dry runs of pods (default: %(default)s)"
    )
    command.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of a replica, for example of a kubectl port-forward; default: the endpoints of the Service",
    )
    options.output_option(command)
    command.set_defaults(command=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from webhook.cli import checkup, examination
    from webhook.cluster import client
    from webhook.cluster.client import ask
    from webhook.core.registration.configurations import NotExemptError

    asked = examination.Asked(
        rules=given.rules,
        namespace=given.namespace,
        try_in=given.try_in,
        endpoints=[options.address(each, "--endpoint") for each in given.endpoint],
    )
    try:
        checks = ask(partial(examination.examine, asked))
    except (client.ApiError, NotExemptError) as error:
        raise UsageError(str(error)) from None
    options.print_json(checkup.contract(checks)) if given.output == "json" else print(
        "\n".join(checkup.lines(checks))
    )
    if not all(check.examined for check in checks):
        return FAILED
    return NOT_FINE if any(check.result == "fail" for check in checks) else FINE


# The webhook configurations of a cluster beside those that the rules make, and beside those of others.

Object = Mapping[str, Any]

RENDER: Final = (
    "apply the manifests with --server-side --force-conflicts, or: gpu-webhook render webhooks | kubectl apply"
    " --server-side --force-conflicts -f -"
)
"""Without --force-conflicts the API server refuses to take back a field that somebody else has written."""

AWAIT: Final = (
    "gpu-webhook-certs writes the rules when a replica answers through every API server and, in an upgrade, no old"
    " one is left; its log says what it waits for. Without that program: gpu-webhook render webhooks --active"
)

_DEFAULTS: Final[Object] = {
    "failurePolicy": "Fail",
    "matchConditions": [],
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "reinvocationPolicy": "Never",
}
"""What the API server fills in (kubernetes/pkg/apis/admissionregistration/v1/defaults.go)."""

_TUNED: Final = frozenset({"timeoutSeconds"})
"""What an operator may have chosen otherwise."""

_CHECKED_APART: Final = frozenset({"failurePolicy", "namespaceSelector", "name", "rules"})


class _Hook(NamedTuple):
    """One webhook as it should be, and as it is."""

    wanted: Object
    found: Object

    @property
    def name(self) -> str:
        return str(self.wanted["name"])

    @property
    def is_active(self) -> bool:
        """The API server calls a webhook without rules for nothing."""
        return bool(self.found.get("rules"))

    @property
    def has_other_rules(self) -> bool:
        """Those of a former version, or of an edit."""
        return self.is_active and _plain(self.wanted["rules"]) != _plain(self.found["rules"])


def check_registered(wanted: Sequence[Object], live: Mapping[str, Object | None]) -> list[Check]:
    """Whether our configurations exist and are as rendered. `live` has those of the cluster, by kind."""
    missing = [each["kind"] for each in wanted if live.get(each["kind"]) is None]
    if missing:
        text = f"there is no {' and no '.join(missing)} called {wanted[0]['metadata']['name']}"
        return [Check("configurations", "fail", text, RENDER)]
    pairs = [(each, live[each["kind"]] or {}) for each in wanted]
    hooks = [hook for each, found in pairs for hook in _hooks(each, found)]
    drifted = [text for each, found in pairs for text in _missing(each, found)]
    drifted += [text for hook in hooks for text in _drift(hook)]
    return [
        _drifted(drifted, [text for hook in hooks for text in _chosen(hook)], hooks),
        _active(hooks),
        _policy(hooks),
        _left_out(hooks),
    ]


def _hooks(wanted: Object, found: Object) -> Iterator[_Hook]:
    by_name = {each["name"]: each for each in found.get("webhooks") or ()}
    for each in wanted["webhooks"]:
        if each["name"] in by_name:
            yield _Hook({**_DEFAULTS, **each}, {**_DEFAULTS, **by_name[each["name"]]})


def _missing(wanted: Object, found: Object) -> Iterator[str]:
    names = [{each["name"] for each in one.get("webhooks") or ()} for one in (wanted, found)]
    yield from (f"{wanted['kind']} has no {name}" for name in sorted(names[0] - names[1]))
    yield from (f"{wanted['kind']} has {name}, which is not rendered" for name in sorted(names[1] - names[0]))


def _drift(hook: _Hook) -> Iterator[str]:
    """What differs from the rendered webhook and was not for an operator to choose."""
    keys = sorted((hook.wanted.keys() | hook.found.keys()) - _CHECKED_APART - _TUNED - {"clientConfig"})
    for key in keys:
        if _plain(hook.wanted.get(key)) != _plain(hook.found.get(key)):
            yield f"{hook.name}: {key} {_difference(hook.wanted.get(key), hook.found.get(key))}"
    wanted, found = (_service(each) for each in hook)
    if found is not None and found != wanted:
        yield f"{hook.name}: clientConfig.service is {found}, not {wanted}"


def _chosen(hook: _Hook) -> Iterator[str]:
    """What an operator has chosen otherwise."""
    for key in sorted(_TUNED):
        if hook.wanted[key] != hook.found[key]:
            yield f"{hook.name}: {key} is {hook.found[key]}, rendered {hook.wanted[key]}"
    if _service(hook.found) is None:
        yield f"{hook.name}: called at {fields.mapping(hook.found, 'clientConfig').get('url')}, not by the Service"


def _service(hook: Object) -> Object | None:
    """Where a Service is called, with the API server's defaults; None for a URL."""
    service = fields.mapping(hook, "clientConfig", "service")
    return {"port": 443, **service} if service else None


def _plain(value: Any) -> Any:
    """A value without the order of its lists, and a rule with the API server's default."""
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=str)
    if isinstance(value, Mapping):
        scope = {"scope": "*"} if "operations" in value else {}
        return {**scope, **{key: _plain(each) for key, each in value.items()}}
    return value


def _difference(wanted: Any, found: Any) -> str:
    if isinstance(wanted, str | int) and isinstance(found, str | int):
        return f"is {found}, rendered {wanted}"
    return "differs from what is rendered" if found else "is missing"


def _drifted(drifted: Sequence[str], chosen: Sequence[str], hooks: Sequence[_Hook]) -> Check:
    result: Result = "fail" if drifted else "warn" if chosen else "ok"
    if result == "ok":
        return Check("configurations", "ok", f"both are there, and their {len(hooks)} webhooks are as rendered")
    fix = RENDER if drifted else "none is needed if that is meant; else " + RENDER
    return Check("configurations", result, several([*drifted, *chosen]), fix)


def _active(hooks: Sequence[_Hook]) -> Check:
    inactive = ", ".join(hook.name for hook in hooks if not hook.is_active)
    if inactive:
        text = f"{inactive}: no rules yet, so the API server never calls it"
        return Check("active", "fail", text, AWAIT)
    if others := ", ".join(hook.name for hook in hooks if hook.has_other_rules):
        return Check("active", "fail", f"{others}: other rules than are rendered", f"{RENDER}; then {AWAIT}")
    return Check("active", "ok", "each webhook has its rules, so the API server calls it")


def _policy(hooks: Sequence[_Hook]) -> Check:
    def with_(wanted: str, found: str) -> str:
        pairs = ((hook.name, hook.wanted["failurePolicy"], hook.found["failurePolicy"]) for hook in hooks)
        return ", ".join(name for name, *pair in pairs if pair == [wanted, found])

    if closed := with_("Ignore", "Fail"):
        text = f"{closed} only warns, and has Fail: nobody can write a workload while no replica answers"
        return Check("failure-policy", "fail", text, RENDER)
    if ignored := with_("Fail", "Ignore"):
        away = "while no replica answers, GPU pods are created as they are, not counted"
        fix = "none is needed to try it (observe-only); else " + RENDER
        return Check("failure-policy", "warn", f"{ignored}: failurePolicy Ignore: {away}", fix)
    return Check("failure-policy", "ok", "Fail for what a policy has to judge, Ignore for warnings")


def _left_out(hooks: Sequence[_Hook]) -> Check:
    wrong, narrower = [], []
    for hook in hooks:
        wanted, found = (_terms(each["namespaceSelector"]) for each in hook)
        if not wanted <= found:
            wrong.append(hook.name)
        elif wanted != found:
            narrower.append(f"{hook.name} asks only about namespaces with {' and '.join(sorted(found - wanted))}")
    if wrong:
        text = f"{', '.join(wrong)} does not leave out the systemNamespaces of the Cluster document"
        return Check("namespaces", "fail", text, RENDER)
    if narrower:
        fix = "none is needed if namespaces opt in; who may label a namespace can take it out of all policies"
        return Check("namespaces", "warn", several(narrower), fix)
    return Check("namespaces", "ok", "those left out are the systemNamespaces of the Cluster document")


def _terms(selector: Object) -> set[str]:
    """Each requirement of a label selector in words, whichever way it is written."""
    labels = {f"{key} In [{value}]" for key, value in (selector.get("matchLabels") or {}).items()}
    lines = selector.get("matchExpressions") or ()
    return labels | {
        f"{one['key']} {one['operator']} [{', '.join(sorted(one.get('values') or ()))}]" for one in lines
    }


def asks_about(configuration: Object | None, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the webhook of that name asks about pods in a namespace with these labels."""
    hooks = [each for each in (configuration or {}).get("webhooks") or () if each["name"] == name]
    return any(_selects(each.get("namespaceSelector") or {}, labels) for each in hooks)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(_holds(line, labels) for line in selector.get("matchExpressions") or ())


def _holds(line: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(line["key"]), list(line.get("values") or ())
    match line["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case operator:
            return (value is not None) is (operator == "Exists")


def others(live: Iterable[Object], ours: str, words: Collection[str]) -> Check:
    """Whether another webhook mutates new pods before ours does.

    `words` are the first words of the back ends' names, such as `acme`: a webhook that has one in its name, or `gpu`,
    handles GPUs. One that runs before ours and is not called again never sees what we put on the pod.
    """
    early = [(each, hook) for each in live for hook in each.get("webhooks") or () if _is_early(each, hook, ours)]
    deaf = [
        _called(*one) for one in early if one[1].get("reinvocationPolicy") != "IfNeeded" and _is_of_gpus(one, words)
    ]
    harmless = [_called(*one) for one in early if _called(*one) not in deaf]
    if deaf:
        text = f"runs before {ours} and is not called again, so it misses what a translated pod asks: {several(deaf)}"
        return Check("order", "fail", text, "set reinvocationPolicy: IfNeeded there, or give it a later name")
    if harmless:
        text = f"runs before {ours}: {several(harmless)}"
        return Check("order", "ok", f"{text}; it is called again, or does not handle GPUs by its name")
    return Check("order", "ok", f"{ours} is the first mutating webhook of new pods")


def _called(configuration: Object, hook: Object) -> str:
    return f"{hook.get('name')} of {configuration['metadata']['name']}"


def _is_early(configuration: Object, hook: Object, ours: str) -> bool:
    return configuration["metadata"]["name"] < ours and any(map(_is_for_new_pods, hook.get("rules") or ()))


def _is_for_new_pods(rule: Object) -> bool:
    def has(key: str, *wanted: str) -> bool:
        return not {*wanted}.isdisjoint(rule.get(key) or ())

    return has("apiGroups", "", "*") and has("resources", "pods", "*", "*/*") and has("operations", "CREATE", "*")


def _is_of_gpus(one: tuple[Object, Object], words: Collection[str]) -> bool:
    configuration, hook = one
    service = fields.mapping(hook, "clientConfig", "service")
    names = (configuration["metadata"]["name"], hook.get("name"), service.get("name"), service.get("namespace"))
    text = " ".join(str(name) for name in names)
    return any(word in text for word in (*words, "gpu"))


# What this version of Kubernetes lacks of what the configurations and the rules use.

MATCH_CONDITIONS: Final = 30
"""The minor version from which matchConditions are stable; two before that have them as beta, by default."""

CLAIMS: Final = "resource.k8s.io"
BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
EXTENDED_RESOURCES: Final = 36
"""The minor version from which a DeviceClass can stand for an extended resource by default (KEP-5004)."""


class _Lack(NamedTuple):
    result: Result
    text: str


def check_release(version: Mapping[str, Any], groups: Collection[str], rulebook: Rulebook) -> Check:
    """What is missing. `version` is the answer of /version, `groups` are the API groups that are served."""
    known = [re.match("[0-9]+", str(version.get(part, ""))) for part in ("major", "minor")]
    name = str(version.get("gitVersion") or "of an unknown version")
    if known[0] is None or known[1] is None:
        return Check("kubernetes", "warn", f"/version says {name}: what it lacks is not known", "none is needed")
    minor = int(known[1][0]) if int(known[0][0]) == 1 else 1000
    lacks = list(_lacks(minor, groups, rulebook))
    if not lacks:
        return Check("kubernetes", "ok", f"{name} has all that the configurations and the enabled back ends use")
    result: Result = "fail" if any(lack.result == "fail" for lack in lacks) else "warn"
    fix = "upgrade Kubernetes, or take the back ends that need it out of the Cluster document"
    return Check("kubernetes", result, f"{name}: {several([lack.text for lack in lacks])}", fix)


def _lacks(minor: int, groups: Collection[str], rulebook: Rulebook) -> Iterator[_Lack]:
    if minor < MATCH_CONDITIONS - 2:
        text = "it ignores matchConditions, so every pod waits for us, and none is created while we are away"
        yield _Lack("fail", text)
    elif minor < MATCH_CONDITIONS:
        yield _Lack("warn", "matchConditions are beta, and must not be switched off")
    claiming = [backend.name for backend in rulebook.enabled if any(mode.claims for mode in backend.modes)]
    if claiming and CLAIMS not in groups:
        yield _Lack("fail", f"it has no resource claims (DRA), which {several(claiming, ', ')} gives pods")
    by_class = sorted({owner.name for each in _by_class(rulebook) for owner in each})
    if by_class and minor < EXTENDED_RESOURCES:
        text = f"the feature gate DRAExtendedResource, which {several(by_class, ', ')} needs, is off by default"
        yield _Lack("warn", text)


def _by_class(rulebook: Rulebook) -> Iterator[tuple[Backend, ...]]:
    return (each.owners for name, each in rulebook.resources.items() if name.startswith(BY_CLASS))


# Pods that are tried at each API server by a dry run, and what the answers say of the way to us and back.

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


def trial_pods(rulebook: Rulebook) -> Sequence[Tried]:
    """The pods to try: one that these rules translate, one that they refuse, and one without a GPU."""
    alone = replace(rulebook, tenancy=Tenancy())

    def decided(labels: Mapping[str, str]) -> Decision:
        return mutate(creating(Tried("translated", labels).pod, uid="doctor", namespace="default"), alone)

    asking = next((labels for labels in _ASKING if decided(labels).patch), None)
    wrong = next(((labels, denied) for labels in _WRONG if not (denied := decided(labels)).allowed), None)
    found = [] if asking is None else [Tried("translated", asking)]
    found += [] if wrong is None else [Tried("refused", wrong[0], wrong[1].violations[0].code)]
    return [*found, Tried("bystander", {"app": "doctor"})]


def check_trials(tried: Sequence[Tried], servers: Sequence[Server], *, observing: bool, certified: bool) -> Check:
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
    spec = fields.mapping(pod, "spec")
    limits = [fields.mapping(each, "resources", "limits") for each in fields.objects(spec.get("containers"))]
    return bool(spec.get("resourceClaims")) or any(each.keys() - {*CORE} for each in limits)


# What stands in a cluster: policies, ledgers, and the GPU pods that would be refused today.

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
    return fields.objects(fields.at(found, "status", "conditions"))


def _name(found: Object) -> str:
    return str(fields.mapping(found, "metadata").get("name", ""))


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
    suspected = {name: ledger.namespaces(one.suspects) for name, one in second.ledgers.items()}
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
        if fields.at(each, "status", "observedGeneration") != fields.at(each, "metadata", "generation")
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
        metadata = fields.mapping(pod, "metadata")
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
