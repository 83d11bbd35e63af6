"""Each row of THREATS.md has a test that exists, or says that admission cannot stop it, and who does."""

import ast
import re
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest

from tests import tables

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("THREATS.md")
CASES = "tests/cases/"
OPEN = "cannot be stopped at admission: "
LEAST = 80
"""Rows. A table that is not read would have none."""

SECTIONS = [each.splitlines() for each in PAGE.read_text().split("\n## ")[1:]]


def _rows(lines: list[str]) -> list[list[str]]:
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


ROWS = [row for section in SECTIONS for row in _rows(section)]


@cache
def _functions(file: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef))


def _exists(proof: str) -> bool:
    """Whether an id is of a golden case, or of a test in a file; what stands in brackets is a row of its table."""
    if proof.startswith(CASES) and "::" not in proof:
        return any((ROOT / proof / name).is_file() for name in ("pod.yaml", "problems.txt"))
    file, _, name = proof.partition("::")
    path = ROOT / file
    test, _, row = name.removesuffix("]").partition("[")
    if not (path.is_file() and test.startswith("test_") and test in _functions(path)):
        return False
    return not row or row in tables.table(str(path), test.removeprefix("test_").replace("_", " "))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_each_row_is_proved_or_says_who_stops_it(row: list[str]) -> None:
    threat, done, proof = row
    tests = re.findall(r"`(tests/[^`]+)`", proof)

    assert threat
    assert done
    assert tests or (proof.startswith(OPEN) and len(proof) > len(OPEN))
    assert [test for test in tests if not _exists(test)] == []


def test_all_threats_of_the_model_are_there() -> None:
    [model] = [section for section in SECTIONS if section[0].startswith("SIG Security")]
    numbers = [int("".join(takewhile(str.isdigit, threat))) for threat, *_ in _rows(model)]

    assert sorted(set(numbers)) == [*range(1, 19)]
    assert numbers == sorted(numbers)
    assert len(ROWS) >= LEAST


@tables.rows
def test_a_test_that_is_not_there_proves_nothing(test: str) -> None:
    assert not _exists(test)
