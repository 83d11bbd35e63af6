"""Policies, ledgers, namespaces and servers come and go, and what pods hold is counted all the same."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import Town, create, delete_all, gpu_pod, refusal, told
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, point, register, unregister
from webhook.core.policy.in_force import STRICT

pytestmark = pytest.mark.cluster

HERE = "kubernetes.io/metadata.name"
USAGES: Object = {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {}}


def holders(town: Town, namespace: str) -> list[str]:
    """The tenants that count a namespace, at one moment."""
    ledgers = {each["metadata"]["name"]: each.get("status", {}) for each in town.client.list(USAGES)}
    return [name for name, status in ledgers.items() if namespace in status.get("held", {})]


def await_holder(town: Town, namespace: str, tenant: str) -> list[list[str]]:
    """Await that a tenant counts a namespace; whoever did until then, at each look."""
    looks: list[list[str]] = []

    def counted() -> bool:
        looks.append(holders(town, namespace))
        return tenant in looks[-1]

    until(counted, f"{tenant} counts {namespace}")
    return looks


def conditions_of(town: Town, name: str) -> dict[str, tuple[str, str, str]]:
    """What a policy's status says, by type; empty unless it is about the policy as it stands."""
    found = town.client.get(world.policy(name))
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return {}
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in status["conditions"]}


def by_its_label(town: Town, namespace: str) -> None:
    """Move a namespace to the tenant `{namespace}-new` by its own label."""
    world.label(town.client, namespace, {"team": "new"})


def by_a_higher_priority(town: Town, namespace: str) -> None:
    """Move it by what the new tenant's policy says."""
    town.change(f"{namespace}-new", priority=1, namespaces={"names": [namespace]})


@pytest.mark.parametrize("move", [by_its_label, by_a_higher_priority])
def test_a_namespace_moves_to_another_tenant_with_its_pods(town: Town, move: Callable[[Town, str], None]) -> None:
    name = move.__name__.replace("_", "-")
    old, new = f"{name}-old", f"{name}-new"
    there = town.client.in_namespace(name)
    world.label(town.client, name, {"team": "old"})
    for team, devices in (("old", 2), ("new", 3)):
        selector = {"names": [f"{name}-{team}-only"], "selector": {"matchLabels": {"team": team, HERE: name}}}
        town.client.create(world.policy(f"{name}-{team}", namespaces=selector, quota={"devices": devices}))
    world.await_counted(town.client, old, name)
    with town.watched(there) as witness:
        create(there, gpu_pod("one"), gpu_pod("two"))
        refusal(there, gpu_pod("three"))

        move(town, name)
        until(lambda: old not in holders(town, name), "it is taken out of the old ledger")
        code, said = told(there, gpu_pod("three"))
        counted = await_holder(town, name, new)
        create(there, gpu_pod("three"))

        assert code == 503
        assert f"the namespace {name} is not counted yet" in said
        assert [one for one in counted if len(one) > 1] == []
        assert refusal(there, gpu_pod("four")).code == 403
    assert witness.peak.devices == 3
    town.await_used(new, "3")
    town.await_used(old, "0")


def test_a_limit_below_what_is_used_takes_nothing_away_and_admits_nobody(town: Town) -> None:
    [there] = town.tenant("lowered", quota={"devices": 4})
    create(there, *(gpu_pod(f"p{number}") for number in range(4)))

    town.change("lowered", quota={"devices": 2})
    until(lambda: world.usage(town.client, "lowered")["hard"] == {"devices": "2"}, "the ledger has the new limit")

    said = str(refusal(there, gpu_pod("new")))
    assert 'tenant "lowered" is over its GPU quota: uses 4, asks 1, limit 2 devices' in said
    assert len(there.list(pod("any"))) == 4
    there.delete(pod("p0"))
    there.delete(pod("p1"))
    assert "uses 2, asks 1, limit 2 devices" in str(refusal(there, gpu_pod("new")))
    there.delete(pod("p2"))
    create(there, gpu_pod("new"))


def test_a_policy_that_is_deleted_and_made_again_counts_the_pods_that_stayed(town: Town) -> None:
    [there] = town.tenant("again", quota={"devices": 2})
    create(there, gpu_pod("one"))

    town.drop("again")
    until(lambda: not world.usage(town.client, "again"), "its ledger is gone")
    refused = refusal(there, gpu_pod("two"))
    town.tenant("again", quota={"devices": 2})

    assert "no TenantPolicy selects the namespace again-a" in str(refused)
    create(there, gpu_pod("two"))
    assert refusal(there, gpu_pod("three")).code == 403
    town.await_used("again", "2")


def test_while_a_policy_is_broken_its_last_good_version_holds(town: Town) -> None:
    [there] = town.tenant("broken", quota={"devices": 2})

    town.change("broken", quota={"devices": 5}, allowed={"models": ["none-such"]})
    until(lambda: conditions_of(town, "broken").get("Accepted", ("",))[0] == "False", "it says that it is broken")

    create(there, gpu_pod("one"), gpu_pod("two"))
    assert "limit 2 devices" in str(refusal(there, gpu_pod("three")))
    town.change("broken", allowed=None)
    create(there, gpu_pod("three"))


def test_a_policy_that_was_never_good_admits_nobody_and_says_why(town: Town) -> None:
    [there] = town.tenant("never", allowed={"models": ["none-such"]})

    said = str(refusal(there, gpu_pod("one")))

    assert (
        '[GPU113] the policy "never" cannot be used, so its namespaces get no GPU: spec.allowed.models[0]: ' in said
    )


def test_a_ledger_that_somebody_deletes_is_made_again_and_nobody_gets_more_meanwhile(town: Town) -> None:
    [there] = town.tenant("erased", quota={"devices": 2})
    create(there, gpu_pod("one"))

    with town.watched(there) as witness:
        town.client.delete({**USAGES, "metadata": {"name": "erased"}})
        create(there, gpu_pod("two"))
        assert refusal(there, gpu_pod("three")).code == 403

    assert witness.peak.devices == 2
    town.await_used("erased", "2")


def test_pods_that_were_created_while_the_webhook_was_away_count(town: Town) -> None:
    [there] = town.tenant("away", quota={"devices": 2})
    full = [container("main", resources=limits(**{"nvidia.com/gpu": 3}))]
    refusal(there, pod("unseen", containers=full))
    unregister(town.client)
    try:
        until(lambda: told(there, pod("unseen", containers=full))[0] == 201, "nobody is asked")
    finally:
        register(town.free, town.webhook)

    town.await_used("away", "3")
    assert "uses 3, asks 1, limit 2 devices" in str(refusal(there, gpu_pod("one")))
    delete_all(there)
    create(there, gpu_pod("one"))


def test_where_two_policies_tie_nobody_gets_a_gpu_until_one_is_put_first(town: Town) -> None:
    [there] = town.tenant("tie", quota={"devices": 2})
    create(there, gpu_pod("one"))
    town.client.create(world.policy("tie-other", "tie-*", quota={"devices": 5}))

    until(lambda: "[GPU106]" in told(there, gpu_pod("two"), dry_run=True)[1], "both are known")
    said = str(refusal(there, gpu_pod("two")))
    create(there, pod("without"))
    town.change("tie", priority=1)

    both = "TenantPolicy/tie and TenantPolicy/tie-other"
    assert (
        f"the policies {both} select the namespace tie-a with the same priority 0, so no pod there gets a GPU" in said
    )
    until(lambda: "[GPU106]" not in told(there, gpu_pod("two"), dry_run=True)[1], "one is first")
    create(there, gpu_pod("two"))
    assert "limit 2 devices" in str(refusal(there, gpu_pod("three")))


def test_whoever_is_exempt_is_counted_and_not_held_back(town: Town) -> None:
    here, there = town.tenant("spared", namespaces=2, quota={"devices": 1})
    spec = {"namespaces": ["spared-a"], "users": ["admin"], "lifts": ["quota"], "owner": "ops", "reason": "a test"}
    exemption = {"apiVersion": world.API_VERSION, "kind": "Exemption", "metadata": {"name": "spared"}}
    town.client.create(exemption | {"spec": {**spec, "expires": "2099-01-31T00:00:00Z"}})

    create(here, gpu_pod("one"))
    until(lambda: told(here, gpu_pod("two"))[0] == 201, "the exemption is known")

    town.await_used("spared", "2")
    assert "uses 2, asks 1, limit 1 device\n" in str(refusal(there, gpu_pod("one")))
    town.client.delete(exemption)
    numbers = itertools.count()
    until(lambda: told(here, gpu_pod(f"p{next(numbers)}"))[0] == 403, "the exemption is gone")


def test_a_system_namespace_is_nobodys_even_where_a_policy_names_it(town: Town) -> None:
    system = town.client.in_namespace("gpu-operator")
    town.client.create(world.policy("operators", "gpu-operator", "operators-*", quota={"devices": 1}))
    there = town.client.in_namespace("operators-a")
    world.await_counted(town.client, "operators", "operators-a")

    create(system, pod("validator", containers=[container("main", resources=limits(**{"nvidia.com/gpu": 8}))]))

    create(there, gpu_pod("one"))
    assert "uses 1, asks 1, limit 1 device\n" in str(refusal(there, gpu_pod("two")))
    assert world.usage(town.client, "operators")["held"].keys() == {"operators-a"}


@pytest.mark.parametrize("action", ["warn", "dryrun"])
def test_a_quota_that_does_not_deny_counts_what_is_over_it(town: Town, action: str) -> None:
    [there] = town.tenant(f"only-{action}", quota={"devices": 1, "enforcementAction": action})

    first, second = create(there, gpu_pod("one"), gpu_pod("two"))

    said = (
        f'[GPU104] tenant "only-{action}" is over its GPU quota: uses 1, asks 1, limit 1 device; '
        "it is admitted, as the policy only warns"
    )
    assert [one for one in first.warnings if "GPU104" in one] == []
    assert [one for one in second.warnings if "GPU104" in one] == ([said] if action == "warn" else [])
    town.await_used(f"only-{action}", "2")


def warned(there: Client, made: Object, code: str) -> bool:
    """Whether one create, on dry run, is admitted with a warning of this code."""
    try:
        return any(code in warning for warning in there.create(made, dry_run=True).warnings)
    except RefusedError:
        return False


def test_where_the_server_only_observes_nothing_changes_and_users_are_told_what_would(
    town: Town, tmp_path: Path
) -> None:
    [there] = town.tenant("observed", ceilings={"pod": {"devices": 1}})
    rules = tmp_path / "rules"
    shutil.copytree(ROOT / "rules", rules)
    cluster = rules / "cluster.yaml"
    cluster.write_text(cluster.read_text().replace("\nspec:\n", "\nspec:\n  observe: true\n"))
    with world.attached_webhook(town.plane, "observing", rules=rules) as observing:
        try:
            point(town.client, observing)
            until(lambda: told(there, gpu_pod("two", "2"), dry_run=True)[0] == 201, "it observes")
            stored = there.create(gpu_pod("two", "2"))
        finally:
            register(town.free, town.webhook)

    assert stored["spec"]["containers"][0]["resources"] == {}
    becomes, refused = stored.warnings
    assert becomes == "the pod would become nvidia.com/gpu: 2 (nvidia-gpu)"
    assert refused.startswith("would be refused: [GPU103] the pod asks ")


def test_a_policy_says_of_itself_whether_it_is_in_force(town: Town) -> None:
    town.tenant("said")
    alone = ("False", "NoConflict", "no other policy of its priority has its namespaces")

    fine = until(lambda: conditions_of(town, "said"), "it has conditions")
    town.change("said", allowed={"models": ["none-such"]})
    broken = until(lambda: conditions_of(town, "said"), "it has new conditions")
    kubectl = town.client.kubectl("get", "tenantpolicy", "said", "-o=wide", "--no-headers").stdout.split()

    assert fine == {"Accepted": ("True", "Valid", "it is in force as it stands"), "Ambiguous": alone}
    assert broken["Accepted"][:2] == ("False", "Invalid")
    assert broken["Accepted"][2].startswith("TenantPolicy/said: spec.allowed.models[0]: ")
    assert broken["Ambiguous"] == alone
    assert kubectl[-3:-1] == ["False", "False"]


def test_policies_in_each_others_way_say_so(town: Town) -> None:
    town.tenant("crossed")
    until(lambda: conditions_of(town, "crossed"), "it has conditions")

    town.client.create(world.policy("crossing", "crossed-a"))

    tied = "of the same priority, for the same namespaces (crossed-a), as {}: "
    tied += "no GPU pod is admitted there until one of them has a higher priority"
    for one, other in (("crossed", "crossing"), ("crossing", "crossed")):
        expected = ("True", "SamePriority", tied.format(other))
        until(lambda: conditions_of(town, one).get("Ambiguous") == expected, f"{one} is in {other}'s way")  # noqa: B023 - awaited


def test_a_first_quota_refuses_devices_that_no_rule_knows_and_its_policy_says_so(town: Town) -> None:
    [there] = town.tenant("strange")
    strange, card = "acme.example/gpu", "nvidia.com/hostdev"
    asking = {
        name: pod(name[:4], containers=[container("main", resources=limits(**{name: "1"}))])
        for name in (strange, card)
    }
    until(lambda: told(there, asking[strange], dry_run=True)[0] == 201, "the policy is known")
    warned = there.create(asking[strange], dry_run=True).warnings

    town.change("strange", quota={"devices": 2})
    until(lambda: told(there, asking[strange], dry_run=True)[0] == 403, "the quota is known")
    refused = str(refusal(there, asking[strange]))
    said = until(lambda: conditions_of(town, "strange").get("Accepted"), "it has conditions")
    create(there, asking[card])
    town.change("strange", unknownDevices="warn")
    until(lambda: told(there, asking[strange], dry_run=True)[0] == 201, "the policy only warns")

    assert [warning[:9] for warning in warned] == ["[GPU114] "]
    assert '[GPU114] the container "main" asks for acme.example/gpu, which looks like a GPU' in refused
    assert said == ("True", "Valid", f"it is in force as it stands; {STRICT}")
