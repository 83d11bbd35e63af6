"""What the README shows is what happens."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import builders, readme
from tests.edited import edited
from webhook.core.kube import pod
from webhook.core.mutate import mutate
from webhook.core.plan import plan
from webhook.core.request import shorthand
from webhook.files.rule_files import RuleFilesError

TEXT = readme.README.read_text()
RULES_TEXT = (readme.ROOT / "rules" / "README.md").read_text()


def test_the_pod_at_the_top_becomes_the_pod_below_it() -> None:
    before = yaml.safe_load(readme.block("before", TEXT))
    planned = plan.make(pod.read(before), builders.rulebook(builders.shipped_files()))

    assert edited(planned.edits, before) == yaml.safe_load(readme.block("after", TEXT))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.large] * (name == "every back end")) for name in readme.TABLES]
)
def test_tables_are_up_to_date(name: str) -> None:
    file, render = readme.TABLES[name]

    assert readme.marked(name, file.read_text()) == render(), "run: python -m tests.readme"


def test_every_key_of_the_shorthand_is_in_the_table() -> None:
    assert [key for key in shorthand.KEYS if f"| `{key}` |" not in TEXT] == []


@pytest.mark.parametrize(("marker", "code"), [("run", 1), ("tenants", 1), ("convert", 0), ("inventory", 0)])
def test_the_command_shown_prints_what_is_shown(marker: str, code: int, tmp_path: Path) -> None:
    shown = readme.block(marker, TEXT)
    command, _, printed = shown.removeprefix("$ ").partition("\nPOD\n")
    program = Path(sys.executable).parent

    ran = subprocess.run(
        ["bash", "-c", f"{command}\nPOD\n"],
        env={"PATH": f"{program}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.stdout, ran.returncode) == (printed, code)


def test_the_back_end_of_the_walk_through_works() -> None:
    rule = RULES_TEXT.partition("```yaml\n")[2].partition("```")[0]
    assert len(rule.splitlines()) < 30
    files = builders.shipped_files()
    cluster = files["cluster.yaml"].replace("backends: [", "backends: [acme, ")
    rulebook = builders.rulebook(files | {"acme.yaml": rule, "cluster.yaml": cluster})
    asking = {"gpu-webhook.io/backend": "acme", "gpu-webhook.io/gpu": "2"}

    decision = mutate(
        builders.creating({"metadata": {"annotations": asking}, "spec": {"containers": [{"name": "main"}]}}), rulebook
    )

    assert decision.backends == {"main": "acme"}


def test_the_mistake_shown_to_authors_is_answered_so() -> None:
    files = builders.shipped_files()
    mistaken = files["cluster.yaml"].replace("[nvidia-gpu, hami-vgpu,", "[nvidia-gpu, hami-vgp,")

    with pytest.raises(RuleFilesError) as error:
        builders.rulebook(files | {"cluster.yaml": mistaken})

    shown = next(line.strip() for line in RULES_TEXT.splitlines() if "did you mean" in line)
    assert shown in str(error.value).splitlines()
