"""From the commit before this one to this one, back, and away, while clients create pods."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.binaries import ROOT, Binaries
from tests.cluster.installation import ISSUING, SERVING, Image, Installation, servers
from tests.cluster.load import ASKING, CLIENTS, ORDINARY, Load
from tests.cluster.rollouts import SERVING_REVIEWS, Rollouts
from tests.cluster.test_operating import COMMANDS, executed
from tests.cluster.waiting import until
from tests.laws import SOAK

pytestmark = [pytest.mark.cluster, pytest.mark.large, pytest.mark.usefixtures("controllers")]

ROUNDS = 10 if SOAK else 1
APPLY = COMMANDS["upgrade"].splitlines()[0]


@dataclass(frozen=True, slots=True)
class Version:
    """A checkout, and what its image runs."""

    folder: Path
    serving: Image
    issuing: Image


THIS = Version(ROOT, SERVING_REVIEWS, ISSUING)


@pytest.fixture
def previous(tmp_path: Path) -> Version:
    """The commit before this one, with its programs; a clone of one commit has none, also in CI."""
    command = f"git archive HEAD~1 -- certs manifests rules webhook | tar -x -C {tmp_path}"
    done = subprocess.run(
        ["bash", "-uc", f"set -o pipefail; {command}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"the commit before this one is not here: {done.stderr}")
    env = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    modules = [Image([sys.executable, "-m", module], env) for module in ("webhook.cli", "certs")]
    return Version(tmp_path, *modules)


@dataclass(slots=True)
class Operator:
    """What an operator does to change versions; `issuer` ends the certificate program that runs."""

    installed: Installation
    rollouts: Rollouts
    issuer: ExitStack

    def apply(self, version: Version) -> None:
        """Apply a version, with the new certificate program before the old one ends."""
        executed(self.installed.planes[0], APPLY, version.folder)
        before, self.issuer = self.issuer, ExitStack()
        self.issuer.enter_context(self.installed.issuer(image=version.issuing, rights=None))
        before.close()

    def change(self, version: Version) -> None:
        """Go from one version to another, as `kubectl apply` and the controllers do."""
        self.apply(version)
        self.rollouts.report(version.serving)
        self.rollouts.mount_rules()
        for _ in range(3):
            self.rollouts.replace(version.serving)

    def close(self) -> None:
        """End all programs."""
        self.issuer.close()
        self.rollouts.close()


@pytest.fixture
def operator(programs: Binaries, previous: Version) -> Iterator[Operator]:
    """The previous version, installed on two API servers."""
    with ExitStack() as stack:
        installed = stack.enter_context(servers(programs, controllers=True))
        installed.publish()
        made = Operator(installed, Rollouts(installed), ExitStack())
        stack.callback(made.close)
        made.apply(previous)
        until(lambda: installed.stored(SERVING), "the serving Secret", within=60)
        made.rollouts.scale(previous.serving)
        until(installed.works, "pods are rewritten through both API servers", within=60)
        yield made


def test_nobody_notices_an_upgrade_a_rollback_and_an_uninstallation(operator: Operator, previous: Version) -> None:
    with Load(operator.installed.clients, CLIENTS, (ASKING, ORDINARY)) as load:
        for _ in range(ROUNDS):
            for version in (THIS, previous):
                operator.change(version)
                assert load.failures == []
        load.rewriting = False
        _uninstall(operator, previous.folder)
        until(lambda: not operator.installed.works(), "nobody translates pods any more")
        operator.rollouts.await_ends()

    assert load.failures == []
    assert min(load.created.values()) > 100
    assert {code for code, _ in operator.rollouts.ended} == {0}
    assert len(operator.rollouts.ended) == 3 * (2 * ROUNDS + 1)


def _uninstall(operator: Operator, folder: Path) -> None:
    """The commands of the operators' page, one after the other, and what programs do at each."""
    plane = operator.installed.planes[0]
    scale, *others, delete = COMMANDS["uninstall"].splitlines()
    executed(plane, scale, folder)
    operator.issuer.close()
    for command in others:
        executed(plane, command, folder)
    for pod in list(operator.rollouts.pods):
        operator.rollouts.delete(pod)
    executed(plane, delete, folder)
