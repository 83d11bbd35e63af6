"""Which tenant's ledger counts which namespace, while policies come, change, overlap and go."""

from collections.abc import Collection
from fractions import Fraction

from webhook.core.quota.settlement import GRACE, Settlement
from webhook.core.rules.tenant_policy import Namespaces as Selection
from webhook.core.rules.tenant_policy import Quota, Tenancy, TenantPolicy
from webhook.settler import Namespaces

QUOTA = Quota(hard={"devices": Fraction(4)})
SPACES = ("vision-dev", "vision-ci", "speech", "gpu-operator")


def policy(name: str, *namespaces: str, quota: Quota | None = QUOTA, priority: int = 0) -> TenantPolicy:
    return TenantPolicy(name=name, rule=name, namespaces=Selection(names=namespaces), quota=quota, priority=priority)


def sorted_by(namespaces: Namespaces, *policies: TenantPolicy) -> set[str]:
    """The tenants for which something is different now."""
    tenancy = Tenancy(policies=policies, labels={name: {} for name in SPACES}, watched=True)
    return namespaces.sort(tenancy, exempt=["gpu-operator"])


def of(namespaces: Namespaces, *tenants: str) -> list[Collection[str]]:
    return [namespaces.wanted[tenant] for tenant in tenants]


def fresh() -> Namespaces:
    return Namespaces(Settlement("me"), GRACE)


def test_a_namespace_is_counted_by_the_policy_that_selects_it_and_exempt_ones_by_none() -> None:
    namespaces = fresh()

    assert sorted_by(namespaces, policy("vision", "vision-*"), policy("all", "gpu-*")) == {"vision", "all"}

    assert of(namespaces, "vision", "all") == [{"vision-dev", "vision-ci"}, set()]
    assert [namespaces.tenants.get(name) for name in SPACES] == ["vision", "vision", None, None]


def test_a_namespace_that_no_policy_selects_is_counted_by_the_default_one() -> None:
    namespaces, policies = fresh(), [policy("lobby", "lobby", priority=9), policy("vision", "vision-*")]
    labels: dict[str, dict[str, str]] = {name: {} for name in (*SPACES, "lobby")}

    namespaces.sort(Tenancy(policies=policies, labels=labels, without_policy={"default": "lobby"}), ["gpu-operator"])

    assert of(namespaces, "vision", "lobby") == [{"vision-dev", "vision-ci"}, {"speech", "lobby"}]


def test_only_tenants_with_another_quota_or_other_namespaces_have_something_to_settle() -> None:
    namespaces = fresh()
    vision, speech = policy("vision", "vision-*"), policy("speech", "speech")
    sorted_by(namespaces, vision, speech)

    assert sorted_by(namespaces, vision, speech) == set()
    assert sorted_by(namespaces, vision, policy("speech", "speech", "vision-ci", priority=1)) == {"vision", "speech"}
    assert sorted_by(namespaces, vision, policy("speech", "speech", quota=None)) == {"vision", "speech"}
    assert ({*namespaces.quotas}, namespaces.quotas.get("speech")) == ({"vision"}, None)


def test_while_policies_are_in_conflict_over_a_namespace_it_stays_where_it_was() -> None:
    namespaces = fresh()
    vision, speech = policy("vision", "vision-*"), policy("speech", "speech")
    sorted_by(namespaces, vision, speech)

    assert sorted_by(namespaces, vision, policy("speech", "speech", "vision-ci")) == set()

    assert of(namespaces, "vision", "speech") == [{"vision-dev", "vision-ci"}, {"speech"}]


def test_a_namespace_that_policies_were_always_in_conflict_over_is_counted_by_none() -> None:
    namespaces = fresh()

    sorted_by(namespaces, policy("vision", "vision-*"), policy("speech", "speech", "vision-ci"))

    assert (namespaces.tenants.get("vision-ci"), of(namespaces, "vision")) == (None, [{"vision-dev"}])
