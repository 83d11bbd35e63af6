"""What a settler knows and may write, step by step; tests/laws/test_ledger.py tries it against everything at once."""

from typing import Any

import pytest

from tests import tables
from tests.core.quota.steps import Steps, tally
from webhook.core.quota import settlement
from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Settlement, View

COUNTED = Ledger(hard=tally(4), held={"dev": {}}, view=3)


@tables.rows
def test_a_settler(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settler = Settlement("me", 10.0)
    Steps(settler, settler.view, ledger=COUNTED).run(steps, settlement, monkeypatch)


def test_a_settler_that_has_seen_nothing_writes_nothing() -> None:
    assert Settlement("me").step("vision", tally(4), ["dev"], now=100) == settlement.Step()


@tables.rows
def test_a_view(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Steps(View()).run(steps, settlement, monkeypatch)
