"""A folder of rule files: all of them, or all that is wrong with them."""

from pathlib import Path

import pytest

from tests import builders
from webhook import rulefiles
from webhook.rulefiles import RuleFilesError


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def _problems(folder: Path) -> list[str]:
    with pytest.raises(RuleFilesError) as refused:
        rulefiles.load(folder)
    assert str(refused.value) == "\n".join(map(str, refused.value.problems))
    return [str(problem) for problem in refused.value.problems]


def test_the_shipped_rules_load() -> None:
    assert rulefiles.load(builders.RULES).cluster.name == "default"


def test_files_with_other_names_are_not_rules(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    _write(tmp_path, {"README.md": "[", "notes.txt": "[", "kustomization.yaml": "["})

    assert rulefiles.load(tmp_path).digest == rulefiles.load(builders.RULES).digest


def test_the_digest_is_of_everything(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    before = rulefiles.load(tmp_path).digest
    with (tmp_path / "cluster.yaml").open("a") as file:
        file.write("# a word\n")

    assert rulefiles.load(tmp_path).digest != before


def test_several_documents_may_stand_in_one_file(tmp_path: Path) -> None:
    rules = {name: text for name, text in builders.shipped_files().items() if name != "kustomization.yaml"}
    _write(tmp_path, {"all.yml": "\n---\n".join(rules.values())})

    assert rulefiles.load(tmp_path).backends.keys() == rulefiles.load(builders.RULES).backends.keys()


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    assert _problems(tmp_path / "nowhere") == [f"{tmp_path / 'nowhere'}:1:1: is not a directory"]


def test_an_empty_folder_has_no_cluster(tmp_path: Path) -> None:
    assert _problems(tmp_path) == ["rules:1:1: no Cluster document: nothing says which back ends this cluster has"]


def test_mistakes_in_several_files_are_all_shown(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    _write(tmp_path, {"a.yaml": "a: [", "b.yaml": "kind: Backend"})

    assert _problems(tmp_path) == [
        "a.yaml:2:1: is not YAML: did not find expected node content",
        'b.yaml:1:1: needs the key "apiVersion"',
        'b.yaml:1:1: needs the key "metadata"',
        'b.yaml:1:1: needs the key "spec"',
    ]
