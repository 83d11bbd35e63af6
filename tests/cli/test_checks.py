"""What each check of `gpu-webhook doctor` makes of what was read of an installation."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from webhook.cli import doctor, installation
from webhook.cli.doctor import Check, Examine
from webhook.cli.installation import ApiServer, Installation, Purpose, Replica
from webhook.cli.snapshot import TENANTS, Snapshot
from webhook.cluster.client import Answer
from webhook.core.kube.quantity import DAY, HOUR
from webhook.core.registration import configurations
from webhook.core.rules.rulebook import Rulebook

Object = dict[str, Any]

FILES = builders.shipped_files()
RULEBOOK = builders.rulebook(FILES)
WANTED = configurations.both(RULEBOOK)
REGISTERED = (doctor.are_registered, doctor.active, doctor.failure_policy, doctor.namespaces)
NOW = 1_000 * DAY
DIGEST = "0123456789abcdef"


def of(examiner: Examine, **known: Any) -> Check:
    """The result of a check where this is known."""
    check = examiner(Installation(**{"rulebook": RULEBOOK, "now": NOW, **known}))
    assert check is not None
    return check


def verdict(examiner: Examine, **known: Any) -> tuple[str, str]:
    check = of(examiner, **known)
    return check.result, check.found


# The webhook configurations


def live(change: Callable[[list[Object]], object] = lambda _: None) -> list[Check]:
    """The checks of configurations as an API server stores them, after a change of the validating one's webhooks."""
    stored = copy.deepcopy(WANTED)
    for configuration in stored:
        for hook in configuration["webhooks"]:
            hook["clientConfig"]["caBundle"] = "Q0E="
            hook.setdefault("objectSelector", {})
            hook.setdefault("matchConditions", [])
    for hook in stored[0]["webhooks"]:
        hook.setdefault("reinvocationPolicy", "Never")
    change(stored[1]["webhooks"])
    there = Installation(
        rulebook=RULEBOOK,
        wanted=WANTED,
        live={configuration["kind"]: configuration for configuration in stored},
        labels={"default": {"kubernetes.io/metadata.name": "default"}},
    )
    return [check for check in (examiner(there) for examiner in REGISTERED) if check and check.result != "ok"]


def reorder(hooks: list[Object]) -> None:
    hooks.reverse()
    for hook in hooks:
        hook["rules"].reverse()
        for rule in hook["rules"]:
            rule["operations"].reverse()


@pytest.mark.parametrize("change", [lambda _: None, reorder], ids=["filled in by the API server", "in another order"])
def test_what_means_the_same_is_no_drift(change: Callable[[list[Object]], object]) -> None:
    assert live(change) == []


def test_webhooks_that_are_not_active_yet_are_named_and_are_no_drift() -> None:
    def wait(hooks: list[Any]) -> None:
        for hook in hooks[:2]:
            del hook["rules"]

    text = "validate.gpu-webhook.io, bindings.gpu-webhook.io: no rules yet, so the API server never calls it"
    assert live(wait) == [Check("active", "fail", text, doctor.AWAIT)]


def test_rules_of_a_former_version_are_named_with_what_the_certificate_program_waits_for() -> None:
    text = "validate.gpu-webhook.io: other rules than are rendered"
    checks = live(lambda hooks: hooks[0].update(rules=hooks[0]["rules"][:1]))
    assert checks == [Check("active", "fail", text, f"{doctor.RENDER}; then {doctor.AWAIT}")]


def test_a_missing_configuration_is_all_there_is_to_say() -> None:
    half = Installation(
        rulebook=RULEBOOK,
        wanted=WANTED,
        live={"MutatingWebhookConfiguration": WANTED[0], "ValidatingWebhookConfiguration": None},
    )
    text = "there is no ValidatingWebhookConfiguration called gpu-webhook"
    assert [examiner(half) for examiner in REGISTERED] == [
        Check("configurations", "fail", text, doctor.RENDER),
        *(None, None, None),
    ]


@tables.rows
def test_an_edited_configuration_is_named_with_what_differs(
    hook: int, fields: Object | None, name: str, result: str, found: str
) -> None:
    def edit(hooks: list[Object]) -> None:
        if fields is None:
            hooks.pop(hook)
        elif "name" in fields:
            hooks.append(fields)
        else:
            changed = {**hooks[hook], **fields}
            hooks[hook] = {key: value for key, value in changed.items() if value is not None}

    [check] = live(edit)

    assert (check.name, check.result, check.found) == (name, result, found)
    added = "objectSelector" in found or "which is not rendered" in found
    assert (check.fix == doctor.EDIT) == added


def test_an_edited_configuration_that_asks_about_fewer_namespaces_is_named_with_their_labels() -> None:
    opting_in = {**WANTED[1]["webhooks"][0]["namespaceSelector"], "matchLabels": {"gpu": "yes"}}

    [check] = live(lambda hooks: hooks[0].update(namespaceSelector=opting_in))

    text = "validate.gpu-webhook.io asks only about namespaces with gpu In [yes]"
    assert (check.name, check.result, check.found) == ("namespaces", "warn", text)


def test_the_failure_policy_ignore_is_meant_while_the_webhook_observes() -> None:
    ignoring = copy.deepcopy(WANTED)
    for configuration in ignoring:
        for hook in configuration["webhooks"]:
            hook["failurePolicy"] = "Ignore"
    known = {"wanted": WANTED, "live": {configuration["kind"]: configuration for configuration in ignoring}}
    observing = replace(RULEBOOK, tenancy=replace(RULEBOOK.tenancy, observing=True))

    assert of(doctor.failure_policy, **known).result == "fail"
    assert of(doctor.failure_policy, **known, rulebook=observing).result == "ok"


@tables.rows
def test_whether_pods_of_a_namespace_come_to_us_is_known_by_its_labels(
    labels: dict[str, str], more: Object, *, asked: bool
) -> None:
    configuration = copy.deepcopy(WANTED[0])
    hook = configuration["webhooks"][0]
    hook["namespaceSelector"] = {**hook["namespaceSelector"], **more}

    assert installation.asks_about(configuration, labels) is asked


def another(name: str = "a-first", hook: str = "hami.acme.io", **more: Any) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {"metadata": {"name": name}, "webhooks": [{"name": hook, "rules": [rule], **more}]}


EVERYTHING = [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"]}]


@pytest.mark.parametrize("other", [another(), another(rules=EVERYTHING)], ids=["of pods", "of everything"])
def test_a_webhook_for_gpus_that_runs_first_and_only_once_is_a_failure(other: Object) -> None:
    assert of(doctor.order, mutating=[other]) == Check(
        "order",
        "fail",
        "runs before gpu-webhook and is not called again, so it misses what a translated pod asks: "
        "hami.acme.io of a-first",
        "set reinvocationPolicy: IfNeeded there, or give it a later name",
    )


@tables.rows
def test_other_webhooks_do_no_harm(fields: Object) -> None:
    assert of(doctor.order, mutating=[another(**fields)]).result == "ok"


# Replicas


def replica(address: str = "10.0.0.1:8443", **changed: Any) -> Replica:
    fields = {"valid": (NOW - 10 * DAY, NOW + 20 * DAY), "digest": DIGEST, **changed}
    return Replica(address=address, **fields)


HIDDEN = replica(unreachable="no route", valid=None, digest="")
TRUSTED = {"webhooks": [{"name": "mutate", "clientConfig": {"url": "https://a", "caBundle": "Q0E="}}]}
WIPED = {"webhooks": [{"name": "bindings", "clientConfig": {"url": "https://a"}}]}


def read(fields: Object) -> Replica:
    """A replica as tables write it: `hours` are those since when and until when its certificate is valid."""
    changed = {key: value for key, value in fields.items() if key != "hours"}
    if "hours" in fields:
        changed["valid"] = fields["hours"] and tuple(NOW + hours * HOUR for hours in fields["hours"])
    return replica(**changed)


@tables.rows
def test_replicas_are_judged_by_what_is_seen_of_them(
    check: str, replicas: list[Object], result: str, found: str
) -> None:
    rulebook = replace(RULEBOOK, digest=DIGEST)

    known: dict[str, Any] = {"rulebook": rulebook, "source": "the ConfigMaps", "replicas": [*map(read, replicas)]}
    assert verdict(getattr(doctor, check), **known) == (result, found)


def test_what_cannot_be_seen_from_here_is_a_warning_in_each_check_of_replicas() -> None:
    for examiner in (doctor.certificate, doctor.expiry, doctor.rules, doctor.clocks):
        assert verdict(examiner, replicas=[HIDDEN]) == ("warn", "not examined: no replica can be seen from here")


def test_a_webhook_without_a_ca_bundle_is_named_whatever_replicas_serve() -> None:
    known: dict[str, Any] = {"live": {"Mutating": TRUSTED, "Validating": WIPED}, "replicas": [replica()]}

    assert Installation(rulebook=RULEBOOK, **known).bundles == {"CA": ["mutate"], "": ["bindings"]}
    assert verdict(doctor.certificate, **known) == ("fail", "bindings has no caBundle: API servers trust no replica")


def test_a_certificate_that_no_bundle_verifies_is_named_with_its_replica() -> None:
    untrusted = replica("10.0.0.2:8443", untrusted="unable to get local issuer certificate")

    found = verdict(doctor.certificate, live={"Mutating": TRUSTED}, replicas=[replica(), untrusted])
    assert found == ("fail", "10.0.0.2:8443: unable to get local issuer certificate")


@tables.rows
def test_the_clock_that_differs_from_most_is_named(offsets: dict[str, float], result: str, found: str) -> None:
    assert verdict(doctor.clocks, clocks=offsets) == (result, found)


# Pods that are tried

TRIED = installation.trials(RULEBOOK)
DENIED = 'admission webhook "{}.gpu-webhook.io" denied the request: [{}] it is wrong\n  fix  mend it'
UNCALLED = 'Internal error occurred: failed calling webhook "mutate.gpu-webhook.io": failed to call webhook: {}'


def created(*warnings: str, **limits: str) -> Answer:
    body = {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"cpu": "10m", **limits}}}]}}
    return Answer(status=201, body=body, warnings=warnings)


def refusal(message: str, status: int = 403) -> Answer:
    return Answer(status=status, body={"message": message})


FINE: dict[Purpose, Answer] = {
    "translated": created(**{"acme.example/gpu": "1"}),
    "refused": refusal(DENIED.format("mutate", TRIED[1].code), 422),
    "bystander": created(),
}
OBSERVING = replace(RULEBOOK, tenancy=replace(RULEBOOK.tenancy, observing=True))


def admission(
    *others: ApiServer,
    rulebook: Rulebook = RULEBOOK,
    replicas: tuple[Replica, ...] = (),
    called: bool | None = False,
    **changed: Answer,
) -> Check:
    """The check of one API server that answers as it should, except where a test says otherwise."""
    responses: dict[Purpose, Answer] = {**FINE, **changed}  # type: ignore[dict-item]  # its keys are purposes
    server = ApiServer(address="10.0.0.1:6443", responses=responses, was_called=called)
    return of(doctor.admission, rulebook=rulebook, replicas=replicas, api_servers=[server, *others])


def test_the_pods_are_one_that_the_rules_translate_one_that_they_refuse_and_one_without_a_gpu() -> None:
    assert [(pod.purpose, dict(pod.labels), pod.code) for pod in TRIED] == [
        ("translated", {"gpu": "1"}, ""),
        ("refused", {"gpu": "1.5"}, "GPU201"),
        ("bystander", {"app": "doctor"}, ""),
    ]
    assert installation.trials(OBSERVING) == TRIED


def test_an_api_server_that_does_all_three_is_fine() -> None:
    assert admission() == Check(
        "admission", "ok", "at 1 API server pods with GPUs are translated or refused, and others are not sent to us"
    )


@tables.rows
def test_what_a_response_means(answers: dict[str, Any], *, called: bool | None, result: str, found: str) -> None:
    """An answer is `created` with limits, `denied` by one of our webhooks with a code, or `refused` by others."""
    made: Mapping[str, Callable[[Any], Answer]] = {
        "created": lambda limits: created(**limits),
        "denied": lambda texts: refusal(DENIED.format(*texts)),
        "refused": refusal,
    }
    changed: dict[str, Any] = {purpose: made[kind](told) for purpose, (kind, told) in answers.items()}
    check = admission(called=called, **changed)

    assert check.result == result
    assert found in check.found
    assert bool(check.fix) == (result != "ok")


def test_replicas_that_are_not_reached_are_a_failure_with_the_api_servers_own_words() -> None:
    check = admission(translated=refusal(UNCALLED.format("connection refused"), 500))

    assert (check.result, check.fix) == ("fail", doctor.UNANSWERED)
    assert check.found.endswith("gpu: 1: " + UNCALLED.format("connection refused"))


def test_in_observe_mode_the_author_is_warned_and_the_pod_stays_as_it_is() -> None:
    warned = created("the pod would become nvidia.com/gpu: 1 (nvidia-gpu)")

    assert admission(rulebook=OBSERVING, translated=warned, refused=warned).result == "ok"
    assert admission(rulebook=OBSERVING, translated=created(), refused=warned).result == "fail"


def test_api_servers_that_cannot_be_asked_from_here_are_a_warning_unless_none_can() -> None:
    hidden = ApiServer(address="10.0.0.2:6443", unreachable="no route")

    some, none = admission(hidden), of(doctor.admission, api_servers=[hidden])

    assert (some.result, some.found) == ("warn", "fine at 1 API server; not asked from here: 10.0.0.2:6443: no route")
    assert (none.result, none.examined) == ("fail", False)


@tables.rows
def test_an_account_that_may_not_create_pods_has_asked_nobody(status: int, message: str, *, forbidden: bool) -> None:
    assert installation.is_forbidden(refusal(message, status)) is forbidden


# Policies, ledgers and pods that stand in a cluster, and what its version lacks


def policy(
    name: str = "vision", generation: int = 1, conditions: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    return {
        "metadata": {"name": name, "generation": generation},
        "spec": {"namespaces": {"names": ["vision"]}, **spec},
        "status": {
            "observedGeneration": 1,
            "conditions": [
                {"type": kind, "status": status, "message": "that is why"}
                for kind, status in (conditions or {}).items()
            ],
        },
    }


@tables.rows
def test_policies_are_judged_by_their_conditions_and_by_themselves(
    policies: list[Object], result: str, found: str
) -> None:
    made: list[Mapping[str, Any]] = [policy(**fields) for fields in policies]
    tenants = Snapshot(TENANTS, {"TenantPolicy": made, "Namespace": [{"metadata": {"name": "vision"}}]})

    assert verdict(doctor.policies, tenants=(tenants, tenants)) == (result, found)


@tables.rows
def test_namespaces_without_a_policy_are_told_with_what_they_get(without: Any, result: str, found: str) -> None:
    names = ["vision-dev", "sandbox", "kube-system"]
    made: list[Mapping[str, Any]] = [policy(namespaces={"names": ["vision-*"]})]
    tenants = Snapshot(TENANTS, {"TenantPolicy": made, "Namespace": [{"metadata": {"name": name}} for name in names]})
    rulebook = replace(RULEBOOK, tenancy=replace(RULEBOOK.tenancy, without_policy=without))

    assert verdict(doctor.policies, rulebook=rulebook, tenants=(tenants, tenants)) == (result, found)


def objects(*usages: Mapping[str, Any], **changed: Any) -> Snapshot:
    """A policy with a quota, and ledgers."""
    made: list[Mapping[str, Any]] = [{"metadata": {"name": "vision"}, "status": status} for status in usages]
    return Snapshot(TENANTS, {"TenantPolicy": [policy(quota={"devices": 4}, **changed)], "TenantUsage": made})


COUNTED = {"view": "7"}


@tables.rows
def test_a_settler_that_does_not_answer_within_seconds_is_a_failure(
    usages: list[Object], generation: int, found: str
) -> None:
    tenants = objects(*usages, generation=generation)
    waiting = f"the settler has not done its work: {found}; GPU pods there are told to wait"

    assert verdict(doctor.ledgers, tenants=(tenants, tenants)) == ("fail", waiting)
    if "counted" not in found:  # at the second look it has answered
        assert verdict(doctor.ledgers, tenants=(tenants, objects(COUNTED))) == ("ok", "1 ledger, counted")


def test_a_stored_pod_that_is_still_a_reservation_tells_of_a_settler_that_hangs() -> None:
    tenants = objects(COUNTED)

    result, found = verdict(doctor.ledgers, tenants=(tenants, tenants), uncounted=["vision/train"])

    waiting = "stored pods are still reservations: vision/train; GPU pods there are told to wait"
    assert (result, found) == ("fail", f"the settler has not done its work: {waiting}")


def test_a_fix_names_the_namespace_where_the_server_runs() -> None:
    check = of(doctor.ledgers, tenants=(objects(),) * 2, namespace="gpu")

    assert check.fix.rpartition("; ")[2] == (
        "to start it anew: kubectl -n gpu rollout restart deployment/gpu-webhook-settler"
    )


def test_a_ledger_that_cannot_be_read_is_told_with_what_makes_it_anew() -> None:
    broken = {"metadata": {"name": "speech"}, "status": {"held": {"v": {"devices": "x"}}}}
    tenants = objects(COUNTED)
    tenants.objects["TenantUsage"].append(broken)

    check = of(doctor.ledgers, tenants=(tenants, tenants))

    assert (check.result, check.found.partition(" holds")[0]) == ("fail", "speech: its TenantUsage")
    assert check.fix == "kubectl delete tenantusage speech; the settler makes and counts it anew"


def pod(name: str, **more: Any) -> Object:
    limits = more.pop("limits", {})
    metadata = {"name": name, "namespace": "default", "uid": name, **more}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}


def test_pods_from_before_are_judged_as_if_they_were_created_now() -> None:
    pods = [
        pod("web"),
        pod("whole", limits={"nvidia.com/gpu": "1"}),
        pod("untranslated", labels={"gpu": "1"}),
        {**pod("exempt", labels={"gpu": "1"}), "metadata": {"name": "exempt", "namespace": "kube-system"}},
    ]

    [refused] = installation.judged(pods, RULEBOOK, at=0)

    assert refused.startswith("default/untranslated: [GPU601] ")


def test_only_the_first_refused_pods_are_named() -> None:
    refused = [f"default/{number}: [GPU601] no" for number in range(5)]
    named = "default/0: [GPU601] no; default/1: [GPU601] no; default/2: [GPU601] no; and 2 more"

    assert verdict(doctor.pods, refused=refused, pods=9) == (
        "warn",
        f"5 pods of 9 would be refused today: {named}",
    )
    assert verdict(doctor.pods, pods=9) == ("ok", "none of 9 pods would be refused today")


def version(minor: str) -> dict[str, str]:
    return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"}


@tables.rows
def test_what_a_version_lacks_is_named(minor: str, backend: str, groups: list[str], result: str, found: str) -> None:
    known: dict[str, Any] = {"version": version(minor), "groups": frozenset(groups)}
    if backend:
        cluster = FILES["cluster.yaml"].replace("[nvidia-gpu,", f"[{backend}, nvidia-gpu,")
        known["rulebook"] = builders.rulebook({**FILES, "cluster.yaml": cluster})

    assert verdict(doctor.kubernetes, **known) == (result, found)


def test_a_version_that_cannot_be_read_is_a_warning() -> None:
    assert of(doctor.kubernetes, version={"gitVersion": "custom"}).result == "warn"


# The checks as people and scripts see them

CHECKS = [
    Check("replicas", "ok", "3 replicas are ready"),
    Check("certificate", "fail", "10.0.0.1:443:\x1b[2J it is of another CA, " + "and so on " * 12, "renew it"),
    doctor.unexamined("pods", "forbidden"),
]


def test_the_table_is_aligned_with_the_fix_below_what_was_found() -> None:
    assert list(doctor.lines(CHECKS)) == [
        "replicas     ok    3 replicas are ready",
        "certificate  fail  10.0.0.1:443: [2J it is of another CA, and so on and so on and so on and so on and so on",
        "                   and so on and so on and so on and so on and so on and so on and so on",
        "                   fix: renew it",
        "pods         fail  not examined: forbidden",
        "                   fix: run it with an account that may read that, where the API server can be reached",
        "",
        "3 checks: 2 failed (certificate, pods), 0 to look at",
    ]


def test_scripts_read_each_check_and_the_worst_result() -> None:
    fine = {"check": "replicas", "result": "ok", "found": "3 replicas are ready", "fix": None, "examined": True}
    unexamined = {
        "check": "pods",
        "result": "fail",
        "found": "not examined: forbidden",
        "fix": "run it with an account that may read that, where the API server can be reached",
        "examined": False,
    }

    assert doctor.contract([CHECKS[0], CHECKS[2]]) == {"result": "fail", "checks": [fine, unexamined]}


def test_warnings_alone_are_no_failure() -> None:
    warned = [Check("pods", "warn", "1 pod", "mend it")]

    assert doctor.contract(warned)["result"] == "warn"
    assert list(doctor.lines(warned))[-1] == "1 check: none failed, 1 to look at"
