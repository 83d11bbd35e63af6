"""The clusters that pods are generated for: each back end alone, and all of them as shipped.

One more back end is made up here, in YAML: it has what the shipped ones lack, and comes before all others in the
order of a cluster that has every back end.
"""

from functools import cache

from tests import builders
from webhook.core.rulebook import Rulebook

MADE_UP = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Backend
metadata: {name: made-up}
spec:
  description: whatever the shipped back ends do not do
  sharing: [exclusive, fractional, partitioned]
  modes:
  - name: whole devices
    when: {devices: whole}
    limits: {made-up.example/device: count}
    labels: {made-up.example/kind: whole}
  - name: a part of each device
    when: {devices: part, has: [memory]}
    limits:
      made-up.example/device: {count: {absent: 1}}
      made-up.example/memory: {memory: {unit: quantity}}
      made-up.example/sixteenths: {cores: {parts: 16, round: up, per: total, absent: none}}
    env:
      MADE_UP_MEMORY: "{memory}"
  - name: a share of each device
    when: {devices: part, has: [share]}
    limits:
      made-up.example/device: {count: {absent: 1}}
      made-up.example/share: {share: {unit: percent, step: 5, min: 10, max: 100, round: up}}
  inject:
    schedulerName: made-up-scheduler
    runtimeClassName: made-up
    tolerations:
    - {key: made-up.example/device, operator: Equal, value: "yes", effect: NoExecute}
    env:
      MADE_UP_CONTAINER: "{container}"
      MADE_UP_VISIBLE: {value: scheduled, enforce: true}
    nodeAffinity:
      made-up.example/present: ["yes", "maybe"]
      made-up.example/model: {model: {}}
  examples:
  - ask: {gpu: "1"}
    limits: {made-up.example/device: 1}
"""

CLUSTER = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata: {name: generated}
spec:
  backends: [%s]
  device: %s
"""

ALL = "every back end"
CARD = "A100-80GB"
"""The card of every cluster: large, and one that can be partitioned."""


@cache
def names() -> tuple[str, ...]:
    """Every back end there is."""
    return tuple(builders.rulebook(_files("nvidia-gpu")).backends)


@cache
def rulebook(name: str) -> Rulebook:
    """The cluster that has only this back end, or `ALL` of them."""
    enabled = ", ".join(names()) if name == ALL else name
    return builders.rulebook(_files(enabled))


def _files(backends: str) -> dict[str, str]:
    return builders.shipped_files() | {"made-up.yaml": MADE_UP, "cluster.yaml": CLUSTER % (backends, CARD)}
