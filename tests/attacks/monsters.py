"""Pods that are huge in one dimension: so many labels, terms, claims, containers, ... as fit into some bytes."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import orjson

from tests import builders
from tests.bench import reviews

Object = dict[str, Any]
Monster = Callable[[int], Object]
"""Makes a pod with so many of something."""

MIB: Final = 1 << 20
LARGEST_POD: Final = 3 * MIB
"""What an API server takes in one request (apiserver/pkg/server/config.go, MaxRequestBodyBytes)."""

NODES: Final = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
SHARE: Final = {"gpu": "0.3"}


def _labels(form: str, value: str = "1") -> Monster:
    return lambda count: builders.pod(labels={**SHARE, **{form % number: value for number in range(count)}})


def _annotations(form: str, value: str = "1") -> Monster:
    return lambda count: builders.pod(labels=SHARE, annotations={form % number: value for number in range(count)})


def _spec(field: str, element: Callable[[int], Object]) -> Monster:
    def made(count: int) -> Object:
        pod = builders.pod(labels=SHARE)
        pod["spec"][field] = [element(number) for number in range(count)]
        return pod

    return made


def _container(field: str, element: Callable[[int], Object]) -> Monster:
    def made(count: int) -> Object:
        elements = [element(number) for number in range(count)]
        return builders.pod({"name": "main", field: elements}, labels=SHARE)

    return made


def _resources(section: str, form: str) -> Monster:
    def made(count: int) -> Object:
        resources = {section: {form % number: "1" for number in range(count)}}
        return builders.pod({"name": "main", "resources": resources}, labels=SHARE)

    return made


def _asking(asks: Callable[[int], tuple[Object, Object]]) -> Monster:
    """Containers that all ask for a GPU: of each its resources, and the annotations for it."""

    def made(count: int) -> Object:
        containers: list[Object] = []
        annotations: Object = {}
        for number in range(count):
            resources, said = asks(number)
            containers.append({"name": f"c{number}", "resources": resources} if resources else {"name": f"c{number}"})
            annotations |= {f"{key}.gpu-webhook.io/c{number}": value for key, value in said.items()}
        return builders.pod(*containers, annotations=annotations)

    return made


def _selected(select: Callable[[int], Object]) -> Monster:
    def made(count: int) -> Object:
        at = pod = builders.pod(labels=SHARE)
        for step in NODES:
            at = at.setdefault(step, {})
        at |= select(count)
        return pod

    return made


def _expression(number: int, values: int = 1) -> Object:
    return {"key": f"k{number}", "operator": "In", "values": [f"v{value}" for value in range(values)]}


def _terms(key: str = "k%d", operator: str = "Exists") -> Monster:
    def term(number: int) -> Object:
        expression = {"key": key % number if "%" in key else key, "operator": operator}
        return {"matchExpressions": [expression | ({"values": [f"v{number}"]} if operator.endswith("In") else {})]}

    return _selected(lambda count: {"nodeSelectorTerms": [term(number) for number in range(count)]})


def _claimed(count: int) -> Object:
    """Claims of the pod, each used by the one container."""
    claims = [{"name": f"c{number}", "resourceClaimTemplateName": "t"} for number in range(count)]
    main = {"name": "main", "resources": {"claims": [{"name": each["name"]} for each in claims]}}
    return builders.pod(main, labels=SHARE, resourceClaims=claims)


def _claims_and_containers(count: int) -> Object:
    """Half of it claims, half containers that ask for a claim."""
    claims = [{"name": f"c{number}"} for number in range(count // 2)]
    containers = [{"name": f"m{number}", "resources": {"claims": [{"name": "c1"}]}} for number in range(count // 2)]
    return builders.pod(*containers, labels=SHARE, resourceClaims=claims)


def _long(place: Callable[[str], Object]) -> Monster:
    return lambda count: place("x" * count)


MONSTERS: Final[Mapping[str, Monster]] = {
    "labels gpu-xxxx": _labels("gpu-%d"),
    "labels nearly gpu-memory": _labels("gpu-memor%d"),
    "labels of our prefix": _labels("gpu-webhook.io/%d"),
    "labels of others": _labels("a%d"),
    "annotations of absent containers": _annotations("gpu.gpu-webhook.io/c%d"),
    "annotations of unknown keys": _annotations("k%d.gpu-webhook.io/main"),
    "annotations of our prefix": _annotations("gpu-webhook.io/%d"),
    "annotations of a claim source": _annotations("elasticgpu.io/container-%d"),
    "annotations of others": _annotations("a%d"),
    "nodeSelector": lambda count: builders.pod(labels=SHARE, nodeSelector={f"k{each}": "v" for each in range(count)}),
    "nodeSelectorTerms": _terms(),
    "nodeSelectorTerms of one key": _terms("nvidia.com/gpu.product", "NotIn"),
    "nodeSelectorTerms that exclude": _terms("gpu", "In"),
    "empty nodeSelectorTerms": _selected(lambda count: {"nodeSelectorTerms": [{}] * count}),
    "matchExpressions": _selected(
        lambda count: {"nodeSelectorTerms": [{"matchExpressions": [_expression(number) for number in range(count)]}]}
    ),
    "values of an expression": _selected(
        lambda count: {"nodeSelectorTerms": [{"matchExpressions": [_expression(0, count)]}]}
    ),
    "matchFields": _selected(
        lambda count: {"nodeSelectorTerms": [{"matchFields": [_expression(number) for number in range(count)]}]}
    ),
    "tolerations": _spec("tolerations", lambda number: {"key": f"k{number}", "operator": "Exists"}),
    "resourceClaims": _spec("resourceClaims", lambda number: {"name": f"c{number}"}),
    "claims of a container": _claimed,
    "claims and containers": _claims_and_containers,
    "env": _container("env", lambda number: {"name": f"V{number}"}),
    "env that a rule writes": _container("env", lambda _: {"name": "CUDA_DISABLE_CONTROL"}),
    "ports": _container("ports", lambda number: {"containerPort": number % 65535 + 1}),
    "volumes": _spec("volumes", lambda number: {"name": f"v{number}"}),
    "volumes of the host": _spec("volumes", lambda number: {"name": f"v{number}", "hostPath": {"path": "/p"}}),
    "volumeMounts": _container("volumeMounts", lambda number: {"name": "v", "mountPath": f"/{number}"}),
    "limits of others": _resources("limits", "a.b/%d"),
    "requests of others": _resources("requests", "a.b/%d"),
    "limits of partitions": _resources("limits", "nvidia.com/mig-%dg.10gb"),
    "containers": _spec("containers", lambda number: {"name": f"c{number}"}),
    "initContainers": _spec("initContainers", lambda number: {"name": f"i{number}"}),
    "ephemeralContainers": _spec("ephemeralContainers", lambda number: {"name": f"e{number}"}),
    "containers that ask a share": _asking(lambda _: ({}, {"gpu": "0.3"})),
    "containers that ask another share each": _asking(lambda number: ({}, {"gpu": f"0.{number % 900 + 100}"})),
    "containers that ask nonsense": _asking(lambda _: ({}, {"gpu": "0.3", "profile": "1g.10gb"})),
    "containers that nobody serves": _asking(lambda number: ({}, {"gpu": "1", "tflops": f"{number + 1}"})),
    "containers with a model list each": _asking(
        lambda number: ({}, {"gpu": "0.3", "model": f"A100-80GB,T4,L4,V100-{16 + number}GB"})
    ),
    "containers with native devices": _asking(lambda _: ({"limits": {"nvidia.com/gpu": "1"}}, {})),
    "containers with wrong devices": _asking(
        lambda _: ({"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}, {"gpu": "0.3"})
    ),
    "a long label": _long(lambda text: builders.pod(labels={"gpu": text})),
    "a long annotation": _long(lambda text: builders.pod(annotations={"gpu-webhook.io/gpu": text})),
    "a long list of models": lambda count: builders.pod(labels={"gpu": "1", "gpu-model": "a," * count}),
    "a long key": _long(lambda text: builders.pod(labels=SHARE, annotations={f"gpu.gpu-webhook.io/{text}": "1"})),
    "a long key that is nearly one": _long(lambda text: builders.pod(labels={**SHARE, f"gpu-memory{text}": "1"})),
    "a long name of a container": _long(
        lambda text: builders.pod({"name": text, "resources": {"limits": {"gpu": "1.5"}}}, labels=SHARE)
    ),
    "a long name that cannot be printed": lambda count: builders.pod(
        {"name": "\n" * count}, {"name": "b"}, labels={"gpu": "1"}
    ),
    "a long amount": _long(lambda text: builders.pod(builders.container(limits={"nvidia.com/gpu": text}))),
    "a long scheduler": _long(lambda text: builders.pod(labels=SHARE, schedulerName=text)),
    "a long name of a claim": _long(lambda text: builders.pod(labels=SHARE, resourceClaims=[{"name": text}])),
}
"""Each asks for a GPU, so that nothing of it can be passed over unread."""


def without_gpu(pod: Object) -> Object:
    """The pod without anything that asks for a GPU, and with all the rest."""
    metadata = pod["metadata"]
    labels = {key: value for key, value in metadata.get("labels", {}).items() if not key.startswith("gpu")}
    annotations = {key: value for key, value in metadata.get("annotations", {}).items() if "gpu" not in key}
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def of_size(monster: Monster, size: int = LARGEST_POD) -> Object:
    """The pod that is about as many bytes as JSON."""
    few, more = (len(orjson.dumps(monster(count))) for count in (1000, 2000))
    return monster(max(1, int((size - few) / ((more - few) / 1000)) + 1000))


def review_of(pod: Object, operation: str = "CREATE", old: Object | None = None) -> bytes:
    """The bytes that an API server sends for it."""
    whole = reviews.review(pod)
    whole["request"] |= {"operation": operation, "oldObject": old}
    return orjson.dumps(whole)


def several(dice: Random, size: int = LARGEST_POD) -> Object:
    """A pod that is huge in several dimensions at once: as large as `size` in all."""
    names = dice.sample(sorted(MONSTERS), dice.randint(2, 5))
    made: Object = {}
    for name in names:
        made = _together(made, of_size(MONSTERS[name], size // len(names)))
    return made


def _together(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **{key: _together(one.get(key), value) for key, value in other.items()}}
    if isinstance(one, list) and isinstance(other, list):
        return [
            *(_together(left, right) for left, right in zip(one, other, strict=False)),
            *one[len(other) :],
            *other[len(one) :],
        ]
    return other
