"""Which cards a pod may get: whose they are, which of them a system has, and what the pod itself selects.

Written from the vendors' documents, apart from any rule: names of labels and annotations, and how they are compared.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from tests import tables

Pod = Mapping[str, Any]


class Model(Protocol):
    """A card of a catalogue."""

    @property
    def model(self) -> str: ...
    @property
    def vendor(self) -> str: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def memory(self) -> int: ...


_ELSE = "nvidia"
_VENDORS: Mapping[str, Any] = tables.table(__file__, "vendors")
"""Whose cards a system has, by how its name begins; all others share NVIDIA's. One has any."""

_GKE: Mapping[str, Any] = tables.table(__file__, "gke")
CARDS: Mapping[str, Collection[str]] = tables.table(__file__, "cards")


def _dashed(card: Model) -> Sequence[str]:
    return [re.sub(r"[^\w. -]", "", name).replace(" ", "-") for name in card.names]


_LABELS: Mapping[str, Callable[[Model], Sequence[str]]] = {
    **dict.fromkeys(
        (
            "nvidia.com/gpu.product",
            "aliyun.accelerator/nvidia_name",
            "node.koordinator.sh/gpu-model",
            "amd.com/gpu.product-name",
            "node.kubernetes.io/npu.chip.name",
            "gpu.intel.com/product",
            "metax-tech.com/gpu.product",
        ),
        _dashed,
    ),
    "nvidia.com/gpu.memory": lambda card: [str(card.memory >> 20)],
    "cloud.google.com/gke-accelerator": lambda card: [_GKE.get(card.model, "none")],
    "karpenter.k8s.aws/instance-accelerator-name": lambda card: [card.model.lower()],
}
"""What the labels of a node say of its card; the first two may have how the card is shared or cut behind it."""

_SHARED = re.compile("-(SHARED|MIG-.+)$")
_PARTS: Mapping[str, Sequence[str]] = {
    "nvidia.com/use-gputype": ("hami-vgpu", "hami-mig", "volcano-vgpu"),
    "amd.com/use-gputype": ("hami-amd",),
    "cambricon.com/use-mlutype": ("hami-cambricon",),
    "hygon.com/use-dcutype": ("hami-hygon",),
}
"""Annotations with parts of the names of cards, one of which is enough, and who reads them."""

_NOT: Mapping[str, Sequence[str]] = {"nvidia.com/nouse-gputype": ("hami-vgpu", "hami-mig")}
"""Annotations with parts of names that a card must not have; Volcano does not look at its own beside the others."""


def vendor(backend: str) -> str:
    """Whose cards it has; nothing for any."""
    return next((whose for head, whose in _VENDORS.items() if backend.startswith(head)), _ELSE)


def possible(backend: str, pod: Pod, catalogue: Collection[Model]) -> list[str]:
    """The models that the pod may get there, in the catalogue's order."""
    whose, having = vendor(backend), CARDS.get(backend)
    mine = [card for card in catalogue if whose in {"", card.vendor} and (having is None or card.model in having)]
    virtual = backend == "nvidia-grid"
    mine = [card for card in mine if card.model.startswith("GRID-") or not virtual]
    mine = [card for card in mine if _templated(pod, card)] or mine
    return [card.model for card in mine if _selected(backend, pod, card)]


def _selected(backend: str, pod: Pod, card: Model) -> bool:
    said = pod["metadata"].get("annotations") or {}
    names = [f"{card.vendor}-{name}".lower() for name in (*card.names, card.model)]
    wanted = [text for key, text in said.items() if backend in _PARTS.get(key, ())]
    unwanted = [text for key, text in said.items() if backend in _NOT.get(key, ())]
    ring = (pod["metadata"].get("labels") or {}).get("ring-controller.atlas") if backend.startswith("asc") else None
    return (
        card.model in _RINGS.get(str(ring), [card.model])
        and all(_among(text, names) for text in wanted)
        and not any(_among(text, names) for text in unwanted)
        and any(all(_meets(one, card) for one in term) for term in _terms(pod))
    )


_RINGS: Mapping[str, Collection[str]] = {
    "ascend-910": CARDS["ascend-vnpu-static-910a"],
    "ascend-910b": CARDS["ascend-soft-share"],
    "ascend-310P": CARDS["ascend-310p"],
}
"""The chips that MindCluster's label of a pod is for."""


def _templated(pod: Pod, card: Model) -> bool:
    """Whether the pod has a claim for such a card: the name of its template begins with it."""
    named = [one["resourceClaimTemplateName"] for one in pod["spec"].get("resourceClaims") or ()]
    return any(name == f"gpu-{card.model.lower()}" or name.startswith(f"gpu-{card.model.lower()}-") for name in named)


def _among(text: str, names: Sequence[str]) -> bool:
    return any(part.strip().lower() in name for part in text.split(",") for name in names)


def _terms(pod: Pod) -> Iterator[Sequence[Mapping[str, Any]]]:
    """What a node has to meet, one of the terms; the selector's entries stand in each."""
    spec = pod["spec"]
    selector = [
        {"key": key, "operator": "In", "values": [value]} for key, value in (spec.get("nodeSelector") or {}).items()
    ]
    required: Any = spec
    for step in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        required = (required or {}).get(step)
    filled = [term for term in required or () if term.get("matchExpressions") or term.get("matchFields")]
    for term in filled or [{}]:
        yield [*selector, *(term.get("matchExpressions") or ())]


def _meets(expression: Mapping[str, Any], card: Model) -> bool:
    """Whether a node with the card meets an expression about it; others say nothing of cards."""
    if expression["key"] not in _LABELS or expression["operator"] not in {"In", "NotIn"}:
        return True
    there = {text.lower() for text in _LABELS[expression["key"]](card)}
    named = {_SHARED.sub("", value).lower() for value in expression["values"]}
    wanted: bool = expression["operator"] == "In"
    return there.isdisjoint(named) != wanted
