"""Devices that are allocated by claim: what a DRA driver and an administrator would have written."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.cluster.client import Object

API = "resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def device(name: str, product: str, memory: str, *, driver: str = DRIVER) -> Object:
    """One card with a product name and a memory size, as drivers describe theirs."""
    return {
        "name": name,
        "attributes": {"type": {"string": "gpu"}, "productName": {"string": product}},
        "capacity": {f"{driver}/memory": {"value": memory}},
    }


def resource_slice(node: str, devices: Iterable[Object], *, driver: str = DRIVER) -> Object:
    """The devices of one node, all of one driver."""
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def device_class(name: str, *, driver: str = DRIVER, extended_resource: str | None = None) -> Object:
    """All devices of a driver; with a name for it, they can be asked for like a device plugin's."""
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'gpu'"
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
    if extended_resource:
        spec["extendedResourceName"] = extended_resource
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def claim_template(name: str, device_class: str, *expressions: str, count: int = 1) -> Object:
    """A template for claims on so many devices for which all CEL expressions hold."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    exactly = {"deviceClassName": device_class, "count": count, "selectors": selectors}
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def allocated(claim: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which devices a claim has, each as pool and name."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [(result["pool"], result["device"]) for result in results]
