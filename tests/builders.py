"""What many tests begin with: the shipped rules, pods and reviews, in words."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from webhook import playground
from webhook.core.kube import quantity
from webhook.core.request import GpuRequest
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files

ROOT = Path(__file__).parents[1]
RULES = ROOT / "rules"

Object = dict[str, Any]


def documents(text: str) -> list[Any]:
    """The documents of a YAML text, read in C: Python's own reader takes ten times as long."""
    return [*yaml.load_all(text, yaml.CSafeLoader)]


def shipped_files() -> dict[str, str]:
    """The text of every shipped rule file, by name, in the cluster of `make run`: it shares its NVIDIA cards."""
    return {file.name: file.read_text() for file in (*sorted(RULES.glob("*.yaml")), playground.CLUSTER)}


def cluster(spec: str) -> str:
    """A Cluster document whose spec says this, in one line: `backends: [kai], device: T4`."""
    return f"apiVersion: gpu-webhook.io/v1alpha1\nkind: Cluster\nmetadata: {{name: test}}\nspec: {{{spec}}}\n"


def rulebook(files: Mapping[str, str]) -> Rulebook:
    """The rulebook of these files and no others, one object for equal files; raises RuleFilesError."""
    return _rulebook(tuple(files.items()))


@cache
def _rulebook(files: tuple[tuple[str, str], ...]) -> Rulebook:
    with TemporaryDirectory() as folder:
        for name, text in files:
            Path(folder, name).write_text(text)
        return rule_files.load(Path(folder))


def creating(pod: Mapping[str, Any] | None, namespace: str = "default") -> AdmissionRequest:
    """The review of a pod that is about to be created."""
    return AdmissionRequest(
        uid="8f2f8d4e",
        operation="CREATE",
        resource="pods",
        subresource="",
        namespace=namespace,
        name="",
        dry_run=False,
        pod=pod,
        old_pod=None,
    )


def updating(old: Mapping[str, Any], new: Mapping[str, Any]) -> AdmissionRequest:
    """The review of a pod that exists and is about to be changed."""
    return AdmissionRequest(
        uid="8f2f8d4e",
        operation="UPDATE",
        resource="pods",
        subresource="",
        namespace="default",
        name="train",
        dry_run=False,
        pod=new,
        old_pod=old,
    )


def container(name: str = "main", *, limits: Mapping[str, Any] | None = None, **fields: Any) -> Object:
    """A container, by default without resources."""
    resources = {} if limits is None else {"resources": {"limits": dict(limits)}}
    return {"name": name, "image": "registry.example/train", **resources, **fields}


def pod(
    *containers: Object,
    labels: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A pod with these containers, or one called `main`; further keywords are fields of its spec."""
    metadata: Object = {"name": "train"}
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def written(fields: Mapping[str, Any]) -> Object:
    """A pod as tables write it: metadata, `limits` of `main` or of `containers` by name, and fields of its spec."""
    others = {key: value for key, value in fields.items() if key not in {"limits", "containers"}}
    containers = fields.get("containers", {"main": fields.get("limits")})
    return pod(*(container(name, limits=limits) for name, limits in containers.items()), **others)


def request(fields: Mapping[str, Any] | None) -> GpuRequest | None:
    """What a container asks, as tables write it: `{share: 3/10, memory: 8Gi}`."""
    read: dict[str, Callable[[Any], Any]] = {"count": int, "models": tuple, "profile": str, "memory": size}
    return fields if fields is None else GpuRequest(**{key: read.get(key, Fraction)(fields[key]) for key in fields})


def size(text: str | int) -> int:
    """A size as tables write it: `8Gi`, or bytes."""
    return text if isinstance(text, int) else quantity.size(text)
