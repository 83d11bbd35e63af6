"""Tables of tests in YAML: `test_words.yaml` beside `test_words.py` has, by its sentence, what a test is tried with.

    a word is read:
    - [gpu, "2", 2]
    - {word: gpu-memory, text: 8Gi, meaning: 8589934592}

A row has the test's parameters in their order, or by their names; of a test with one parameter it may be the value
itself, unless that is a list or a mapping. A table that is a mapping has its rows by what they are about.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import builders

Test = Callable[..., None]


def rows(test: Test) -> Test:
    """Try a test with each row of its table."""
    every = table(test.__code__.co_filename, test.__name__.removeprefix("test_").replace("_", " "))
    named = every.items() if isinstance(every, dict) else ((None, row) for row in every)
    parameters = [*inspect.signature(test).parameters]
    found = [(name, row if isinstance(row, dict) else _by_name(row, parameters)) for name, row in named]
    names = [*found[0][1]]
    params = [pytest.param(*(row[each] for each in names), id=name) for name, row in found]
    tried: Test = pytest.mark.parametrize(names, params)(test)
    return tried


def table(module: str, sentence: str) -> Any:
    """A table beside a module of tests."""
    return _tables(Path(module))[sentence]


def unused(module: Path) -> Iterator[str]:
    """The tables beside a module of tests that none of its tests is tried with, and that it does not read itself."""
    code = module.read_text()
    for key in _tables(module):
        uses = f"@tables.rows\ndef test_{key.replace(' ', '_')}(", f'tables.table(__file__, "{key}")'
        if not any(use in code for use in uses):
            yield key


@cache
def _tables(module: Path) -> dict[str, Any]:
    tables: dict[str, Any]
    [tables] = builders.documents(module.with_suffix(".yaml").read_text())
    return tables


def _by_name(row: Any, parameters: list[str]) -> dict[str, Any]:
    return dict(zip(parameters, row if isinstance(row, list) else [row], strict=False))
