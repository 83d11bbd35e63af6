"""`gpu-webhook explain` of texts that no transcript can show: huge, hostile, or what it printed itself."""

from pathlib import Path

import pytest
import yaml

from tests.cli.program import explain, pod, run


def test_json_with_an_emoji_as_two_escapes_is_read() -> None:
    ran = explain(pod(annotations={"mood": "\N{GRINNING FACE}"}), "-o", "json")

    assert ran.json["pod"]["metadata"]["annotations"]["mood"] == "\N{GRINNING FACE}"


def test_explaining_what_was_explained_changes_nothing() -> None:
    once = explain(pod("0.3"), "-o", "json")
    twice = explain(yaml.safe_dump(once.json["pod"]), "-o", "json")

    assert (once.code, twice.code, twice.json["patch"]) == (0, 0, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 0x" + "1" * 100_000, "standard input:1:4: is no number"),
        ("[" * 100_000, "nested more than"),
        ("\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]" for i in range(12)), "values"),
    ],
    ids=["digits", "depth", "aliases of aliases"],
)
def test_what_cannot_be_read_in_bounds_is_exit_code_2_and_one_sentence(text: str, said: str) -> None:
    ran = explain(text)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(b"\n" * (9 << 20))
    ran = run("explain", file)

    assert (ran.code, ran.out) == (2, "")
    assert "larger than 8 MiB" in ran.err
