"""The kinds of Kubernetes itself, as `Workload` documents would say them: those that make pods, and all others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.core.forms.document import API_VERSION
from webhook.core.rules.workload import ANY, Factor, Kinds, PodPlace, Workload, Workloads, steps

_CONTROLLER: Final = "system:serviceaccount:kube-system:{}-controller"
_JOB: Final = Factor(fields=(steps("spec.parallelism"),), most=steps("spec.completions"))
_CRON_JOB: Final = Factor(
    fields=(steps("spec.jobTemplate.spec.parallelism"),), most=steps("spec.jobTemplate.spec.completions")
)
_REPLICAS: Final = Factor(fields=(steps("spec.replicas"),))
_ON_EACH_NODE: Final = "counted once; there is one on each node that it fits"

WITH_PODS: Final = (
    Workload(objects=Kinds(group="", kinds=("Pod",)), pods=(PodPlace(template=((),)),)),
    Workload(objects=Kinds(group="", kinds=("PodTemplate",)), pods=(PodPlace(template=(("template",),)),)),
    *(
        Workload(
            objects=Kinds(group=group, kinds=(kind,)),
            created_by=_CONTROLLER.format(controller),
            pods=(PodPlace(template=(steps(path),), times=times, note=note),),
        )
        for group, kind, controller, path, times, note in (
            ("", "ReplicationController", "replication", "spec.template", (_REPLICAS,), ""),
            ("apps", "Deployment", "replicaset", "spec.template", (_REPLICAS,), ""),
            ("apps", "StatefulSet", "statefulset", "spec.template", (_REPLICAS,), ""),
            ("apps", "DaemonSet", "daemon-set", "spec.template", (), _ON_EACH_NODE),
            ("apps", "ReplicaSet", "replicaset", "spec.template", (_REPLICAS,), ""),
            ("batch", "Job", "job", "spec.template", (_JOB,), ""),
            ("batch", "CronJob", "job", "spec.jobTemplate.spec.template", (_CRON_JOB,), ""),
        )
    ),
)

CORE: Final = (
    "Binding", "ComponentStatus", "ConfigMap", "Endpoints", "Event", "LimitRange", "Namespace", "Node",
    "PersistentVolume", "PersistentVolumeClaim", "ResourceQuota", "Secret", "Service", "ServiceAccount",
)  # fmt: skip
"""The kinds of the core group without pods, by name: an object that says no group is one of these, or is unknown."""

GROUPS: Final = (
    "admission.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
    "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "certificates.k8s.io",
    "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io",
    "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
    API_VERSION.partition("/")[0],
)  # fmt: skip
"""The other API groups of Kubernetes 1.36, and ours: their kinds hold no pods."""

WITHOUT_PODS: Final = (
    Workload(objects=Kinds(group="", kinds=CORE), pods=()),
    Workload(objects=Kinds(group="apps", kinds=("ControllerRevision",)), pods=()),
    *(Workload(objects=Kinds(group=group, kinds=(ANY,)), pods=()) for group in GROUPS),
)


def by_kind(found: Workload) -> Iterator[tuple[tuple[str, str], Workload]]:
    """The workload by the group and name of each of its kinds."""
    for kind in found.objects.kinds:
        yield (found.objects.group, kind), found


BUILT_IN: Final[Workloads] = {
    key: workload for each in (*WITH_PODS, *WITHOUT_PODS) for key, workload in by_kind(each)
}
