"""Every transcript beside this file, replayed. How to add one stands in the package's docstring."""

from pathlib import Path

import pytest

from tests.transcripts import transcript


@pytest.mark.parametrize("file", transcript.find(), ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_commands_print_what_the_transcript_shows(file: Path) -> None:
    shown = file.read_text()

    assert transcript.replayed(shown) == shown


def test_a_text_without_its_end_is_no_transcript() -> None:
    with pytest.raises(ValueError, match="no YAML behind"):
        transcript.replayed("$ gpu-webhook explain - <<'YAML'\nkind: Pod\n")
