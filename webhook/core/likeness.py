"""What tells pods apart that one controller makes, and no decision depends on.

Their names, times and owners, and the volume with the token of their ServiceAccount, whose name is made up for each
(Kubernetes, plugin/pkg/admission/serviceaccount: `kube-api-access-` and five letters). A decision is made about a pod
without them, and then said of the pod there is: so it is the same for all that are alike, whoever remembers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from webhook.core import instant
from webhook.core.decision import Decision, Reservation
from webhook.core.review import AdmissionRequest

TOKEN: Final = "kube-api-access-"  # noqa: S105 - how the name of a volume begins
MOUNTED: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
KEPT: Final = ("labels", "annotations", "namespace")
"""Of the metadata; all else names the pod or says where it comes from."""


def alike(request: AdmissionRequest) -> AdmissionRequest:
    """The request without them; `at` is the whole second in which it came."""
    pod = request.pod and _pod(request.pod)
    return replace(request, uid="", name="", at=float(int(request.at)), pod=pod)


def about(decision: Decision, request: AdmissionRequest) -> Decision:
    """A decision about all that are alike, said of one: what it reserves for, and under which uid it can be found."""
    if decision.reservation is not None:
        decision = replace(decision, reservation=_named(decision.reservation, request))
    if "decision" in decision.audit:
        decision = replace(decision, audit={**decision.audit, "decision": request.uid})
    return decision


def _named(reservation: Reservation, request: AdmissionRequest) -> Reservation:
    metadata: Mapping[str, Any] = (request.pod or {}).get("metadata") or {}
    ask = replace(
        reservation.ask,
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        created=_seconds(metadata.get("creationTimestamp")),
    )
    return replace(reservation, ask=ask)


def _seconds(stamp: Any) -> float:
    """A time of the API server in seconds since 1970; 0 where there is none."""
    try:
        return instant.seconds(stamp)
    except (TypeError, ValueError):
        return 0.0


def _pod(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return pod
    kept = {key: metadata[key] for key in KEPT if key in metadata}
    return {**pod, "metadata": kept, "spec": _without_token(spec)}


def _without_token(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    changed = dict(spec)
    if isinstance(spec.get("volumes"), list):
        changed["volumes"] = [each for each in spec["volumes"] if not _is_token(each)]
    for section in ("containers", "initContainers"):
        if isinstance(spec.get(section), list):
            changed[section] = [_without_mount(each) for each in spec[section]]
    return changed


def _without_mount(container: Any) -> Any:
    mounts = container.get("volumeMounts") if isinstance(container, dict) else None
    if not isinstance(mounts, list):
        return container
    return {**container, "volumeMounts": [each for each in mounts if not _is_mounted(each)]}


def _is_token(volume: Any) -> bool:
    return isinstance(volume, dict) and str(volume.get("name")).startswith(TOKEN) and "projected" in volume


def _is_mounted(mount: Any) -> bool:
    return isinstance(mount, dict) and str(mount.get("name")).startswith(TOKEN) and mount.get("mountPath") == MOUNTED
