"""Rules that are read again while a program runs."""

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from webhook.console import app
from webhook.files import rule_files


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rule_files, "RETRY_SECONDS", 0.0)
    for name in ("cluster.yaml", "amd-gpu.yaml", "catalog-amd.yaml", "catalog-nvidia.yaml"):
        (tmp_path / name).write_text(builders.shipped_files()[name])
    (tmp_path / "cluster.yaml").write_text(ONE)
    return tmp_path


ONE = builders.cluster("backends: [amd-gpu]")


@contextlib.contextmanager
def short_of_descriptors() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_rules_that_cannot_be_read_for_want_of_descriptors_are_read_later(folder: Path) -> None:
    rules = rule_files.ReloadedRules(folder)
    assert rules.refresh()
    before = rules.rulebook
    (folder / "cluster.yaml").write_text(ONE.replace("test", "two"))
    with short_of_descriptors():
        assert [rules.refresh(), rules.refresh()] == [True, False], "the failure is said once"
        assert rules.rulebook is before

    assert rules.refresh()
    assert rules.rulebook is not None
    assert rules.rulebook.cluster.name == "two"
    assert not rules.refresh()


def test_files_that_change_while_they_are_read_are_read_again(folder: Path) -> None:
    rules = rule_files.ReloadedRules(folder)
    assert rules.refresh()
    before = rules.rulebook
    pipe = folder / "zones.yaml"
    os.mkfifo(pipe)  # a reader waits for the writer below

    def replace_then_answer() -> None:
        with pipe.open("w"):
            (folder / "cluster.yaml").write_text(ONE.replace("test", "two"))

    writer = threading.Thread(target=replace_then_answer)
    writer.start()
    assert not rules.refresh()
    writer.join()
    assert rules.rulebook is before

    pipe.unlink()
    assert rules.refresh()
    assert rules.rulebook is not None
    assert rules.rulebook.cluster.name == "two"


def test_a_page_of_rules_that_could_not_be_read_is_right_when_it_is_loaded_again(folder: Path) -> None:
    rules = app.LoadedRules(folder)
    with short_of_descriptors():
        assert [problem.message for problem in rules.now().problems] == ["cannot be read: Too many open files"]

    assert rules.now().problems == ()
    assert rules.now().rulebook is rules.now().rulebook
