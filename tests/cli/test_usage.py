"""How the command line is used wrongly, and the terminals and pipes it is used on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import tables
from tests.cli.program import PROGRAM, RULES, on_a_terminal, pod, run, start

GREEN, RED, ESCAPE = "\x1b[32m", "\x1b[31m", "\x1b"


@pytest.mark.parametrize("command", [(), ("serve",), ("console",), ("explain",), ("check",)])
def test_help_is_exit_code_0(command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: {' '.join(['gpu-webhook', *command])}")


def test_no_command_is_answered_with_the_commands() -> None:
    ran = run()

    assert (ran.code, ran.out) == (2, "")
    for command in ("serve", "console", "explain", "check"):
        assert command in ran.err


def test_the_version() -> None:
    ran = run("--version")

    assert ran.code == 0
    assert ran.out.startswith("gpu-webhook ")


def test_the_installed_program_is_the_module() -> None:
    installed = subprocess.run(
        [Path(sys.executable).with_name("gpu-webhook"), "--version"], capture_output=True, text=True, check=True
    )

    assert installed.stdout == run("--version").out


@tables.rows
def test_wrong_usage_is_exit_code_2_and_says_what_was_wrong(arguments: list[str], said: str) -> None:
    ran = run(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(("name", "reason"), [("nowhere.yaml", "No such file or directory"), ("", "Is a directory")])
def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    ran = run("explain", "-", "--rules", RULES, "--with", tmp_path / name, given=pod())

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"gpu-webhook: {tmp_path / name}: {reason}\n"


def test_rules_that_are_nowhere_are_named(tmp_path: Path) -> None:
    ran = run("explain", "-", "--rules", tmp_path / "nowhere", given=pod())

    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path / 'nowhere'}" in ran.err


def test_a_certificate_without_its_key_does_not_serve(tmp_path: Path) -> None:
    ran = start("serve", "--bind", "127.0.0.1:0", "--tls-cert", tmp_path / "tls.crt")

    assert ran.code == 2
    assert "both a certificate and its key" in ran.out + ran.err


def test_a_terminal_gets_colours() -> None:
    printed = on_a_terminal("explain", "-", "--rules", RULES, given=pod("0.3"))

    assert f"{GREEN}+         acme.example/share: '30'" in printed


def test_a_denial_on_a_terminal_is_red() -> None:
    assert f"{RED}  denied" in on_a_terminal("explain", "-", "--rules", RULES, given=pod("1.5"))


def test_a_terminal_gets_no_colours_with_no_color() -> None:
    printed = on_a_terminal("explain", "-", "--rules", RULES, given=pod("0.3"), env={"NO_COLOR": "1"})

    assert "acme.example/share: '30'" in printed
    assert ESCAPE not in printed


def test_a_pipe_gets_no_colours() -> None:
    assert ESCAPE not in run("explain", "-", "--rules", RULES, given=pod("0.3")).out


def test_a_name_cannot_speak_to_the_terminal() -> None:
    printed = on_a_terminal("explain", "-", "--rules", RULES, given=pod(name="\x1b[2Jdemo"), env={"NO_COLOR": "1"})

    assert "demo" in printed
    assert ESCAPE not in printed


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_reader_that_has_seen_enough_is_no_error(output: str) -> None:
    """As in `gpu-webhook explain ... | head -1`; more is printed than a pipe holds."""
    given = "\n---\n".join([pod("0.3")] * 300)
    command = [*PROGRAM, "explain", "-", "--rules", str(RULES), "-o", output]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(given)
        process.stdin.close()
        assert process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == ""
        assert process.wait(30) == 0


def test_the_watcher_says_where_it_cannot_write(tmp_path: Path) -> None:
    ran = run("watch", "--write", tmp_path / "nowhere" / "file.json")

    assert (ran.code, ran.err) == (2, f"gpu-webhook: {tmp_path / 'nowhere'} is not a directory\n")
