"""The neutral form of a request: what one container asks for, whatever back end serves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from webhook.core.kube.quantity import show, show_size

PREFIX: Final = "gpu-webhook.io/"
"""The one prefix of every label, annotation and resource that belongs to this webhook."""


DEVICES: Final = ("whole", "part", "profile", "claim")
"""The ways to ask for devices. A rule's modes are for one of them each (`when: devices`)."""

ASKING: Final = ("gpu", "gpu-memory", "gpu-cores", "gpu-tflops", "gpu-profile", "gpu-claim")
"""The keys that ask for a GPU by themselves; the others only qualify a request."""


class FieldValue(NamedTuple):
    """A value, the field path where it was written, and its text there."""

    value: Any
    path: str
    text: str

    def __str__(self) -> str:
        return f'{self.path} says "{self.text}"'


@dataclass(frozen=True, slots=True)
class Devices:
    """The meaning of `gpu`: a count of devices, whole or with a share (0 < share < 1) of each."""

    count: int
    share: Fraction | None = None

    def __str__(self) -> str:
        if self.share is None:
            return str(self.count)
        return show(self.share) if self.count == 1 else f"{self.count}x{show(self.share)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """What one container asks for.

    count       devices, at least 1
    share       the part of each device (0 < share < 1); None for whole devices and for sizes
    memory      bytes per device; overrides the share's memory
    memory_share     memory as a part of one device, if it is not given in bytes
    cores       compute percent per device (0 < cores <= 100); None: not limited
    tflops      compute in TFLOPS per device; becomes cores when the card is known
    profile     a hardware partition by name
    models      catalogue names, of which any will do
    claim       a template of resource claims by name
    annotations those of the pod that a rule depends on, as `key` and as `key=value`
    stated      where each part was written, by the short name of its key (`gpu`, `gpu-memory`, ...)
    """

    count: int = 1
    share: Fraction | None = None
    memory: int | None = None
    memory_share: Fraction | None = None
    cores: Fraction | None = None
    tflops: Fraction | None = None
    profile: str | None = None
    claim: str | None = None
    models: tuple[str, ...] = ()
    sharing: str | None = None
    placement: str | None = None
    annotations: frozenset[str] = frozenset()
    stated: Mapping[str, FieldValue] = field(default_factory=dict, compare=False)

    @property
    def devices(self) -> str:
        """Which of DEVICES the request is: `whole`, `part`, `profile` or `claim`."""
        if self.profile is not None:
            return "profile"
        if self.claim is not None:
            return "claim"
        sized = self.memory is not None or self.memory_share is not None or self.tflops is not None
        return "part" if sized or self.cores is not None else "whole"

    def has(self) -> set[str]:
        """The dimensions that the request has, in the words of a rule's `has:`."""
        names = ("share", "memory", "cores", "profile")
        given = {name for name in names if getattr(self, name) is not None}
        if self.memory_share is not None and self.memory_share < 1:
            given.add("share")
        return given | {"model"} if self.models else given

    def path(self) -> str:
        """The field path that a message about the whole request points at."""
        return next((self.stated[key].path for key in ASKING if key in self.stated), "spec.containers")

    def __str__(self) -> str:
        """The request in shorthand: `gpu=2x0.5 gpu-memory=8Gi`."""
        return " ".join([f"{key}={value}" for key, value in self._shorthand()])

    def _shorthand(self) -> Iterator[tuple[str, str]]:
        share = self.share or self.memory_share
        if share is not None or self.count != 1 or self.devices == "whole":
            yield "gpu", str(Devices(self.count, share))
        if self.memory is not None:
            yield "gpu-memory", show_size(self.memory)
        if self.cores is not None and (share is None or "gpu-cores" in self.stated):
            yield "gpu-cores", show(self.cores)
        if self.tflops is not None:
            yield "gpu-tflops", show(self.tflops)
        if self.profile is not None:
            yield "gpu-profile", self.profile
        if self.claim is not None:
            yield "gpu-claim", self.claim
        if self.models:
            yield "gpu-model", ",".join(self.models)
        if self.sharing is not None:
            yield "gpu-sharing", self.sharing


def build(stated: Mapping[str, FieldValue], annotations: frozenset[str] = frozenset()) -> GpuRequest | None:
    """The request of the given keys together; None if they ask for no GPU.

    `stated` is by short key, with values already parsed (`shorthand.KEYS`). A share is that part of the memory *and*
    of the compute; an explicit size replaces one of them. `annotations` are those that some rule depends on.
    """
    said = {key: entry.value for key, entry in stated.items()}
    if said.keys().isdisjoint(ASKING) or ("gpu" in said and said["gpu"] is None):
        return None
    devices: Devices = said.get("gpu") or Devices(1)
    memory, tflops = said.get("gpu-memory"), said.get("gpu-tflops")
    by_share = 100 * devices.share if devices.share is not None and tflops is None else None
    return GpuRequest(
        count=devices.count,
        share=devices.share,
        memory=memory,
        memory_share=devices.share if memory is None else None,
        cores=said.get("gpu-cores") or by_share,
        tflops=tflops,
        profile=said.get("gpu-profile"),
        claim=said.get("gpu-claim"),
        models=said.get("gpu-model") or (),
        sharing=said.get("gpu-sharing"),
        placement=said.get("gpu-placement"),
        annotations=annotations,
        stated=stated,
    )
