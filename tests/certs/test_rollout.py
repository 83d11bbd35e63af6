"""Whether a replica of a former version may still answer."""

from datetime import UTC, datetime
from typing import Any

import pytest

from certs import rollout

NOW = datetime(2026, 11, 23, 12, 1, tzinfo=UTC)
SPEC = {"template": {"spec": {"terminationGracePeriodSeconds": 40}}}
DONE = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3}


def progressing(at: str) -> Any:
    available = {"type": "Available", "lastUpdateTime": "2026-11-23T12:01:00Z"}
    return {"conditions": [available, {"type": "Progressing", "lastUpdateTime": at}]}


@pytest.mark.parametrize(
    ("status", "left"),
    [
        pytest.param(None, "its controller has not seen the change yet", id="not seen at all"),
        pytest.param({**DONE, "observedGeneration": 1}, "its controller has not seen the change yet", id="not seen"),
        pytest.param({**DONE, "updatedReplicas": 1}, "1 of 3 replicas are of the new version", id="one is new"),
        pytest.param({**DONE, "updatedReplicas": None}, "0 of 3 replicas are of the new version", id="none is new"),
        pytest.param(DONE | progressing("2026-11-23T12:00:21Z"), "the last old replica has 40 s to end", id="leaves"),
        pytest.param(DONE | progressing("2026-11-23T12:00:20Z"), "", id="it has ended"),
        pytest.param({**DONE, "availableReplicas": 1}, "", id="one that is new and away is no old one"),
    ],
)
def test_an_old_replica_is_left_until_all_are_new_and_the_last_old_one_has_ended(status: Any, left: str) -> None:
    shown = {key: value for key, value in (status or {}).items() if value is not None}
    made = {"metadata": {"generation": 2}, "spec": SPEC} | ({} if status is None else {"status": shown})

    assert rollout.unfinished(made, NOW) == left


def test_where_replicas_are_of_no_deployment_nothing_is_waited_for() -> None:
    assert rollout.unfinished(None, NOW) == ""
