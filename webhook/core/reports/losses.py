"""Requests that cannot be recovered from a pod's resources, found by trying the examples of each rule.

A pod that states such resources itself is counted as a whole device: nothing says how much less it asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.core.backends import read_back
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.kube import pod
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.reports import examples
from webhook.core.request.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook


class Loss(NamedTuple):
    """A word of the shorthand that cannot be recovered from what one mode of a back end writes."""

    rule: str
    mode: str
    key: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.mode}: {self.key}"


def losses(backend: Backend, alone: Rulebook) -> list[Loss]:
    """Every loss of a back end, in order; `alone` is a rulebook with this back end only."""
    found = [
        Loss(backend.rule, served.mode.name, key)
        for _, raw in examples.trials(backend, alone)
        for served in plan.make(pod.read(raw), alone).served
        for key in _lost(served)
    ]
    return list(dict.fromkeys(found))


def _lost(served: Assignment) -> Iterator[str]:
    asked = served.request
    try:
        read, _ = read_back.understand(
            served.amounts, served.backend, served.asked.annotations | served.mode.enforced
        )
    except CannotExpressError:
        yield from (key for key, value in _values(asked).items() if value is not None)
        return
    back, outputs = _values(read), served.mode.outputs
    others = [*outputs.node_affinity.values(), *outputs.annotations.values()]
    written = {output.what for output in (*served.mode.amounts.values(), *others)}
    for key, value in _values(asked).items():
        expressed = key in {"gpu", "gpu-profile", "gpu-claim"} or {key.removeprefix("gpu-"), "share"} & written
        if value is not None and expressed and back[key] is None:
            yield key


def _values(request: GpuRequest) -> Mapping[str, object]:
    memory = request.memory if request.memory is not None else request.memory_share
    return {
        "gpu": request.count,
        "gpu-memory": memory,
        "gpu-cores": request.cores,
        "gpu-profile": request.profile,
        "gpu-claim": request.claim,
    }
