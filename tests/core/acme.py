"""A back end in few words, for tests that need one of their own."""

from collections.abc import Mapping
from textwrap import dedent, indent

from tests import builders
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook

CLUSTER = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata: {name: test}
spec:
  backends: [acme]
  systemNamespaces: [acme-system]
"""
BACKEND = """
apiVersion: gpu-webhook.io/v1alpha1
kind: Backend
metadata: {name: acme}
spec:
  description: devices by Acme
  sharing: [exclusive, fractional]
  examples:
  - ask: {gpu: "1.5"}
    refused: neither a share
"""


def rulebook(spec: str, more: Mapping[str, str] | None = None) -> Rulebook:
    """The rulebook of a cluster with one back end, `acme`, whose spec goes on like this; `more` are further files."""
    files = {name: text for name, text in builders.shipped_files().items() if name.startswith("catalog-")}
    files |= {"cluster.yaml": CLUSTER, "acme.yaml": BACKEND + indent(dedent(spec), "  ")}
    return builders.rulebook(files | dict(more or {}))


def backend(spec: str) -> Backend:
    """The same, the back end alone."""
    return rulebook(spec).backends["acme"]
