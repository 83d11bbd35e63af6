"""What many tests begin with: the shipped rules, pods and reviews, in words."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from webhook import rulefiles
from webhook.core.review import AdmissionRequest
from webhook.core.rulebook import Rulebook

ROOT = Path(__file__).parents[1]
RULES = ROOT / "rules"

Object = dict[str, Any]


def shipped_files() -> dict[str, str]:
    """The text of every shipped rule file, by name."""
    return {file.name: file.read_text() for file in sorted(RULES.glob("*.yaml"))}


def rulebook(files: Mapping[str, str]) -> Rulebook:
    """The rulebook of these files and no others; raises RuleFilesError.

    Examples of shipped rules are run by `test_check.py`; here they are where a file of another kind is not shipped.
    """
    shipped = shipped_files()
    tried = all(shipped.get(name) == text or "kind: Cluster" in text for name, text in files.items())
    with TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        return rulefiles.load(Path(folder), tried=tried)


def creating(pod: Mapping[str, Any], namespace: str = "default") -> AdmissionRequest:
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
