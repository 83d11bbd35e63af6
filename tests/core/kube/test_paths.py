"""Where something stands, for people and for patches."""

import pytest

from webhook.core.kube import fields
from webhook.core.kube.fields import Path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu"),
            'spec.containers[0].resources.limits["nvidia.com/gpu"]',
        ),
        (("metadata", "labels", "gpu"), "metadata.labels.gpu"),
        (("metadata", "annotations", "gpu-webhook.io/gpu"), 'metadata.annotations["gpu-webhook.io/gpu"]'),
        (("spec", "nodeSelector", "a.b"), 'spec.nodeSelector["a.b"]'),
        ((), ""),
    ],
)
def test_people_read_them_as_kubernetes_prints_them(path: Path, text: str) -> None:
    assert fields.field_path(path) == text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("spec", "containers", 0), "/spec/containers/0"),
        (("metadata", "annotations", "a/b~c"), "/metadata/annotations/a~1b~0c"),
        (("metadata", "labels", ""), "/metadata/labels/"),
        (("a", "~1"), "/a/~01"),
        ((), ""),
    ],
)
def test_patches_escape_tildes_before_slashes(path: Path, text: str) -> None:
    assert fields.pointer(path) == text
