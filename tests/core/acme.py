"""A back end in few words, for tests that need one of their own."""

from collections.abc import Mapping
from textwrap import dedent, indent

from tests import builders, tables
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook

CLUSTER: str = tables.table(__file__, "cluster")
BACKEND: str = tables.table(__file__, "back end")


def rulebook(spec: str, more: Mapping[str, str] | None = None) -> Rulebook:
    """The rulebook of a cluster with one back end, `acme`, whose spec goes on like this; `more` are further files."""
    files = {name: text for name, text in builders.shipped_files().items() if name.startswith("catalog-")}
    files |= {"cluster.yaml": CLUSTER, "acme.yaml": BACKEND + indent(dedent(spec), "  ")}
    return builders.rulebook(files | dict(more or {}))


def backend(spec: str) -> Backend:
    """The same, the back end alone."""
    return rulebook(spec).backends["acme"]
