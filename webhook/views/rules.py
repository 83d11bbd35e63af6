"""What a directory of rules holds, or what is wrong with it: in numbers, and in plain values for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.core.forms.document import Problem
from webhook.core.kube import quantity
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Rulebook


def broken(problems: Iterable[Problem]) -> dict[str, Any]:
    """Everything that is wrong with rules that cannot be used."""
    located = [
        {"file": one.at.file, "line": one.at.line, "column": one.at.column, "path": one.path, "message": one.message}
        for one in problems
    ]
    return {"fine": False, "problems": located}


def counts(rulebook: Rulebook) -> dict[str, int]:
    """Counts of what is loaded."""
    return {
        "backends": len(rulebook.backends),
        "enabled": len(rulebook.enabled),
        "devices": len({device.model for device in rulebook.devices.values()}),
        "examples": sum(len(backend.examples) for backend in rulebook.backends.values()),
    }


def describe(counted: Mapping[str, int]) -> str:
    """What `counts` gives as a phrase: `4 back ends, 28 card models, 27 examples`."""
    return f"{counted['backends']} back ends, {counted['devices']} card models, {counted['examples']} examples"


def contract(rulebook: Rulebook) -> dict[str, Any]:
    """The body of `GET /api/rules`, and what the page shows of rules that can be used."""
    enabled = {backend.name for backend in rulebook.enabled}
    others = [rulebook.backends[name] for name in sorted(rulebook.backends.keys() - enabled)]
    devices = {device.model: device for device in rulebook.devices.values()}
    by_size = sorted(devices.values(), key=lambda device: (device.vendor, device.memory, device.model))
    return {
        "fine": True,
        "problems": [],
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
    # In mebibytes, as in vendors' own figures, cards can be compared at a glance.
    memory = quantity.show_size(device.memory) if device.memory % (1 << 20) else f"{device.memory >> 20}Mi"
    return {
        "model": device.model,
        "vendor": device.vendor,
        "names": list(device.names),
        "memory": memory,
        "tflops": None if device.tflops is None else quantity.show(device.tflops),
        "at": device.at.line_only,
    }
