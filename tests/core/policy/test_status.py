"""What the status of a policy says: its conditions, and when they changed."""

from tests import tables
from webhook.core.forms.labels import Expression
from webhook.core.policy import in_force, membership
from webhook.core.policy.in_force import ALONE, TAKEN, VALID, Condition, Tie
from webhook.core.rules.tenant_policy import Namespaces, Tenancy, TenantPolicy

NOW = "2026-11-21T22:00:00Z"
LATER = "2026-11-22T22:00:00Z"


def policy(name: str, *namespaces: str, priority: int = 0) -> TenantPolicy:
    return TenantPolicy(name=name, rule=name, namespaces=Namespaces(names=namespaces), priority=priority)


@tables.rows
def test_the_conditions_of_a_policy(
    problems: list[str], tie: tuple[list[str], list[str]] | None, accepted: list[str], ambiguous: list[str]
) -> None:
    rivals = None if tie is None else Tie(tie[0], {*tie[1]})

    assert in_force.conditions_of(problems, rivals) == [Condition(*accepted), Condition(*ambiguous)]


def test_a_policy_whose_name_the_rule_files_have_is_not_accepted() -> None:
    assert in_force.conditions_of(["spec.a: no"], None, taken=True) == [TAKEN, ALONE]


def test_policies_of_one_priority_are_tied_by_the_namespaces_that_they_share() -> None:
    policies = [policy("a", "x-*"), policy("b", "x-1", "kube-system"), policy("c", "x-2", priority=1)]
    tenancy = Tenancy(
        policies=[*policies, policy("d", "kube-system")], labels={"x-1": {}, "x-2": {}, "kube-system": {}}
    )

    found = in_force.ties(tenancy, {"kube-system"})

    assert found == {"a": Tie(["x-1"], {"b"}), "b": Tie(["x-1"], {"a"})}


def test_beside_a_default_policy_labels_decide_whatever_the_priorities() -> None:
    lobby, by_name = policy("lobby", "lobby", priority=9), policy("by-name", "x", priority=1)
    labelled = Namespaces(selector=[Expression(key="team", operator="In", values=("a",))])
    by_label = TenantPolicy(name="by-label", rule="by-label", namespaces=labelled)
    tenancy = Tenancy(policies=[lobby, by_name, by_label], without_policy={"default": "lobby"})

    assert membership.member("elsewhere", tenancy).policy is lobby
    assert [*membership.undecided("elsewhere", tenancy)] == [by_label]
    assert [*membership.undecided("x", tenancy)] == []


def test_a_status_that_says_so_already_is_not_written_again() -> None:
    written = in_force.status([VALID, ALONE], 3, {}, NOW)

    assert written is not None
    assert in_force.status([VALID, ALONE], 3, written, LATER) is None


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    before = in_force.status([VALID, ALONE], 3, {}, NOW)
    assert before is not None

    after = in_force.status([TAKEN, ALONE], 4, before, LATER)

    assert after == {
        "observedGeneration": 4,
        "conditions": [
            {**TAKEN._asdict(), "observedGeneration": 4, "lastTransitionTime": LATER},
            {**ALONE._asdict(), "observedGeneration": 4, "lastTransitionTime": NOW},
        ],
    }
