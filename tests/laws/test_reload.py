"""Rules that are loaded again, after any edits, are what a new process would load."""

import tempfile
from pathlib import Path
from textwrap import dedent
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws import tried
from webhook.core.rules.load import Memory
from webhook.files import documents, rule_files

SEQUENCES = 20


def _document(kind: str, name: str, spec: str) -> str:
    head = f"apiVersion: gpu-webhook.io/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n"
    return head + "".join(f"  {line}\n" for line in dedent(spec).strip().splitlines())


CATALOG = _document(
    "DeviceCatalog", "acme", "vendor: acme\ndevices: [{model: A1, memory: 16Gi}, {model: A2, memory: 32Gi}]"
)
OTHERS = _document("DeviceCatalog", "other", "vendor: other\ndevices: [{model: B1, memory: 8Gi}]")
BACKEND = _document(
    "Backend",
    "acme",
    """
    description: cards of acme
    vendors: [acme]
    models: [A1]
    sharing: [exclusive, fractional]
    parameters: {resource: {default: acme.example/card}, scheduler: {default: ""}}
    inject: {schedulerName: $(scheduler)}
    modes:
    - when: {devices: whole}
      limits: {$(resource): count}
    - when: {devices: part, count: 1}
      limits: {acme.example/memory: {memory: {unit: MiB, round: up}}}
    examples:
    - {ask: {gpu: "1"}, limits: {acme.example/card: 1}}
    """,
)
CHILD = _document(
    "Backend",
    "child",
    """
    description: the same by another name
    extends: acme
    parameters: {resource: {default: child.example/card}}
    examples:
    - {ask: {gpu: "2"}, limits: {child.example/card: 2}}
    """,
)
CLUSTER = _document("Cluster", "one", "backends: [acme, child]")
POLICY = _document("TenantPolicy", "vision", "namespaces: {names: [vision]}\nallowed: {models: [A1]}")
PROTECTION = _document("Protection", "acme", "env: {ACME_CARDS: {gives: gives any card, backends: {acme: ['*']}}}")
WORKLOAD = _document(
    "Workload",
    "trainings",
    """
    objects: {group: acme.example, kinds: [Training]}
    pods: [{template: spec.template, times: [spec.workers]}]
    examples: [{object: {spec: {workers: 2, template: {spec: {containers: []}}}}, pods: {spec.template: 2}}]
    """,
)
CLAIMS = _document(
    "ClaimSource",
    "claims",
    """
    description: claims of acme
    parameters: {unit: {default: acme.example/compute}}
    annotations: ["acme.example/claim-{container}"]
    claims: {kind: Claim, group: acme.example, versions: [v1], plural: claims, resources: spec.resources}
    classes: {kind: Class, group: acme.example, versions: [v1], plural: classes, provisioner: [provisioner]}
    reads: [{devices: part, resources: {$(unit): {cores: {}}}}]
    examples: [{resources: {acme.example/compute: 50}, asks: {gpu-cores: "50"}}]
    """,
)

VERSIONS = {
    "catalog.yaml": [
        CATALOG,
        CATALOG.replace("16Gi", "24Gi"),
        CATALOG.replace("A1", "A3"),
        CATALOG.replace("A2", "B1"),
        CATALOG.replace("memory: 32Gi", "memory: 32"),
    ],
    "others.yaml": ["", OTHERS, OTHERS.replace("B1", "B2"), OTHERS.replace("vendor: other", "vendor: acme")],
    "acme.yaml": [
        BACKEND,
        f"\n{BACKEND}",
        BACKEND.replace("MiB", "GiB"),
        BACKEND.replace('gpu: "1"', 'gpu: "3"'),
        BACKEND.replace("unit: MiB", "unti: MiB"),
        BACKEND.replace("default: acme.example/card", "default: acme.example/whole"),
    ],
    "child.yaml": [
        CHILD,
        "",
        CHILD.replace("extends: acme", "extends: child"),
        CHILD.replace("description:", "models: [A2]\n  description:"),
        CHILD.replace("child.example/card: 2", "child.example/card: 3"),
    ],
    "cluster.yaml": [
        CLUSTER,
        CLUSTER.replace("[acme, child]", "[child, acme]"),
        CLUSTER.replace("[acme, child]", "[acme]"),
        CLUSTER + "  parameters: {acme: {resource: site.example/card}}\n",
        CLUSTER + "  parameters: {acme: {resource: site.example/card, scheduler: s}, claims: {unit: a.example/c}}\n",
        CLUSTER + "  parameters: {child: {resource: site.example/card}}\n",
        CLUSTER + "  parameters: {child: {unknown: 1}}\n",
        CLUSTER + "  device: A2\n  namespacesWithoutPolicy: no-devices\n",
        "",
    ],
    "policy.yaml": ["", POLICY, POLICY.replace("[A1]", "[B1]"), POLICY.replace("models: [A1]", "backends: [child]")],
    "protection.yaml": ["", PROTECTION, PROTECTION.replace("acme: ['*']", "child: ['*']")],
    "workload.yaml": ["", WORKLOAD, WORKLOAD.replace("workers: 2", "workers: 3")],
    "claims.yaml": ["", CLAIMS, CLAIMS.replace('gpu-cores: "50"', 'gpu-cores: "60"')],
}  # fmt: skip
EDITS = [(file, text) for file, texts in VERSIONS.items() for text in texts]


def _outcome(folder: Path) -> object:
    """The rulebook of a folder, or all that is wrong with it."""
    try:
        return rule_files.load(folder)
    except rule_files.RuleFilesError as error:
        return error.problems


@pytest.mark.parametrize("remembered", [7, *(pytest.param(number, marks=pytest.mark.large) for number in (1, 500))])
def test_after_any_edits_the_rules_are_what_a_new_process_loads(remembered: int) -> None:
    usable = 0

    @tried(SEQUENCES)
    @given(st.lists(st.lists(st.sampled_from(EDITS), min_size=1, max_size=3), min_size=1, max_size=8))
    def law(changes: list[list[tuple[str, str]]]) -> None:
        nonlocal usable
        with tempfile.TemporaryDirectory() as name, patch.object(rule_files, "_memory", Memory(remembered)):
            folder = Path(name)
            for change in [[(file, texts[0]) for file, texts in VERSIONS.items()], *changes]:
                for file, text in change:
                    (folder / file).write_text(text)
                loaded = _outcome(folder)
                with (
                    patch.object(rule_files, "_memory", Memory(500)),
                    patch.object(rule_files, "_parsed", documents.parse),
                ):
                    assert loaded == _outcome(folder)
                usable += not isinstance(loaded, list)

    law()
    assert usable > SEQUENCES, "hardly any of the rules could be used"
