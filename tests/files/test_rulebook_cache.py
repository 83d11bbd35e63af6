"""A rulebook kept between two runs: used for the same rules only, and never in the way."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.program import RULES, changed_rules
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files

KEY = 32


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def slot(cache: Path) -> Path:
    (kept,) = (cache / "gpu-webhook").iterdir()
    return kept


def other(rulebook: Rulebook) -> Rulebook:
    return replace(rulebook, digest="another one, to be told from what the files say")


def keep_another(cache: Path) -> Rulebook:
    """Keep a rulebook under the key of the made-up rules that is not what they say."""
    another = other(rule_files.load_cached(RULES))
    kept = slot(cache)
    kept.write_bytes(kept.read_bytes()[:KEY] + pickle.dumps(another))
    return another


def test_what_is_kept_is_what_the_files_say(cache: Path) -> None:
    assert rule_files.load_cached(RULES) == rule_files.load(RULES)
    assert pickle.loads(slot(cache).read_bytes()[KEY:]) == rule_files.load(RULES)  # noqa: S301 - written above


def test_the_same_rules_are_not_read_again(cache: Path) -> None:
    another = keep_another(cache)

    assert rule_files.load_cached(RULES) == another


def test_changed_rules_are_read_again(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, "name: made-up", "name: made-up")
    before = rule_files.load_cached(rules)
    file = rules / "cluster.yaml"
    file.write_text(file.read_text().replace("name: made-up", "name: changed"))

    after = rule_files.load_cached(rules)

    assert (before.cluster.name, after.cluster.name) == ("made-up", "changed")


def test_rules_of_the_same_content_by_other_names_are_read_again(tmp_path: Path) -> None:
    rules = changed_rules(tmp_path, "name: made-up", "name: made-up")
    rule_files.load_cached(rules)
    (rules / "cluster.yaml").rename(rules / "renamed.yaml")

    assert rule_files.load_cached(rules).cluster.at.file == "renamed.yaml"


@pytest.mark.parametrize("left", [0, 5, KEY, KEY + 100])
def test_a_damaged_file_is_read_as_none_and_replaced(cache: Path, left: int) -> None:
    rule_files.load_cached(RULES)
    kept = slot(cache)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])

    assert rule_files.load_cached(RULES) == rule_files.load(RULES)
    assert kept.read_bytes() == whole


def test_a_file_that_others_can_write_is_not_opened(cache: Path) -> None:
    keep_another(cache)
    slot(cache).chmod(0o666)

    assert rule_files.load_cached(RULES) == rule_files.load(RULES)
    assert slot(cache).stat().st_mode & 0o777 == 0o600


def test_without_a_folder_to_write_rules_are_read_each_time(cache: Path) -> None:
    cache.write_text("a file where the folder should be")

    assert rule_files.load_cached(RULES) == rule_files.load(RULES)


def test_rules_that_cannot_be_used_are_not_kept(tmp_path: Path, cache: Path) -> None:
    rules = changed_rules(tmp_path, "systemNamespaces", "systemNamespace")

    for _ in range(2):
        with pytest.raises(rule_files.RuleFilesError, match="systemNamespace"):
            rule_files.load_cached(rules)
    assert not cache.exists()
