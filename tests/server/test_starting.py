"""How the server starts, or says why it does not."""

import contextlib
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests import tables
from tests.server.process import Server, own_memory, running

HEAVY: list[str] = tables.table(__file__, "heavy")
MEMORY = 80 * 1024


def test_the_first_start_makes_a_certificate_of_its_own(folder: Path) -> None:
    with running(folder / "state") as server:
        assert server.get("/healthz") == "ok\n"
    assert stat.S_IMODE((folder / "state" / "tls.key").stat().st_mode) == 0o600
    made = (folder / "state" / "tls.crt").read_bytes()
    with running(folder / "state"):
        assert (folder / "state" / "tls.crt").read_bytes() == made


def why(folder: Path, **settings: Any) -> str:
    """What a server that cannot start says; it has to end with 2, quickly, and print no trace."""
    server = Server(folder, **settings)
    assert server.popen.wait(30) == 2
    assert server.errors == ""
    (said,) = server.lines("cannot start")
    return str(said["message"])


def test_half_a_pair_is_a_mistake(folder: Path) -> None:
    assert why(folder, tls_cert="/tmp/x") == "cannot start: give both a certificate and its key, or neither"  # noqa: S108


def test_a_file_of_tenants_that_cannot_be_read_is_named(folder: Path) -> None:
    folder.mkdir()
    (folder / "tenants.yaml").write_text("kind: TenantPolicy\nspec: {}\n")

    assert why(folder, tenants=str(folder / "none")) == f"cannot start: {folder / 'none'}: No such file or directory"
    assert why(folder, tenants=str(folder / "tenants.yaml")) == "cannot start: there is a TenantPolicy without a name"


def test_missing_certificate_files_are_named(folder: Path) -> None:
    said = why(folder, tls_cert=str(folder / "no.crt"), tls_key=str(folder / "no.key"))

    assert f"{folder / 'no.crt'} and {folder / 'no.key'} are no certificate with its key" in said


def test_a_client_ca_that_is_none_is_named_and_not_the_certificate(folder: Path) -> None:
    folder.mkdir()
    (folder / "ca.crt").write_text("nothing")
    said = why(folder, client_ca=str(folder / "ca.crt"))

    assert said.startswith(f"cannot start: {folder / 'ca.crt'} of --client-ca has no certificate of a CA: ")


def test_a_state_directory_that_cannot_be_made_is_named(folder: Path) -> None:
    assert "no certificate could be written to /proc/state" in why(folder, state="/proc/state")


def test_a_taken_port_ends_the_server(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = Server(folder, bind=f"127.0.0.1:{taken.getsockname()[1]}")
        assert server.popen.wait(60) == 2
        assert server.lines("Connection in use")


@pytest.mark.parametrize("broken", [True, False])
def test_without_rules_it_serves_and_says_so(folder: Path, plain: bytes, broken: bool) -> None:  # noqa: FBT001 - a case
    rules = folder / "rules"
    if broken:
        rules.mkdir(parents=True)
        (rules / "one.yaml").write_text("kind: [")
    with running(folder, rules=str(rules)) as server, contextlib.closing(server.connect()) as peer:
        ready = peer.ask("GET", "/readyz")
        answered = peer.ask("POST", "/mutate", plain)

        assert (ready.status, answered.status) == (503, 500)
        assert b"the rules were never loaded" in ready.body
        assert b"the rules were never loaded" in answered.body
        assert peer.ask("GET", "/healthz").status == 200
        assert server.lines("no rules: ")
        assert server.metric('rulebook{digest=""}') == 0


def test_nothing_heavy_is_imported(folder: Path, fraction: bytes) -> None:
    folder.mkdir()
    with running(folder, python=(), modules_to=str(folder)) as server, contextlib.closing(server.connect()) as peer:
        assert peer.ask("POST", "/mutate", fraction).status == 200
        assert peer.ask("POST", "/validate", fraction).status == 200
        processes = {server.popen.pid, server.worker}
    for process in processes:
        imported = {name for name in (folder / str(process)).read_text().split() if name in HEAVY}
        assert imported == set()


def test_both_processes_together_stay_under_80_mib(folder: Path, fraction: bytes) -> None:
    with running(folder, python=()) as server, contextlib.closing(server.connect()) as peer:
        for _ in range(100):
            assert peer.ask("POST", "/mutate", fraction).status == 200
        assert sum(map(own_memory, (server.popen.pid, server.worker))) < MEMORY


def test_no_control_socket_and_no_other_port_is_open(server: Server) -> None:
    ports = set()
    for process in (server.popen.pid, server.worker):
        links = (str(link.readlink()) for link in Path(f"/proc/{process}/fd").iterdir())
        inodes = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:")}
        for kind in ("tcp", "tcp6", "unix"):
            for line in Path(f"/proc/{process}/net/{kind}").read_text().splitlines()[1:]:
                fields = line.split()
                listens = fields[3] == "0A" if kind.startswith("tcp") else fields[3] == "00010000"
                if listens and inodes & set(fields):
                    ports.add((kind, fields[1] if kind.startswith("tcp") else fields[-1]))

    assert ports == {("tcp", f"0100007F:{server.port:04X}")}
