"""Replicas as they were seen: certificates, clocks, and the rules that they apply."""

from typing import Any

import pytest

from webhook.cli import replicas
from webhook.cli.checkup import Check
from webhook.cli.replicas import Bundle, Replica
from webhook.core.kube.fields import DAY, HOUR

NOW = 1_000 * DAY
DIGEST = "0123456789abcdef"
TRUSTED = [Bundle(hooks=("mutate", "validate"), pem="CA")]


def replica(address: str = "10.0.0.1:8443", **seen: Any) -> Replica:
    known: dict[str, Any] = {"valid": (NOW - 10 * DAY, NOW + 20 * DAY), "digest": DIGEST, "reviews": 1}
    return Replica(address=address, **{**known, **seen})


HIDDEN = replica(unreachable="no route", valid=None, digest="", reviews=None)


def test_a_service_without_endpoints_or_with_a_replica_that_is_not_ready_fails() -> None:
    nobody = replicas.present([], "s/gpu-webhook")
    waiting = replicas.present([replica(), replica("10.0.0.2:8443", not_ready="the rules were never loaded")], "s")

    assert (nobody.result, nobody.found) == ("fail", "the Service s/gpu-webhook has no endpoint that is ready")
    assert (waiting.result, waiting.found) == ("fail", "10.0.0.2:8443: the rules were never loaded")


def test_what_cannot_be_seen_from_here_is_a_warning_in_each_check_of_replicas() -> None:
    hidden = [HIDDEN]

    checks = [
        replicas.present(hidden, "s"),
        replicas.certificate(TRUSTED, hidden, "server", "s/tls"),
        replicas.expiry(hidden, NOW),
        replicas.rules(hidden, DIGEST, "rules"),
    ]
    assert [check.result for check in checks] == ["warn"] * 4
    assert checks[0].found == "1 of 1 replica cannot be seen from here: 10.0.0.1:8443: no route"


def test_a_webhook_without_a_ca_bundle_is_named_whatever_replicas_serve() -> None:
    check = replicas.certificate([*TRUSTED, Bundle(hooks=("bindings",), pem="")], [replica()], "server", "s/tls")

    assert (check.result, check.found) == ("fail", "bindings has no caBundle: API servers trust no replica")


def test_a_certificate_that_no_bundle_verifies_is_named_with_its_replica() -> None:
    seen = [replica(), replica("10.0.0.2:8443", untrusted="unable to get local issuer certificate")]

    check = replicas.certificate(TRUSTED, seen, "server", "s/tls")

    assert (check.result, check.found) == ("fail", "10.0.0.2:8443: unable to get local issuer certificate")


@pytest.mark.parametrize(
    ("begins", "ends", "result", "found"),
    [
        (NOW - 10 * DAY, NOW + 20 * DAY, "ok", "20 days of 30 days are left"),
        (NOW - 20 * DAY, NOW + 10 * DAY, "ok", "10 days of 30 days are left"),
        (
            NOW - 21 * DAY,
            NOW + 9 * DAY,
            "warn",
            "10.0.0.1:8443: only 9 days of 30 days are left, less than a third: a renewal is late",
        ),
        (NOW - 30 * DAY, NOW - HOUR, "fail", "10.0.0.1:8443: expired 1 hour ago"),
        (NOW + HOUR, NOW + DAY, "fail", "10.0.0.1:8443: not valid for another 1 hour"),
    ],
)
def test_a_certificate_is_renewed_before_less_than_a_third_is_left(
    begins: float, ends: float, result: str, found: str
) -> None:
    check = replicas.expiry([replica(valid=(begins, ends))], NOW)

    assert (check.result, check.found) == (result, found)


def test_the_certificate_with_the_least_time_left_is_told_and_a_ca_that_has_expired() -> None:
    late = replica("10.0.0.2:8443", valid=(NOW - 29 * DAY, NOW + DAY))

    assert replicas.expiry([replica(), late], NOW).found.startswith("10.0.0.2:8443: only 1 day of 30")
    check = replicas.expiry([replica(untimely="certificate has expired, by the caBundle of mutate")], NOW)
    assert (check.result, check.found) == (
        "fail",
        "10.0.0.1:8443: certificate has expired, by the caBundle of mutate: a CA of the caBundle, not the leaf",
    )


@pytest.mark.parametrize(
    ("offsets", "result", "found"),
    [
        ({"a": 0.5, "b": -1.0}, "ok", "3 clocks agree to 10 s"),
        ({"a": 0.5, "b": 40.0}, "warn", "b is 40 s ahead"),
        ({"a": -300.0, "b": -301.0}, "warn", "this machine is 5 minutes ahead"),
        (
            {"a": 0.0, "b": -2.0 * HOUR},
            "fail",
            "b is 2 hours behind; certificates are valid from an hour before their issue on",
        ),
    ],
)
def test_the_clock_that_differs_from_most_is_named(offsets: dict[str, float], result: str, found: str) -> None:
    check = replicas.clocks(offsets)

    assert (check.result, check.found) == (result, found)


def test_without_any_other_clock_nothing_is_said_to_agree() -> None:
    assert replicas.clocks({}).result == "warn"


def test_replicas_apply_the_rules_that_should_be_in_force() -> None:
    other = replica("10.0.0.2:8443", digest="fedcba9876543210")

    assert replicas.rules([replica(), HIDDEN], DIGEST, "the ConfigMaps") == Check(
        "rules", "ok", "1 replica applies the rules of the ConfigMaps, 0123456789ab"
    )
    assert replicas.rules([other], DIGEST, "rules").found == (
        "rules has the rules 0123456789ab, and 10.0.0.2:8443 applies fedcba987654"
    )
    assert replicas.rules([replica(), other], DIGEST, "rules").found == (
        "replicas disagree: rules has the rules 0123456789ab, and 10.0.0.2:8443 applies fedcba987654"
    )
    assert replicas.rules([replica(digest="")], DIGEST, "rules").found.endswith("10.0.0.1:8443 applies none")
