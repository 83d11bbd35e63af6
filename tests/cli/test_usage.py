"""How the command line is used wrongly, and the terminals and pipes it is used on."""

import json
import os
import pty
import select
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import readme, tables
from tests.cli.program import PROGRAM, RULES, Ran, on_a_terminal, pod, run, start
from webhook.cli.__main__ import COMMANDS, parser

GREEN, RED, ESCAPE = "\x1b[32m", "\x1b[31m", "\x1b"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_exit_code_0(command: str) -> None:
    ran = run(*command.split(), "--help")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: gpu-webhook {command}".strip())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_two_examples_that_it_understands(command: str) -> None:
    shown = run(command, "--help").out.partition("\nexamples:\n")[2].partition("\n\n")[0].splitlines()

    assert len(shown) == 2
    for example in shown:
        program, *arguments = shlex.split(example.partition(" >")[0])
        assert (program, parser(arguments).parse_args(arguments).run.__module__) == (
            "gpu-webhook",
            f"webhook.cli.{command}",
        )


def test_as_a_plugin_of_kubectl_it_is_called_so() -> None:
    program = Path(sys.executable).with_name("kubectl-gpu")
    told = subprocess.run([program, "schema", "--help"], capture_output=True, text=True, check=True)
    wrong = subprocess.run([program, "explain"], capture_output=True, text=True, check=False)

    assert told.stdout.startswith("usage: kubectl gpu schema ")
    assert "\n  kubectl gpu schema Backend\n" in told.stdout
    assert wrong.stderr.startswith("kubectl gpu: nothing is given; ")


@pytest.mark.parametrize("program", ["gpu-webhook", "kubectl-gpu"])
def test_bash_completes_commands_options_choices_and_files(program: str, tmp_path: Path) -> None:
    installed = Path(sys.executable).parent
    (tmp_path / "pod.yaml").touch()
    (tmp_path / "overlays").mkdir()
    ours, theirs = pty.openpty()
    told = b""

    def await_text(text: str) -> None:
        nonlocal told
        while text.encode() not in told:
            assert select.select([ours], [], [], 20)[0], told
            told += os.read(ours, 4096)
        told = b""

    environment = {"PATH": f"{installed}:/usr/bin:/bin", "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"}
    with subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as shell:
        try:
            os.write(ours, f'eval "$({program} completion bash)"; echo re""ady\n'.encode())
            await_text("ready\r\n")
            for typed, completed in (
                ("expl", "explain "),
                ("--out", "--output "),
                ("j", "json "),
                ("po", "pod.yaml "),
            ):
                start = f"{program} " if typed == "expl" else ""
                os.write(ours, f"{start}{typed}\t".encode())
                await_text(completed)
            os.write(ours, b"-k over\t")
            await_text("overlays")
        finally:
            shell.kill()
    os.close(ours)
    os.close(theirs)


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


FILES = {
    "pod.yaml": pod("1"),
    "wrong.yaml": pod("1.5"),
    "list.yaml": "{apiVersion: v1, kind: List, items: []}",
    "node.yaml": "{kind: Node, metadata: {name: n}, status: {allocatable: {acme.example/card: 4}}}",
    "unknown.yaml": "{apiVersion: acme.example/v1, kind: Training, metadata: {name: a, uid: b}}",
}
POLICY = {"namespaces": {"names": ["default"]}, "ceilings": {"container": {"devices": "0.5"}}}
FILES["policy.yaml"] = json.dumps({"kind": "TenantPolicy", "metadata": {"name": "small"}, "spec": POLICY})
CASES = [{"name": "a whole card", "ask": {"gpu": "1"}}]
SUITE = {
    "apiVersion": "gpu-webhook.io/v1alpha1",
    "kind": "Suite",
    "metadata": {"name": "s"},
    "spec": {"cases": CASES},
}
FILES["suite.yaml"] = json.dumps(SUITE)
FILES["failing.yaml"] = FILES["suite.yaml"].replace('"gpu": "1"', '"gpu": "1.5"')
READING: dict[str, list[list[str]]] = {
    "explain": [["pod.yaml"], ["wrong.yaml"]],
    "check": [["rules"], ["empty"]],
    "diff": [["list.yaml", "list.yaml", "--pods", "pod.yaml"], ["list.yaml", "policy.yaml", "--pods", "pod.yaml"]],
    "test": [["suite.yaml"], ["failing.yaml"]],
    "inventory": [["node.yaml"], ["unknown.yaml"]],
    "survey": [["node.yaml"], ["list.yaml"]],
    "tenants": [["list.yaml"]],
}
"""Commands that answer about files, without a cluster: what they find fine, and what they do not."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rules").symlink_to(RULES)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)


def _about(command: str, *arguments: str) -> Ran:
    return run(command, *arguments, *(() if command == "check" else ("--rules", "rules")))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_with_the_codes_that_the_table_of_commands_has(command: str) -> None:
    codes = [_about(command, *arguments).code for arguments in READING.get(command, ())]

    assert run(command, "--no-such-option").code == 2
    assert codes == [0, 1][: len(codes)]
    if command != "doctor":  # tests/cluster/test_doctor.py has its failing checks
        assert (codes[-1:] == [1]) == (command in readme.FINDINGS)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("command", [command for command in READING if readme.outputs(command)])
def test_each_output_that_the_table_of_commands_has_is_printed(command: str) -> None:
    for output in readme.outputs(command):
        ran = _about(command, *READING[command][0], "-o", output)

        assert (ran.code, bool(ran.out)) == (0, True)
        if output in {"json", "yaml"}:
            assert isinstance(yaml.safe_load(ran.out), dict)


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
