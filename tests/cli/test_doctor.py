"""`gpu-webhook doctor` where there is no cluster to examine; tests/cluster/test_doctor.py has the rest."""

import pytest

from tests.cli.program import RULES, run, start


def test_without_a_cluster_it_is_an_error_and_no_finding() -> None:
    ran = start("doctor", "--rules", RULES, env={"KUBECONFIG": "/nowhere"})

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "gpu-webhook: no cluster to ask: there is no kubeconfig /nowhere\n"


@pytest.mark.parametrize("endpoint", ["8443", "127.0.0.1:", "127.0.0.1:99999"])
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    ran = run("doctor", "--endpoint", endpoint)

    assert (ran.code, ran.err) == (2, f"gpu-webhook: --endpoint {endpoint}: write HOST:PORT, as 127.0.0.1:8443\n")
