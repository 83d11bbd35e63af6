"""Pods for these tests: one container called `main`, and what a test adds to it."""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]


def pod(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
    containers: Sequence[Object] = (),
    **spec: Any,
) -> Object:
    """A pod; whatever keyword is not metadata goes into its spec."""
    metadata = {"name": name, "labels": labels, "annotations": annotations, "finalizers": finalizers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {"containers": list(containers) or [container("main")], **spec},
    }


def container(name: str, **fields: Any) -> Object:
    """A container that asks for nothing unless told."""
    return {"name": name, "image": "registry.example/none", **fields}


def limits(**quantities: Any) -> Object:
    """The resources of a container that has limits only."""
    return {"limits": quantities}


def completed(made: Mapping[str, Any]) -> Object:
    """A pod with what Kubernetes insists on, and a case may leave out because nobody reads it."""
    spec = dict(made["spec"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [{"image": "registry.example/image:1", **each} for each in spec[kind]]
    return {"apiVersion": "v1", "kind": "Pod", **made, "spec": spec}
