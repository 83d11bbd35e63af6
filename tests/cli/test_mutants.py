"""`gpu-webhook check --coverage --mutate`: each kind of change survives poor examples, and one more notices it."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import RULES, SHIPPED, run

HEAD = "apiVersion: gpu-webhook.io/v1alpha1\nkind: "
RULE = f"""{HEAD}Backend
metadata: {{name: tried}}
spec:
  description: what is tried
  vendors: [acme]
  sharing: [exclusive, fractional]
  parameters:
    scheduler: {{default: acme-scheduler}}
  forbids: [privileged]
  modes:
  - name: whole cards
    when: {{devices: whole}}
    limits:
      acme.example/card: count
      acme.example/of: {{cores: {{unit: percent, step: 100, max: 200, per: total, absent: whole}}}}
  - name: memory only
    when: {{devices: part, count: 1, lacks: [cores]}}
    limits:
      acme.example/card: count
      acme.example/memory: {{memory: {{unit: MiB, round: up, max: 9000}}}}
  - name: a part of one card
    when: {{devices: part, count: 1}}
    limits:
      acme.example/card: count
      acme.example/memory: {{memory: {{unit: MiB, round: up, max: 9000}}}}
      acme.example/compute: {{cores: {{unit: percent, round: up}}}}
    labels: {{acme.example/level: low}}
    env: {{ACME_MODE: soft}}
  inject:
    schedulerName: $(scheduler)
    tolerations:
    - {{key: acme.example/card, operator: Exists}}
    nodeAffinity:
      acme.example/model: {{model: {{values: {{A1: first}}}}}}
  examples:
  - {{ask: {{gpu: "1"}}, limits: {{acme.example/card: 1, acme.example/of: 100}}}}
"""
A_PART = "{acme.example/card: 1, acme.example/memory: 8192, acme.example/compute: 30}"
PART = '{gpu-memory: 8Gi, gpu-cores: "30"}'
NOTICED = {
    ("spec.vendors[0]", "nothing"): '{ask: {gpu: "1", gpu-model: T4}, refused: made by nvidia}',
    ("spec.sharing[0]", "nothing"): '{ask: {gpu: "1", gpu-sharing: exclusive}, schedulerName: acme-scheduler}',
    ("spec.parameters.scheduler.default", "acme-schedulerx"): '{ask: {gpu: "1"}, schedulerName: acme-scheduler}',
    ("spec.forbids[0]", "nothing"): (
        '{ask: {gpu: "1"}, pod: {spec: {containers: [{securityContext: {privileged: true}}]}}, refused: privileged}'
    ),
    ("spec.modes[0]", "nothing"): '{ask: {gpu: "2"}, limits: {acme.example/card: 2, acme.example/of: 200}}',
    ('spec.modes[2].limits["acme.example/memory"].memory.max', "9001"): (
        '{ask: {gpu-memory: 9001Mi, gpu-cores: "30"}, refused: the most it can express}'
    ),
    ('spec.modes[2].limits["acme.example/memory"].memory.max', "8999"): (
        '{ask: {gpu-memory: 9000Mi, gpu-cores: "30"}, schedulerName: acme-scheduler}'
    ),
    ('spec.modes[2].limits["acme.example/memory"].memory.unit', "GiB"): f"{{ask: {PART}, limits: {A_PART}}}",
    ('spec.modes[2].limits["acme.example/memory"].memory.round', "nothing"): (
        '{ask: {gpu-memory: 2000001Ki, gpu-cores: "30"}, schedulerName: acme-scheduler}'
    ),
    ('spec.modes[2].limits["acme.example/compute"]', "nothing"): f"{{ask: {PART}, limits: {A_PART}}}",
    (
        'spec.modes[2].labels["acme.example/level"]',
        "nothing",
    ): f"{{ask: {PART}, labels: {{acme.example/level: low}}}}",
    ("spec.modes[2].env.ACME_MODE", "nothing"): f"{{ask: {PART}, env: {{ACME_MODE: soft}}}}",
    ("spec.modes[1].when", "has"): f"{{ask: {PART}, limits: {A_PART}}}",
    ("spec.inject.tolerations[0]", "nothing"): (
        '{ask: {gpu: "1"}, tolerations: [{key: acme.example/card, operator: Exists}]}'
    ),
    ('spec.inject.nodeAffinity["acme.example/model"].model.values.A1', "firstx"): (
        '{ask: {gpu: "1", gpu-model: A1}, nodeAffinity: {acme.example/model: [first]}}'
    ),
}
"""An example by the change that only it notices."""

CARDS = f"""{HEAD}DeviceCatalog
metadata: {{name: other}}
spec: {{vendor: nvidia, devices: [{{model: T4, memory: 16Gi}}]}}
"""


def _survivors(folder: Path, text: str) -> set[tuple[str, str]]:
    (folder / "tests" / "tried.yaml").write_text(text)
    told = run("check", folder / "cluster.yaml", folder / "tests" / "tried.yaml", "--mutate", "-o", "json").json
    return {(change["path"], change["after"]) for change in told["survivors"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cluster, its cards, and nothing yet to be tried."""
    made = tmp_path_factory.mktemp("rules")
    (made / "tests").mkdir()
    (made / "acme.yaml").write_text((RULES / "acme.yaml").read_text())
    (made / "cluster.yaml").write_text((RULES / "cluster.yaml").read_text())
    (made / "cards.yaml").write_text(CARDS)
    return made


@pytest.fixture(scope="module")
def unnoticed(folder: Path) -> set[tuple[str, str]]:
    """What one example does not notice."""
    return _survivors(folder, RULE)


@pytest.mark.parametrize("change", NOTICED, ids=" becomes ".join)
def test_a_change_survives_until_an_example_depends_on_it(
    folder: Path, unnoticed: set[tuple[str, str]], change: tuple[str, str]
) -> None:
    if change != ("spec.modes[0]", "nothing"):  # which the one example needs
        assert change in unnoticed
    assert change not in _survivors(folder, f"{RULE}  - {NOTICED[change]}\n")


POLICIES = f"""{HEAD}TenantPolicy
metadata: {{name: vision}}
spec:
  priority: 1
  enforcementAction: deny
  namespaces: {{names: [vision, art]}}
  ceilings: {{container: {{devices: 2}}}}
---
{HEAD}TenantPolicy
metadata: {{name: everybody}}
spec:
  namespaces: {{names: ["*"]}}
  allowed: {{sharing: [exclusive, mps]}}
---
{HEAD}Exemption
metadata: {{name: retraining}}
spec:
  namespaces: [vision]
  users: [ada, grace]
  lifts: [container]
  owner: platform@example.com
  reason: the yearly retraining
  expires: 2027-01-31T00:00:00Z
---
{HEAD}Suite
metadata: {{name: tenants}}
spec:
  at: 2027-01-01T00:00:00Z
  cases:
  - {{name: no GPU is no matter of ours, namespace: vision, ask: {{gpu: none}}}}
"""
REFUSED = "expect: {codes: [GPU102]}"
SEEN = {
    ("spec.priority", "0"): f'{{name: a, namespace: vision, ask: {{gpu: "3"}}, {REFUSED}}}',
    ("spec.enforcementAction", "warn"): f'{{name: a, namespace: vision, ask: {{gpu: "3"}}, {REFUSED}}}',
    ("spec.ceilings.container.devices", "3"): f'{{name: a, namespace: vision, ask: {{gpu: "3"}}, {REFUSED}}}',
    ("spec.namespaces.names[1]", "nothing"): f'{{name: a, namespace: art, ask: {{gpu: "3"}}, {REFUSED}}}',
    ("spec.allowed.sharing[0]", "nothing"): '{name: a, namespace: x, ask: {gpu: "1"}}',
    ("spec.users[0]", "nothing"): (
        '{name: a, namespace: vision, user: ada, ask: {gpu: "3"}, expect: {exemptions: [retraining]}}'
    ),
    ("spec.expires", "2027-01-30T00:00:00Z"): (
        '{name: a, namespace: vision, user: ada, at: 2027-01-30T12:00:00Z, ask: {gpu: "3"},'
        " expect: {exemptions: [retraining], warnings: [ends in 12 hours]}}"
    ),
}
"""A case by the change of a policy or an exemption that only it notices."""


@pytest.fixture(scope="module")
def unseen(folder: Path) -> set[tuple[str, str]]:
    """What one case does not notice."""
    return _survivors(folder, POLICIES)


@pytest.mark.parametrize("change", SEEN, ids=" becomes ".join)
def test_a_change_of_a_policy_survives_until_a_case_depends_on_it(
    folder: Path, unseen: set[tuple[str, str]], change: tuple[str, str]
) -> None:
    assert change in unseen
    assert change not in _survivors(folder, f"{POLICIES}  - {SEEN[change]}\n")


def test_what_is_refused_or_means_the_same_is_no_mutant(tmp_path: Path) -> None:
    """`count` can be nothing else than it is, 1 is the least of any count, and nothing writes without a scheduler."""
    rules = tmp_path / "acme.yaml"
    rules.write_text(f"{RULE.replace('acme-scheduler', chr(34) * 2)}---\n{(RULES / 'acme.yaml').read_text()}")
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text((RULES / "cluster.yaml").read_text())

    told = run("check", tmp_path, "--mutate", "-o", "json").json

    paths: set[Any] = {(change["line"], change["path"]) for change in told["survivors"]}
    assert not [
        path for _, path in paths if path in {'spec.modes[0].limits["acme.example/card"]', "spec.description"}
    ]
    assert (RULE.splitlines().index("    schedulerName: $(scheduler)") + 1, "spec.inject.schedulerName") not in paths


def test_neither_rules_nor_their_folder_are_touched(folder: Path) -> None:
    before = {path: path.stat() for path in folder.iterdir()}

    run("check", folder, "--coverage", "--mutate")

    assert {path: path.stat() for path in folder.iterdir()} == before


def test_the_exit_code_says_whether_enough_is_noticed(tmp_path: Path) -> None:
    rule = tmp_path / "acme.yaml"
    rule.write_text((RULES / "acme.yaml").read_text())
    (tmp_path / "cluster.yaml").write_text((RULES / "cluster.yaml").read_text())

    score = run("check", rule, "--mutate", "-o", "json").json["totals"][-1]["percent"]

    assert run("check", rule, "--mutate").code == run("check", rule, "--mutate", "--fail-under", str(score)).code == 0
    assert run("check", rule, "--mutate", "--fail-under", str(score + 1)).code == 1
    assert run("check", rule, "--coverage").code == 1


@pytest.mark.large
def test_the_examples_of_the_shipped_rules_notice_what_is_changed() -> None:
    """One minute: every rule is tried as often as it can be changed."""
    total = run("check", SHIPPED, "--coverage", "--mutate", "-o", "json").json["totals"][-1]

    assert total["modes"]["reached"] == total["modes"]["of"]
    assert total["lines"]["reached"] >= 1059
    assert total["percent"] >= 91
