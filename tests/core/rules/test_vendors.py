"""A back end is a document: no vendor stands in the program, and a new one needs no line of it."""

import ast
import re
from collections.abc import Iterator

from tests import builders, tables
from tests.core import acme
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook

PROGRAMS = [file for folder in ("webhook", "certs") for file in sorted((builders.ROOT / folder).rglob("*.py"))]
NOT_VENDORS = {"kubernetes.io", "k8s.io", "gpu-webhook.io"}


def _domains(rulebook: Rulebook) -> Iterator[str]:
    """The domain of everything that a rule writes or reads: `nvidia.com` of `nvidia.com/gpu`."""
    for text in builders.shipped_files().values():
        for name in re.findall(r"[a-z0-9.-]+\.[a-z]{2,}(?=/[A-Za-z])", text):
            yield ".".join(name.split(".")[-2:])
    for resource in rulebook.resources:
        yield ".".join(resource.partition("/")[0].split(".")[-2:])


VENDORS = sorted(set(_domains(builders.rulebook(builders.shipped_files()))) - NOT_VENDORS)


def test_the_rules_name_the_vendors_that_are_looked_for() -> None:
    assert {"nvidia.com", "amd.com", "tencent.com", "hami.io"} <= set(VENDORS)


def test_no_vendors_domain_stands_in_a_program() -> None:
    """In code; a comment or docstring may give one as an example of what users write."""
    strings = []
    for program in PROGRAMS:
        nodes = [*ast.walk(ast.parse(program.read_text()))]
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation]
        strings += [(program, node.value) for node in constants if isinstance(node.value, str)]

    assert strings
    assert [(program, text) for program, text in strings if any(vendor in text for vendor in VENDORS)] == []


@tables.rows
def test_a_back_end_that_is_written_in_yaml_only_works_end_to_end(
    label: dict[str, str], limits: dict[str, str]
) -> None:
    request = builders.creating(builders.pod(labels=label))

    decision = mutate(request, acme.rulebook(tables.table(__file__, "nobodys")))

    assert decision.patch[:2] == [
        {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": limits}},
        {"op": "add", "path": "/spec/tolerations", "value": [{"key": "nobody.example/card", "operator": "Exists"}]},
    ]
