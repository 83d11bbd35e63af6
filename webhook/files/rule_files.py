"""Rule files on disk: a directory in, a rulebook out, or everything that is wrong with it.

The process remembers what it has loaded: an unchanged file is not parsed again, an unchanged document is not read
again, and the examples of an unchanged rule are not run again.
"""

import contextlib
import hashlib
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

import yaml

from webhook.core import examples, pod_templates
from webhook.core.forms.document import API_VERSION, DocumentError, Location, Node, Problem
from webhook.core.interpret import claims
from webhook.core.kube import fields
from webhook.core.rules import rulebook
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Cards
from webhook.core.rules.claims import ClaimSource
from webhook.core.rules.cluster import KUBERNETES, Cluster
from webhook.core.rules.load import Memory, read
from webhook.core.rules.objects import Workload
from webhook.core.rules.rulebook import Rulebook
from webhook.files.documents import parse
from webhook.telemetry import DIGEST_LENGTH

MAX_REMEMBERED: Final = 512
"""How many parsed files are remembered, and how many values that were made of documents."""

_NOT_RULES = {"kustomization.yaml", "kustomization.yml"}

_parsed = lru_cache(MAX_REMEMBERED)(parse)
_memory = Memory(MAX_REMEMBERED)
_loading = Lock()
"""Held while documents are read: what is remembered is changed by one thread at a time."""


class RuleFilesError(DocumentError):
    """Rule files that cannot be used; `problems` has all that is wrong, in the order of the files."""


def load(
    directory: Path, chosen: Callable[[list[Node]], list[Node]] = list, *, only_enabled: bool = False
) -> Rulebook:
    """Read every `*.yaml` of a directory and run the examples; raises RuleFilesError with all problems.

    With `only_enabled` the examples of back ends that the cluster does not enable are left out: a server starts a
    second sooner.
    """
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
    with _loading:
        try:
            loaded = read(chosen(documents), digest.hexdigest(), _memory)
        except DocumentError as error:
            raise RuleFilesError(*problems, *error.problems) from None
        enabled = loaded.rulebook.cluster.backends
        tried = [backend for backend in loaded.backends if backend.name in enabled or not only_enabled]
        rules: list[tuple[object, ...]] = [(backend, loaded.rulebook.devices) for backend in tried]
        rules += [(rule,) for rule in (*loaded.sources, *loaded.workloads)]
        problems += sorted({problem for inputs in rules for problem in _memory.recall(_failing, *inputs)})
    if problems:
        raise RuleFilesError(*problems)
    return loaded.rulebook


def load_systems(
    directory: Path,
    cluster: str = f"{{apiVersion: {API_VERSION}, kind: Cluster, metadata: {{name: none}}, spec: {{backends: []}}}}",
) -> Rulebook:
    """The same of another cluster, without policies; default: one of which nothing is known, with no back end."""

    def is_of_any_cluster(document: Node) -> bool:
        kind = document.value.get("kind") if isinstance(document.value, dict) else None
        return kind is None or kind.value not in {"Cluster", "TenantPolicy", "Exemption"}

    return load(
        directory, lambda given: [*filter(is_of_any_cluster, given), *parse(cluster.encode(), "cluster.yaml")]
    )


def load_beside(
    directory: Path, contents: Mapping[str, bytes], chosen: Callable[[list[Node]], list[Node]] = list
) -> Rulebook:
    """The rules of a directory with files of other paths, in place of its files and documents of the same names."""
    own: list[Node] = []
    problems: list[Problem] = []
    for path, content in contents.items():
        try:
            own += parse(content, path)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise RuleFilesError(*problems)

    def subject(node: Node) -> object:
        raw = node.plain()
        kind = fields.at(raw, "kind")
        return kind if kind == "Cluster" else (kind, str(fields.at(raw, "metadata", "name")))

    def stays(node: Node) -> bool:
        return node.at.file not in names and subject(node) not in subjects

    subjects, names = {*map(subject, own)}, {Path(path).name for path in contents}
    return load(directory, lambda given: chosen([*filter(stays, given), *own]))


def _failing(rule: Backend | ClaimSource | Workload, devices: Cards | None = None) -> Sequence[Problem]:
    """What is wrong with the examples of a rule; a back end's are of these devices."""
    if isinstance(rule, Backend):
        return [*examples.failing(rule, rulebook.with_backend_alone(rule, devices or Cards()))]
    return [*(claims.failing(rule) if isinstance(rule, ClaimSource) else pod_templates.failing(rule))]


def _files(directory: Path) -> list[Path]:
    problem = "is not a directory"
    if directory.is_dir():
        try:
            files = sorted(file for file in directory.iterdir() if file.suffix in {".yaml", ".yml"})
            return [file for file in files if file.name not in _NOT_RULES]
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
    raise RuleFilesError(Problem(Location(str(directory), 1), "", problem))


def check_installable(directory: Path, cluster: Cluster) -> None:
    """Check what makes rules that load useless or harmful in a cluster; raises RuleFilesError.

    Kubernetes' own namespace has to be exempt. Each file says something, and a kustomization beside the rules names
    it: the cluster gets no others. Rules that are applied in another way have no kustomization.
    """

    def problem(file: Path, text: str) -> Problem:
        return Problem(Location(file.name, 1), "", text)

    files = _files(directory)
    problems = [
        problem(file, f"is not read: rules stand in .yaml files, and JSON is YAML; name it {file.stem}.yaml")
        for file in sorted(directory.iterdir())
        if file.suffix == ".json" and file.is_file()
    ]
    empty = (file for file in files if not _parsed(file.read_bytes(), file.name))
    problems += [problem(file, "holds no document; write one, or delete it") for file in empty]
    problems += cluster.unlisted(KUBERNETES)
    if problems:
        raise RuleFilesError(*problems)

    for kustomization in (directory / name for name in _NOT_RULES):
        try:
            made = yaml.safe_load(kustomization.read_bytes())
            generated = [name for generator in made["configMapGenerator"] for name in generator["files"]]
        except (OSError, yaml.YAMLError, TypeError, KeyError):
            continue  # it carries rules in another way, if at all: kustomize has to say what is wrong with it
        named = {str(name).rpartition("=")[2].rpartition("/")[2] for name in generated}
        if missing := ", ".join(file.name for file in files if file.name not in named):
            carried = "add it to files there, or apply what is a policy as an object, and keep it elsewhere"
            text = f"names no {missing} in any configMapGenerator: the cluster would not get it; {carried}"
            raise RuleFilesError(problem(kustomization, text))


# Whether files have changed, by inode, time and size: two system calls instead of reading them.

RETRY_SECONDS: Final = 2.0
"""After this, files that could not be used are read again, changed or not."""

Stamp = tuple[int, int, int]
"""Inode, time and size. Kubernetes replaces the files of a Secret or ConfigMap volume, which changes the inode."""


def file_stamp(path: Path) -> Stamp | None:
    """The stamp of a file; None if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def directory_stamp(path: Path) -> frozenset[tuple[str, Stamp | None]]:
    """The stamps of all files of a directory; empty if there is no such directory.

    Not of `..data` and its like: the kubelet removes the old ones after the files have changed.
    """
    try:
        return frozenset((file.name, file_stamp(file)) for file in path.iterdir() if not file.name.startswith(".."))
    except OSError:
        return frozenset()


class Change:
    """When to read files again: they have changed, or could not be used when they were read last.

    Such a failure may pass without a change: the process had no descriptor left, or no memory.
    """

    def __init__(self) -> None:
        self._stamp: object = None
        self._retry = inf
        self._said = ""

    def due(self, stamp: object) -> bool:
        """Whether to read the files now, which have this stamp."""
        changed = stamp != self._stamp
        if not changed and monotonic() < self._retry:
            return False
        self._stamp, self._retry = stamp, inf
        self._said = "" if changed else self._said
        return True

    def failed(self, why: object) -> bool:
        """Read them again later. Returns whether this was not said before."""
        self._retry = monotonic() + RETRY_SECONDS
        news, self._said = str(why) != self._said, str(why)
        return news


# The rules of a directory, read again when they change, for programs that run for a long time.

RULES_SECONDS: Final = 2.0
"""How often the files are checked."""

log = logging.getLogger(__name__)


class ReloadedRules:
    """The rules of a directory, read again when its files change. If they do not load, the last good ones stay."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._change = Change()
        self.rulebook: Rulebook | None = None

    def refresh(self) -> bool:
        """Read the rules again if the files have changed; returns whether there is news.

        Files that change while they are read are read again: a directory is replaced whole, and half of each of two
        versions is neither.
        """
        stamp = directory_stamp(self._directory)
        if not self._change.due(stamp):
            return False
        try:
            rulebook = load(self._directory, only_enabled=True)
        except RuleFilesError as error:
            if directory_stamp(self._directory) != stamp or not self._change.failed(error):
                return False
            kept = "the changed rules are not usable, the last good ones stay"
            log.error("%s: %s", "no rules" if self.rulebook is None else kept, error)  # noqa: TRY400 - the sentence is all there is to say
            return True
        if directory_stamp(self._directory) != stamp:
            return False
        self.rulebook = rulebook
        digest = rulebook.digest[:DIGEST_LENGTH]
        log.info("rules %s from %s: %d back ends", digest, self._directory, len(rulebook.backends))
        return True


# The rulebook of a directory, kept in the user's cache folder between the runs of a command.

SLOTS: Final = 256
"""The most files in the cache folder. Two rule directories with the same slot replace each other's file."""

_WRITABLE_BY_OTHERS: Final = 0o022


def load_cached(directory: Path, cluster: str = "") -> Rulebook:
    """The rulebook of a directory as `load` gives it, or of another `cluster` (YAML); raises RuleFilesError."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/"), ".cache")
    place = os.fsencode(directory.resolve()) + cluster.encode()
    number = int.from_bytes(hashlib.sha256(place).digest(), "big") % SLOTS
    slot, key = Path(folder, "gpu-webhook", f"rulebook-{number}"), _key(directory, cluster)
    if key:
        # A pickle can run any code of its writer, so the file must be writable by this user alone. A damaged one may
        # raise anything; the rules are then read again.
        with contextlib.suppress(Exception), slot.open("rb") as file:
            status = os.fstat(file.fileno())
            ours = status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS
            kept = pickle.load(file) if ours and file.read(len(key)) == key else None  # noqa: S301 - see above
            if isinstance(kept, Rulebook):
                return kept

    rulebook = load_systems(directory, cluster) if cluster else load(directory)
    if key and _key(directory, cluster) == key:  # else a file has changed meanwhile
        with contextlib.suppress(OSError):
            slot.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(slot, key + pickle.dumps(rulebook, pickle.HIGHEST_PROTOCOL), 0o600)
    return rulebook


def write_whole(file: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all: a reader never sees a half. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(content)
            os.fchmod(new.fileno(), mode)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _key(directory: Path, cluster: str) -> bytes:
    """A digest of the rules and the cluster, of the stamps of the program's modules, and of the version of Python.

    It is empty if one of them cannot be read, as `load` will say.
    """
    try:
        program = sorted((str(path), file_stamp(path)) for path in Path(__file__).parents[1].rglob("*.py"))
        digest = hashlib.sha256(repr((sys.version, program, cluster)).encode())
        for file in sorted(directory.glob("*.y*ml")):
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
    except OSError:
        return b""
    return digest.digest()
