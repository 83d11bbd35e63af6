"""What a back end writes and nobody can read back from the resources of a pod.

A pod keeps its shorthand, so nothing is lost for one that was translated; one that was written by hand in the words
of such a back end is taken for more than it is, never for less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.core import examples, inverse, plan, pod
from webhook.core.amounts import CannotExpressError
from webhook.core.backend import Amount, Backend
from webhook.core.choice import Served
from webhook.core.request import GpuRequest
from webhook.core.rulebook import Rulebook


class Loss(NamedTuple):
    """A word of the shorthand that one mode of a back end says only one way."""

    rule: str
    mode: str
    key: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.mode}: {self.key}"


def losses(backend: Backend, alone: Rulebook) -> list[Loss]:
    """Every loss, found by trying the rule's examples and the requests that every rule is tried with."""
    found = [
        Loss(backend.rule, served.mode.name, key)
        for _, raw in examples.trials(backend, alone)
        for served in plan.make(pod.read(raw), alone).served
        for key in _lost(served)
    ]
    return list(dict.fromkeys(found))


def _lost(served: Served) -> Iterator[str]:
    asked = served.request
    read = _read(served)
    if read is None:
        yield from (key for key, value in _said(asked).items() if value is not None)
        return
    back, written = _said(read), _verbs(served)
    for key, value in _said(asked).items():
        said = key in {"gpu", "gpu-profile", "gpu-claim"} or {key.removeprefix("gpu-"), "share"} & written
        if value is not None and said and back[key] is None:
            yield key


def _read(served: Served) -> GpuRequest | None:
    try:
        return inverse.understand(served.amounts, served.backend, served.asked.marks | served.mode.marks)[0]
    except CannotExpressError:
        return None


def _said(request: GpuRequest) -> Mapping[str, object]:
    """What a request says, by the keys of the shorthand."""
    memory = request.memory if request.memory is not None else request.memory_share
    return {
        "gpu": request.count,
        "gpu-memory": memory,
        "gpu-cores": request.cores,
        "gpu-profile": request.profile,
        "gpu-claim": request.claim,
    }


def _verbs(served: Served) -> set[str]:
    """The verbs that the mode writes, wherever."""
    outputs = served.mode.outputs
    written = [*served.mode.amounts.values(), *outputs.node_affinity.values(), *outputs.annotations.values()]
    return {output.what for output in written if isinstance(output, Amount)}
