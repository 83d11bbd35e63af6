"""What one replica sets aside, admits against it, and writes down; tests/laws/test_ledger.py tries it."""

from typing import Any

import pytest

from tests import tables
from tests.core.quota.steps import Steps, tally
from webhook.core.quota import escrow
from webhook.core.quota.escrow import Account
from webhook.core.quota.ledger import Ledger

ROOMY = Ledger(hard=tally(100), held={"dev": {}}, view=7)
MADE = 1000
"""When the API server begins to create the pods here, and the clock of the replica is at 10."""


@tables.rows
def test_a_replica(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Steps(Account("me"), ledger=ROOMY, created=MADE).run(steps, escrow, monkeypatch)
