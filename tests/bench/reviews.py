"""The AdmissionReviews that are measured, as an API server sends them for a pod that a ReplicaSet makes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch

from tests import builders
from webhook.core.mutate import mutate
from webhook.core.review import creating

PLACEHOLDER = "00000000-0000-0000-0000-000000000000"  # the load generator writes a new uid here each time

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of review: what it is called, where it is posted, and its bytes.

    `patched`: our server translates the pod. `quota`: it is judged by a server whose tenants have one.
    """

    name: str
    path: str
    body: bytes
    patched: bool = False
    quota: bool = False


HIT = "same request"
MISS = "another request each time"


def all_measured() -> Sequence[Measured]:
    """Hits, whose request our server has seen before on a pod with other values around it; and misses."""
    hit, miss = pod([unlike(container("main", 18))], FRACTION), other_request(pod([container("main", 18)], FRACTION))
    measured = [
        Measured(f"/mutate, {HIT}", "/mutate", encoded(hit), patched=True),
        Measured(f"/mutate, {MISS}", "/mutate", encoded(miss), patched=True),
        Measured("/mutate, no GPU", "/mutate", encoded(pod([unlike(container("main", 18))], {}))),
        Measured("/mutate, 20 containers", "/mutate", encoded(large_pod()), patched=True),
    ]
    for what, asked in ((HIT, hit), (MISS, miss)):
        body = encoded(stored(asked))
        measured.append(Measured(f"/validate, {what}", "/validate", body))
        measured.append(Measured(f"/validate, quota, {what}", "/validate", body, quota=True))
    return measured


FRACTION: Mapping[str, str] = {"gpu": "0.3"}


def fraction_review() -> bytes:
    """The review of a pod that asks for a fraction of a GPU."""
    return encoded(pod([unlike(container("main", 18))], FRACTION))


def plain_review() -> bytes:
    """The review of a pod that asks for no GPU."""
    return encoded(pod([unlike(container("main", 18))], {}))


def unlike(one: Document) -> Document:
    """The container with an image, a command and a variable that are others in each review."""
    return {
        **one,
        "image": f"registry.example.com/vision/{PLACEHOLDER}",
        "command": ["train", PLACEHOLDER],
        "env": [*one["env"], {"name": "RUN", "value": PLACEHOLDER}],
    }


def other_request(one: Document) -> Document:
    """The pod with something that rules read and that is another in each review."""
    own = {"key": "pool.example.com/name", "operator": "Equal", "value": PLACEHOLDER}
    return {**one, "spec": {**one["spec"], "tolerations": [*one["spec"]["tolerations"], own]}}


def stored(one: Document) -> Document:
    """The pod as /validate sees it: translated, with its name and uid."""
    request = creating(one, uid="stored", namespace="vision-dev")
    rules = builders.rulebook(builders.shipped_files())
    translated: Document = jsonpatch.apply_patch(one, mutate(request, rules).patch)
    named = {"name": "classifier-7d9f8c6b5-x2x9q", "uid": "3b0c8a52-6f5e-4a39-b5c8-52a5d8a0c0d1"}
    return {**translated, "metadata": {**translated["metadata"], **named}}


def large_pod() -> Document:
    """Twenty containers with ten variables each; one of them gets the fraction."""
    containers = [container(f"worker-{number}", 10, padding=200) for number in range(20)]
    return pod(containers, {"gpu": "0.3", "gpu-container": "worker-7"})


def encoded(of: Document) -> bytes:
    """The bytes of the review that creates a pod."""
    return json.dumps(review(of), separators=(",", ":")).encode()


def review(of: Document) -> Document:
    """The review that creates a pod, in the mutating phase: no name yet."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    account = "system:serviceaccount:kube-system:replicaset-controller"
    groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": PLACEHOLDER,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "namespace": "vision-dev",
            "operation": "CREATE",
            "userInfo": {"username": account, "uid": "5ba8e7bd-7e4b-4d0a-8e21-3f4c2f9b1a11", "groups": groups},
            "object": of,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def pod(containers: list[Document], labels: Mapping[str, str]) -> Document:
    """A pod as defaulted by the API server."""
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "classifier-7d9f8c6b5",
        "uid": "8a1f4b9e-2d51-4be3-9a52-0f6f3c1f7d33",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": "classifier-7d9f8c6b5-",
            "namespace": "vision-dev",
            "creationTimestamp": None,
            "labels": {"app": "classifier", "pod-template-hash": "7d9f8c6b5", **labels},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [owner],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access-x2x9q", "projected": {"sources": SOURCES, "defaultMode": 420}}],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [toleration("not-ready"), toleration("unreachable")],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def container(name: str, variables: int, padding: int = 0) -> Document:
    """One container with environment, probes and the token mount that every container gets."""
    value = "https://feature-store.vision.svc.cluster.local" + "x" * padding
    environment = [{"name": f"SETTING_{number}", "value": value[: 12 + padding]} for number in range(variables - 1)]
    mount = {"name": "kube-api-access-x2x9q", "readOnly": True}
    mount["mountPath"] = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {
        "name": name,
        "image": f"registry.example.com/vision/{name}:2026.11",
        "args": ["--model", "resnet50", "--batch", "16"],
        "env": [*environment, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "2", "memory": "8Gi"}},
        "volumeMounts": [mount],
        "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def toleration(condition: str) -> Document:
    """One of the two that the API server adds to every pod."""
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


SOURCES: list[Document] = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
        }
    },
]
