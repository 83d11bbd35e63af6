"""The shipped rules and some of a site, with every back end enabled, so that one webhook serves them all."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import yaml

from tests import builders
from tests.cluster.webhook import ROOT
from webhook import playground

RULES = ROOT / "rules"
SITES = Path(__file__).with_name("scheduling") / "sites"
_OTHERS = {"cluster.yaml", "kustomization.yaml"}


def backends() -> list[str]:
    """The name of every back end: the shipped ones, and those that a site makes of them."""
    documents = (document for path in _files() for document in builders.documents(path.read_text()))
    return [document["metadata"]["name"] for document in documents if document["kind"] == "Backend"]


def with_every_back_end(folder: Path) -> Path:
    """Write all rules to a folder, with a Cluster that has all back ends, those it has anyway first."""
    for path in _files():
        (folder / path.name).write_text(path.read_text())
    [cluster] = builders.documents(playground.CLUSTER.read_text())
    cluster["spec"]["backends"] = list(dict.fromkeys([*cluster["spec"]["backends"], *backends()]))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return folder


def _files() -> Iterator[Path]:
    shipped = (path for path in sorted(RULES.glob("*.yaml")) if path.name not in _OTHERS)
    return chain(shipped, sorted(SITES.glob("*.yaml")))
