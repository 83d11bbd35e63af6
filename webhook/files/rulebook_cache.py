"""The rulebook of a directory, kept in the user's cache folder between the runs of a command.

With it a command starts in a third of the time, as nothing is parsed and no example is run. A cached rulebook is used
only for the same files and the same version of the program. `gpu-webhook check` and the server never use it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
from pathlib import Path
from typing import Final

from webhook.core.rules.rulebook import Rulebook
from webhook.files import file_stamps

SLOTS: Final = 256
"""The most files in the cache folder. Two rule directories with the same slot replace each other's file."""

_WRITABLE_BY_OTHERS: Final = 0o022
_PROGRAM: Final = Path(__file__).parents[1]


def load(directory: Path) -> Rulebook:
    """The rulebook of a directory as rule_files.load gives it; raises RuleFilesError."""
    key, slot = _key(directory), _slot(directory)
    kept = _read(slot, key) if key else None
    if kept is not None:
        return kept
    from webhook.files import rule_files  # noqa: PLC0415 - it imports the readers of all documents, which a hit does not need

    rulebook = rule_files.load(directory)
    if key and _key(directory) == key:  # else a file has changed meanwhile
        _write(slot, key + pickle.dumps(rulebook, pickle.HIGHEST_PROTOCOL))
    return rulebook


def _key(directory: Path) -> bytes:
    """A digest of the rules, of the stamps of the program's modules, and of the version of Python.

    It is empty if one of them cannot be read, as rule_files.load will say.
    """
    try:
        program = sorted((str(path), file_stamps.file(path)) for path in _PROGRAM.rglob("*.py"))
        digest = hashlib.sha256(repr((sys.version, program)).encode())
        for file in sorted(directory.glob("*.y*ml")):
            content = file.read_bytes()
            digest.update(f"{file.name} {len(content)} ".encode() + content)
    except OSError:
        return b""
    return digest.digest()


def _slot(directory: Path) -> Path:
    folder = os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/"), ".cache")
    number = int.from_bytes(hashlib.sha256(os.fsencode(directory.resolve())).digest(), "big") % SLOTS
    return Path(folder, "gpu-webhook", f"rulebook-{number}")


def _read(slot: Path, key: bytes) -> Rulebook | None:
    """The rulebook in a slot; None if its key differs, or the file cannot be used.

    A pickle can run any code of its writer, so the file must be writable by this user alone.
    """
    try:
        with slot.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS or file.read(len(key)) != key:
                return None
            found = pickle.load(file)  # noqa: S301 - see above
    except Exception:  # noqa: BLE001 - a damaged pickle may raise anything; the rules are then read again
        return None
    return found if isinstance(found, Rulebook) else None


def _write(slot: Path, content: bytes) -> None:
    """Replace the file of a slot atomically; if that fails, nothing is cached."""
    new = slot.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        slot.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            new.touch(0o600, exist_ok=False)
            new.write_bytes(content)
            new.replace(slot)
        finally:
            new.unlink(missing_ok=True)
