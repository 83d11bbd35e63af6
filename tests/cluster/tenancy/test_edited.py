"""A TenantUsage that somebody edits by hand: its tenant waits until it is counted anew, and nobody else waits."""

from typing import Any

import pytest

from tests import tables
from tests.cluster.client import Client
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import Town, create, gpu_pod, refusal, told
from tests.cluster.waiting import until

pytestmark = pytest.mark.cluster


def edit(client: Client, tenant: str, **fields: Any) -> None:
    """Write into the status of a TenantUsage, as somebody with all rights can."""
    usage = {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {"name": tenant}}
    client.patch(usage, {"status": fields}, subresource="status")


@tables.rows
def test_what_the_settler_knows_better_is_counted_anew(
    town: Town, name: str, fields: dict[str, Any], said: str
) -> None:
    [there] = town.tenant(name, quota={"devices": 2})
    create(there, gpu_pod("one"))

    edit(town.client, name, **fields)

    until(lambda: said in world.usage(town.client, name).get("repaired", ""), "it was counted anew")
    create(there, gpu_pod("two"))
    assert refusal(there, gpu_pod("three")).code == 403
    town.await_used(name, "2")
    assert said in town.settler.log.read_text()


def test_a_reservation_that_cannot_be_read_is_kept_for_the_grace_and_keeps_no_other_tenant_waiting(
    town: Town,
) -> None:
    [there] = town.tenant("line", quota={"devices": 2})
    town.await_used("line", "0")

    edit(town.client, "line", pending=["line-a/ghost 1234 devices=1e9"])

    town.tenant("beside", quota={"devices": 1})
    create(there, gpu_pod("one"), gpu_pod("two"))
    assert world.usage(town.client, "line")["pending"] != ["line-a/ghost 1234 devices=1e9"]
    assert refusal(there, gpu_pod("three")).code == 403
    assert "TenantUsage line was edited, and nobody is admitted until it is counted: line-a/ghost" in (
        town.settler.log.read_text()
    )


def test_a_limit_that_somebody_edits_admits_nobody_while_no_settler_is_there_to_mend_it(town: Town) -> None:
    [there] = town.tenant("inflated", quota={"devices": 2})
    create(there, gpu_pod("one"))
    town.await_used("inflated", "1")
    town.settler.stop()
    try:
        edit(town.client, "inflated", hard={"devices": "100"})

        several = [told(there, gpu_pod(f"more-{number}")) for number in range(3)]
        edit(town.client, "inflated", hard=None)
        unlimited = told(there, gpu_pod("unlimited"))
    finally:
        town.settler = town.plane.processes.again(town.settler)

    assert [code for code, _ in several] == [201, 503, 503]
    assert unlimited[0] == 503
    for _, words in (*several[1:], unlimited):
        assert "its TenantUsage has a higher limit than its TenantPolicy: one of them was just changed" in words
    assert refusal(there, gpu_pod("over")).code == 403
    town.await_used("inflated", "2")
