"""The alerts and the dashboard ask for metrics that the programs have."""

import json
import re

import promql_parser
import pytest
import yaml

from tests.cluster.binaries import ROOT
from tests.release.kustomized import MANIFESTS
from webhook import telemetry

FOLDER = MANIFESTS / "components" / "prometheus"
RULES = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]["groups"][0]["rules"]
PANELS = json.loads((FOLDER / "dashboard.json").read_text())["panels"]


def _families() -> dict[str, str]:
    """The names of all metrics, with their types; those of two programs as their source has them."""
    page = telemetry.Metrics(["mutate"]).render("").decode()
    served = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    settled = re.findall(r'\bfamily\("(\w+)"', (ROOT / "webhook" / "settler.py").read_text())
    turns = (ROOT / "certs" / "turns.py").read_text()
    issuing = [name for name, _ in re.findall(r'\("(\w+)", "(gauge|counter)"', turns)]
    others = [f"gpu_webhook_{name}" for name in settled] + [f"gpu_webhook_certs_{name}" for name in issuing]
    assert len(others) > 10
    kinds = {True: "counter", False: "gauge"}
    return served | {name: kinds[name.endswith("_total")] for name in others}


QUERIES = [(rule["alert"], rule["expr"]) for rule in RULES] + [
    (f"{panel['title']} {target['refId']}", target["expr"]) for panel in PANELS for target in panel["targets"]
]


@pytest.mark.parametrize(("where", "query"), QUERIES, ids=[where for where, _ in QUERIES])
def test_each_query_asks_for_metrics_that_exist_by_their_type(where: str, query: str) -> None:
    families = _families()
    rated = set(re.findall(r"(?:rate|increase)\((\w+)", query))
    named = set(re.findall(r"\b(gpu_webhook_\w+)", query))

    assert named or "up{" in query or "apiserver_admission_webhook_" in query, where
    for name in named:
        family = name.removesuffix("_bucket")
        assert family in families
        assert (families[family] == "histogram") == name.endswith("_bucket")
        assert (families[family] != "gauge") == (name in rated)
    promql_parser.parse(query.replace("$__rate_interval", "5m"))


def test_there_are_few_enough_metrics_to_know_them() -> None:
    assert len(_families()) <= 29


def test_each_alert_says_what_to_do_and_has_a_severity() -> None:
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "runbook"}
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 10
