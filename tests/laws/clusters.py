"""The clusters that pods are generated for: each back end alone, and all of them as shipped.

One more back end is made up here, in YAML: it has what the shipped ones lack, and comes before all others in the
order of a cluster that has every back end.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import builders, tables
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.rulebook import Rulebook, index, with_only
from webhook.files import rule_files

MADE_UP: str = tables.table(__file__, "made up")


ALL = "every back end"
CARD = "A100-80GB"
"""The card of every cluster that can have it: large, and one that can be partitioned."""


_CARDS = {"nvidia-grid": CARD, "aws-neuron": "Inferentia2", "gke-tpu": "TPU-v6e"}
"""Cards of clusters whose back end serves many unlike ones: what vGPUs are shares of, what parameters stand for, what
there are machines of every size with."""


@cache
def _loaded() -> Rulebook:
    """All rules there are, read once."""
    files = builders.shipped_files() | {
        "made-up.yaml": MADE_UP,
        "cluster.yaml": builders.cluster(f"backends: [made-up], device: {CARD}"),
    }
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        return rule_files.load(Path(folder), only_enabled=True)


@cache
def names() -> tuple[str, ...]:
    """Every back end there is, the one made up here first."""
    shipped = (name for name in _loaded().backends if name != "made-up")
    return ("made-up", *shipped)


@cache
def rulebook(name: str) -> Rulebook:
    """The cluster that has only this back end, all of whose nodes have the same card; or `ALL` of them."""
    loaded = _loaded()
    if name == ALL:
        cluster = replace(loaded.cluster, backends=names(), tiers={})
        return replace(_indexed(cluster, loaded), sources=loaded.sources)
    alone = with_only(name, loaded)
    cluster = replace(alone.cluster, device=card(name).model)
    return replace(_indexed(cluster, loaded), sources=loaded.sources, surroundings=alone.surroundings)


@cache
def knowing(name: str, model: str | None) -> Rulebook:
    """The cluster that has only this shipped back end, and whose document says that its cards are of a model."""
    alone = with_only(name, _loaded())
    return replace(_indexed(replace(alone.cluster, device=model), _loaded()), surroundings=alone.surroundings)


def catalogue() -> Sequence[Card]:
    """Every card there is."""
    return list({device.model: device for device in _loaded().devices.values()}.values())


def replica(other: str, of: str) -> Rulebook:
    """A replica of a cluster that has the other's back ends, as it may be for a while after a change."""
    rules = rulebook(other)
    cluster = replace(rules.cluster, device=rulebook(of).cluster.device)
    return replace(rules, cluster=cluster)


def _indexed(cluster: Cluster, loaded: Rulebook) -> Rulebook:
    made = index(cluster, loaded.backends, loaded.devices, loaded.digest)
    return replace(made, workloads=loaded.workloads)


def backend(name: str) -> Backend:
    """A back end by its name."""
    return _loaded().backends[name]


@cache
def cards(name: str) -> Sequence[Card]:
    """The cards that a back end serves, and the first of them first that the clusters have."""
    one = backend(name)
    every = {device.model: device for device in _loaded().devices.values()}
    found = [
        device
        for device in every.values()
        if (device.model.lower() in one.models if one.models else not one.vendors or device.vendor in one.vendors)
    ]
    return sorted(found, key=lambda device: device.model != CARD)


def card(name: str) -> Card:
    """The card of the cluster that has only this back end."""
    return device(_CARDS[name]) if name in _CARDS else cards(name)[0]


def device(model: str) -> Card:
    """A card by its model, alias or product name."""
    return _loaded().devices[model.lower()]
