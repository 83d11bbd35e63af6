"""`gpu-webhook doctor` examines an installation: nothing is written, and every create is a dry run.

A check is a function of what `installation` has read, declared with its name, its fix, and what is read for it. They
are told in the order of this file. That the API server compares our configurations, by the dry run of a server-side
apply, was tried: it sees no webhook, match condition or object selector that somebody has added, refuses where there
is a URL, and needs the right to write webhook configurations, with which an account reads every Secret.
"""

import argparse
import re
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from webhook.cli import installation as reading
from webhook.cli import options
from webhook.cli.installation import Address, Installation, Result, Verdict, hooks, requirements
from webhook.cli.table import number, several
from webhook.cluster.client import Api, ApiError, ask
from webhook.core.interpret.extended_resources import DEVICE_CLASS
from webhook.core.kube import fields
from webhook.core.kube.quantity import DAY, HOUR, duration
from webhook.core.policy import device_access, in_force, membership
from webhook.core.quota import ledger
from webhook.core.registration import configurations
from webhook.core.registration import policies as registration
from webhook.core.rules.catalog import Cards
from webhook.core.rules.cluster import OWN, Cluster
from webhook.core.rules.rulebook import index
from webhook.files import rule_files


class Check(NamedTuple):
    """A check with its result; `fix` is empty if it is fine. Not `examined`: what it needs could not be read."""

    name: str
    result: Result
    found: str
    fix: str = ""
    examined: bool = True


Judge = Callable[[Installation], Verdict | Check | None]
Examine = Callable[[Installation], Check | None]
Read = Callable[[Installation, Api], Awaitable[None]]
CHECKS: Final[list[tuple[str, Read | None, Examine, Sequence[str]]]] = []
WITHOUT_RULES: Final = {"programs", "rights", "replicas", "certificate", "expiry", "rules", "clocks"}
"""Checks that do not ask what the rules are."""


def check(
    name: str, read: Read | None = None, fix: str = "", after: Sequence[str] = ()
) -> Callable[[Judge], Examine]:
    """Declare a function as a check. It returns None where another check has said all there is to say.

    `read` fills in what it needs beside what the checks above it have read. Where one of `after` has failed, this one
    may fail as a consequence: it then warns, so that the cause is said once, and first.
    """

    def declare(judge: Judge) -> Examine:
        def examine(installation: Installation) -> Check | None:
            verdict = judge(installation)
            if verdict is None or isinstance(verdict, Check):
                return verdict
            result, text, *own = verdict
            told = "" if result == "ok" else "".join(own) or fix
            return Check(name, result, text, told.replace(OWN, installation.namespace))

        CHECKS.append((name, read, examine, after))
        return examine

    return declare


# Whether our programs run, and may do what they have to.

APPLY: Final = "apply the manifests: kubectl apply --server-side --force-conflicts -k manifests/base"
PROGRAMS: Final = {
    configurations.NAME: "pods with GPUs are not created",
    f"{configurations.NAME}-settler": "quotas are not released, and changed policies not put in force",
    f"{configurations.NAME}-certs": "certificates are not renewed, and webhooks not activated",
}
"""Our Deployments, and what becomes of the cluster without each."""


@check("programs", reading.read_programs)
def programs(installation: Installation) -> Verdict:
    """Whether each of our programs has a pod that is ready, and all are of one version."""
    away: list[str] = []
    fixes: list[str] = []
    images: dict[str, list[str]] = {}
    for name, without in PROGRAMS.items():
        deployment, target = installation.deployments.get(name), f"-n {installation.namespace} deployment/{name}"
        if deployment is None:
            away.append(f"there is no Deployment {name}: {without}")
            fixes.append(APPLY)
            continue
        for container in fields.objects(fields.at(deployment, "spec", "template", "spec", "containers")):
            images.setdefault(str(container.get("image")), []).append(name)
        if fields.at(deployment, "spec", "replicas") == 0:
            away.append(f"{name} is scaled to 0: {without}")
            fixes.append(f"kubectl scale {target} --replicas={3 if name == configurations.NAME else 1}")
        elif not fields.at(deployment, "status", "readyReplicas"):
            away.append(f"{name} has no pod that is ready: {without}")
            why = f"see its log and its pods' events: kubectl logs {target}; without the Secret gpu-webhook-tls"
            fixes.append(f"{why} no replica starts; to start it anew: kubectl rollout restart {target}")
    if away:
        return "fail", several(away), "; ".join(dict.fromkeys(fixes))
    if len(images) > 1:
        versions = [f"{image} ({', '.join(dict.fromkeys(names))})" for image, names in images.items()]
        return "fail", f"programs of several versions: {several(versions)}", APPLY
    return "ok", f"{', '.join(PROGRAMS)} run, and are of one version"


@check("rights", reading.read_programs, APPLY)
def rights(installation: Installation) -> Verdict:
    """Whether the accounts of our programs have their roles, by what the API server says of some rights of each."""
    if installation.lacking:
        return "fail", several(installation.lacking)
    return "ok", "the accounts of our programs may do what they have to"


# The webhook configurations beside those that the rules make.

RENDER: Final = (
    "apply the manifests with --server-side --force-conflicts, or: gpu-webhook render webhooks | kubectl apply"
    " --server-side --force-conflicts -f -"
)
"""Without --force-conflicts the API server refuses to take back a field that somebody else has written."""

EDIT: Final = f"kubectl edit NAME gpu-webhook, and delete there what is not rendered; for the rest {RENDER}"
"""Applying takes back what is rendered, and leaves what somebody has added."""

AWAIT: Final = (
    "gpu-webhook-certs writes the rules when a replica answers through every API server and, in an upgrade, no old"
    " one is left; its log says what it waits for. Without that program: gpu-webhook render webhooks --active"
)


@check("configurations", reading.read_configurations, RENDER)
def are_registered(installation: Installation) -> Verdict:
    """Whether our configurations exist, and are as rendered in what is not for an operator to choose."""
    wanted, live = installation.wanted, installation.live
    if missing := [configuration["kind"] for configuration in wanted if live.get(configuration["kind"]) is None]:
        return "fail", f"there is no {' and no '.join(missing)} called {wanted[0]['metadata']['name']}"
    drift: list[str] = []
    chosen: list[str] = []
    fix = RENDER
    for configuration in wanted:
        kind = configuration["kind"]
        rendered, stored = hooks(configuration).keys(), hooks(live[kind]).keys()
        drift += [f"{kind} has no {name}" for name in sorted(rendered - stored)]
        drift += [f"{kind} has {name}, which is not rendered" for name in sorted(stored - rendered)]
        fix = EDIT if stored - rendered else fix
    for hook, stored_hook in installation.pairs:
        name, apart = hook["name"], {"name", "rules", "failurePolicy", "namespaceSelector", "clientConfig"}
        for key in sorted((hook.keys() | stored_hook.keys()) - apart):  # those have other checks, or are below
            # What is not rendered is empty, except for this one, or always rendered: the API server fills that in.
            default = "Never" if key == "reinvocationPolicy" else None
            expected, there = hook.get(key) or default, stored_hook.get(key) or default
            text = f"{name}: {key} {'differs from what is rendered' if there else 'is missing'}"
            if key == "timeoutSeconds" or (isinstance(expected, str) and isinstance(there, str)):
                text = f"{name}: {key} is {there}, rendered {expected}"
            fix = fix if expected == there or key in hook else EDIT
            if expected != there:
                (chosen if key == "timeoutSeconds" else drift).append(text)
        service, called = hook["clientConfig"]["service"], fields.mapping(stored_hook, "clientConfig")
        if not called.get("service"):
            chosen.append(f"{name}: called at {called.get('url')}, not by the Service")
        elif called["service"] != service:
            drift.append(f"{name}: clientConfig.service is {called['service']}, not {service}")
    if drift:
        return "fail", several([*drift, *chosen]), fix
    if chosen:
        return "warn", several(chosen), f"none is needed if that is meant; else {RENDER}"
    return "ok", f"both are there, and their {len(installation.pairs)} webhooks are as rendered"


@check("active", reading.read_configurations, AWAIT, after=["programs", "rights"])
def active(installation: Installation) -> Verdict | None:
    """Whether the API server calls each webhook, and by the rules of this version."""
    if None in installation.live.values():
        return None
    if inactive := [hook["name"] for hook, stored in installation.pairs if not stored.get("rules")]:
        return "fail", f"{', '.join(inactive)}: no rules yet, so the API server never calls it"
    if others := [hook["name"] for hook, stored in installation.pairs if hook["rules"] != stored["rules"]]:
        return "fail", f"{', '.join(others)}: other rules than are rendered", f"{RENDER}; then {AWAIT}"
    return "ok", "each webhook has its rules, so the API server calls it"


@check("failure-policy", reading.read_configurations, RENDER)
def failure_policy(installation: Installation) -> Verdict | None:
    """Whether what a policy has to judge is refused while no replica answers, and all else is not."""
    if None in installation.live.values():
        return None
    names: dict[tuple[str, str], list[str]] = {}
    for hook, stored in installation.pairs:
        names.setdefault((hook["failurePolicy"], stored["failurePolicy"]), []).append(hook["name"])
    if closed := ", ".join(names.get(("Ignore", "Fail"), ())):
        return "fail", f"{closed} only warns, and has Fail: nobody can write a workload while no replica answers"
    if ignored := ", ".join(names.get(("Fail", "Ignore"), ())):
        away = "while no replica answers, GPU pods are created as they are, not counted"
        text = f"{ignored}: failurePolicy Ignore: {away}"
        if installation.rulebook.tenancy.observing:
            return "ok", f"{text}, which is meant while it observes"
        return "fail", f"{text}; was break-glass forgotten?"
    return "ok", "Fail for what a policy has to judge, Ignore for warnings"


@check("namespaces", reading.read_configurations, RENDER)
def namespaces(installation: Installation) -> Verdict | None:
    """Whether the namespaces that our webhooks leave out are the exempt ones."""
    if None in installation.live.values():
        return None
    wrong, narrower = [], []
    for hook, stored in installation.pairs:
        rendered, selected = ({*requirements(webhook.get("namespaceSelector") or {})} for webhook in (hook, stored))
        if not rendered <= selected:
            wrong.append(hook["name"])
        elif more := sorted(f"{line.key} {line.operator} [{', '.join(line.values)}]" for line in selected - rendered):
            narrower.append(f"{hook['name']} asks only about namespaces with {' and '.join(more)}")
    if wrong:
        return "fail", f"{', '.join(wrong)} does not leave out the systemNamespaces of the Cluster document"
    mutating = installation.live["MutatingWebhookConfiguration"] or {}
    called = (reading.asks_about(mutating, labels) for labels in installation.labels.values())
    if narrower and not any(called):
        fix = f"label a namespace: kubectl label namespace NAME gpu-webhook.io/admission=enabled; or {RENDER}"
        return "fail", f"{several(narrower)}, and no namespace is such a one: no pod is judged", fix
    if narrower:
        fix = "none is needed if namespaces opt in; who may label a namespace can take it out of all policies"
        return "warn", several(narrower), fix
    return "ok", "those left out are the systemNamespaces of the Cluster document"


# Replicas, as they were seen by connecting to them.

SILENT_SECONDS: Final = 900.0
"""A watcher that has heard nothing of nodes for so long is dead, or may not list them."""

FROM_INSIDE: Final = "run it in a pod of the cluster, or give --endpoint for each replica"
UNSEEN: Final[Verdict] = ("warn", "not examined: no replica can be seen from here", FROM_INSIDE)


@check("replicas", reading.read_replicas, "the log of that pod says why it is not ready", after=["programs"])
def replicas(installation: Installation) -> Verdict:
    """Whether replicas are there and ready."""
    there = installation.replicas
    if not there:
        text = f"the Service {installation.namespace}/{configurations.NAME} has no endpoint that is ready"
        return "fail", text, f"if pods are ready, the Service does not select them: {APPLY}"
    if waiting := [f"{replica.address}: {replica.not_ready}" for replica in there if replica.not_ready]:
        return "fail", several(waiting)
    silent = [
        f"{replica.address} for {duration(replica.silent)}" for replica in there if replica.silent > SILENT_SECONDS
    ]
    if silent:
        text = f"{several(silent)} heard nothing of nodes: pods are judged by those that there were then"
        fix = "see the log of its container `watcher`; delete the pod: kubectl -n gpu-webhook-system delete pod NAME"
        return "fail", text, fix
    if hidden := [f"{replica.address}: {replica.unreachable}" for replica in there if replica.unreachable]:
        text = f"{len(hidden)} of {number(len(there), 'replica')} cannot be seen from here: {several(hidden)}"
        return "warn", text, f"if `admission` is ok: {FROM_INSIDE}; else see there"
    return "ok", f"{number(len(there), 'replica')} {'is' if len(there) == 1 else 'are'} ready"


@check("certificate", reading.read_replicas, after=["programs"])
def certificate(installation: Installation) -> Verdict:
    """Whether each replica serves a certificate that the bundles of our webhooks verify."""
    elsewhere = f"with others' certificates: ca.crt of the Secret {installation.namespace}/gpu-webhook-tls"
    fix = f"the log of gpu-webhook-certs says why it did not renew; {elsewhere}"
    if wiped := installation.bundles.get(""):
        text = f"{', '.join(wiped)} has no caBundle: API servers trust no replica"
        return "fail", text, f"gpu-webhook-certs writes it within 15 s; {fix}"
    wrong: dict[str, list[str]] = {}
    for replica in installation.replicas:
        wrong.setdefault(replica.untrusted, []).append(replica.address)
    if texts := [f"{', '.join(addresses)}: {why}" for why, addresses in wrong.items() if why]:
        return "fail", several(texts), fix
    reached = sum(not replica.unreachable for replica in installation.replicas)
    if not reached:
        return UNSEEN
    return "ok", f"{number(reached, 'replica')}: the caBundle verifies what is served for {installation.server}"


@check(
    "expiry",
    reading.read_replicas,
    "the log of gpu-webhook-certs says why it did not renew; or renew them where they are issued",
    after=["programs"],
)
def expiry(installation: Installation) -> Verdict:
    """Whether the certificates are valid now and for long enough."""
    now, dated = installation.now, [(replica, *replica.valid) for replica in installation.replicas if replica.valid]
    if not dated:
        return UNSEEN
    for replica, begins, ends in dated:
        if now > ends:
            return "fail", f"{replica.address}: expired {duration(now - ends)} ago"
        if now < begins:
            return "fail", f"{replica.address}: not valid for another {duration(begins - now)}"
        if replica.untimely:
            return "fail", f"{replica.address}: {replica.untimely}: a CA of the caBundle, not the leaf"
    replica, begins, ends = min(dated, key=lambda dates: (dates[2] - now) / max(dates[2] - dates[1], 1))
    text = f"{duration(ends - now)} of {max(1, round((ends - begins) / DAY))} days are left"
    if ends - now < (ends - begins) / 3:
        return "warn", f"{replica.address}: only {text}, less than a third: a renewal is late"
    return "ok", text


@check(
    "rules",
    reading.read_replicas,
    "a changed ConfigMap takes a minute to reach them; after that their logs say why the rules do not load",
)
def rules(installation: Installation) -> Verdict:
    """Whether each replica applies the rules that should be in force."""
    source, digest = installation.source, installation.rulebook.digest
    if installation.unloadable:
        text = (
            f"{source} do not load: {installation.unloadable}; replicas keep the rules that they have, and one that"
        )
        fix = "mend that file and apply the manifests; before, `gpu-webhook check rules` says whether it loads"
        return "fail", f"{text} starts now has none; other checks are made when they load", fix
    applied = {replica.address: replica.digest for replica in installation.replicas if not replica.unreachable}
    if not applied:
        return UNSEEN
    others = [f"{address} applies {other[:12] or 'none'}" for address, other in applied.items() if other != digest]
    if not others:
        applies = f"{number(len(applied), 'replica')} {'applies' if len(applied) == 1 else 'apply'}"
        return "ok", f"{applies} the rules of {source}, {digest[:12]}"
    disagree = "" if len({*applied.values()}) == 1 else "replicas disagree: "
    return "fail", f"{disagree}{source} has the rules {digest[:12]}, and {several(others)}"


# Pods that are tried at each API server by a dry run: the way to us and back.

_OF_TLS: Final = re.compile(r"x509:|tls:|unable to load root certificates")
UNANSWERED: Final = (
    "look whether replicas run (kubectl -n gpu-webhook-system get pods), and whether a firewall or NetworkPolicy"
    " keeps API servers from their port (components gke, eks)"
)


@check(
    "admission",
    reading.read_admission,
    "see `configurations`, `namespaces` and `rules`",
    after=["programs", "configurations", "active", "replicas", "certificate", "expiry", "rules"],
)
def admission(installation: Installation) -> Verdict | Check:
    """Whether each API server has us translate and refuse pods, and leave others alone."""
    if installation.untried:
        return "warn", f"not tried: {installation.untried}", "name another namespace: --try-in NAMESPACE"
    reached = [server for server in installation.api_servers if not server.unreachable]
    unreached = [server for server in installation.api_servers if server.unreachable]
    hidden = several([f"{server.address}: {server.unreachable}" for server in unreached])
    if not reached:
        fix = "run it in a pod of the cluster, with an account that may create pods there"
        return Check("admission", "fail", f"no API server can be asked: {hidden}", fix, examined=False)
    observing = installation.rulebook.tenancy.observing
    pods = reading.trials(installation.rulebook)
    troubles = [
        *filter(None, (reading.trouble(pod, server, observing=observing) for server in reached for pod in pods))
    ]
    if failures := [trouble for trouble in troubles if trouble[0] == "fail"]:
        texts = [text for _, text, *_ in failures]
        fix = next((own for _, _, *fixes in failures for own in fixes), "")
        uncalled = [text for text in texts if reading.UNCALLED.search(text)]
        texts = [*uncalled[:1], *(text for text in texts if text not in uncalled)]  # it is the same for all pods
        if any(map(_OF_TLS.search, uncalled)):
            fix = "the API server cannot verify what is served: see the log of gpu-webhook-certs, and caBundle"
        elif uncalled:
            fix = UNANSWERED
        return "fail", several(texts), fix
    if troubles:
        return "warn", several([text for _, text, *_ in troubles]), troubles[0][-1]
    servers = number(len(reached), "API server")
    if hidden:
        fix = "run it in a pod of the cluster, which reaches each of them"
        return "warn", f"fine at {servers}; not asked from here: {hidden}", fix
    done = "warned of" if observing else "translated or refused"
    return "ok", f"at {servers} pods with GPUs are {done}, and others are not sent to us"


# Whether all of them agree.

SKEW_SECONDS: Final = 10.0
"""Clocks that differ by less are fine: a Date header has whole seconds, and an answer takes some time."""


@check("clocks", fix="synchronise clocks there (chrony, NTP)")
def clocks(installation: Installation) -> Verdict:
    """Whether the clocks of this machine, the API servers and the replicas agree, by the one in the middle."""
    ahead = {replica.address: replica.ahead for replica in installation.replicas if replica.ahead is not None}
    offsets = {"this machine": 0.0, **installation.clocks, **ahead}
    if len(offsets) == 1:
        return UNSEEN
    middle = sorted(offsets.values())[len(offsets) // 2]
    off = {whose: by - middle for whose, by in offsets.items() if abs(by - middle) > SKEW_SECONDS}
    if not off:
        return "ok", f"{len(offsets)} clocks agree to {SKEW_SECONDS:g} s"
    texts = []
    for whose, by in off.items():
        amount = duration(abs(by)) if abs(by) >= 60 else f"{abs(by):.0f} s"
        texts.append(f"{whose} is {amount} {'ahead' if by > 0 else 'behind'}")
    if any(abs(by) > HOUR for by in off.values()):
        return "fail", f"{several(texts)}; certificates are valid from an hour before their issue on"
    return "warn", several(texts)


# Other webhooks, and the version of Kubernetes.


@check("order", reading.read_webhooks, "set reinvocationPolicy: IfNeeded there, or give it a later name")
def order(installation: Installation) -> Verdict:
    """Whether another webhook for GPUs mutates new pods before ours, and never sees what we put on them.

    One handles GPUs if it has `gpu` or the first word of a back end's name in its own.
    """
    ours = configurations.NAME
    words = {"gpu", *(backend.name.partition("-")[0] for backend in installation.rulebook.enabled)}
    new_pods = {"apiGroups": {"", "*"}, "resources": {"pods", "*", "*/*"}, "operations": {"CREATE", "*"}}
    deaf: list[str] = []
    harmless: list[str] = []
    for configuration in installation.mutating:
        name = configuration["metadata"]["name"]
        for hook in configuration.get("webhooks") or () if name < ours else ():
            matching = (
                all(names & {*(rule.get(key) or ())} for key, names in new_pods.items())
                for rule in hook.get("rules") or ()
            )
            if not any(matching):
                continue
            service = fields.mapping(hook, "clientConfig", "service")
            names = f"{name} {hook.get('name')} {service.get('name')} {service.get('namespace')}"
            misses = hook.get("reinvocationPolicy") != "IfNeeded" and any(word in names for word in words)
            (deaf if misses else harmless).append(f"{hook.get('name')} of {name}")
    if deaf:
        missed = "is not called again, so it misses what a translated pod asks"
        return "fail", f"runs before {ours} and {missed}: {several(deaf)}"
    if harmless:
        text = f"runs before {ours}: {several(harmless)}"
        return "ok", f"{text}; it is called again, or does not handle GPUs by its name"
    return "ok", f"{ours} is the first mutating webhook of new pods"


@check(
    "kubernetes",
    reading.read_version,
    "upgrade Kubernetes, or take the back ends that need it out of the Cluster document",
)
def kubernetes(installation: Installation) -> Verdict:
    """What this version of Kubernetes lacks of what the configurations and the enabled back ends use."""
    version, rulebook = installation.version, installation.rulebook
    name = str(version.get("gitVersion") or "of an unknown version")
    major, minor = (re.match("[0-9]+", str(version.get(part, ""))) for part in ("major", "minor"))
    if major is None or minor is None:
        return "warn", f"/version says {name}: what it lacks is not known", "none is needed"
    release = int(minor[0]) if int(major[0]) == 1 else 1000
    lacks: list[tuple[Result, str]] = []
    if release < 28:
        text = "it ignores matchConditions, so every pod waits for us, and none is created while we are away"
        lacks.append(("fail", text))
    elif release < 30:
        lacks.append(("warn", "matchConditions are beta, and must not be switched off"))
    claiming = [backend.name for backend in rulebook.enabled if any(mode.claims for mode in backend.modes)]
    if claiming and "resource.k8s.io" not in installation.groups:
        lacks.append(("fail", f"it has no resource claims (DRA), which {several(claiming, ', ')} gives pods"))
    by_class = [owned for resource, owned in rulebook.resources.items() if resource.startswith(DEVICE_CLASS)]
    needing = several(sorted({owner.name for owned in by_class for owner in owned.owners}), ", ")
    if needing and release < 36:  # KEP-5004
        lacks.append(("warn", f"the feature gate DRAExtendedResource, which {needing} needs, is off by default"))
    if not lacks:
        return "ok", f"{name} has all that the configurations and the enabled back ends use"
    return min(lacks)[0], f"{name}: {several([text for _, text in lacks])}"  # "fail" before "warn"


# What stands in the cluster: policies, ledgers, and the GPU pods that would be refused today.


@check("policies", reading.read_tenants, "mend it: kubectl describe tenantpolicy NAME says the same")
def policies(installation: Installation) -> Verdict:
    """Whether each TenantPolicy is in force, by its status and by what this program finds itself."""
    if not installation.tenants:
        text = f"a custom resource is missing ({installation.undefined}): no TenantPolicy is in force"
        return "fail", text, "kubectl apply --server-side -f manifests/base/crds"
    stored = installation.tenants[-1].of("TenantPolicy")
    tenancy, problems = installation.tenants[-1].tenancy(installation.rulebook)
    ties = in_force.ties(tenancy, installation.rulebook.cluster.system_namespaces)
    wrong = {name: f"it conflicts with {', '.join(sorted(tie.others))}" for name, tie in ties.items()}
    wrong |= {problem.tenant: problem.message for problem in problems}
    left = several(membership.unselected(replace(installation.rulebook, tenancy=tenancy)), ", ")
    gets = tenancy.without_policy or ("no-devices" if tenancy.closed else "open")
    if isinstance(gets, Mapping) and not tenancy.default:
        wrong[gets["default"]] = f"it is not there, so namespaces without a policy get no GPU: {left}"
    for policy in stored:
        for condition in fields.objects(fields.at(policy, "status", "conditions")):
            if (condition.get("type"), condition.get("status")) in in_force.NOT_IN_FORCE:
                text = f"{condition['type']}={condition['status']}: {condition.get('message', '')}"
                wrong[str(policy["metadata"]["name"])] = text
    if wrong:
        return "fail", several([f"{name}: {text}".removeprefix(": ") for name, text in sorted(wrong.items())])
    unlabelled = [
        namespace
        for namespace, labels in tenancy.labels.items()
        if labels.get(configurations.REMOVING) != "remove"
        and not installation.rulebook.cluster.exempts(namespace)
        and device_access.action(membership.member(namespace, tenancy).policy, installation.rulebook.cluster)
        == "remove"
    ]
    if unlabelled:
        text = f"deviceAccess is remove, and pods are refused where the label is missing: {several(unlabelled)}"
        return "warn", text, f"kubectl label namespace NAME {configurations.REMOVING}=remove"
    force = "1 policy is in force" if len(stored) == 1 else f"{len(stored)} policies are in force"
    without = f"; namespaces without one ({gets}): {left}" if left else ""
    return "ok", f"{force if stored else 'there are none in the cluster'}{without}"


RESTART: Final = (
    "the log of the settler says why; to start it anew:"
    " kubectl -n gpu-webhook-system rollout restart deployment/gpu-webhook-settler"
)


@check("ledgers", reading.read_tenants, RESTART, ["programs", "rights"])
def ledgers(installation: Installation) -> Verdict | None:
    """Whether the settler counts, by two readings some seconds apart: it answers what is asked within a second."""
    if not installation.tenants:
        return None
    unseen, unanswered = [], []
    for objects in installation.tenants:
        unseen.append(
            {
                str(policy["metadata"]["name"])
                for policy in objects.of("TenantPolicy")
                if policy["metadata"].get("generation") != fields.at(policy, "status", "observedGeneration")
            }
        )
        counts = objects.ledgers()[0].items()
        unanswered.append({name for name, counted in counts if counted.recounted < counted.recount})
    tenancy, _ = installation.tenants[-1].tenancy(installation.rulebook)
    counted, unread = installation.tenants[-1].ledgers()
    late = [
        f"{policy.name} has a quota, and nobody has counted what it uses"
        for policy in tenancy.policies
        if policy.quota is not None and not (policy.name in counted and counted[policy.name].view > 0)
    ]
    older, waiting = sorted(set.intersection(*unseen)), sorted(set.intersection(*unanswered))
    late += [f"the status of the policy {name} is of an older generation" for name in older]
    late += [f"{name}: a recount was asked for and not made" for name in waiting]
    if installation.uncounted:
        late.append(f"stored pods are still reservations: {several(installation.uncounted)}")
    if late:
        return "fail", f"the settler has not done its work: {several(late)}; GPU pods there are told to wait"
    if unread:
        fix = f"kubectl delete tenantusage {unread[0].tenant}; the settler makes and counts it anew"
        return "fail", several([*map(str, unread)]), fix
    doubtful = []
    for name, tenant_ledger in counted.items():
        if suspected := ledger.namespaces(tenant_ledger.suspects):
            text = (
                "were admitted and never stored, as something refused them after the review, or their client gave up"
            )
            doubtful.append(f"{name}: pods in {', '.join(suspected)} {text}")
    if doubtful:
        return "warn", several(doubtful), "gpu-webhook tenants shows each of them"
    return "ok", f"{number(len(counted), 'ledger')}, counted" if counted else "no quota has to be counted"


@check(
    "pods",
    reading.read_tenants,
    "none is needed for what runs; fix their workloads before they create pods again (gpu-webhook explain FILE)",
)
def pods(installation: Installation) -> Verdict:
    """GPU pods that exist and would be refused today."""
    refused, every = installation.refused, installation.pods
    if not refused:
        return "ok", f"none of {number(every, 'pod')} would be refused today"
    return "warn", f"{number(len(refused), 'pod')} of {every} would be refused today: {several(refused)}"


@check("accounts", reading.read_tenants)
def accounts(installation: Installation) -> Verdict:
    """Whether GPU schedulers may write what only they do. API servers keep which program wrote, and not who."""
    wrote = f"programs that wrote it into pods that run: {several(sorted(installation.wrote), ', ') or 'none'}"
    if unlisted := installation.unlisted:
        names = several([f"{account} ({why})" for account, why in unlisted.items()])
        fix = f"if no tenant has these namespaces, write platformAccounts: {[*unlisted]} in the Cluster document"
        return "warn", f"what only GPU schedulers write is refused to {names}; {wrote}", fix
    return "ok", f"no GPU scheduler is refused what only GPU schedulers write; {wrote}"


OPTIONAL: Final = (
    "kubectl get tenantpolicies,exemptions -o yaml | gpu-webhook render policies --with - |"
    " kubectl apply --server-side --force-conflicts -f -; what it does not print: kubectl delete"
    " validatingadmissionpolicy,validatingadmissionpolicybinding NAME"
)


@check(
    "net",
    reading.read_net,
    f"{RESTART}; failurePolicy is not its to write: {APPLY}",
    ["programs", "rights", "ledgers"],
)
def net(installation: Installation) -> Verdict:
    """Whether what the API server refuses by itself is what rules and policies say."""
    rulebook, there = installation.rulebook, installation.net
    if installation.tenants:
        tenancy = replace(installation.tenants[-1].tenancy(rulebook)[0], handlers=installation.handlers)
        rulebook = replace(rulebook, tenancy=tenancy)
    kept = {}
    for name, policy, binding in registration.filled_in(rulebook, installation.now):
        kept["ValidatingAdmissionPolicy", name] = {**policy, "failurePolicy": "Fail"}
        kept["ValidatingAdmissionPolicyBinding", name] = binding
    if missing := [" ".join(key) for key in kept if key not in there]:
        return "fail", f"missing, so what they refuse is let through: {several(missing)}", APPLY
    if stale := [" ".join(key) for key, spec in kept.items() if not spec.items() <= there[key]["spec"].items()]:
        return "fail", f"not what rules and policies say, so tenants may do what these refuse: {several(stale)}"
    # Those of `render policies`, which are there only if somebody has applied them.
    objects = registration.render_validating(rulebook, installation.namespace)
    rendered = {(raw["kind"], raw["metadata"]["name"]): raw["spec"] for raw in objects}
    ours = {key for key in there if key[1].startswith(f"{configurations.NAME}-") and key not in kept}
    written = ("matchConditions", "variables", "validations", "validationActions")
    wrong = [f"there is no {' '.join(key)}" for key in sorted(rendered.keys() - ours) if ours]
    for key in sorted(ours):
        spec, stored = rendered.get(key), there[key]["spec"]
        if spec is None or any((spec.get(part) or None) != (stored.get(part) or None) for part in written):
            wrong.append(f"{' '.join(key)} is {'of others' if spec is None else 'not as rendered'}")
    if wrong:
        return "fail", f"policies of `render policies` are stale: {several(wrong)}", OPTIONAL
    return "ok", "what the API server refuses by itself is what rules and policies say"


# The command, and its checks as a table for a terminal and for scripts.

WIDTH: Final = 110


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook doctor` takes."""
    rules = "the rules that should be in force; default: the ConfigMaps that the admission server mounts"
    command.add_argument("--rules", type=Path, metavar="DIR", help=rules)
    options.namespace_option(command)
    command.add_argument(
        "--try-in", default="default", metavar="NAME", help="namespace for dry runs of pods (default: %(default)s)"
    )
    endpoint = "address of a replica, for example of a kubectl port-forward; default: the endpoints of the Service"
    command.add_argument("--endpoint", action="append", default=[], metavar="HOST:PORT", help=endpoint)
    options.output_option(command)


async def examine(given: argparse.Namespace, api: Api) -> Sequence[Check]:
    """All checks; raises ApiError and DocumentError."""
    unloadable = ""
    try:
        rulebook = rule_files.load_cached(given.rules) if given.rules else await reading.mounted(api, given.namespace)
    except rule_files.RuleFilesError as error:
        unloadable = several([*map(str, error.problems)])
        rulebook = index(Cluster(name="unknown", at=error.problems[0].at), {}, Cards())
    installation = Installation(
        rulebook=rulebook,
        unloadable=unloadable,
        source=str(given.rules or f"the ConfigMaps in {given.namespace}"),
        namespace=given.namespace,
        try_in=given.try_in,
        endpoints=given.endpoint,
        wanted=() if unloadable else configurations.both(rulebook, given.namespace),
    )
    checks: list[Check] = []
    for read, group in groupby(CHECKS, key=itemgetter(1)):
        declared = [check for check in group if not unloadable or check[0] in WITHOUT_RULES]
        try:
            if read and (declared or read is reading.read_configurations):
                await read(installation, api)
        except ApiError as error:
            checks += [unexamined(name, str(error)) for name, *_ in declared]
            continue
        for _, _, examine, after in declared:
            check = examine(installation)
            causes = [cause.name for cause in checks if cause.result == "fail" and cause.name in after]
            if check and check.examined and check.result == "fail" and causes:
                check = check._replace(result="warn", fix=f"first fix `{causes[0]}`")
            checks += filter(None, [check])
    return checks


def run(given: argparse.Namespace) -> int:
    """Examine the installation; NOT_FINE where a check failed."""
    given.endpoint = [Address(*options.address(endpoint, "--endpoint")) for endpoint in given.endpoint]
    with options.progress("examining the installation"):
        checks = ask(partial(examine, given))
    options.print_json(contract(checks)) if given.output == "json" else print("\n".join(lines(checks)))
    if not all(check.examined for check in checks):
        return options.FAILED
    return options.NOT_FINE if any(check.result == "fail" for check in checks) else options.FINE


def unexamined(name: str, reason: str) -> Check:
    """A check that could not be made, and why."""
    fix = "run it with an account that may read that, where the API server can be reached"
    return Check(name, "fail", f"not examined: {reason}", fix, examined=False)


def lines(checks: Sequence[Check]) -> Iterator[str]:
    """Each check with its result, what was found, and the fix below it; at the end how many failed."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        head = f"{check.name.ljust(width)}  {check.result.ljust(4)}  "
        blank = " " * len(head)
        texts = [(check.found, head, blank), (check.fix, f"{blank}fix: ", f"{blank}     ")]
        for text, first, rest in texts if check.fix else texts[:1]:
            yield from textwrap.wrap(
                "".join(char if char.isprintable() else " " for char in text),
                WIDTH,
                initial_indent=first,
                subsequent_indent=rest,
                break_long_words=False,
                break_on_hyphens=False,
            )
    yield ""
    failed = [check.name for check in checks if check.result == "fail"]
    warned = sum(check.result == "warn" for check in checks)
    result = f"{len(failed)} failed ({', '.join(failed)})" if failed else "none failed"
    yield f"{number(len(checks), 'check')}: {result}, {warned} to look at"


def contract(checks: Sequence[Check]) -> Mapping[str, Any]:
    """The form of `-o json`."""
    ranks = ("ok", "warn", "fail")
    return {
        "result": max((check.result for check in checks), key=ranks.index, default="ok"),
        "checks": [
            {"check": name, "result": result, "found": text, "fix": fix or None, "examined": examined}
            for name, result, text, fix, examined in checks
        ],
    }
