"""Whether replicas of a former version may still answer, by the Deployment of the replicas. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from certs.stored import Object


def unfinished(deployment: Object | None, now: datetime) -> str:
    """What is not done of a rollout, in words; nothing if no old replica is left, or there is no such Deployment.

    A replica that leaves is not counted any more, and API servers use their connections to it until it has ended.
    """
    if deployment is None:
        return ""
    spec, status = deployment["spec"], deployment.get("status") or {}
    if status.get("observedGeneration", 0) < deployment["metadata"]["generation"]:
        return "its controller has not seen the change yet"
    replicas, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    if updated < replicas:
        return f"{updated} of {replicas} replicas are of the new version"
    grace = timedelta(seconds=spec["template"]["spec"]["terminationGracePeriodSeconds"])
    moved = [each["lastUpdateTime"] for each in status.get("conditions") or () if each["type"] == "Progressing"]
    if any(now < datetime.fromisoformat(each) + grace for each in moved):
        return f"the last old replica has {grace.seconds} s to end"
    return ""
