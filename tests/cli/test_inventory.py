"""`gpu-webhook inventory`: what a cluster has and what its pods ask, from what kubectl prints."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import RULES, run, start

Object = dict[str, Any]


def node(name: str = "n1", **resources: str) -> Object:
    advertised = {f"acme.example/{key}": value for key, value in resources.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": advertised}}


def pod(name: str = "p1", on: str = "n1", **resources: str) -> Object:
    limits = {f"acme.example/{key}": value for key, value in resources.items()}
    owner = {"kind": "ReplicaSet", "name": "web-6d4cf56db6", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "vision", "ownerReferences": [owner]},
        "spec": {"nodeName": on, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def listed(*objects: Object) -> str:
    """As `kubectl get -o json` prints several kinds."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


TEXT = """\
cluster made-up: 2 nodes with devices, 1 without
pods on nodes ask 1.5 of 6 devices, 4.5 are free

CARD     NODES   DEVICES  FREE  MEMORY  FREE      COMPUTE  FREE
unknown      2  1.5 of 6   4.5  ? of ?     ?  130 of 600%  470%

BACK END    NODES   DEVICES  FREE  MEMORY  FREE      COMPUTE  FREE
acme-card       1    1 of 4     3  ? of ?     ?  100 of 400%  300%
acme-share      1  0.5 of 2   1.5  ? of ?     ?   30 of 200%  170%

NODE  STATE  BACK END    CARD      DEVICES  FREE  MEMORY  FREE      COMPUTE  FREE
n1    ready  acme-card   unknown    1 of 4     3  ? of ?     ?  100 of 400%  300%
n2    ready  acme-share  unknown  0.5 of 2   1.5  ? of ?     ?   30 of 200%  170%

APPLICATION  NAMESPACE  KIND        BACK END               PODS  DEVICES  MEMORY  COMPUTE  WAITING
web          vision     Deployment  acme-card, acme-share     2      1.5       ?     130%        -

* or ?: and devices whose memory nobody knows; a label of their nodes, or device: in the Cluster
  document, would say which cards they are
"""
OBJECTS = (
    node("n1", card="4"),
    node("n2", share="200"),
    node("n3"),
    pod("p1", "n1", card="1"),
    pod("p2", "n2", share="50", compute="30"),
)


def test_a_cluster_is_told_in_tables() -> None:
    ran = run("inventory", "-", "--rules", RULES, given=listed(*OBJECTS))

    assert (ran.code, ran.err, ran.out) == (0, "", TEXT)


def test_several_files_of_yaml_and_of_json_are_one_cluster(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.yaml", tmp_path / "pods.json"
    nodes.write_text(yaml.safe_dump_all(OBJECTS[:3]))
    pods.write_text(json.dumps({"kind": "PodList", "items": [{**one, "kind": None} for one in OBJECTS[3:]]}))

    assert run("inventory", nodes, pods, "--rules", RULES).out == TEXT


def test_the_same_for_scripts() -> None:
    ran = run("inventory", "-", "--rules", RULES, "-o", "json", given=listed(*OBJECTS))

    assert ran.code == 0
    assert list(ran.json) == [
        "cluster",
        "nodes",
        "nodesWithoutDevices",
        "total",
        "cards",
        "backends",
        "perNode",
        "applications",
        "unclaimed",
        "notUnderstood",
        "unknown",
    ]
    assert ran.json["total"]["asked"] == {
        "devices": 1.5,
        "memoryBytes": 0,
        "computePercent": 130,
        "unsizedDevices": 1.5,
    }


def deployment(gpu: str, replicas: Any = 3, **metadata: str) -> Object:
    """A manifest of pods that ask in shorthand."""
    template = {"metadata": {"labels": {"gpu": gpu}}, "spec": {"containers": [{"name": "main", "image": "a"}]}}
    spec = {"replicas": replicas, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new", **metadata}, "spec": spec}


def test_the_pods_of_a_manifest_wait_for_a_node_as_they_will_be_translated() -> None:
    ran = run("inventory", "-", "--rules", RULES, "-o", "json", given=listed(*OBJECTS, deployment("2")))

    [new] = [row for row in ran.json["applications"] if row["name"] == "new"]
    assert ran.code == 0
    assert (new["kind"], new["namespace"], new["pods"], new["backends"]) == (
        "Deployment",
        "default",
        3,
        ["acme-card"],
    )
    assert (new["asked"]["devices"], new["waiting"]["devices"]) == (0, 6)
    assert (ran.json["total"]["asked"]["devices"], ran.json["total"]["waiting"]["devices"]) == (1.5, 6)


def test_an_object_that_the_cluster_has_counts_by_its_pods_alone() -> None:
    ran = run("inventory", "-", "--rules", RULES, given=listed(*OBJECTS, deployment("2", uid="7f2a")))

    assert (ran.code, ran.out) == (0, TEXT)


def test_a_manifest_that_will_be_refused_is_not_counted() -> None:
    ran = run("inventory", "-", "--rules", RULES, given=listed(deployment("1.5")))

    assert ran.code == 0
    assert "\n  default/Deployment new (3 pods): gpu: 1.5 is neither a share of one GPU nor a whole number" in ran.out


def test_objects_of_which_nothing_can_be_said_are_told_and_are_exit_code_1() -> None:
    training = {"apiVersion": "acme.example/v1", "kind": "Training", "metadata": {"name": "a", "uid": "7f2a"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}

    ran = run("inventory", "-", "--rules", RULES, given=listed(*OBJECTS, training, service, deployment("2", "many")))

    assert ran.code == 1
    assert ran.out.partition("UNKNOWN: ")[2].splitlines()[:3] == [
        "objects that may make pods, which are not counted",
        "  default/Training a: no rule says whether a Training of acme.example/v1 holds pods",
        '  default/Deployment new: spec.replicas has to be a whole number, not a string "many"',
    ]


def test_what_is_not_counted_is_said() -> None:
    ran = run("inventory", "-", "--rules", RULES, given=listed(pod(share="101")))

    assert "\nNOT COUNTED: pods whose resources mean nothing here\n  vision/p1: acme.example/share: 101" in ran.out


def test_the_file_of_the_watcher_is_read_as_well() -> None:
    ran = run("inventory", "-", "--rules", RULES, given=json.dumps({"nodes": [node(card="4")]}))

    assert "pods on nodes ask 0 of 4 devices, 4 are free" in ran.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{", "standard input"),
        ("- a", "standard input holds something that is not an object"),
        ("a: [", "is not YAML"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(given: str, said: str) -> None:
    ran = run("inventory", "-", "--rules", RULES, given=given)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_without_a_cluster_files_are_asked_for(tmp_path: Path) -> None:
    ran = start("inventory", "--rules", RULES, env={"KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)})

    assert (ran.code, ran.out) == (2, "")
    assert "or give files, from: kubectl get nodes,pods -A -o json" in ran.err


def test_the_watcher_says_where_it_cannot_write(tmp_path: Path) -> None:
    ran = run("watch", "--write", tmp_path / "nowhere" / "file.json")

    assert (ran.code, ran.err) == (2, f"gpu-webhook: {tmp_path / 'nowhere'} is not a directory\n")
