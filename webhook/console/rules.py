"""What is loaded, in plain values: the body of `GET /api/rules`, and what the page shows of it."""

from __future__ import annotations

from typing import Any

from webhook.console.loaded import Loaded
from webhook.core.kube import quantity
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Rulebook
from webhook.files.summary import counts, located


def summary(loaded: Loaded) -> dict[str, Any]:
    """Whether the rules can be used; then what they say, else everything that is wrong with them."""
    problems = [located(problem) for problem in loaded.problems]
    if loaded.rulebook is None:
        return {"fine": False, "problems": problems}
    return {"fine": True, "problems": problems, **_rulebook(loaded.rulebook)}


def _rulebook(rulebook: Rulebook) -> dict[str, Any]:
    enabled = {backend.name for backend in rulebook.enabled}
    others = [rulebook.backends[name] for name in sorted(rulebook.backends.keys() - enabled)]
    devices = {device.model: device for device in rulebook.devices.values()}
    by_size = sorted(devices.values(), key=lambda device: (device.vendor, device.memory, device.model))
    return {
        "digest": rulebook.digest,
        "counts": counts(rulebook),
        "cluster": _cluster(rulebook.cluster),
        "backends": [_backend(backend, enabled) for backend in (*rulebook.enabled, *others)],
        "devices": [_device(device) for device in by_size],
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "at": cluster.at.line_only,
        "whole": cluster.whole,
        "part": cluster.part,
        "device": cluster.device,
        "unknownValue": cluster.unknown_value,
        "systemNamespaces": sorted(cluster.system_namespaces),
    }


def _backend(backend: Backend, enabled: set[str]) -> dict[str, Any]:
    return {
        "name": backend.name,
        "at": backend.at.line_only,
        "enabled": backend.name in enabled,
        "description": backend.description,
        "vendors": sorted(backend.vendors),
        "sharing": sorted(backend.sharing),
        "owns": sorted(backend.owns),
        "modes": [{"name": mode.name, "at": mode.at.line_only} for mode in backend.modes],
        "examples": [
            {"name": example.name, "at": example.at.line_only, "ask": dict(example.ask), "refused": example.refused}
            for example in backend.examples
        ],
    }


def _device(device: Card) -> dict[str, Any]:
    return {
        "model": device.model,
        "vendor": device.vendor,
        "names": list(device.names),
        "memory": _mebibytes(device.memory),
        "tflops": None if device.tflops is None else quantity.show(device.tflops),
        "at": device.at.line_only,
    }


def _mebibytes(size: int) -> str:
    """The unit of vendors' own figures, so that cards can be compared at a glance."""
    return quantity.show_size(size) if size % (1 << 20) else f"{size >> 20}Mi"
