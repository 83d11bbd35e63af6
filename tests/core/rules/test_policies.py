"""Policies and exemptions, read from rule files and from a cluster."""

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies

from tests import builders, tables
from tests.core import acme
from webhook.core.forms import labels
from webhook.core.forms.document import DocumentError, Location, Node
from webhook.core.forms.forms import Scope
from webhook.core.rules import load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import TIME, Namespaces, Tenancy, TenantPolicy
from webhook.files.rule_files import RuleFilesError

ACME = """
vendors: [nvidia]
modes:
- limits: {acme.example/gpu: count}
"""
_WRITTEN = tables.table(__file__, "what is read")
POLICY, EXEMPTION = _WRITTEN["a policy"], _WRITTEN["an exemption"]


@cache
def _loaded() -> Rulebook:
    return acme.rulebook(ACME)


def _tenancy(*texts: str, cluster: str = "") -> Tenancy:
    files = {f"tenants-{number}.yaml": text.removeprefix("\n") for number, text in enumerate(texts)}
    return acme.rulebook(ACME, files | {"cluster.yaml": acme.CLUSTER + cluster}).tenancy


def _plain(value: Any) -> Any:
    """A value as tables have it: forms are mappings, sets are sorted, fractions are texts."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, frozenset | tuple | list):
        return [_plain(entry) for entry in (sorted(value) if isinstance(value, frozenset) else value)]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _read(name: str, place: int) -> dict[str, Any]:
    """What is to be read; of the two places that it may be read from, a file and a cluster, one names the rules."""

    def named(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: entry[place] if key == "rule" else named(entry) for key, entry in value.items()}

    read: dict[str, Any] = named(_WRITTEN[name])
    return read


def test_a_policy_of_a_file_names_its_rules_by_their_lines() -> None:
    tenancy = _tenancy(POLICY)

    assert [_plain(policy) for policy in tenancy.policies] == [_read("the policy", 0)]
    assert replace(tenancy, policies=()) == Tenancy()


def test_a_policy_of_a_cluster_names_its_rules_by_their_paths() -> None:
    stored = yaml.safe_load(POLICY) | {"status": {"conditions": []}}
    stored["metadata"] |= {"uid": "8f2f8d4e", "resourceVersion": "7"}

    found = load.policies_from([stored], _loaded())

    assert _plain(found.read) == {"vision": _read("the policy", 1)}
    assert not found.broken


def test_an_exemption_is_the_same_in_a_file_and_in_a_cluster() -> None:
    written = json.loads(json.dumps(yaml.load(EXEMPTION, yaml.BaseLoader)))  # noqa: S506  all scalars as text
    found = load.exemptions_from([written], _loaded())

    assert [_plain(exemption) for exemption in _tenancy(EXEMPTION).exemptions] == [_read("the exemption", 0)]
    assert _plain(found.read) == {"night": _read("the exemption", 1)}
    assert not found.broken


@tables.rows
def test_the_cluster_says_what_holds_without_a_policy(words: str, without_policy: Any, *, observing: bool) -> None:
    assert _tenancy(cluster=words) == Tenancy(without_policy=without_policy, observing=observing)


def _problems(*texts: str) -> list[str]:
    with pytest.raises(RuleFilesError) as refused:
        _tenancy(*texts)
    return [str(problem) for problem in refused.value.problems]


@tables.rows
def test_everything_that_is_wrong_is_said_at_once(text: str, problems: list[str]) -> None:
    assert _problems(text) == problems


def test_a_name_stands_for_one_policy() -> None:
    assert _problems(POLICY, POLICY) == [
        'tenants-1.yaml:3:18: metadata.name: TenantPolicy "vision" is defined already, at tenants-0.yaml:3'
    ]


@tables.rows
def test_a_mistake_is_answered_with_what_to_write(spec: Any, said: str) -> None:
    found = load.policies_from([{"metadata": {"name": "vision"}, "spec": spec}], _loaded())

    assert [str(problem) for problem in found.broken["vision"].problems] == [f"TenantPolicy/vision: {said}"]


@tables.rows
def test_what_the_shipped_rules_do_not_let_a_policy_say(spec: dict[str, Any], said: str) -> None:
    stored = {"metadata": {"name": "vision"}, "spec": {"namespaces": {"names": ["vision"]}, **spec}}

    found = load.policies_from([stored], builders.rulebook(builders.shipped_files()))

    assert [str(problem) for problem in found.broken["vision"].problems] == [f"TenantPolicy/vision: {said}"]


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
    whole = load.policies_from([yaml.safe_load(POLICY)], _loaded()).read["vision"]
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
