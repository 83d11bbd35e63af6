"""Pods that are tried at each API server, and what the answers mean."""

from dataclasses import replace
from typing import Any

import pytest

from tests import builders
from webhook.cli import doctor
from webhook.cli.checkup import Check
from webhook.cli.doctor import Answer, Purpose, Server

RULEBOOK = builders.rulebook(builders.shipped_files())
TRIED = doctor.trial_pods(RULEBOOK)
DENIED = 'admission webhook "{}.gpu-webhook.io" denied the request: [{}] it is wrong\n  fix  mend it'
UNCALLED = 'Internal error occurred: failed calling webhook "mutate.gpu-webhook.io": failed to call webhook: {}'


def pod(**limits: str) -> dict[str, Any]:
    return {"kind": "Pod", "spec": {"containers": [{"resources": {"limits": {"cpu": "10m", **limits}}}]}}


CREATED = Answer(status=201, said=pod())
FINE: dict[Purpose, Answer] = {
    "translated": Answer(status=201, said=pod(**{"acme.example/gpu": "1"})),
    "refused": Answer(status=422, said={"message": DENIED.format("mutate", TRIED[1].code)}),
    "bystander": CREATED,
}


def refusal(message: str, status: int = 403) -> Answer:
    return Answer(status=status, said={"message": message})


def check(
    *others: Server, observing: bool = False, certified: bool = True, called: bool | None = False, **changed: Answer
) -> Check:
    """The check of one API server that answers as it should, except where a test says otherwise."""
    answers: dict[Purpose, Answer] = {**FINE, **changed}  # type: ignore[dict-item]  # its keys are purposes
    server = Server(address="10.0.0.1:6443", answers=answers, was_called=called)
    return doctor.check_trials(TRIED, [server, *others], observing=observing, certified=certified)


def test_the_pods_are_one_that_the_rules_translate_one_that_they_refuse_and_one_without_a_gpu() -> None:
    assert [(one.purpose, dict(one.labels), one.code) for one in TRIED] == [
        ("translated", {"gpu": "1"}, ""),
        ("refused", {"gpu": "1.5"}, "GPU201"),
        ("bystander", {"app": "doctor"}, ""),
    ]


def test_rules_in_observe_mode_have_the_same_pods_tried() -> None:
    observing = replace(RULEBOOK, tenancy=replace(RULEBOOK.tenancy, observing=True))

    assert doctor.trial_pods(observing) == TRIED


def test_an_api_server_that_does_all_three_is_fine() -> None:
    assert check() == Check(
        "admission", "ok", "at 1 API server pods with GPUs are translated or refused, and others are not sent to us"
    )


@pytest.mark.parametrize(
    ("changed", "result", "found"),
    [
        (
            {"translated": CREATED},
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
        ({"refused": CREATED}, "fail", "gpu: 1.5 was admitted, and should have been refused with GPU201"),
        ({"refused": refusal("exceeded quota")}, "warn", "gpu: 1.5 was refused by others: exceeded quota"),
        ({"refused": refusal(DENIED.format("mutate", "GPU301"))}, "fail", "gpu: 1.5 was not refused with GPU201"),
        (
            {"bystander": refusal(DENIED.format("mutate", "GPU201"))},
            "fail",
            "the pod with no GPU was refused by us: admission",
        ),
        ({"bystander": refusal("no")}, "warn", "the pod with no GPU was refused by others: no"),
        ({"bystander": Answer(status=201, said=pod(x="1"))}, "fail", "the pod with no GPU came back with a device"),
        ({"called": True}, "warn", "the pod with no GPU: a replica was asked about a pod each time"),
        ({"called": None}, "warn", "the pod with no GPU: whether it was sent to us cannot be told from here"),
    ],
)
def test_what_an_answer_means(changed: dict[str, Any], result: str, found: str) -> None:
    made = check(**changed)

    assert made.result == result
    assert found in made.found
    assert bool(made.fix) == (result != "ok")


def test_replicas_that_are_not_reached_are_a_failure_with_the_api_servers_own_words() -> None:
    made = check(translated=refusal(UNCALLED.format("connection refused"), 500))

    assert made.result == "fail"
    assert made.found.endswith("gpu: 1: " + UNCALLED.format("connection refused"))
    assert made.fix.startswith("look whether replicas run")


def test_a_certificate_that_is_known_to_be_wrong_is_told_once() -> None:
    unverified = refusal(UNCALLED.format("tls: failed to verify certificate: x509: certificate has expired"), 500)

    assert check(translated=unverified, certified=True).result == "fail"
    assert check(translated=unverified, certified=False).result == "warn"
    assert check(translated=unverified, refused=CREATED, certified=False).result == "fail"


def test_in_observe_mode_the_author_is_warned_and_the_pod_stays_as_it_is() -> None:
    warned = Answer(status=201, said=pod(), warnings=["the pod would become nvidia.com/gpu: 1 (nvidia-gpu)"])

    assert check(observing=True, translated=warned, refused=warned).result == "ok"
    assert check(observing=True, translated=CREATED, refused=warned).result == "fail"


def test_api_servers_that_cannot_be_asked_from_here_are_a_warning_unless_none_can() -> None:
    hidden = Server(address="10.0.0.2:6443", unreachable="no route")

    some = check(hidden)
    none = doctor.check_trials(TRIED, [hidden], observing=False, certified=True)

    assert (some.result, some.found) == ("warn", "fine at 1 API server; not asked from here: 10.0.0.2:6443: no route")
    assert (none.result, none.examined) == ("fail", False)


@pytest.mark.parametrize(
    ("status", "message", "forbidden"),
    [
        (401, "Unauthorized", True),
        (403, 'pods is forbidden: User "me" cannot create resource "pods" in API group ""', True),
        (403, DENIED.format("validate", "GPU105"), False),
    ],
)
def test_an_account_that_may_not_create_pods_has_asked_nobody(status: int, message: str, *, forbidden: bool) -> None:
    assert refusal(message, status).is_forbidden is forbidden
