"""Whatever a team applied, it can apply again: nothing fails and nothing changes, whichever client compares.

Argo CD (server-side diff) and Flux send a server-side apply as a dry run, and compare what comes back with what is
stored.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.cases import golden
from tests.cluster.client import Answer, Client, Object, RefusedError
from tests.cluster.pods import completed, container, limits, pod
from tests.laws import asking, clusters
from webhook.core.interpret import locations
from webhook.core.request import KEYS, PREFIX

pytestmark = pytest.mark.cluster

MANAGER = "argocd-controller"
STRATEGIC = "application/strategic-merge-patch+json"
VALUES = {
    "gpu": {"gpu": "0.3"},
    "gpu-memory": {"gpu-memory": "8Gi"},
    "gpu-cores": {"gpu-cores": "30"},
    "gpu-tflops": {"gpu-tflops": "20", "gpu-model": "A100-80GB"},
    "gpu-model": {"gpu": "1", "gpu-model": "A100-80GB"},
    "gpu-profile": {"gpu-profile": "1g.10gb", "gpu-backend": "nvidia-mig-mixed"},
    "gpu-sharing": {"gpu": "1", "gpu-sharing": "exclusive"},
    "gpu-backend": {"gpu": "0.3", "gpu-backend": "hami-vgpu"},
    "gpu-claim": {"gpu-claim": "mine", "gpu-backend": "dra-claim-template"},
    "gpu-container": {"gpu": "0.3", "gpu-container": "main"},
    "gpu-placement": {"gpu": "0.3", "gpu-placement": "binpack"},
}
"""A request with each key of the shorthand."""


def _in_words() -> Iterator[Object]:
    """A pod for every key of the shorthand, in every place where a team may write it."""
    for key, words in VALUES.items():
        qualified = {PREFIX + word.removeprefix("gpu-"): value for word, value in words.items()}
        own = {word: value for word, value in words.items() if word != "gpu-container"}
        yield pod(f"label-of-{key}", labels=words)
        yield pod(f"qualified-label-of-{key}", labels=qualified)
        yield pod(f"annotation-of-{key}", annotations=qualified)
        yield pod(
            f"own-of-{key}", annotations={locations.annotation(word, "main"): value for word, value in own.items()}
        )
    yield pod("plain-annotation", annotations={"gpu": "0.3"})
    for name in sorted(locations.RESOURCES):
        amount = "8Gi" if name.endswith("memory") else "30" if name.endswith(("cores", "percent")) else "1"
        for section in ("limits", "requests"):
            yield pod(
                f"{section}-of-{name.replace('/', '-')}",
                containers=[container("main", resources={section: {name: amount}})],
            )


FORMS = ("labels", "bare limits", *asking.NATIVE)
"""The others differ from these in the place alone, whatever the back end."""


def _of_back_ends() -> Iterator[Object]:
    """A pod for every back end in shorthand and in its own words."""
    dice = random.Random(0)  # noqa: S311  no secret
    for name in clusters.names()[1:]:
        for form in asking.forms(name, FORMS):
            shape = next((each for each in asking.shapes(name, form) if asking.servable(each, name)), "whole")
            words = asking.needed(name)
            if form not in asking.NATIVE[:2]:
                words = {"gpu-model": clusters.card(name).model, **asking.samples(name, shape)[0]}
            made = pod(f"{name}-{form.replace(' ', '-')}", annotations={PREFIX + "backend": name})
            asking.accompany(name, made, made["spec"]["containers"][0])
            asking.say(form, words, name, made, made["spec"]["containers"][0], dice)
            yield made


def _of_cases() -> Iterator[Object]:
    """The pods of golden cases that are admitted, by the shipped rules."""
    for case in golden.find():
        alone = not any((case.folder / name).exists() for name in ("rules", "around.yaml"))
        if alone and case.has_pod and "mutated.yaml" in case.expected():
            made = completed(case.pod())
            yield {**made, "metadata": {**made["metadata"], "name": f"case-{case.folder.name}"[:63].rstrip("-")}}


def _deployment(made: Object) -> Object:
    """A Deployment of such pods, none of which it makes."""
    metadata = made["metadata"]
    labels = {**metadata.get("labels", {}), "app": "web"}
    template = {"metadata": {"annotations": metadata.get("annotations", {}), "labels": labels}, "spec": made["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": metadata["name"]},
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }


def _compared(stored: Object) -> Mapping[str, Any]:
    """What Argo CD and Flux compare; a Deployment's controller annotates it whenever it likes."""
    kept = ("labels", "annotations") if stored["kind"] == "Pod" else ()
    return {"spec": stored["spec"], **{key: stored["metadata"].get(key) for key in kept}}


def _changes(client: Client, written: Object) -> Iterator[str]:
    """What goes wrong when an object that was created is sent again, in every way; nothing is expected to."""
    path, before = client.path(written), _compared(client.get(written))
    ways: Mapping[str, Callable[[], Answer]] = {
        "server-side apply": lambda: client.apply(written, manager=MANAGER),
        "its dry run": lambda: client.apply(written, manager=MANAGER, dry_run=True),
        "another manager's": lambda: client.apply(written, manager="flux", dry_run=True),
        "kubectl apply": lambda: client.send("PATCH", path, written, content_type=STRATEGIC),
        "kubectl replace": lambda: client.update(written),
    }
    for way, send in ways.items():
        try:
            after = send()
        except RefusedError as refusal:
            yield f"{written['metadata']['name']}: {way} fails: {refusal}"
        else:
            if _compared(after) != before or after.warnings:
                yield f"{written['metadata']['name']}: {way} changes {before} to {_compared(after)}, {after.warnings}"


def _created(client: Client, written: Object) -> bool:
    """Whether an object is admitted; what is not cannot be created twice either."""
    try:
        client.apply(written, manager=MANAGER)
    except RefusedError:
        return False
    return True


def test_every_key_of_the_shorthand_is_tried() -> None:
    assert VALUES.keys() == KEYS.keys()


def test_a_pod_in_any_place_of_the_shorthand_can_be_applied_again(scheduled: Client) -> None:
    refused = [each for each in _in_words() if not _created(scheduled, each)]
    wrong = [change for each in _in_words() for change in _changes(scheduled, each)]

    assert (refused, wrong) == ([], [])


def test_a_pod_of_any_back_end_can_be_applied_again(scheduled: Client) -> None:
    created = [each for each in _of_back_ends() if _created(scheduled, each)]
    wrong = [change for each in created for change in _changes(scheduled, each)]

    assert wrong == []
    assert {each["metadata"]["annotations"][PREFIX + "backend"] for each in created} == {*clusters.names()[1:]}


def test_the_pod_of_any_golden_case_can_be_applied_again(scheduled: Client) -> None:
    created = [each for each in _of_cases() if _created(scheduled, each)]
    wrong = [change for each in created for change in _changes(scheduled, each)]

    assert wrong == []
    assert len(created) > 100


def test_a_deployment_can_be_applied_again(scheduled: Client) -> None:
    created = [each for each in map(_deployment, _in_words()) if _created(scheduled, each)]
    wrong = [change for each in created for change in _changes(scheduled, each)]

    assert wrong == []
    assert len(created) > 40


LISTED = {
    "labelled": pod("labelled", labels={"gpu": "0.3"}, tolerations=[{"key": "mine", "operator": "Exists"}]),
    "limited": pod("limited", containers=[container("main", resources=limits(gpu="0.3"))]),
    "halved": pod("halved", containers=[container("main", resources=limits(**{"nvidia.com/gpu": "0.5"}))]),
    "percent": pod("percent", containers=[container("main", resources=limits(**{"gpu-webhook.io/percent": 30}))]),
}


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_person_applies_compares_edits_and_replaces_without_a_change(
    scheduled: Client, options: tuple[str]
) -> None:
    manifest = yaml.safe_dump_all(LISTED.values())

    def run(*args: str) -> str:
        done = scheduled.kubectl(*args, stdin=manifest)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("apply", *options, "-f", "-")
    before = {name: scheduled.get(each) for name, each in LISTED.items()}
    run("apply", *options, "-f", "-")
    assert run("diff", *options, "-f", "-") == ""
    assert {name: scheduled.get(each) for name, each in LISTED.items()} == before
    run("replace", "-f", "-")
    assert {name: scheduled.get(each)["spec"] for name, each in LISTED.items()} == {
        name: each["spec"] for name, each in before.items()
    }


@pytest.mark.parametrize("name", ["limited", "halved", "percent"])
def test_another_value_is_refused_with_what_to_do(scheduled: Client, name: str) -> None:
    (resource,) = LISTED[name]["spec"]["containers"][0]["resources"]["limits"]
    other = pod(
        name, containers=[container("main", resources=limits(**{resource: 40 if name == "percent" else "0.7"}))]
    )
    manifests = [yaml.safe_dump(each) for each in (LISTED[name], other)]
    assert scheduled.kubectl("apply", "-f", "-", stdin=manifests[0]).returncode == 0

    done = scheduled.kubectl("apply", "-f", "-", stdin=manifests[1])

    assert done.returncode == 1
    assert '[GPU109] the container "main" was created with gpu=' in done.stderr
    assert "delete the pod and create it again" in done.stderr


def test_whoever_owns_the_fields_the_gpu_stays_as_it_was_counted(scheduled: Client) -> None:
    created = scheduled.apply(LISTED["halved"], manager="first")
    forced = scheduled.apply(LISTED["halved"], manager="second")
    other = pod("halved", containers=[container("main", resources=limits(**{"nvidia.com/gpu": "0.1"}))])

    with pytest.raises(RefusedError, match=r"created with gpu=0\.5, which cannot change to nvidia\.com/gpu: 0\.1"):
        scheduled.apply(other, manager="second")
    for manager in ("first", "second"):
        scheduled.apply(pod("halved"), manager=manager)

    assert forced["spec"] == created["spec"]
    assert scheduled.get(created)["spec"] == created["spec"]
