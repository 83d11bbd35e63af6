"""A certificate that the operator issues: the commands of manifests/README.md, and a program that only activates."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs import issue
from certs.api import Site
from tests.cluster.accounts import NAMESPACE, kubeconfig_of
from tests.cluster.binaries import ROOT, Binaries
from tests.cluster.installation import ACCOUNT, AUTHORITIES, servers
from tests.cluster.test_operating import COMMANDS, executed
from tests.cluster.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.large]

OVERLAY = "{resources: [manifests/base], components: [manifests/components/own-certificates]}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of this project, with an overlay and what an operator's CA has issued."""
    for folder in ("manifests", "rules"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "kustomization.yaml").write_text(OVERLAY)
    now = datetime.now(UTC)
    authority = issue.authority(now, timedelta(days=2))
    leaf = issue.leaf(authority, Site(NAMESPACE).names, now, timedelta(days=1))
    for name, content in (("ca.crt", authority.certificate), ("tls.crt", leaf.certificate), ("tls.key", leaf.key)):
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_the_operators_certificate_serves_and_the_program_sees_no_secret(programs: Binaries, project: Path) -> None:
    with servers(programs) as installed:
        installed.lay_out()
        executed(installed.planes[0], COMMANDS["own"], project)
        with installed.issuer("--idle=1s", mode="activate", rights=None) as program:
            installed.start_replicas(1)
            until(installed.works, "pods are rewritten through both API servers", within=60)
            until(lambda: program.problems() == [], "nothing is wrong", within=30)

        account = kubeconfig_of(installed.planes[0], ACCOUNT)
        asked = installed.client.kubectl(
            "auth", "can-i", "get", "secrets", f"--namespace={NAMESPACE}", f"--kubeconfig={account}"
        )
        assert (installed.stored(AUTHORITIES), asked.stdout) == (None, "no\n")
