"""Rules that are loaded again, after any edits, are what a new process would load."""

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tables
from tests.laws import tried
from webhook.core.rules.load import Memory
from webhook.files import documents, rule_files

SEQUENCES = 20


VERSIONS = {
    name: ["" if change == "" else file["text"].replace(*(change or ("", ""))) for change in file["versions"]]
    for name, file in tables.table(__file__, "files").items()
}
EDITS = [(file, text) for file, texts in VERSIONS.items() for text in texts]


def _outcome(folder: Path) -> object:
    """The rulebook of a folder, or all that is wrong with it."""
    try:
        return rule_files.load(folder)
    except rule_files.RuleFilesError as error:
        return error.problems


@pytest.mark.parametrize("remembered", [7, *(pytest.param(number, marks=pytest.mark.large) for number in (1, 500))])
def test_after_any_edits_the_rules_are_what_a_new_process_loads(remembered: int) -> None:
    usable = 0

    @tried(SEQUENCES)
    @given(st.lists(st.lists(st.sampled_from(EDITS), min_size=1, max_size=3), min_size=1, max_size=8))
    def law(changes: list[list[tuple[str, str]]]) -> None:
        nonlocal usable
        with tempfile.TemporaryDirectory() as name, patch.object(rule_files, "_memory", Memory(remembered)):
            folder = Path(name)
            for change in [[(file, texts[0]) for file, texts in VERSIONS.items()], *changes]:
                for file, text in change:
                    (folder / file).write_text(text)
                loaded = _outcome(folder)
                with (
                    patch.object(rule_files, "_memory", Memory(500)),
                    patch.object(rule_files, "_parsed", documents.parse),
                ):
                    assert loaded == _outcome(folder)
                usable += not isinstance(loaded, list)

    law()
    assert usable > SEQUENCES, "hardly any of the rules could be used"
