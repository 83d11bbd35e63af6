"""What the image holds, what it lacks, and that it is the same when it is built again."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.image import building, running
from tests.image.building import ROOT, Image

pytestmark = pytest.mark.image

README = (ROOT / "README.md").read_text()
MEBIBYTE = 2**20

PYTHON = "/opt/gpu-webhook/bin/python"


def _ran(image: Image, root: Path, *arguments: str) -> str:
    command = running.command(image, root, arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _names(root: Path) -> set[str]:
    """The names of all files; links are files here, wherever they lead."""
    return {path.name for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


def _python_says(image: Image, root: Path, script: str) -> str:
    return _ran(image, root, PYTHON, "-c", script).strip()


def test_a_runtime_is_told_to_start_the_program_as_a_user_by_number(image: Image) -> None:
    assert image.config == {
        "User": "65532:65532",
        "Env": [
            "PATH=/opt/gpu-webhook/bin:/usr/local/bin:/usr/bin",
            "HOME=/tmp",
            "PYTHONDONTWRITEBYTECODE=1",
        ],
        "Entrypoint": ["gpu-webhook"],
        "Cmd": ["--help"],
        "WorkingDir": "/",
    }


def test_a_second_build_has_the_same_digest(image: Image, tmp_path: Path) -> None:
    again = building.build(building.bases(), tmp_path / "layout")

    assert again.digest == image.digest


def test_the_archive_of_the_same_image_is_the_same_file(image: Image, tmp_path: Path) -> None:
    one, two = (building.archive(image, tmp_path / name) for name in ("one", "two"))

    assert one.read_bytes() == two.read_bytes()


def test_the_image_is_as_large_as_the_readme_says(image: Image, root: Path) -> None:
    said = re.search(r"(\d+) MiB to pull \| (\d+) MiB on disk", README)
    assert said
    unpacked = sum(path.lstat().st_size for path in root.rglob("*") if not path.is_dir())

    assert image.compressed / MEBIBYTE == pytest.approx(int(said[1]), rel=0.05)
    assert unpacked / MEBIBYTE == pytest.approx(int(said[2]), rel=0.05)


def test_there_is_no_compiler_no_installer_and_no_shell(root: Path) -> None:
    unwanted = re.compile(r"(pip3?|uv|uvx|apt|apt-get|gcc|cc|ld|as|make|sh|bash|dash|busybox|curl|wget)(-[\d.]+)?")

    assert {name for name in _names(root) if unwanted.fullmatch(name)} == set()


@pytest.mark.parametrize("module", ["pip", "ensurepip", "setuptools", "uv"])
def test_python_has_nothing_that_installs(image: Image, root: Path, module: str) -> None:
    assert _python_says(image, root, f"import importlib.util as u; print(u.find_spec({module!r}))") == "None"


def test_nothing_lets_a_user_become_another(root: Path) -> None:
    assert [path for path in root.rglob("*") if not path.is_symlink() and path.lstat().st_mode & 0o6000] == []


def test_no_file_belongs_to_the_user_or_may_be_written_by_it(root: Path) -> None:
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]

    assert [file for file in files if file.stat().st_uid == running.UID or file.stat().st_mode & 0o002] == []


def test_what_this_machine_is_called_and_whom_it_asks_for_names_is_not_in_the_image(root: Path) -> None:
    assert [name for name in ("hostname", "resolv.conf", "hosts") if (root / "etc" / name).exists()] == []


def test_scanners_find_out_which_packages_of_debian_are_in_it(root: Path) -> None:
    recorded = (root / "var/lib/dpkg/status.d/libssl3t64").read_text()

    assert re.search(r"^Version: 3\.\d+\.\d+", recorded, re.MULTILINE)


@pytest.mark.parametrize("program", ["gpu-webhook", "gpu-webhook-certs"])
def test_each_program_starts(image: Image, root: Path, program: str) -> None:
    assert _ran(image, root, f"/opt/gpu-webhook/bin/{program}", "--help").startswith(f"usage: {program} ")


def test_the_shipped_rules_are_read_without_writing_anything(image: Image, root: Path) -> None:
    mounts = {"/etc/gpu-webhook/rules": ROOT / "rules"}
    command = running.command(image, root, ("check", "/etc/gpu-webhook/rules"), mounts=mounts)

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_every_module_of_ours_can_be_imported(image: Image, root: Path) -> None:
    """`__main__` would run, and the playground is for a clone of the repository."""
    script = """
import importlib, pkgutil, certs, webhook
for package in (certs, webhook):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith(("__main__", ".playground")):
            importlib.import_module(found.name)
"""
    assert _python_says(image, root, script) == ""


def test_what_our_programs_use_of_the_cluster_library_was_not_pruned(image: Image, root: Path) -> None:
    """The library loads such a module when its name is first used, so an import alone would not miss it."""
    sources = [file.read_text() for folder in ("webhook", "certs") for file in (ROOT / folder).rglob("*.py")]
    library = re.compile(r"^from kubernetes\.aio import .*\bclient\b", re.MULTILINE)
    ours = {name for text in sources if library.search(text) for name in re.findall(r"\bclient\.([A-Z]\w+)", text)}

    script = f"from kubernetes.aio import client; print([n for n in {sorted(ours)} if not hasattr(client, n)])"

    assert {"ApiClient", "Configuration"} <= ours
    assert _python_says(image, root, script) == "[]"


def test_all_bytecode_is_there_and_depends_on_no_time(root: Path) -> None:
    """A pyc that is not checked against its source begins, after its magic number, with the flags 1 (PEP 552)."""
    packages = next((root / "opt/gpu-webhook/lib").glob("python3.*")) / "site-packages"
    sources = {file for file in packages.rglob("*.py") if file.parent.name != "__pycache__"}
    compiled = list(packages.rglob("*.pyc"))

    assert {file.read_bytes()[4:8] for file in compiled} == {b"\1\0\0\0"}
    assert {file.parents[1] / f"{file.name.partition('.')[0]}.py" for file in compiled} == sources
