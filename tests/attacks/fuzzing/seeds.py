"""The good inputs: golden cases, generated askings, huge pods, rule files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml
from hypothesis import HealthCheck, Phase, given, settings

from tests import builders
from tests.attacks import monsters
from tests.cases import golden
from tests.laws import clusters
from tests.laws.asking import Asking, askings

EACH: Final = 8
"""How many pods are generated for each back end."""

LARGE: Final = 8 << 10
"""Bytes of a huge pod that is mutated. Larger ones only take longer: there is a test of each."""


SMALL: Final = 2000


@dataclass(frozen=True, slots=True)
class Seed:
    """A pod, and the cluster that it was made for; none for any."""

    pod: Any
    cluster: str = ""


@cache
def pods() -> Sequence[Seed]:
    """All pods that tests have, as they may come over the wire."""
    cases = [Seed(case.pod()) for case in golden.find() if case.has_pod]
    asking = [Seed(asked.pod, asked.cluster) for name in clusters.names() for asked in _askings(name)]
    return [*cases, *asking, *(Seed(monsters.of_size(monster, LARGE)) for monster in monsters.MONSTERS.values())]


def _askings(backend: str) -> list[Asking]:
    found: list[Asking] = []

    @settings(
        max_examples=EACH,
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(askings(backend))
    def take(asked: Asking) -> None:
        found.append(asked)

    take()
    return found


@cache
def small() -> Sequence[Any]:
    """The pods that are not huge."""
    return [seed.pod for seed in pods() if len(golden.dump(seed.pod)) < SMALL]


@cache
def objects() -> Sequence[Any]:
    """What the API server asks about beside pods: policies, and kinds that hold pods."""
    policies = [
        document
        for name in golden.APPLIED
        for file in sorted(golden.CASES.glob(f"*/*/{name}"))
        for document in builders.documents(file.read_text())
    ]
    templates = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {"replicas": 2, "template": {"metadata": seed.pod["metadata"], "spec": seed.pod["spec"]}},
        }
        for seed in pods()[:40]
    ]
    return [*policies, *templates]


CATALOGUE: Final = "catalog.yaml"
MODELS: Final = {"A100-80GB", "T4", "MI300X"}
LONGEST: Final = 6000
"""Characters of a page of rules. Longer ones only take longer."""


@cache
def catalogue() -> str:
    """A small catalogue that stands beside each of `rules`, and is never mutated."""
    return "\n---\n".join(
        golden.dump({**each, "spec": {**each["spec"], "devices": _some(each["spec"]["devices"])}})
        for name in ("catalog-nvidia.yaml", "catalog-amd.yaml")
        for each in _documents(builders.shipped_files()[name])
    )


def _some(cards: list[Any]) -> list[Any]:
    return [card for card in cards if card["model"] in MODELS]


@cache
def rules() -> Sequence[str]:
    """Rule files that load: each has all that it names, and enables what it defines."""
    shipped = [text for name, text in builders.shipped_files().items() if name != "cluster.yaml"]
    folders = dict.fromkeys(file.parent for file in sorted(golden.CASES.glob("*/*/rules/*.yaml")))
    own = ["\n---\n".join(file.read_text() for file in sorted(folder.glob("*.yaml"))) for folder in folders]
    pages = dict.fromkeys(map(_whole, [*shipped, *own, clusters.MADE_UP]))
    return [page for page in pages if len(page) < LONGEST]


def _whole(page: str) -> str:
    """The page with a Cluster document, and with all documents that it names."""
    there = _documents(page)
    if not any(each["kind"] == "Cluster" for each in there):
        backends = ", ".join(_name(each) for each in there if each["kind"] == "Backend")
        page = f"{page}\n---\n" + builders.cluster(f"backends: [{backends}], device: A100-80GB")
    known, missing = {_name(each) for each in there}, [name for each in _documents(page) for name in _named(each)]
    while missing:
        name = missing.pop()
        if name in _shipped() and name not in known and name not in {"catalogue nvidia", "catalogue amd"}:
            page = f"{page}\n---\n{_shipped()[name]}"
            found = _documents(_shipped()[name])
            known |= {_name(each) for each in found}
            missing += [other for each in found for other in _named(each)]
    return page


def _name(document: Any) -> str:
    """The name of a back end, or whose catalogue it is."""
    if document["kind"] == "DeviceCatalog":
        return f"catalogue {document['spec'].get('vendor')}"
    return str(document["metadata"].get("name"))


def _named(document: Any) -> list[str]:
    """What a document needs beside it: back ends by name, and catalogues by vendor."""
    spec = document.get("spec") or {}
    try:
        catalogues = [f"catalogue {vendor}" for vendor in spec.get("vendors") or ()]
        names = [*(spec.get("backends") or ()), spec.get("extends")]
    except (AttributeError, TypeError):  # a case of wrong types
        return []
    return [name for name in (*names, *catalogues) if isinstance(name, str)]


@cache
def _shipped() -> dict[str, str]:
    """Shipped files by the back end that each defines, or by the vendor of its cards."""
    found = {}
    for text in builders.shipped_files().values():
        for each in _documents(text):
            if each["kind"] in {"DeviceCatalog", "Backend"}:
                found[_name(each)] = text
    return found


def _documents(page: str) -> list[Any]:
    try:
        return [
            each
            for each in yaml.load_all(page, yaml.CSafeLoader)
            if isinstance(each, dict) and {"kind", "metadata"} <= each.keys()
        ]
    except yaml.YAMLError:
        return []


@cache
def lines() -> Sequence[str]:
    """Every line of every rule file."""
    return [*dict.fromkeys(line for page in rules() for line in page.split("\n"))]


def texts(document: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(document, dict):
        yield from (key for key in document if isinstance(key, str))
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    for each in inner:
        yield from texts(each)
    if isinstance(document, str):
        yield document
