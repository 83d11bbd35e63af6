"""Policies and exemptions, read from rule files and from a cluster."""

import datetime as dt
import json
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies

from tests import builders, tables
from tests.core import acme
from webhook.core.forms import labels
from webhook.core.forms.document import DocumentError, Location, Node
from webhook.core.forms.form import Scope
from webhook.core.forms.labels import Expression
from webhook.core.rules import load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import (
    TIME,
    Ceiling,
    Defaults,
    Exemption,
    Kinds,
    Namespaces,
    Quota,
    Tenancy,
    TenantPolicy,
)
from webhook.files.rule_files import RuleFilesError

ACME = """
vendors: [nvidia]
modes:
- limits: {acme.example/gpu: count}
"""
POLICY = """
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {name: vision}
spec:
  priority: 10
  enforcementAction: warn
  namespaces:
    names: [vision-dev, "ml-*"]
    selector:
      matchLabels: {team: vision}
      matchExpressions:
      - {key: stage, operator: NotIn, values: [dev, ci]}
  ceilings:
    container: {devices: 2, memory: 40Gi, cores: 100}
    pod: {devices: "4.5", enforcementAction: deny}
  allowed:
    backends: [acme]
    vendors: [nvidia]
    models: [a100-80gb, "NVIDIA L4"]
    sharing: [exclusive]
    profiles: [1g.10gb, 1g.10gb.me]
  forbidden: {models: [T4], enforcementAction: dryrun}
  defaults: {backend: acme, model: t4, sharing: exclusive, memory: 8Gi}
  affinity:
  - {key: pool, operator: In, values: [vision, shared]}
  - {key: spot, operator: DoesNotExist}
  labels: {example.com/queue: vision}
  annotations: {Example.com/note: "any, text"}
  quota:
    devices: 16
    memory: 640Gi
    models:
      a100-80gb: {devices: "0.5", memory: 0Gi}
"""
EXEMPTION = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Exemption
metadata: {name: night}
spec:
  namespaces: ["vision-*"]
  users: ["ci:*"]
  lifts: [quota, pod]
  owner: platform@example.com
  reason: the yearly retraining
  expires: 2027-01-31T02:00:00+02:00
"""
GIB = 1 << 30


@cache
def _loaded() -> Rulebook:
    return acme.rulebook(ACME)


@cache
def _shipped() -> Rulebook:
    return builders.rulebook(builders.shipped_files())


def _tenancy(*texts: str, cluster: str = "") -> Tenancy:
    files = {f"tenants-{number}.yaml": text.removeprefix("\n") for number, text in enumerate(texts)}
    return acme.rulebook(ACME, files | {"cluster.yaml": acme.CLUSTER + cluster}).tenancy


def _policy(line: str, **more: Any) -> TenantPolicy:
    """The policy above, where its rules are named by this, with their place in it."""
    return TenantPolicy(
        name="vision",
        namespaces=Namespaces(
            names=("vision-dev", "ml-*"),
            selector=[
                Expression(key="team", operator="In", values=("vision",)),
                Expression(key="stage", operator="NotIn", values=("dev", "ci")),
            ],
        ),
        priority=10,
        action="warn",
        affinity=(
            {"key": "pool", "operator": "In", "values": ["vision", "shared"]},
            {"key": "spot", "operator": "DoesNotExist"},
        ),
        labels={"example.com/queue": "vision"},
        annotations={"Example.com/note": "any, text"},
        rule=line,
        **more,
    )


def _rules(container: str, pod: str, allowed: str, forbidden: str, defaults: str, quota: str) -> dict[str, Any]:
    """Its rules, each named by the line given."""
    return {
        "container": Ceiling(
            devices=Fraction(2), memory=40 * GIB, cores=Fraction(100), action="warn", rule=container
        ),
        "pod": Ceiling(devices=Fraction(9, 2), action="deny", rule=pod),
        "allowed": Kinds(
            backends=frozenset({"acme"}),
            vendors=frozenset({"nvidia"}),
            models=frozenset({"A100-80GB", "L4"}),
            sharing=frozenset({"exclusive"}),
            profiles=frozenset({"1g.10gb", "1g.10gb+me"}),
            action="warn",
            rule=allowed,
        ),
        "forbidden": Kinds(models=frozenset({"T4"}), action="dryrun", rule=forbidden),
        "defaults": Defaults(backend="acme", model="T4", sharing="exclusive", memory=8 * GIB, rule=defaults),
        "quota": Quota(
            hard={
                "devices": Fraction(16),
                "memory": Fraction(640 * GIB),
                "devices/A100-80GB": Fraction(1, 2),
                "memory/A100-80GB": Fraction(0),
            },
            action="warn",
            rule=quota,
        ),
    }


def test_a_policy_of_a_file_names_its_rules_by_their_lines() -> None:
    lines = (f"vision (tenants-0.yaml:{number})" for number in (14, 15, 16, 22, 23, 29))

    assert _tenancy(POLICY) == Tenancy(policies=(_policy("vision (tenants-0.yaml:5)", **_rules(*lines)),))


def test_a_policy_of_a_cluster_names_its_rules_by_their_paths() -> None:
    stored = yaml.safe_load(POLICY) | {"status": {"conditions": []}}
    stored["metadata"] |= {"uid": "8f2f8d4e", "resourceVersion": "7"}
    parts = ("ceilings.container", "ceilings.pod", "allowed", "forbidden", "defaults", "quota")
    lines = (f"TenantPolicy/vision spec.{part}" for part in parts)

    found = load.policies_from([stored], _loaded())

    assert found == load.FromCluster({"vision": _policy("TenantPolicy/vision", **_rules(*lines))})


def test_an_exemption_is_the_same_in_a_file_and_in_a_cluster() -> None:
    exempt: dict[str, Any] = {
        "name": "night",
        "namespaces": ("vision-*",),
        "users": ("ci:*",),
        "lifts": frozenset({"quota", "pod"}),
        "owner": "platform@example.com",
        "reason": "the yearly retraining",
        "expires": dt.datetime(2027, 1, 31, tzinfo=dt.UTC).timestamp(),
    }
    written = json.loads(json.dumps(yaml.load(EXEMPTION, yaml.BaseLoader)))  # noqa: S506  all scalars as text

    assert _tenancy(EXEMPTION).exemptions == (Exemption(rule="night (tenants-0.yaml:5)", **exempt),)
    assert load.exemptions_from([written], _loaded()) == load.FromCluster(
        {"night": Exemption(rule="Exemption/night", **exempt)}
    )


@tables.rows
def test_the_cluster_says_what_holds_without_a_policy(words: str, without_policy: Any, *, observing: bool) -> None:
    assert _tenancy(cluster=words) == Tenancy(without_policy=without_policy, observing=observing)


def _problems(*texts: str) -> list[str]:
    with pytest.raises(RuleFilesError) as refused:
        _tenancy(*texts)
    return [str(problem) for problem in refused.value.problems]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = """
        apiVersion: gpu-webhook.io/v1alpha1
        kind: TenantPolicy
        metadata: {name: Vision}
        spec:
          priorty: 10
          namespaces: {names: [Vision]}
          ceilings:
            container: {devices: 0.5, memory: 40}
          allowed: {backends: [acne], models: [A100-80GP], vendors: [nvidea]}
          quota: {models: {T5: {devices: 2}}}
          labels: {gpu: "1"}
        """

    assert _problems(wrong) == [
        (
            'tenants-0.yaml:3:26: metadata.name: "Vision" is no name of an object; write a-z, 0-9 and -, at most 63'
            " characters, as vision-team"
        ),
        'tenants-0.yaml:5:11: spec: unknown key "priorty" (did you mean "priority"?)',
        (
            'tenants-0.yaml:6:32: spec.namespaces.names[0]: "Vision" is no name of a namespace; write the name of'
            ' one, or a pattern with * or ?, as vision-dev or "vision-*"'
        ),
        'tenants-0.yaml:8:34: spec.ceilings.container.devices: has to be in quotes: "0.5"',
        "tenants-0.yaml:8:47: spec.ceilings.container.memory: has no unit; write 40Gi or 40Mi",
        'tenants-0.yaml:9:32: spec.allowed.backends[0]: no rule defines the back end "acne" (did you mean "acme"?)',
        (
            'tenants-0.yaml:9:48: spec.allowed.models[0]: no catalogue knows the model "A100-80GP" (did you mean'
            ' "A100-80GB"?)'
        ),
        (
            'tenants-0.yaml:9:70: spec.allowed.vendors[0]: no catalogue is of the vendor "nvidea" (did you mean'
            ' "nvidia"?)'
        ),
        'tenants-0.yaml:10:28: spec.quota.models: no catalogue knows the model "T5"',
        (
            'tenants-0.yaml:11:20: spec.labels: "gpu" asks for devices; what is meant where a pod does not say stands'
            " in defaults"
        ),
    ]


def test_a_name_stands_for_one_policy() -> None:
    assert _problems(POLICY, POLICY) == [
        'tenants-1.yaml:3:18: metadata.name: TenantPolicy "vision" is defined already, at tenants-0.yaml:3'
    ]


def _spec(**parts: Any) -> dict[str, Any]:
    return {"namespaces": {"names": ["vision"]}, **parts}


def _said(spec: Any) -> str:
    """The one thing that is wrong with a policy of a cluster."""
    found = load.policies_from([{"metadata": {"name": "vision"}, "spec": spec}], _loaded())
    (problem,) = found.broken["vision"].problems
    return str(problem).removeprefix("TenantPolicy/vision: ")


@tables.rows
def test_a_mistake_is_answered_with_what_to_write(spec: Any, said: str) -> None:
    assert _said(spec) == said


def test_a_policy_cannot_ask_in_the_words_of_a_back_end() -> None:
    spec = _spec(annotations={"huawei.com/vnpu-mode": "hami-core"})
    stored = {"metadata": {"name": "vision"}, "spec": spec}

    found = load.policies_from([stored], _shipped())

    assert [problem.path for problem in found.broken["vision"].problems] == ["spec.annotations"]


def test_a_default_back_end_has_to_serve() -> None:
    stored = {"metadata": {"name": "vision"}, "spec": _spec(defaults={"backend": "kai"})}

    found = load.policies_from([stored], _shipped())

    assert list(map(str, found.broken["vision"].problems)) == [
        (
            'TenantPolicy/vision: spec.defaults.backend: spec.backends of the Cluster document does not enable "kai";'
            " add it there"
        )
    ]


def test_a_broken_policy_hides_no_other_and_its_namespaces_are_not_free() -> None:
    good = {"metadata": {"name": "speech"}, "spec": {"namespaces": {"names": ["speech"]}}}
    spec = yaml.safe_load(POLICY)["spec"]
    spec["namespaces"]["names"].append("Oops")
    spec["namespaces"]["selector"]["matchExpressions"].append({"key": "x", "operator": "In"})
    spec["allowed"]["models"] = ["A1000"]

    found = load.policies_from([{"metadata": {"name": "vision"}, "spec": spec}, good], _loaded())

    assert found.read == {
        "speech": TenantPolicy(name="speech", rule="TenantPolicy/speech", namespaces=Namespaces(names=("speech",)))
    }
    broken = found.broken["vision"]
    assert [problem.path for problem in broken.problems] == [
        "spec.allowed.models[0]",
        "spec.namespaces.names[2]",
        "spec.namespaces.selector.matchExpressions[1]",
    ]
    whole = _policy("TenantPolicy/vision")
    assert broken.instead == TenantPolicy(
        name="vision",
        rule="TenantPolicy/vision",
        namespaces=whole.namespaces,
        priority=10,
        broken=f"{broken.problems[0].path}: {broken.problems[0].message}",
    )


@pytest.mark.parametrize("stored", [{}, {"spec": None}, {"spec": []}, {"spec": {"namespaces": 1}}])
def test_whatever_an_object_is_reading_it_ends_well(stored: dict[str, Any]) -> None:
    found = load.policies_from([{"metadata": {"name": "odd"}, **stored}], _loaded())

    assert (list(found.read), list(found.broken)) == ([], ["odd"])


def test_a_broken_exemption_exempts_nobody() -> None:
    stored = {"metadata": {"name": "night"}, "spec": {"namespaces": ["vision"], "lifts": ["quotas"], "owner": ""}}

    found = load.exemptions_from([stored], _loaded())

    assert found.broken["night"].instead is None
    assert [str(problem) for problem in found.broken["night"].problems] == [
        'Exemption/night: spec: needs the key "expires"',
        'Exemption/night: spec: needs the key "reason"',
        (
            'Exemption/night: spec.lifts[0]: "quotas" is not one of container, pod, allowed, forbidden, quota, '
            "deviceAccess"
            ' (did you mean "quota"?)'
        ),
        "Exemption/night: spec.owner: has to say something",
    ]


def _time(text: str) -> float:
    return TIME.read(Node(text, Location("a", 1)), Scope())


@settings(deadline=None)
@given(
    strategies.datetimes(
        min_value=dt.datetime(2000, 1, 2),  # noqa: DTZ001  the zone is drawn beside it
        timezones=strategies.integers(-14 * 60, 14 * 60).map(
            lambda minutes: dt.timezone(dt.timedelta(minutes=minutes))
        ),
    )
)
def test_times_are_read_as_the_calendar_has_them(when: dt.datetime) -> None:
    assert _time(when.isoformat()) == pytest.approx(when.timestamp(), abs=1e-4)


@tables.rows
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(DocumentError):
        _time(text)


@tables.rows
def test_keys_and_values_are_those_of_kubernetes(text: str, *, key: bool, value: bool) -> None:
    assert (labels.is_key(text), labels.is_value(text)) == (key, value)
