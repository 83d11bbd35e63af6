"""What the pages show: inventory and tenants, of files or of the cluster itself, and the rules as they are now.

Safe to use from several threads; each of them waits while another one reads.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Generic, NamedTuple, TypeVar

from webhook.cli import check, snapshot, tenants
from webhook.cli.inventory import Overview, overview
from webhook.cli.snapshot import Snapshot
from webhook.core.forms.document import Problem
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files, surroundings
from webhook.files.documents import UnreadableError

T = TypeVar("T")

FRESH_SECONDS: Final = 10.0
"""How long what the cluster said is shown again: a page that is reloaded must not be a load on the API server."""


class Seen(NamedTuple, Generic[T]):
    """A view and where it is from, or why there is none.

    `counted`: what pods ask, or tenants use, is known; else only what exists, or what tenants may use.
    """

    view: T | None
    origin: str
    counted: bool
    problem: str = ""


class _Latest(Generic[T]):
    """What was read last; read again when its file has changed, or after FRESH_SECONDS if it has none."""

    def __init__(self, file: Path | None, origin: str, read: Callable[[], Snapshot], *, counted: bool) -> None:
        self._file, self._read, self._origin, self._counted = file, read, origin, counted
        self._lock = threading.Lock()
        self._found: tuple[Snapshot, object, float] | None = None

    def now(self, rulebook: Rulebook) -> Seen[T]:
        """What is known at this moment, as the rules see it."""
        try:
            with self._lock:
                return Seen(self._view(self._latest(), rulebook), self._origin, self._counted)
        except UnreadableError as error:
            return Seen(None, self._origin, self._counted, str(error))

    def _latest(self) -> Snapshot:
        stamp = rule_files.file_stamp(self._file) if self._file else None
        if self._found is not None:
            latest, seen, at = self._found
            if stamp == seen and (self._file or monotonic() - at < FRESH_SECONDS):
                return latest
        latest = self._read()
        self._found = latest, stamp, monotonic()
        return latest

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> T:
        raise NotImplementedError


class Source(_Latest[Overview]):
    """Nodes and pods as they are now: of a file, of the cluster (`live`), or only nodes, of the watcher's file."""

    def __init__(self, file: Path | None = None, around: Path | None = None, *, live: bool = False) -> None:
        self.around = around

        def read() -> Snapshot:
            if live:
                return snapshot.read_cluster(snapshot.INVENTORY)
            if file is None and around is None:
                text = "nobody said where nodes and pods are: start the console with --inventory FILE or --cluster"
                raise UnreadableError(text)
            if file is None and around is not None:
                return Snapshot(snapshot.INVENTORY, {"Node": [*surroundings.read(around).get("nodes", ())]})
            return _parsed(Snapshot(snapshot.INVENTORY), file)

        origin = "the cluster" if live else str(file or around or "")
        super().__init__(None if live else file or around, origin, read, counted=live or file is not None)
        self._viewed: tuple[Snapshot, Rulebook, Overview] | None = None

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> Overview:
        """The view of objects, kept while both stay: for thousands of pods it takes a second."""
        if self._viewed is None or self._viewed[0] is not objects or self._viewed[1] is not rulebook:
            self._viewed = objects, rulebook, overview(objects, rulebook)
        return self._viewed[2]


class Standings(_Latest[tenants.Tenants]):
    """Tenants as they are now: of a file, of the cluster (`live`), or of the rule files alone."""

    def __init__(self, file: Path | None = None, *, live: bool = False) -> None:
        read = snapshot.read_tenants if live else lambda: _parsed(Snapshot(snapshot.TENANTS), file)
        origin = "the cluster" if live else str(file or "the rule files")
        super().__init__(None if live else file, origin, read, counted=live or file is not None)

    def there(self) -> tuple[Snapshot, str]:
        """The policies, exemptions, ledgers and namespaces; and why these are not known, if so."""
        try:
            with self._lock:
                return self._latest(), ""
        except UnreadableError as error:
            return Snapshot(snapshot.TENANTS), f"Nothing is known of tenants: {error}"

    def _view(self, objects: Snapshot, rulebook: Rulebook) -> tenants.Tenants:
        return tenants.overview(objects, rulebook, time(), live=self._counted)


def _parsed(objects: Snapshot, file: Path | None) -> Snapshot:
    try:
        if file is not None:
            objects.parse(file.read_bytes(), file.name)
    except OSError as error:
        raise UnreadableError(f"{file}: {error.strerror}") from None
    return objects


# The rules as they are on disk now: read again when a file has changed, so an author sees an edit on reload.


class Loaded(NamedTuple):
    """A rulebook, or the problems that keep the files from being one.

    Never an older rulebook: a page that explains by rules which are no longer on disk would mislead their author.
    `unseen` is why nothing is known of the cluster around, where something should be.
    """

    rulebook: Rulebook | None
    problems: Sequence[Problem] = ()
    unseen: str | None = None

    def contract(self) -> dict[str, Any]:
        """Whether the rules can be used; then what they say, else everything that is wrong with them."""
        return check.broken(self.problems) if self.rulebook is None else check.contract(self.rulebook)


class LoadedRules:
    """The rules of one directory, in the surroundings that a file tells of; safe to use from several threads."""

    def __init__(self, directory: Path, around: Path | None = None) -> None:
        self._directory, self._around = directory, around
        self._lock = threading.Lock()
        self._stamp: object = None
        self._loaded = Loaded(None)

    def now(self) -> Loaded:
        """What the files hold at this moment."""
        with self._lock:
            # Before the files are read: a change in between is seen next time.
            stamp = rule_files.directory_stamp(self._directory), self._around and rule_files.file_stamp(self._around)
            if stamp == self._stamp:
                return self._loaded
            self._stamp = None  # what fails may pass without a change: it is read again
            try:
                rulebook = rule_files.load_cached(self._directory)
                self._loaded = Loaded(surroundings.around(rulebook, self._around) if self._around else rulebook)
                self._stamp = stamp
            except rule_files.RuleFilesError as error:
                self._loaded = Loaded(None, error.problems)
            except surroundings.SurroundingsError as error:
                self._loaded = Loaded(rulebook, unseen=f"Nothing is known of the cluster's nodes: {error}")
            return self._loaded
