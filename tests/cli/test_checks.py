"""What each check of `gpu-webhook doctor` makes of what was read of an installation."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests import builders, tables
from webhook.cli import doctor, installation
from webhook.cli.doctor import Check, Examine
from webhook.cli.installation import ApiServer, Installation, Purpose, Replica, Response
from webhook.cli.snapshot import TENANTS, Snapshot
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
        rulebook=RULEBOOK, wanted=WANTED, live={configuration["kind"]: configuration for configuration in stored}
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


IGNORED = (
    "validate.gpu-webhook.io: failurePolicy Ignore: while no replica answers, GPU pods are created as they are, "
    "not counted"
)
OPTING_IN = {**WANTED[1]["webhooks"][0]["namespaceSelector"], "matchLabels": {"gpu": "yes"}}


@pytest.mark.parametrize(
    ("change", "name", "result", "found"),
    [
        (
            lambda hooks: hooks[0].pop("matchConditions"),
            "configurations",
            "fail",
            "validate.gpu-webhook.io: matchConditions is missing",
        ),
        (
            lambda hooks: hooks[0].update(objectSelector={"matchLabels": {"a": "b"}}),
            "configurations",
            "fail",
            "validate.gpu-webhook.io: objectSelector differs from what is rendered",
        ),
        (
            lambda hooks: hooks[0].update(timeoutSeconds=10),
            "configurations",
            "warn",
            "validate.gpu-webhook.io: timeoutSeconds is 10, rendered 3",
        ),
        (
            lambda hooks: hooks[0].update(clientConfig={"url": "https://10.0.0.1/validate"}),
            "configurations",
            "warn",
            "validate.gpu-webhook.io: called at https://10.0.0.1/validate, not by the Service",
        ),
        (
            lambda hooks: hooks.pop(1),
            "configurations",
            "fail",
            "ValidatingWebhookConfiguration has no bindings.gpu-webhook.io",
        ),
        (
            lambda hooks: hooks.append({"name": "x.example.com", "clientConfig": {}}),
            "configurations",
            "fail",
            "ValidatingWebhookConfiguration has x.example.com, which is not rendered",
        ),
        (
            lambda hooks: hooks[0].update(failurePolicy="Ignore"),
            "failure-policy",
            "warn",
            IGNORED,
        ),
        (
            lambda hooks: hooks[2].update(failurePolicy="Fail"),
            "failure-policy",
            "fail",
            "templates.gpu-webhook.io only warns, and has Fail: nobody can write a workload while no replica answers",
        ),
        (
            lambda hooks: hooks[0].update(namespaceSelector=OPTING_IN),
            "namespaces",
            "warn",
            "validate.gpu-webhook.io asks only about namespaces with gpu In [yes]",
        ),
        (
            lambda hooks: hooks[0].update(namespaceSelector={}),
            "namespaces",
            "fail",
            "validate.gpu-webhook.io does not leave out the systemNamespaces of the Cluster document",
        ),
    ],
)
def test_an_edited_configuration_is_named_with_what_differs(
    change: Callable[[list[Object]], object], name: str, result: str, found: str
) -> None:
    [check] = live(change)

    assert (check.name, check.result, check.found) == (name, result, found)


IMMUTABLE = "kubernetes.io/metadata.name"


@tables.rows
def test_whether_pods_of_a_namespace_come_to_us_is_known_by_its_labels(
    labels: dict[str, str], more: Object, *, asked: bool
) -> None:
    configuration = copy.deepcopy(WANTED[0])
    hook = configuration["webhooks"][0]
    hook["namespaceSelector"] = {**hook["namespaceSelector"], **more}

    assert installation.asks_about(configuration, hook["name"], labels) is asked


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


@pytest.mark.parametrize(
    "other",
    [
        another(reinvocationPolicy="IfNeeded"),
        another(hook="sidecars.example.com"),
        another(name="hami"),
        another(rules=[{"apiGroups": [""], "operations": ["UPDATE"], "resources": ["pods"]}]),
        another(rules=[{"apiGroups": ["apps"], "operations": ["*"], "resources": ["*"]}]),
        another(rules=[]),
    ],
    ids=["called again", "not of GPUs", "later", "of updates", "of no pods", "of nothing"],
)
def test_other_webhooks_do_no_harm(other: Object) -> None:
    assert of(doctor.order, mutating=[other]).result == "ok"


# Replicas


def replica(address: str = "10.0.0.1:8443", **changed: Any) -> Replica:
    fields = {"valid": (NOW - 10 * DAY, NOW + 20 * DAY), "digest": DIGEST, **changed}
    return Replica(address=address, **fields)


HIDDEN = replica(unreachable="no route", valid=None, digest="")
TRUSTED = {"webhooks": [{"name": "mutate", "clientConfig": {"url": "https://a", "caBundle": "Q0E="}}]}
WIPED = {"webhooks": [{"name": "bindings", "clientConfig": {"url": "https://a"}}]}


@pytest.mark.parametrize(
    ("replicas", "result", "found"),
    [
        ([], "fail", "the Service gpu-webhook-system/gpu-webhook has no endpoint that is ready"),
        (
            [replica(), replica("10.0.0.2:8443", not_ready="the rules were never loaded")],
            "fail",
            "10.0.0.2:8443: the rules were never loaded",
        ),
        ([HIDDEN], "warn", "1 of 1 replica cannot be seen from here: 10.0.0.1:8443: no route"),
        ([replica()], "ok", "1 replica is ready"),
    ],
)
def test_replicas_have_to_be_there_and_ready(replicas: list[Replica], result: str, found: str) -> None:
    assert verdict(doctor.replicas, replicas=replicas) == (result, found)


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


@pytest.mark.parametrize(
    ("replicas", "result", "found"),
    [
        ([replica()], "ok", "20 days of 30 days are left"),
        ([replica(valid=(NOW - 20 * DAY, NOW + 10 * DAY))], "ok", "10 days of 30 days are left"),
        (
            [replica(), replica(valid=(NOW - 21 * DAY, NOW + 9 * DAY))],
            "warn",
            "10.0.0.1:8443: only 9 days of 30 days are left, less than a third: a renewal is late",
        ),
        ([replica(valid=(NOW - 30 * DAY, NOW - HOUR))], "fail", "10.0.0.1:8443: expired 1 hour ago"),
        ([replica(valid=(NOW + HOUR, NOW + DAY))], "fail", "10.0.0.1:8443: not valid for another 1 hour"),
        (
            [replica(untimely="certificate has expired, by the caBundle of mutate")],
            "fail",
            "10.0.0.1:8443: certificate has expired, by the caBundle of mutate: a CA of the caBundle, not the leaf",
        ),
    ],
)
def test_a_certificate_is_renewed_before_less_than_a_third_is_left(
    replicas: list[Replica], result: str, found: str
) -> None:
    assert verdict(doctor.expiry, replicas=replicas) == (result, found)


@tables.rows
def test_the_clock_that_differs_from_most_is_named(offsets: dict[str, float], result: str, found: str) -> None:
    assert verdict(doctor.clocks, clocks=offsets) == (result, found)


OTHER = replica("10.0.0.2:8443", digest="fedcba9876543210")


@pytest.mark.parametrize(
    ("replicas", "result", "found"),
    [
        ([replica(), HIDDEN], "ok", "1 replica applies the rules of the ConfigMaps, 0123456789ab"),
        ([OTHER], "fail", "the ConfigMaps has the rules 0123456789ab, and 10.0.0.2:8443 applies fedcba987654"),
        (
            [replica(), OTHER],
            "fail",
            "replicas disagree: the ConfigMaps has the rules 0123456789ab, and 10.0.0.2:8443 applies fedcba987654",
        ),
        (
            [replica(digest="")],
            "fail",
            "the ConfigMaps has the rules 0123456789ab, and 10.0.0.1:8443 applies none",
        ),
    ],
)
def test_replicas_apply_the_rules_that_should_be_in_force(replicas: list[Replica], result: str, found: str) -> None:
    rulebook = replace(RULEBOOK, digest=DIGEST)

    assert verdict(doctor.rules, rulebook=rulebook, source="the ConfigMaps", replicas=replicas) == (result, found)


# Pods that are tried

TRIED = installation.trials(RULEBOOK)
DENIED = 'admission webhook "{}.gpu-webhook.io" denied the request: [{}] it is wrong\n  fix  mend it'
UNCALLED = 'Internal error occurred: failed calling webhook "mutate.gpu-webhook.io": failed to call webhook: {}'


def created(*warnings: str, **limits: str) -> Response:
    body = {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"cpu": "10m", **limits}}}]}}
    return Response(status=201, body=body, warnings=warnings)


def refusal(message: str, status: int = 403) -> Response:
    return Response(status=status, body={"message": message})


FINE: dict[Purpose, Response] = {
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
    **changed: Response,
) -> Check:
    """The check of one API server that answers as it should, except where a test says otherwise."""
    responses: dict[Purpose, Response] = {**FINE, **changed}  # type: ignore[dict-item]  # its keys are purposes
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


@pytest.mark.parametrize(
    ("changed", "result", "found"),
    [
        (
            {"translated": created()},
            "fail",
            "gpu: 1 came back without a device: nobody translated it, or somebody undid",
        ),
        (
            {"translated": refusal(DENIED.format("validate", "GPU601"))},
            "fail",
            'gpu: 1 came to /validate untranslated: admission webhook "validate.gpu-webhook.io" denied',
        ),
        (
            {"translated": refusal(DENIED.format("validate", "GPU105"))},
            "ok",
            "at 1 API server pods with GPUs are translated or refused",
        ),
        ({"translated": refusal(DENIED.format("mutate", "GPU301"))}, "warn", "gpu: 1 was refused: admission webhook"),
        ({"translated": refusal("exceeded quota")}, "warn", "gpu: 1 was refused by others: exceeded quota"),
        ({"refused": created()}, "fail", "gpu: 1.5 was admitted, and should have been refused with GPU201"),
        ({"refused": refusal("exceeded quota")}, "warn", "gpu: 1.5 was refused by others: exceeded quota"),
        ({"refused": refusal(DENIED.format("mutate", "GPU301"))}, "fail", "gpu: 1.5 was not refused with GPU201"),
        (
            {"bystander": refusal(DENIED.format("mutate", "GPU201"))},
            "fail",
            "the pod with no GPU was refused by us: admission",
        ),
        ({"bystander": refusal("no")}, "warn", "the pod with no GPU was refused by others: no"),
        ({"bystander": created(x="1")}, "fail", "the pod with no GPU came back with a device"),
        ({"called": True}, "warn", "the pod with no GPU: a replica was asked about a pod each time"),
        ({"called": None}, "warn", "the pod with no GPU: whether it was sent to us cannot be told from here"),
    ],
)
def test_what_a_response_means(changed: dict[str, Any], result: str, found: str) -> None:
    check = admission(**changed)

    assert check.result == result
    assert found in check.found
    assert bool(check.fix) == (result != "ok")


def test_replicas_that_are_not_reached_are_a_failure_with_the_api_servers_own_words() -> None:
    check = admission(translated=refusal(UNCALLED.format("connection refused"), 500))

    assert (check.result, check.fix) == ("fail", doctor.UNANSWERED)
    assert check.found.endswith("gpu: 1: " + UNCALLED.format("connection refused"))


def test_a_certificate_that_is_known_to_be_wrong_is_told_once() -> None:
    unverified = refusal(UNCALLED.format("tls: failed to verify certificate: x509: certificate has expired"), 500)
    expired = (replica(valid=(NOW - 30 * DAY, NOW - HOUR)),)

    assert admission(translated=unverified, replicas=(replica(),)).result == "fail"
    assert admission(translated=unverified, replicas=expired).result == "warn"
    assert admission(translated=unverified, refused=created(), replicas=expired).result == "fail"


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
    assert refusal(message, status).is_forbidden is forbidden


# Policies, ledgers and pods that stand in a cluster, and what its version lacks


def policy(*conditions: tuple[str, str], name: str = "vision", generation: int = 1, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "generation": generation},
        "spec": {"namespaces": {"names": ["vision"]}, **spec},
        "status": {
            "observedGeneration": 1,
            "conditions": [{"type": kind, "status": status, "message": "that is why"} for kind, status in conditions],
        },
    }


UNUSABLE = (
    'vision: its policy cannot be used: TenantPolicy/vision: spec.quota.devices: "40%" is no number of devices; '
    'write "0.4" for that part of one'
)


@pytest.mark.parametrize(
    ("policies", "result", "found"),
    [
        ([], "ok", "there are none in the cluster"),
        ([policy(("Accepted", "True"), ("Ambiguous", "False"))], "ok", "1 policy is in force"),
        ([policy(("Accepted", "False"), ("Ambiguous", "False"))], "fail", "vision: Accepted=False: that is why"),
        ([policy(("Accepted", "True"), ("Ambiguous", "True"))], "fail", "vision: Ambiguous=True: that is why"),
        (
            [policy(quota={"devices": "40%"})],
            "fail",
            UNUSABLE,
        ),
        (
            [policy(), policy(name="speech")],
            "fail",
            "speech: it conflicts with vision; vision: it conflicts with speech",
        ),
    ],
)
def test_policies_are_judged_by_their_conditions_and_by_themselves(
    policies: list[Mapping[str, Any]], result: str, found: str
) -> None:
    tenants = Snapshot(TENANTS, {"TenantPolicy": [*policies], "Namespace": [{"metadata": {"name": "vision"}}]})

    assert verdict(doctor.policies, tenants=(tenants, tenants)) == (result, found)


def objects(*usages: Mapping[str, Any], **changed: Any) -> Snapshot:
    """A policy with a quota, and ledgers."""
    made: list[Mapping[str, Any]] = [{"metadata": {"name": "vision"}, "status": status} for status in usages]
    return Snapshot(TENANTS, {"TenantPolicy": [policy(quota={"devices": 4}, **changed)], "TenantUsage": made})


COUNTED = {"view": "7"}
ASKED = {"view": "7", "recount": 2, "recounted": 1}


@pytest.mark.parametrize(
    ("tenants", "found"),
    [
        (objects(), "vision has a quota, and nobody has counted what it uses"),
        (objects({}), "vision has a quota, and nobody has counted what it uses"),
        (objects(ASKED), "vision: a recount was asked for and not made"),
        (objects(COUNTED, generation=2), "the status of the policy vision is of an older generation"),
    ],
)
def test_a_settler_that_does_not_answer_within_seconds_is_a_failure(tenants: Snapshot, found: str) -> None:
    waiting = f"the settler has not done its work: {found}; GPU pods there are told to wait"

    assert verdict(doctor.ledgers, tenants=(tenants, tenants)) == ("fail", waiting)
    if "counted" not in found:  # at the second look it has answered
        assert verdict(doctor.ledgers, tenants=(tenants, objects(COUNTED))) == ("ok", "1 ledger, counted")


def test_a_ledger_that_cannot_be_read_is_a_warning() -> None:
    broken = {"metadata": {"name": "speech"}, "status": {"held": {"v": {"devices": "x"}}}}
    tenants = objects(COUNTED)
    tenants.objects["TenantUsage"].append(broken)

    result, found = verdict(doctor.ledgers, tenants=(tenants, tenants))

    assert (result, found.partition(" holds")[0]) == ("warn", "speech: its TenantUsage")


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


def enabling(backend: str) -> Rulebook:
    cluster = FILES["cluster.yaml"].replace("[nvidia-gpu,", f"[{backend}, nvidia-gpu,")
    return builders.rulebook({**FILES, "cluster.yaml": cluster})


def version(minor: str) -> dict[str, str]:
    return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"}


CLAIMS = frozenset({doctor.CLAIMS})
FINE_VERSION = "v1.36.0 has all that the configurations and the enabled back ends use"


@pytest.mark.parametrize(
    ("minor", "backend", "groups", "result", "found"),
    [
        (
            "27",
            "",
            CLAIMS,
            "fail",
            "v1.27.0: it ignores matchConditions, so every pod waits for us, and none is created while we are away",
        ),
        ("28", "", CLAIMS, "warn", "v1.28.0: matchConditions are beta, and must not be switched off"),
        ("29+", "", CLAIMS, "warn", "v1.29+.0: matchConditions are beta, and must not be switched off"),
        ("36", "", frozenset(), "ok", FINE_VERSION),
        (
            "36",
            "dra-claim-template",
            frozenset(),
            "fail",
            "v1.36.0: it has no resource claims (DRA), which dra-claim-template gives pods",
        ),
        ("36", "dra-claim-template", CLAIMS, "ok", FINE_VERSION),
        (
            "35",
            "dra-extended-resource",
            CLAIMS,
            "warn",
            "v1.35.0: the feature gate DRAExtendedResource, which dra-extended-resource needs, is off by default",
        ),
        ("36", "dra-extended-resource", CLAIMS, "ok", FINE_VERSION),
    ],
)
def test_what_a_version_lacks_is_named(
    minor: str, backend: str, groups: frozenset[str], result: str, found: str
) -> None:
    rulebook = enabling(backend) if backend else RULEBOOK

    known: dict[str, Any] = {"version": version(minor), "groups": groups, "rulebook": rulebook}
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
