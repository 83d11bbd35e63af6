"""Pods to begin with, for a reader of the page who has none at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import yaml

from webhook.core.request.request import PREFIX
from webhook.core.rules.backend import Example


@dataclass(frozen=True, slots=True)
class Try:
    """A text for the form, and what the link to it says."""

    title: str
    text: str


_POD: Final = """\
apiVersion: v1
kind: Pod
metadata:
  name: train
  labels:
{labels}
spec:
  containers:
  - name: train
    image: registry.example/train:1
    command: [python, train.py]
    resources:
      limits: {{cpu: "4", memory: 16Gi}}
"""

_WORKLOADS: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: answers
spec:
  replicas: 2
  selector:
    matchLabels: {app: answers}
  template:
    metadata:
      labels: {app: answers, gpu: "0.3"}
    spec:
      containers:
      - name: model
        image: registry.example/answers:1
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        metadata:
          annotations: {gpu-webhook.io/gpu: "2"}
        spec:
          restartPolicy: Never
          containers:
          - name: train
            image: registry.example/train:1
"""


def _pod(*labels: str) -> str:
    return _POD.format(labels="\n".join(f"    {label}" for label in labels))


TRIES: Final = {
    "share": Try("three tenths of a GPU", _pod('gpu: "0.3"')),
    "memory": Try("8 GiB of a GPU", _pod("gpu-memory: 8Gi")),
    "whole": Try("two GPUs", _pod('gpu: "2"')),
    "workloads": Try("a Deployment and a CronJob", _WORKLOADS),
    "refused": Try("a mistake", _pod('gpu: "1.5"')),
}


def of(example: Example) -> str:
    """A pod that asks what an example of a rule asks."""
    said = {f"{PREFIX}{key.removeprefix('gpu-')}": value for key, value in example.ask.items()}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "example", "annotations": said},
        "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
    }
    return yaml.safe_dump(pod, sort_keys=False)
