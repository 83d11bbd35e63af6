"""`gpu-webhook explain` of texts that no transcript can show: huge, hostile, or what it printed itself."""

import contextlib
import io
import shutil
from pathlib import Path

import pytest
import yaml

from tests import tables
from tests.cli.program import RULES, SHIPPED, explain, pod, run, start
from tests.cluster.waiting import until
from webhook.cli import options
from webhook.cli.options import JUDGED_BY_DEMO


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


def test_in_a_clone_a_share_is_explained_without_any_option_and_the_cluster_is_named() -> None:
    ran = run("explain", "-", "-o", "json", given=pod("0.3"))

    assert (ran.code, ran.err, ran.json["backends"]) == (0, f"{JUDGED_BY_DEMO}\n", {"main": "hami-vgpu"})


def test_the_demo_can_be_asked_for_and_then_nothing_is_noted() -> None:
    ran = run("explain", "-", "-o", "json", "--demo", given=pod("0.3"))

    assert (ran.code, ran.err, ran.json["backends"]) == (0, "", {"main": "hami-vgpu"})


def test_as_soon_as_the_cluster_document_says_what_there_is_it_judges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    names = ("cluster", "nvidia-gpu", "amd-gpu", "hami-vgpu", "tencent-qgpu", "catalog-nvidia", "catalog-amd")
    for name in names:  # not all of them, whose examples take seconds
        shutil.copy(SHIPPED / f"{name}.yaml", rules)
    monkeypatch.setattr("webhook.server.settings.default_rules", lambda: rules)
    as_it_was = run("explain", "-", given=pod("0.3"))
    document = (rules / "cluster.yaml").read_text()
    (rules / "cluster.yaml").write_text(f"# Written by hand.\n{document}")
    commented = run("explain", "-", given=pod("0.3"))
    (rules / "cluster.yaml").write_text(document.replace("[nvidia-gpu, amd-gpu]", "[nvidia-gpu]"))
    changed = run("explain", "-", given=pod("0.3"))

    assert [ran.code for ran in (as_it_was, commented, changed)] == [0, 0, 1]
    assert [ran.err for ran in (as_it_was, commented, changed)] == [f"{JUDGED_BY_DEMO}\n"] * 2 + [""]


@tables.rows
def test_a_cluster_is_asked_or_imagined_but_not_both(given: list[str], said: str) -> None:
    ran = run("explain", "-", *given)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_kustomization_is_built_by_what_is_on_the_path(tmp_path: Path) -> None:
    program = tmp_path / "kustomize"
    program.write_text(
        f"#!/bin/sh\n[ \"$*\" = 'build base' ] && echo '{pod('1')}' && exit\necho no base >&2; exit 1\n"
    )
    program.chmod(0o755)
    building = ("explain", "--rules", RULES, "-o", "json", "-k")

    built = start(*building, "base", env={"PATH": str(tmp_path)})
    failed = start(*building, "other", env={"PATH": str(tmp_path)})
    program.unlink()
    missing = start(*building, "base", env={"PATH": str(tmp_path)})

    assert (built.code, built.json["backends"]) == (0, {"main": "acme-card"})
    assert (failed.code, failed.err) == (2, "gpu-webhook: kustomize build other: no base\n")
    nothing = "gpu-webhook: -k base: kubectl or kustomize builds it, and neither is on the path\n"
    assert (missing.code, missing.err) == (2, nothing)


def test_what_takes_long_is_said_on_a_terminal_until_it_is_done() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with contextlib.redirect_stderr(Terminal()) as terminal, options.progress("thinking"):
        until(terminal.getvalue, "it is said")
        assert terminal.getvalue() == "thinking ..."

    assert terminal.getvalue() == "thinking ...\r\x1b[K"
