"""Rule files on disk: a directory in, a rulebook out, or everything that is wrong with it.

The process remembers what it has loaded, by content: an unchanged file is not parsed again, and the examples of an
unchanged rule are not run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import yaml

from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, Problem
from webhook.core.interpret import claim_objects
from webhook.core.reports import examples, pod_templates
from webhook.core.rules import index
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import KUBERNETES, Cluster
from webhook.core.rules.load import Loaded, read
from webhook.core.rules.rulebook import Rulebook
from webhook.files.documents import parse

_NOT_RULES = {"kustomization.yaml", "kustomization.yml"}

MAX_REMEMBERED: Final = 512
"""How many parsed files, and how many back ends whose examples passed, are remembered."""


class RuleFilesError(Exception):
    """Rule files that cannot be used; `problems` has all that is wrong, in the order of the files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def load(directory: Path) -> Rulebook:
    """Read every `*.yaml` of a directory and run the examples; raises RuleFilesError with all problems."""
    return _loaded(directory, lambda documents: documents)


def load_systems(directory: Path) -> Rulebook:
    """The same of a cluster of which nothing is known: no back end is enabled, and there are no policies."""
    return _loaded(directory, lambda documents: [*filter(_is_of_any_cluster, documents), *parse(_NO_CLUSTER, "none")])


_NO_CLUSTER: Final = (
    f"{{apiVersion: {API_VERSION}, kind: Cluster, metadata: {{name: none}}, spec: {{backends: []}}}}".encode()
)


def _is_of_any_cluster(document: Node) -> bool:
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    return kind is None or kind.value not in {"Cluster", "TenantPolicy", "Exemption"}


def _loaded(directory: Path, chosen: Callable[[list[Node]], list[Node]]) -> Rulebook:
    documents: list[Node] = []
    problems: list[Problem] = []
    digest = hashlib.sha256()
    for file in _files(directory):
        try:
            content = file.read_bytes()
            digest.update(content)
            documents += _parsed(content, file.name)
        except OSError as error:
            problems.append(Problem(Location(file.name, 1), "", f"cannot be read: {error.strerror}"))
        except DocumentError as error:
            problems += error.problems
    try:
        loaded = read(chosen(documents), digest.hexdigest())
    except DocumentError as error:
        raise RuleFilesError([*problems, *error.problems]) from None
    problems += sorted(set(_failing(loaded)))
    if problems:
        raise RuleFilesError(problems)
    return loaded.rulebook


def check_installable(directory: Path, cluster: Cluster) -> None:
    """Check what makes rules that load useless or harmful in a cluster; raises RuleFilesError.

    Kubernetes' own namespace has to be exempt. Each file says something, and a kustomization beside the rules names
    it: the cluster gets no others. Rules that are applied in another way have no kustomization.
    """
    problems = [Problem(Location(file.name, 1), "", text) for file, text in _silent(directory)]
    problems += cluster.unlisted(KUBERNETES)
    if problems:
        raise RuleFilesError(problems)
    for file in (directory / name for name in _NOT_RULES):
        if file.is_file() and (missing := _not_carried(directory, file)):
            text = (
                f"names no {', '.join(missing)} in any configMapGenerator: the cluster would not get it; {_CARRIED}"
            )
            raise RuleFilesError([Problem(Location(file.name, 1), "", text)])


_CARRIED: Final = "add it to files there, or apply what is a policy as an object, and keep it elsewhere"


def _silent(directory: Path) -> Iterator[tuple[Path, str]]:
    """Files that say nothing to anybody."""
    for file in sorted(directory.iterdir()):
        if file.suffix == ".json" and file.is_file():
            yield file, f"is not read: rules stand in .yaml files, and JSON is YAML; name it {file.stem}.yaml"
    for file in _files(directory):
        if not _parsed(file.read_bytes(), file.name):
            yield file, "holds no document; write one, or delete it"


def _not_carried(directory: Path, kustomization: Path) -> list[str]:
    try:
        made = yaml.safe_load(kustomization.read_bytes())
        generated = [name for each in made["configMapGenerator"] for name in each["files"]]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return []  # it carries rules in another way, if at all: kustomize has to say what is wrong with it
    named = {str(name).rpartition("=")[2].rpartition("/")[2] for name in generated}
    return [file.name for file in _files(directory) if file.name not in named]


_parsed = lru_cache(MAX_REMEMBERED)(parse)

_fine: dict[str, tuple[Backend, Mapping[str, Card]]] = {}
"""By name, the last back end whose examples passed, and the card models it was tested with."""


def _failing(loaded: Loaded) -> Iterator[Problem]:
    devices = loaded.rulebook.devices
    for backend in loaded.backends:
        found: list[Problem] = []
        if _fine.get(backend.name) != (backend, devices):
            found = list(examples.failing(backend, index.alone(backend, devices)))
        if not found and (backend.name in _fine or len(_fine) < MAX_REMEMBERED):
            _fine[backend.name] = backend, devices
        yield from found
    for source in loaded.sources:
        yield from claim_objects.failing(source)
    for workload in loaded.workloads:
        yield from pod_templates.failing(workload)


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise RuleFilesError([Problem(Location(str(directory), 1), "", "is not a directory")])
    try:
        found = sorted(file for file in directory.iterdir() if file.suffix in {".yaml", ".yml"})
    except OSError as error:
        raise RuleFilesError(
            [Problem(Location(str(directory), 1), "", f"cannot be read: {error.strerror}")]
        ) from None
    return [file for file in found if file.name not in _NOT_RULES]
