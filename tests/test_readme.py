"""What the README shows is what happens."""

import contextlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import builders, readme
from tests.cli.program import run
from tests.edited import edited
from webhook.core import request
from webhook.core.kube import pod
from webhook.core.mutate import mutate
from webhook.core.plan import plan
from webhook.files.rule_files import RuleFilesError

TEXT = readme.README.read_text()
POLICIES_TEXT = readme.POLICIES.read_text()
BACKENDS_TEXT = readme.BACKENDS.read_text()
BOTH_TEXTS = POLICIES_TEXT + BACKENDS_TEXT


def test_the_pod_at_the_top_becomes_the_pod_below_it() -> None:
    before = yaml.safe_load(readme.block("before", TEXT))
    planned = plan.make(pod.read(before), builders.rulebook(builders.shipped_files()))

    assert edited(planned.edits, before) == yaml.safe_load(readme.block("after", TEXT))


@pytest.mark.parametrize("name", readme.TABLES)
def test_tables_are_up_to_date(name: str) -> None:
    file, render = readme.TABLES[name]

    assert readme.marked(name, file.read_text()) == render(), "run: python -m tests.readme"


@pytest.mark.parametrize("heading", [heading for heading in readme.SECTIONS if heading not in readme.SLOW])
def test_the_reference_has_each_section_as_it_is_made(heading: str) -> None:
    assert f"\n\n{readme.section(heading)}\n" in readme.REFERENCE.read_text(), "run: python -m tests.readme"


@pytest.mark.large
def test_the_reference_is_what_is_made() -> None:
    assert readme.REFERENCE.read_text() == readme.the_reference(), "run: python -m tests.readme"


@pytest.mark.parametrize("page", [readme.POLICIES, readme.BACKENDS], ids=lambda page: page.name)
def test_the_pages_for_authors_stay_short_enough_to_be_read(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 320


def test_every_key_of_the_shorthand_is_in_the_table() -> None:
    assert [key for key in request.KEYS if f"| `{key}` |" not in TEXT] == []


@pytest.mark.parametrize(
    ("marker", "text", "code"),
    [("run", TEXT, 1), ("tenants", TEXT, 1), ("convert", BACKENDS_TEXT, 0), ("inventory", TEXT, 0)],
)
def test_the_command_shown_prints_what_is_shown(marker: str, text: str, code: int) -> None:
    command, _, printed = readme.block(marker, text).removeprefix("$ gpu-webhook ").partition("\nPOD\n")
    words, _, given = command.partition(" <<'POD'\n")

    ran = run(*shlex.split(words), given=given)

    assert (ran.out, ran.code) == (printed, code)


def test_the_first_pod_is_explained_by_two_commands_without_an_option(tmp_path: Path) -> None:
    (tmp_path / "hero.yaml").write_text(readme.block("before", TEXT))
    setup, command, *shown = readme.block("first pod", TEXT).splitlines()
    assert (setup, command) == ("$ make setup", "$ .venv/bin/gpu-webhook explain hero.yaml")

    printed = _run("gpu-webhook explain hero.yaml 2>&1", tmp_path)

    assert printed.splitlines()[: len(shown)] == shown


def test_the_back_end_of_the_walk_through_works() -> None:
    rule = readme.block("back end", BACKENDS_TEXT)
    assert len(rule.splitlines()) < 30
    files = builders.shipped_files()
    cluster = files["cluster.yaml"].replace("backends: [", "backends: [acme, ")
    rulebook = builders.rulebook(files | {"acme.yaml": rule, "cluster.yaml": cluster})
    asking = {"gpu-webhook.io/backend": "acme", "gpu-webhook.io/gpu": "2"}

    decision = mutate(
        builders.creating({"metadata": {"annotations": asking}, "spec": {"containers": [{"name": "main"}]}}), rulebook
    )

    assert decision.backends == {"main": "acme"}


@pytest.mark.large
def test_the_first_steps_of_authors_print_what_is_shown(tmp_path: Path) -> None:
    shutil.copytree(readme.RULES, tmp_path / "rules")
    for name in ("policy.yaml", "pod.yaml", "suite.yaml"):
        (tmp_path / name).write_text(readme.block(name, POLICIES_TEXT))

    _assert_shown("policy tried", tmp_path)
    _assert_shown("suite tried", tmp_path)
    (tmp_path / "rules" / "acme.yaml").write_text(readme.block("rules/acme.yaml", BACKENDS_TEXT))
    _edit(tmp_path / "rules" / "cluster.yaml", "backends: [", "backends: [acme, ")
    _edit(tmp_path / "rules" / "kustomization.yaml", "  files:\n", "  files:\n  - acme.yaml\n")
    _assert_shown("back end tried", tmp_path)
    assert run("check", tmp_path / "rules").code == 0


def _assert_shown(marker: str, folder: Path) -> None:
    command, _, printed = readme.block(marker, BOTH_TEXTS).removeprefix("$ ").partition("\n")
    if " | " in command:
        assert _run(command, folder) == printed
        return
    with contextlib.chdir(folder):
        ran = run(*shlex.split(command)[1:])
    assert ran.out + ran.err == printed


def _edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))


def _run(command: str, folder: Path) -> str:
    """What a command prints that a reader runs in a folder."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder)}
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return ran.stdout + ran.stderr


PAGES = (
    *("README.md", "manifests/README.md", "webhook/README.md", "tests/attacks/THREATS.md"),
    *(f"rules/{name}.md" for name in ("README", "BACKENDS", "REFERENCE")),
    *(f".github/{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY")),
)


def test_the_workflow_runs_everything_with_the_oldest_python() -> None:
    [job] = yaml.safe_load((readme.ROOT / ".github" / "workflows" / "ci.yaml").read_text())["jobs"].values()
    setup = next(step["with"] for step in job["steps"] if "setup-python" in step.get("uses", ""))

    assert job["steps"][-1] == {"run": ".ci/run"}
    project = tomllib.loads((readme.ROOT / "pyproject.toml").read_text())["project"]
    assert f">={setup['python-version']}" == project["requires-python"]


@pytest.mark.parametrize("page", PAGES)
def test_each_link_of_a_page_leads_to_a_file_and_a_heading(page: str) -> None:
    file = readme.ROOT / page
    links = [link for link in re.findall(r"\]\(([^)]+)\)", file.read_text()) if "://" not in link]

    for link in links:
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        assert not anchor or anchor in readme.anchors(target.read_text()), link


def test_the_mistake_shown_to_authors_is_answered_so() -> None:
    files = builders.shipped_files()
    mistaken = files["cluster.yaml"].replace("[nvidia-gpu, hami-vgpu,", "[nvidia-gpu, hami-vgp,")

    with pytest.raises(RuleFilesError) as error:
        builders.rulebook(files | {"cluster.yaml": mistaken})

    shown = next(line.strip() for line in BACKENDS_TEXT.splitlines() if "did you mean" in line)
    assert shown in str(error.value).splitlines()
