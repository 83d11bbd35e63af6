"""A folder of rule files: all of them, or all that is wrong with them."""

import cProfile
import pstats
from pathlib import Path

import pytest

from tests import builders
from webhook.files import rule_files


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def _problems(folder: Path) -> list[str]:
    with pytest.raises(rule_files.RuleFilesError) as refused:
        rule_files.load(folder)
    assert str(refused.value) == "\n".join(map(str, refused.value.problems))
    return [str(problem) for problem in refused.value.problems]


def test_the_shipped_rules_load() -> None:
    assert rule_files.load(builders.RULES).cluster.name == "default"


def test_files_with_other_names_are_not_rules(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    before = rule_files.load(tmp_path).digest
    _write(tmp_path, {"README.md": "[", "notes.txt": "[", "kustomization.yaml": "["})

    assert rule_files.load(tmp_path).digest == before


def test_the_digest_is_of_everything(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    before = rule_files.load(tmp_path).digest
    with (tmp_path / "cluster.yaml").open("a") as file:
        file.write("# a word\n")

    assert rule_files.load(tmp_path).digest != before


def test_several_documents_may_stand_in_one_file(tmp_path: Path) -> None:
    rules = {name: text for name, text in builders.shipped_files().items() if name != "kustomization.yaml"}
    _write(tmp_path, {"all.yml": "\n---\n".join(rules.values())})

    loaded = rule_files.load(tmp_path, only_enabled=True)
    assert loaded.backends.keys() == builders.rulebook(builders.shipped_files()).backends.keys()


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    assert _problems(tmp_path / "nowhere") == [f"{tmp_path / 'nowhere'}:1:1: is not a directory"]


def test_an_empty_folder_has_no_cluster(tmp_path: Path) -> None:
    missing = "no Cluster document: nothing says which back ends this cluster has; gpu-webhook survey prints one"
    assert _problems(tmp_path) == [f"rules:1:1: {missing}"]


def test_mistakes_in_several_files_are_all_shown(tmp_path: Path) -> None:
    _write(tmp_path, builders.shipped_files())
    _write(tmp_path, {"a.yaml": "a: [", "b.yaml": "kind: Backend"})

    assert _problems(tmp_path) == [
        "a.yaml:2:1: is not YAML: did not find expected node content",
        'b.yaml:1:1: needs the key "apiVersion"',
        'b.yaml:1:1: needs the key "metadata"',
        'b.yaml:1:1: needs the key "spec"',
    ]


def _run(folder: Path) -> set[str]:
    """The functions that run while a folder is loaded, as `file.function`."""
    with cProfile.Profile() as profile:
        rule_files.load(folder)
    known: dict[tuple[str, int, str], object] = vars(pstats.Stats(profile))["stats"]
    return {f"{Path(file).stem}.{function}" for file, _, function in known}


def test_what_has_not_changed_is_not_parsed_and_not_tried_again(tmp_path: Path) -> None:
    shipped = builders.shipped_files()
    _write(tmp_path, shipped | {"koordinator.yaml": shipped["koordinator.yaml"] + "# the first\n"})
    rule_files.load(tmp_path)

    assert _run(tmp_path).isdisjoint({"documents.parse", "examples.failing"})


def test_what_has_changed_is_parsed_and_tried_again(tmp_path: Path) -> None:
    shipped = builders.shipped_files()
    _write(tmp_path, shipped)
    rule_files.load(tmp_path)
    _write(tmp_path, {"koordinator.yaml": "# another line\n" + shipped["koordinator.yaml"]})

    assert _run(tmp_path) >= {"documents.parse", "examples.failing"}


def test_a_server_tries_the_examples_of_what_its_cluster_enables_and_check_tries_all(tmp_path: Path) -> None:
    shipped = builders.shipped_files()
    unfit = shipped["koordinator.yaml"].replace(
        "  examples:\n", "  examples:\n  - {ask: {gpu: '1'}, limits: {no: 1}}\n", 1
    )
    _write(tmp_path, shipped | {"koordinator.yaml": unfit})
    reloaded = rule_files.ReloadedRules(tmp_path)

    assert any("koordinator.yaml" in problem for problem in _problems(tmp_path))
    assert reloaded.refresh()
    assert reloaded.rulebook is not None

    before = reloaded.rulebook
    _write(tmp_path, {"cluster.yaml": builders.cluster("backends: [koordinator]")})
    assert reloaded.refresh()
    assert reloaded.rulebook is before
