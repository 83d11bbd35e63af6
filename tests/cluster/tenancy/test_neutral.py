"""Containers without a GPU say so, by `gpu-webhook render policies --mutating`, and the webhook is not asked."""

from collections.abc import Iterator, Mapping
from functools import partial

import pytest
import yaml

from tests.cli.program import run
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.plane import control_plane
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.town import create, running, told
from tests.cluster.waiting import until
from tests.cluster.webhook import calls, unregister
from webhook.playground import imagined

pytestmark = pytest.mark.cluster

NAME = "NVIDIA_VISIBLE_DEVICES"
POLICIES = [world.policy("quiet", "quiet", quota={"devices": 9}), world.policy("open", "open")]


@pytest.fixture(scope="module")
def quiet(programs: Binaries, controllers: None) -> Iterator[Client]:  # noqa: ARG001 - asked for what it checks
    """A namespace of a tenant with a quota."""
    with control_plane(programs, controllers=True) as plane, running(plane) as town:
        for each in POLICIES:
            town.client.create(each)
        there = town.client.in_namespace("quiet")
        world.await_counted(town.client, "quiet", "quiet")
        tenants = plane.processes.folder / "tenants.yaml"
        tenants.write_text(yaml.safe_dump_all(POLICIES))
        rules = imagined(plane.processes.folder / "rendered")
        ran = run("render", "policies", "--mutating", "--rules", rules, "--with", tenants)
        for each in yaml.safe_load_all(ran.out):
            town.client.create(each)
        until(lambda: values(there.create(pod("any"), dry_run=True)) == {"main": "void"}, "it is in force")
        yield there


def values(stored: Object, sections: str = "containers") -> Mapping[str, str]:
    """The variable of each container, if it has it."""
    return {
        each["name"]: variable.get("value", "")
        for each in stored["spec"][sections]
        for variable in each.get("env", ())
        if variable["name"] == NAME
    }


def test_containers_of_an_ordinary_pod_get_what_names_no_device_and_keep_what_they_say(quiet: Client) -> None:
    own = [{"name": "B", "value": "b"}, {"name": NAME, "value": "none"}, {"name": "A", "value": "$(B)"}]
    source = [{"configMapRef": {"name": "mine", "optional": True}}]
    [stored] = create(
        quiet,
        pod(
            "ordinary",
            containers=[container("main", env=own), container("other", envFrom=source)],
            initContainers=[container("first"), container("beside", restartPolicy="Always")],
        ),
    )

    main, other = stored["spec"]["containers"]
    assert main["env"][:3] == own
    added = (NAME, "NVIDIA_IMEX_CHANNELS", "AMD_VISIBLE_DEVICES")  # of the vendors of the cluster
    assert {each["name"]: each["value"] for each in other["env"]} == dict.fromkeys(added, "void")
    assert values(stored) == {"main": "none", "other": "void"}
    assert values(stored, "initContainers") == {"first": "void", "beside": "void"}


@pytest.mark.parametrize(
    "asking",
    [
        pod("labelled", labels={"gpu": "1"}),
        pod("shared", labels={"gpu": "0.5"}, containers=[container("main"), container("other")]),
        pod("annotated", annotations={"gpu.gpu-webhook.io/main": "1"}),
        pod("whole", containers=[container("main", resources=limits(**{"nvidia.com/gpu": "1"}))]),
    ],
    ids=lambda made: str(made["metadata"]["name"]),
)
def test_a_pod_that_asks_for_a_gpu_is_left_to_the_webhook(quiet: Client, asking: Object) -> None:
    [stored] = create(quiet, asking)

    assert values(stored) == {}
    assert stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


NOTED = [
    pod("a-note", annotations={"my-gpu-note": "see below"}),
    pod("none", labels={"gpu": "none"}),
    pod("zero", containers=[container("main", resources=limits(**{"nvidia.com/gpu": "0"}))]),
    pod("labelled-a-lot", labels={f"label-{number}": "" for number in range(101)}),
]
"""What asks for no device, and looks as if it did."""


@pytest.mark.parametrize("noted", NOTED, ids=lambda made: str(made["metadata"]["name"]))
def test_only_a_device_that_is_asked_for_makes_an_exception(quiet: Client, noted: Object) -> None:
    stored = quiet.create(noted, dry_run=True)

    assert values(stored) == {"main": "void"}


@pytest.mark.parametrize("elsewhere", ["open", "kube-system", "of-nobody"])
def test_namespaces_whose_policy_lets_pods_reach_devices_are_left_alone(quiet: Client, elsewhere: str) -> None:
    stored = quiet.in_namespace(elsewhere).create(pod("left-alone"))

    assert "env" not in stored["spec"]["containers"][0]


def test_a_debug_container_gets_none_of_the_devices_of_its_pod(quiet: Client) -> None:
    [stored] = create(quiet, pod("debugged", labels={"gpu": "1"}))
    debugger = {"name": "debugger", "image": "cuda"}

    changed = quiet.update(
        {**stored, "spec": {**stored["spec"], "ephemeralContainers": [debugger]}}, subresource="ephemeralcontainers"
    )

    assert values(changed, "ephemeralContainers") == {"debugger": "void"}
    assert values(changed) == {}


def test_a_large_pod_stays_within_the_budget_of_the_api_server(quiet: Client) -> None:
    """As large as one that the webhook is not asked about."""
    env = [{"name": f"A{index}", "value": "x" * 100} for index in range(100)]
    made = pod("large", containers=[container(f"c{index}", env=env) for index in range(29)])

    assert set(values(quiet.create(made, dry_run=True)).values()) == {"void"}


def test_no_webhook_is_asked_about_an_ordinary_pod_and_none_is_needed(quiet: Client) -> None:
    before = calls(quiet)

    create(quiet, pod("one"), pod("two", containers=[container("main", env=[{"name": NAME, "value": "void"}])]))

    assert calls(quiet) == before
    unregister(quiet)
    until(partial(_takes_shorthand_for_untranslated, quiet), "the webhook is gone")
    [stored] = create(quiet, pod("three"))
    assert values(stored) == {"main": "void"}


def _takes_shorthand_for_untranslated(there: Client) -> bool:
    return "[GPU601]" in told(there, pod("asking", labels={"gpu": "1"}), dry_run=True)[1]
