"""webhook/README.md and the docstrings of packages name what exists, and the rooms keep their size."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tables

ROOT = Path(__file__).parent.parent
WEBHOOK = ROOT / "webhook"
README = (ROOT / "README.md").read_text()
GUIDE = (WEBHOOK / "README.md").read_text()
MODULES = sorted(file for file in WEBHOOK.rglob("*.py") if file.name != "__init__.py")
PACKAGES = sorted(file.parent for file in WEBHOOK.rglob("__init__.py"))

MOST_PACKAGES = 12
MOST_MODULES = 12
MOST_LINES = 750
MOST_LINES_OF_THE_GUIDE = 110


def _modules(package: Path) -> set[str]:
    return {file.stem for file in package.glob("*.py")} - {"__init__"}


def _packages(package: Path) -> set[str]:
    return {file.parent.name for file in package.glob("*/__init__.py")}


def _names(tree: ast.Module | ast.ClassDef, holder: str = "") -> Iterator[str]:
    """The names that a module defines, and those of its classes as `Class.name`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{holder}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from _names(node, f"{holder}{node.name}.")
        for target in [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", []):
            if isinstance(target, ast.Name):
                yield f"{holder}{target.id}"


def _references() -> Iterator[tuple[str, str]]:
    """Each `file.py` and `file.py:name` of the guide; `:name` is of the file before it."""
    file = ""
    for found in re.finditer(r"`([a-z_/]+\.py)?(?::([A-Za-z_.]+))?`", GUIDE):
        file = found[1] or file
        yield file, found[2] or ""


def _layers(container: str) -> list[set[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == [container])
    return [set(layer.split(" | ")) for layer in layers]


def _in_order(named: list[str], layers: list[set[str]]) -> list[set[str]]:
    """The names in groups as large as the layers."""
    rest = iter(named)
    return [{next(rest, "") for _ in layer} for layer in layers]


def test_the_picture_of_the_rooms_is_that_of_the_import_contracts() -> None:
    picture = GUIDE.split("```")[1]  # of webhook/ and webhook/core/, from top to bottom
    shell, core = (re.findall(f"^ {{{depth}}}([a-z_]+)(?:/|\\.py) ", picture, re.MULTILINE) for depth in (2, 4))
    layers, layers_of_core = _layers("webhook"), _layers("webhook.core")

    assert (_in_order(shell, layers), _in_order(core, layers_of_core)) == (layers, layers_of_core)
    assert set(shell) == _modules(WEBHOOK) | _packages(WEBHOOK)
    assert set(core) == _modules(WEBHOOK / "core") | _packages(WEBHOOK / "core")


def test_each_room_has_a_paragraph_in_the_guide_and_nothing_else_has() -> None:
    core = WEBHOOK / "core"
    rooms = {path.relative_to(WEBHOOK).as_posix() for path in PACKAGES} - {"."}

    assert set(re.findall(r"\*\*([a-z_/]+)\*\* ", GUIDE)) == rooms
    levels = {room for room in rooms if room.count("/") < 2}
    assert levels == _packages(WEBHOOK) | {f"core/{name}" for name in _packages(core)}


def test_each_file_and_function_that_the_guide_names_exists() -> None:
    references = list(_references())
    defined = {file: set(_names(ast.parse((WEBHOOK / file).read_text()))) for file, _ in references if file}

    assert [each for each in references if each[1] and each[1] not in defined[each[0]]] == []
    assert len(GUIDE.splitlines()) <= MOST_LINES_OF_THE_GUIDE


def test_each_path_that_the_readme_names_exists() -> None:
    paths = re.findall(r"[`(]((?:certs|manifests|rules|tests|webhook)/[A-Za-z0-9_./-]*)[`)]", README)

    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert "webhook/README.md" in paths


def test_each_word_of_the_glossary_is_in_the_file_beside_it() -> None:
    def letters(text: str) -> str:
        return re.sub("[^a-z]", "", text.lower())

    section = GUIDE.partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    words = [(word.strip(), WEBHOOK / file.strip(" `")) for word, _, file in rows]

    assert [word for word, file in words if letters(word) not in letters(file.read_text())] == []
    assert len(words) == len(dict(words))


def test_the_core_fits_into_one_listing() -> None:
    core = WEBHOOK / "core"

    assert len(_packages(core)) <= MOST_PACKAGES
    assert len(_modules(core)) <= MOST_MODULES


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_docstring_of_a_package_says_what_belongs_there(package: Path) -> None:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""

    assert [part for part in ("Belongs here:", "Does not belong here:") if part not in " ".join(said.split())] == []


def test_no_file_is_long() -> None:
    lengths = {file.relative_to(ROOT).as_posix(): len(file.read_text().splitlines()) for file in MODULES}

    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_each_table_of_a_test_is_tried() -> None:
    modules = [file.with_suffix(".py") for file in (ROOT / "tests").rglob("test_*.yaml")]

    assert {module.name: left for module in modules if (left := [*tables.unused(module)])} == {}
    assert modules
