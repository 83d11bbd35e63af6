"""What the watcher writes beside a running server: taken when it comes, kept when it spoils, and cheap."""

import contextlib
import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests import builders, tables
from tests.bench.reviews import container, encoded, pod
from tests.cluster.waiting import until
from tests.server.process import Server, own_memory, running
from webhook.core import inventory
from webhook.core.backends import cards
from webhook.watcher import NODES, remembered, written

MIB = 1 << 20
LIMIT_MIB = 30

Object = dict[str, Any]


def node(number: int, product: str = "Tesla-T4") -> Object:
    """A node as a cluster has them: sixty labels, of which rules read a few."""
    made: Object = deepcopy(tables.table(__file__, "node"))
    name = f"gpu-{number}"
    own = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": product}
    flags = {f"feature.node.kubernetes.io/cpu-cpuid.FLAG{flag}": "true" for flag in range(56)}
    made["metadata"] |= {"name": f"{name}.cluster.example", "annotations": {"a": "b" * 4000}}
    made["metadata"]["labels"] |= {**flags, **own}
    made["status"]["images"] = [{"names": [f"registry.example/image-{n}"], "sizeBytes": 1} for n in range(50)]
    return made


def write(file: Path, nodes: list[Object]) -> None:
    """As the watcher does: cut down, and in one go."""
    rulebook = builders.rulebook(files())
    kept = [remembered(NODES, each) for each in nodes]
    content = json.dumps({"nodes": written(NODES, kept, rulebook)})
    beside = file.with_suffix(".new")
    beside.write_text(content)
    beside.replace(file)


def files() -> dict[str, str]:
    shipped = builders.shipped_files()
    wanted = {name: shipped[name] for name in ("catalog-nvidia.yaml", "tencent-qgpu.yaml")}
    return {**wanted, "cluster.yaml": builders.cluster("backends: [tencent-qgpu]")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "surroundings.json"


@pytest.fixture
def server(tmp_path: Path, folder: Path, file: Path) -> Iterator[Server]:
    """One that looks for a file that is not there yet."""
    rules = tmp_path / "rules"
    rules.mkdir()
    for name, text in files().items():
        (rules / name).write_text(text)
    with running(folder, rules=str(rules), surroundings=str(file)) as started:
        yield started


def message(server: Server) -> str:
    """Why three tenths of a card nobody names are refused; nothing if they are not."""
    asking = encoded(pod([container("main", 1)], {"gpu": "0.3"}))
    with contextlib.closing(server.connect()) as peer:
        response = json.loads(peer.ask("POST", "/mutate", asking).body)["response"]
    return str(response.get("status", {}).get("message", ""))


def loads(server: Server, result: str) -> float:
    return server.metric(f'reloads_total{{what="surroundings",result="{result}"}}')


def test_a_share_needs_no_model_where_every_node_has_the_same_card(server: Server, file: Path) -> None:
    assert "nothing says which card it is" in message(server)

    write(file, [node(1), node(2)])
    server.await_line("the surroundings were loaded: nodes of tencent-qgpu (T4)")
    assert (message(server), loads(server, "done")) == ("", 1)

    write(file, [node(1), node(2, "NVIDIA-A10")])
    server.await_line("the surroundings were loaded: nodes of tencent-qgpu")
    until(lambda: loads(server, "done") == 2, "the second reading")
    assert "nothing says which card it is" in message(server)


@pytest.mark.parametrize("spoilt", ["{", "[]", '{"nodes": [1]}'])
def test_a_file_that_is_no_use_leaves_the_last_one_in_force(server: Server, file: Path, spoilt: str) -> None:
    write(file, [node(1)])
    server.await_line("the surroundings were loaded")

    file.write_text(spoilt)
    server.await_line("the changed surroundings are not usable, the last good ones stay")
    assert (message(server), loads(server, "failed"), loads(server, "done")) == ("", 1, 1)

    file.unlink()
    assert message(server) == ""


def test_a_file_that_comes_while_descriptors_are_short_is_read_as_soon_as_they_are_not(
    server: Server, file: Path
) -> None:
    with server.short_of_descriptors():
        write(file, [node(1)])
        server.await_line("Too many open files")

    server.await_line("the surroundings were loaded")
    assert message(server) == ""


def test_an_inventory_of_2000_nodes_costs_the_server_little(
    server: Server, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message(server)
    before = own_memory(server.worker)

    write(file, [node(number) for number in range(2000)])
    server.await_line("the surroundings were loaded")
    message(server)

    grown = own_memory(server.worker) - before
    with capsys.disabled():
        print(f"\n2,000 nodes: {file.stat().st_size / MIB:.1f} MiB of file, {grown / 1024:.1f} MiB in the server")  # noqa: T201 - a figure for the log
    assert grown < LIMIT_MIB * 1024


def test_what_is_kept_of_a_node_reads_as_the_node_does() -> None:
    rulebook = builders.rulebook(files())
    [pruned] = written(NODES, [remembered(NODES, node(1))], rulebook)

    assert inventory.read([pruned], rulebook) == inventory.read([node(1)], rulebook)
    assert pruned == inventory.pruned(node(1), cards.labels(rulebook), rulebook)
