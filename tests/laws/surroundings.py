"""What else is in a pod: other labels, variables, tolerations, node selection, volumes, fields nobody here knows."""

import json
from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]

LABELS = st.dictionaries(
    st.sampled_from(["app", "team", "gpuType", "gpu.example/kind", "a.b/c~d"]),
    st.sampled_from(["x", "", "train"]),
    max_size=3,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from(["gpu-fraction", "gpu-memory", "prometheus.io/scrape", "note~of/mine"]),
    st.sampled_from(["0.5", "2000", "true", "ünïcödé"]),
    max_size=2,
)
ENV = st.lists(
    st.sampled_from(
        [
            {"name": "HOME", "value": "/root"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "MADE_UP_VISIBLE", "value": "all"},
            {"name": "MADE_UP_VISIBLE", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
            {"name": "MADE_UP_CONTAINER", "value": "mine"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
    ),
    max_size=4,
)
PLAIN_RESOURCES: st.SearchStrategy[Object] = st.sampled_from(
    [{}, {"cpu": "500m"}, {"cpu": 1, "memory": "1Gi"}, {"example.com/fpga": 1}, {"hugepages-2Mi": "128Mi"}]
)
TOLERATIONS = st.lists(
    st.sampled_from(
        [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
            {"key": "made-up.example/device", "value": "yes", "effect": "NoExecute"},
            {"operator": "Exists"},
        ]
    ),
    max_size=3,
)
TERMS = st.lists(
    st.sampled_from(
        [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {"matchExpressions": [{"key": "made-up.example/present", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "made-up.example/present", "operator": "In", "values": ["yes"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
            {},
        ]
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def containers(draw: st.DrawFn, name: str, *, kind: str = "containers") -> Object:
    """A container that asks for nothing."""
    container: Object = {"name": name, "image": "registry.example/train"}
    if env := draw(ENV):
        container["env"] = env
    limits: Object = {**draw(PLAIN_RESOURCES)}
    if bool(limits) or draw(st.booleans()):
        container["resources"] = {"limits": limits}
    if kind == "initContainers" and draw(st.booleans()):
        container["restartPolicy"] = "Always"
    return container


@st.composite
def pods(draw: st.DrawFn) -> Object:
    """A pod of one to three containers that asks for nothing."""
    metadata: Object = {"name": "train"}
    if labels := draw(LABELS):
        metadata["labels"] = labels
    if annotations := draw(ANNOTATIONS):
        metadata["annotations"] = annotations
    spec: Object = {}
    counts = {"initContainers": draw(st.integers(0, 1)), "containers": draw(st.integers(1, 2))}
    for kind, count in counts.items():
        if count:
            names = [f"{kind[0]}{number}" for number in range(count)]
            spec[kind] = [draw(containers(name, kind=kind)) for name in names]
    _scheduling(draw, spec)
    if draw(st.booleans()):
        spec["fieldOfTheFuture"] = {"gpu": "1", "list": [None, {"deep": 1.5}]}
    pod: Object = json.loads(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    return pod  # decoded, as a pod always is: no two of its parts are one object


def _scheduling(draw: st.DrawFn, spec: Object) -> None:
    chosen = draw(st.integers(0, 7))
    if chosen & 1:
        spec["tolerations"] = draw(TOLERATIONS)
    if chosen == 2:
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": draw(TERMS)}}
        }
    if chosen == 4:
        spec["affinity"] = {"podAffinity": {}}
    if chosen == 6:
        spec["runtimeClassName"] = "mine"
    if chosen & 4:
        spec["schedulerName"] = "default-scheduler"
