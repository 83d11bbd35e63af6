"""Which tenant's ledger counts which namespace, while policies come, change, overlap and go."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tests import tables
from webhook.core.quota.settlement import GRACE, Settlement
from webhook.core.rules.tenant_policy import Namespaces as Selection
from webhook.core.rules.tenant_policy import Quota, Tenancy, TenantPolicy
from webhook.settler import Namespaces

QUOTA = Quota(hard={"devices": Fraction(4)})
SPACES = ("vision-dev", "vision-ci", "speech", "lobby", "gpu-operator")


def _policy(name: str, names: Sequence[str], *, priority: int = 0, quota: bool = True) -> TenantPolicy:
    selected = Selection(names=tuple(names))
    return TenantPolicy(name=name, rule=name, namespaces=selected, quota=QUOTA if quota else None, priority=priority)


@tables.rows
def test_after_each_change_of_policies_these_tenants_settle_and_count(
    steps: Sequence[Mapping[str, Any]], tenants: Mapping[str, str]
) -> None:
    """Each step has the policies, the tenants for which something is different now, and the namespaces of each."""
    namespaces = Namespaces(Settlement("me"), GRACE)

    for step in steps:
        policies = [_policy(name, **policy) for name, policy in step["policies"].items()]
        labels: dict[str, dict[str, str]] = {name: {} for name in SPACES}
        default = {"default": step["default"]} if "default" in step else None
        tenancy = Tenancy(policies=policies, labels=labels, without_policy=default, watched=True)

        assert namespaces.sort(tenancy, exempt=["gpu-operator"]) == {*step["changed"]}
        assert {name: sorted(namespaces.wanted[name]) for name in namespaces.quotas} == step["counts"]
    assert {name: namespaces.tenants[name] for name in SPACES if namespaces.tenants.get(name)} == tenants
