"""Rule files that change while the server serves: used without a restart, or not at all."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import builders
from tests.bench.reviews import container, encoded, pod
from tests.cluster.waiting import until
from tests.server.process import Server, running
from tests.server.test_surroundings import node
from tests.server.test_surroundings import write as write_surroundings

SWAPS = 500

ASKING = encoded(pod([container("main", 1)], {"gpu": "0.3", "gpu-model": "T4"}))


def rules(backend: str) -> dict[str, str]:
    """A directory in which one back end is enabled."""
    shipped = builders.shipped_files()
    wanted = ("catalog-nvidia.yaml", "tencent-qgpu.yaml", "hami-vgpu.yaml")
    return {**{name: shipped[name] for name in wanted}, "cluster.yaml": builders.cluster(f"backends: [{backend}]")}


class Volume:
    """A directory as kubelets make it of a ConfigMap: all files change in one step, by a symbolic link."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.number = 0
        directory.mkdir()

    def publish(self, files: dict[str, str]) -> None:
        """Replace everything that is there."""
        self.number += 1
        data, link = self.directory / f"..{self.number}", self.directory / "..data_tmp"
        data.mkdir()
        for name, text in files.items():
            (data / name).write_text(text)
        link.symlink_to(data.name)
        before = (self.directory / "..data").readlink() if (self.directory / "..data").exists() else None
        link.rename(self.directory / "..data")
        for name in files:
            with contextlib.suppress(FileExistsError):
                (self.directory / name).symlink_to(f"..data/{name}")
        if before is not None:
            shutil.rmtree(self.directory / before)


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path / "rules")


@pytest.fixture
def server(folder: Path, volume: Volume) -> Iterator[Server]:
    volume.publish(rules("tencent-qgpu"))
    with running(folder, rules=str(volume.directory), rules_seconds=0.02) as started:
        yield started


def answer(server: Server) -> dict[str, Any]:
    with contextlib.closing(server.connect()) as peer:
        answered = peer.ask("POST", "/mutate", ASKING)
        assert answered.status == 200, answered.body
        found: dict[str, Any] = json.loads(answered.body)["response"]
        return found


def served_by(server: Server) -> str:
    return str(answer(server)["auditAnnotations"]["rules"].partition(" ")[0])


def reloads(server: Server, result: str) -> float:
    return server.metric(f'reloads_total{{what="rules",result="{result}"}}')


def ready(server: Server) -> tuple[int, str]:
    with contextlib.closing(server.connect()) as peer:
        answered = peer.ask("GET", "/readyz")
    return answered.status, answered.body.decode()


def test_changed_rules_are_used_without_a_restart_and_said_everywhere(server: Server, volume: Volume) -> None:
    assert served_by(server) == "tencent-qgpu"

    volume.publish(rules("hami-vgpu"))
    until(lambda: reloads(server, "done") == 1, "the reload")

    digest = builders.rulebook(rules("hami-vgpu")).digest
    assert served_by(server) == "hami-vgpu"
    assert ready(server) == (200, f"ok, rules {digest}\n")
    assert server.metric(f'rulebook{{digest="{digest}"}}') == 1
    assert server.lines(f"rules {digest[:12]} from {volume.directory}: 2 back ends")


def test_rules_that_are_not_usable_leave_the_last_good_ones_in_force(server: Server, volume: Volume) -> None:
    before = ready(server)
    volume.publish({**rules("hami-vgpu"), "hami-vgpu.yaml": "kind: ["})
    until(lambda: reloads(server, "failed") == 1, "the failure")

    assert (served_by(server), ready(server)) == ("tencent-qgpu", before)
    said = server.lines("the changed rules are not usable, the last good ones stay: ")
    assert "hami-vgpu.yaml:2:1: is not YAML" in said[0]["message"]

    volume.publish(rules("hami-vgpu"))
    until(lambda: reloads(server, "done") == 1, "the reload")
    assert served_by(server) == "hami-vgpu"


def test_a_directory_that_vanishes_leaves_the_last_good_rules_in_force(server: Server, volume: Volume) -> None:
    volume.directory.rename(volume.directory.with_name("elsewhere"))
    until(lambda: reloads(server, "failed") == 1, "the failure")
    assert served_by(server) == "tencent-qgpu"


def test_a_server_without_rules_is_ready_as_soon_as_there_are_some(folder: Path, volume: Volume) -> None:
    with running(folder, rules=str(volume.directory), rules_seconds=0.02) as server:
        assert ready(server)[0] == 503

        volume.publish(rules("hami-vgpu"))
        until(lambda: ready(server)[0] == 200, "readiness")
        assert served_by(server) == "hami-vgpu"


def test_changed_rules_know_the_nodes_at_once(folder: Path, volume: Volume, tmp_path: Path) -> None:
    file = tmp_path / "surroundings.json"
    volume.publish(rules("hami-vgpu"))
    write_surroundings(file, [node(1)])
    seldom = 2.0  # the file of the nodes is not looked at again before the test is over
    settings = {"rules": str(volume.directory), "rules_seconds": 0.02, "surroundings": str(file)}
    with running(folder, **settings, tick_seconds=seldom) as server:
        server.await_line("the surroundings were loaded")
        without = encoded(pod([container("main", 1)], {"gpu": "0.3"}))
        with contextlib.closing(server.connect()) as peer:

            def answered_by_changed_rules() -> dict[str, Any]:
                response: dict[str, Any] = json.loads(peer.ask("POST", "/mutate", without).body)["response"]
                by = response.get("auditAnnotations", {}).get("rules", "")
                return {} if by.startswith("hami-vgpu") else response

            assert not answered_by_changed_rules()
            volume.publish(rules("tencent-qgpu"))
            assert until(answered_by_changed_rules, "the reload")["allowed"]


def test_no_review_fails_while_rules_are_swapped_again_and_again(server: Server, volume: Volume) -> None:
    """Every tenth version is broken, and every tenth stays a while: what changes all the time is never read whole."""
    seen = set()
    with contextlib.closing(server.connect()) as peer:

        def served_by_this(backend: str) -> bool:
            answered = peer.ask("POST", "/mutate", ASKING)
            assert answered.status == 200
            by = str(json.loads(answered.body)["response"]["auditAnnotations"]["rules"].partition(" ")[0])
            seen.add(by)
            return by == backend

        for number in range(SWAPS):
            backend = ("hami-vgpu", "tencent-qgpu")[number % 2 ^ number // 10 % 2]
            broken = {"hami-vgpu.yaml": "kind: ["} if number % 10 == 9 else {}
            volume.publish({**rules(backend), **broken})
            if number % 10 == 4:
                until(partial(served_by_this, backend), "the version that stays a while")
            else:
                served_by_this(backend)
    assert seen == {"hami-vgpu", "tencent-qgpu"}
    assert reloads(server, "done") >= SWAPS / 20
    assert not server.errors
