"""A tenant with all rights in its namespace tries ways round admission that other webhooks have left open."""

import json
import shutil
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import pytest

from tests import builders
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.devices import claim_template
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy import world
from tests.cluster.tenancy.test_bindings import bind, binding
from tests.cluster.tenancy.town import Town, create, gpu_pod, owner, told
from tests.cluster.waiting import until
from tests.cluster.webhook import ROOT, point, register
from tests.core.policy import tenants
from webhook.core.rules.cluster import ANY, protected_names

pytestmark = pytest.mark.cluster

FORBIDDEN = HTTPStatus.FORBIDDEN
INVALID = HTTPStatus.UNPROCESSABLE_ENTITY
NODE = "gpu-7"
MIRROR = "kubernetes.io/config.mirror"
RULES = builders.rulebook(builders.shipped_files())


@pytest.fixture(scope="module")
def mine(town: Town) -> Client:
    """The tenant: it may do everything in its one namespace, whose quota is eight devices, and nothing elsewhere."""
    [there] = town.tenant("ways", quota={"devices": 8})
    return owner(there, "eve")


@pytest.fixture(scope="module")
def full(town: Town) -> Client:
    """Another one, whose quota is nothing."""
    [there] = town.tenant("full", quota={"devices": 0})
    return owner(there, "fay")


def _with(made: Object, *, status: Object | None = None, **metadata: Any) -> Object:
    return {**made, "metadata": {**made["metadata"], **metadata}, **({"status": status} if status else {})}


def _privileged(**spec: Any) -> Object:
    return pod("free", containers=[container("main", securityContext={"privileged": True})], **spec)


HIDDEN: Mapping[str, Object] = {
    "a time of deletion": _with(
        gpu_pod("deleted"), deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=1
    ),
    "a phase": _with(gpu_pod("over"), status={"phase": "Succeeded"}),
    "a UID": _with(gpu_pod("same"), uid="00000000-0000-0000-0000-000000000000", resourceVersion=""),
    "a node": _with({**gpu_pod("bound"), "spec": {**gpu_pod("bound")["spec"], "nodeName": NODE}}),
    "a node and the annotation of a mirror pod": _with(
        {**gpu_pod("mirrored"), "spec": {**gpu_pod("mirrored")["spec"], "nodeName": NODE}}, annotations={MIRROR: "x"}
    ),
    "a generated name": _with({**gpu_pod("any"), "metadata": {"generateName": "any-", "labels": {"gpu": "1"}}}),
}


def test_a_pod_counts_whatever_its_author_writes_in_the_place_of_kubernetes(town: Town, mine: Client) -> None:
    for made in HIDDEN.values():
        [stored] = create(mine, made)
        assert stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"

    town.await_used("ways", str(len(HIDDEN)))


@pytest.mark.parametrize("way", HIDDEN)
def test_no_such_field_lets_a_pod_past_a_quota_that_is_full(full: Client, way: str) -> None:
    code, words = told(full, HIDDEN[way])

    assert (code, "[GPU104]" in words) == (FORBIDDEN, True)


@pytest.mark.parametrize(
    ("user", "node", "code"),
    [
        pytest.param("system:node:gpu-7", NODE, HTTPStatus.CREATED, id="its own node"),
        pytest.param("system:node:gpu-8", NODE, FORBIDDEN, id="another node"),
        pytest.param("eve", NODE, FORBIDDEN, id="the tenant"),
        pytest.param("system:serviceaccount:ways-a:default", NODE, FORBIDDEN, id="an account of the tenant"),
    ],
)
def test_a_mirror_pod_is_left_alone_where_its_own_node_shows_it(
    town: Town, mine: Client, user: str, node: str, code: int
) -> None:
    made = _privileged(nodeName=node, automountServiceAccountToken=False)
    there = town.client.in_namespace(mine.namespace).acting_as(user)

    answered, words = told(there, _with(made, annotations={MIRROR: "x"}), dry_run=True)

    assert (answered, "[GPU116]" in words) == (code, code == FORBIDDEN), words


R, TWO, S, A = "\u0440", "\uff12", "\u0405", "\u0430"
"""Cyrillic letters that look like p, S and a, and a wide digit."""

LOOKS_ALIKE: Mapping[str, Object] = {
    "a label": pod("alike", labels={f"g{R}u": "2"}),
    "the value of a label": pod("alike", labels={"gpu": TWO}),
    "an annotation": pod("alike", annotations={f"gpu-webhook.io/g{R}u": "2"}),
    "the value of an annotation": pod("alike", annotations={"gpu-webhook.io/gpu": TWO}),
    "a variable": pod(
        "alike", containers=[container("main", env=[{"name": f"NVIDIA_VISIBLE_DEVICE{S}", "value": "all"}])]
    ),
    "a resource": pod("alike", containers=[container("main", resources=limits(**{f"nvidia.com/g{R}u": 1}))]),
    "a class": pod("alike", runtimeClassName=f"nvidi{A}"),
}


@pytest.mark.parametrize("where", LOOKS_ALIKE)
def test_letters_that_look_alike_are_in_no_key_and_no_number(mine: Client, where: str) -> None:
    code, words = told(mine, LOOKS_ALIKE[where], dry_run=True)

    assert code in {FORBIDDEN, INVALID}, words


@pytest.mark.parametrize("seconds", [0, 2_592_000])
def test_no_pod_takes_a_month_to_end_nor_leaves_at_once(mine: Client, seconds: int) -> None:
    asking = [gpu_pod("long"), pod("long", containers=[container("main", resources=limits(**{"nvidia.com/gpu": 1}))])]
    tried = [{**made, "spec": {**made["spec"], "terminationGracePeriodSeconds": seconds}} for made in asking]

    answers = [told(mine, made, dry_run=True) for made in tried]

    assert [(code, f"[GPU117] the pod has {seconds} s to end" in words) for code, words in answers] == [
        (FORBIDDEN, True)
    ] * 2


def test_of_a_key_that_stands_twice_what_is_stored_is_what_counts(town: Town, mine: Client) -> None:
    """Go's decoder and ours never read the same text: the API server sends what it has understood."""
    twice = json.dumps(gpu_pod("twice")).replace('"gpu": "1"', '"gpu": "1", "gpu": "2"')
    assert twice.count('"gpu"') == 2

    code, _, body = town.client.exchange("POST", mine.collection(pod("any")), twice.encode())

    stored = json.loads(body)
    assert code == HTTPStatus.CREATED, body
    said = stored["metadata"]["labels"]["gpu"]
    assert stored["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == said
    mine.delete(stored)


def test_no_tenant_joins_an_exempt_namespace(mine: Client) -> None:
    """Webhooks leave namespaces out by the label that has their name, which nobody can change."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": mine.namespace}}
    there = mine.path(namespace)

    told_so = mine.send(
        "PATCH",
        there,
        {"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}},
        content_type="application/merge-patch+json",
    )
    code, words = told(mine, _privileged(), dry_run=True)

    assert told_so["metadata"]["labels"]["kubernetes.io/metadata.name"] == mine.namespace
    assert (code, "[GPU116]" in words) == (FORBIDDEN, True)


def _of_registration(kind: str) -> Object:
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "gpu-webhook"}}


ELSEWHERE: Mapping[str, Object] = {
    "a policy": world.policy("eve", "*", priority=9),
    "an exemption": {"apiVersion": world.API_VERSION, "kind": "Exemption", "metadata": {"name": "eve"}, "spec": {}},
    "a ledger": {"apiVersion": world.API_VERSION, "kind": "TenantUsage", "metadata": {"name": "eve"}},
    "a pod of an exempt namespace": _with(_privileged(), namespace="kube-system"),
    "a volume of the node": {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "dev"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/dev"}},
    },
    "the mutating webhooks": _of_registration("MutatingWebhookConfiguration"),
    "the validating webhooks": _of_registration("ValidatingWebhookConfiguration"),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_rights_in_one_namespace_reach_nothing_that_decides_over_it(mine: Client, what: str) -> None:
    code, words = told(mine, ELSEWHERE[what])

    assert (code, "cannot create resource" in words) == (FORBIDDEN, True)


def test_no_claim_gives_a_device_of_others_to_look_at(mine: Client) -> None:
    """A claim with adminAccess shares a device that is taken; under a quota no claim of a tenant's own is let in."""
    watching = json.loads(json.dumps(claim_template("watching", "gpu.example.com")))
    watching["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = True
    claiming = pod(
        "claiming",
        resourceClaims=[{"name": "card", "resourceClaimTemplateName": "watching"}],
        containers=[container("main", resources={"claims": [{"name": "card"}]})],
    )

    code, words = told(mine, watching)
    refused, why = told(mine, claiming, dry_run=True)

    assert (code, "resource.kubernetes.io/admin-access" in words) == (INVALID, True), words
    assert (refused, "[GPU108]" in why) == (FORBIDDEN, True)


def test_a_debug_container_gets_no_privilege_and_no_update_asks_for_more(mine: Client) -> None:
    """What `kubectl debug --profile=sysadmin` adds, and a resize or an update to more devices."""
    [stored] = create(mine, pod("debugged", containers=[container("main", resources=limits(cpu="1"))]))
    debugger = container("debugger", securityContext={"privileged": True})
    more = container("main", resources=limits(cpu="1", **{"nvidia.com/gpu": 1}))

    answers = {
        subresource: _sent(mine, {**stored, "spec": {**stored["spec"], **spec}}, subresource)
        for subresource, spec in {
            "ephemeralcontainers": {"ephemeralContainers": [debugger]},
            "resize": {"containers": [more]},
            "": {"containers": [more]},
        }.items()
    }

    assert {name: code for name, (code, _) in answers.items()} == {
        "ephemeralcontainers": FORBIDDEN,
        "resize": INVALID,
        "": FORBIDDEN,
    }, answers
    assert "[GPU116] privileged: true of the container" in answers["ephemeralcontainers"][1]
    assert "[GPU109]" in answers[""][1]


def test_a_binding_carries_no_annotation_that_gives_a_device(mine: Client) -> None:
    """The API server merges what a Binding carries into the pod, and a tenant with all rights may bind."""
    [stored] = create(mine, pod("bound-by-its-owner", containers=[container("main", resources=limits(cpu="1"))]))
    given = {_one(name): "nvidia.com/gpu=all" for name in protected_names(RULES.protections)["annotations"].every}

    answers = {key: _sent_binding(mine, stored, {key: value}) for key, value in given.items()}
    harmless = _sent_binding(mine, stored, {"example.com/note": "fine"})

    assert {key: words for key, words in answers.items() if "[GPU116]" not in words} == {}
    assert harmless == ""


def _one(name: str) -> str:
    """A name that a glob covers."""
    return f"{name.removesuffix(ANY)}x" if name.endswith(ANY) else name


def _sent_binding(there: Client, stored: Object, annotations: Mapping[str, str]) -> str:
    try:
        bind(there, stored, binding(stored, annotations=dict(annotations)))
    except RefusedError as refused:
        return str(refused)
    return ""


def _sent(there: Client, changed: Object, subresource: str) -> tuple[int, str]:
    try:
        there.update(changed, subresource=subresource)
    except RefusedError as refused:
        return refused.code, str(refused)
    return HTTPStatus.OK, ""


def test_a_pod_has_no_devices_of_its_own_beside_its_containers(mine: Client) -> None:
    """Resources of the whole pod are none of devices, and Kubernetes takes no others there."""
    code, words = told(mine, pod("whole", resources=limits(**{"nvidia.com/gpu": 1})), dry_run=True)

    assert code in {FORBIDDEN, INVALID}, words


@pytest.mark.parametrize("path", ["dev/nvidia0", "dev", "run/containerd/containerd.sock", "var/run/docker.sock"])
def test_a_path_that_does_not_begin_at_the_root_is_taken_from_there(mine: Client, path: str) -> None:
    """As container runtimes do, whose working directory is the root."""
    made = pod("relative", volumes=[{"name": "host", "hostPath": {"path": path}}])

    code, words = told(mine, made, dry_run=True)

    assert (code, "[GPU116]" in words) == (FORBIDDEN, True), words


@pytest.fixture(scope="module")
def gated(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A tenant of a site where T4s, L4s and A100s are shared; its pod `waits` at a gate, and counts as on a T4."""
    rules = shutil.copytree(ROOT / "rules", tmp_path_factory.mktemp("site") / "rules")
    for name, text in tenants.card_pools().items():
        (rules / name).write_text(text)
    [there] = town.tenant("gated", quota={"devices": 8, "models": {"A100-80GB": {"devices": "0.1"}}})
    with world.attached_webhook(town.plane, "site", rules=rules) as site:
        try:
            point(town.client, site)
            until(lambda: told(there, _gated("any"), dry_run=True)[0] == HTTPStatus.CREATED, "the site's rules hold")
            create(there, _gated("waits"))
            yield owner(there, "gil")
        finally:
            register(town.free, town.webhook)


def _gated(name: str) -> Object:
    asking = container("main", resources=limits(**{"nvidia.com/gpu": 1}))
    return pod(name, containers=[asking], schedulingGates=[{"name": "example.com/later"}])


def _terms(*values: str) -> Object:
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [value]}]} for value in values]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


DEARER: Mapping[str, tuple[Object, str]] = {
    "by its node selector": ({"nodeSelector": {"pool": "a100"}}, "GPU109"),
    "by its affinity": ({"affinity": _terms("a100")}, "GPU109"),
    "and is let go": ({"nodeSelector": {"pool": "a100"}, "schedulingGates": None}, "GPU109"),
    "by more terms than are read": ({"affinity": _terms(*["a100"] * 201)}, "GPU003"),
}


@pytest.mark.parametrize("way", DEARER)
@pytest.mark.parametrize("user", ["the tenant", "the administrator"])
def test_a_gated_pod_is_not_led_to_a_card_that_counts_more(town: Town, gated: Client, way: str, user: str) -> None:
    change, code = DEARER[way]
    who = gated if user == "the tenant" else town.client.in_namespace(gated.namespace)

    with pytest.raises(RefusedError, match=code):
        who.patch(_gated("waits"), {"spec": change})


def test_a_gated_pod_may_be_led_where_it_counts_no_more(gated: Client) -> None:
    create(gated, _gated("cheap"))

    led = gated.patch(_gated("cheap"), {"spec": {"nodeSelector": {"pool": "t4"}, "schedulingGates": None}})

    assert (led["spec"]["nodeSelector"], "schedulingGates" in led["spec"]) == ({"pool": "t4"}, False)
