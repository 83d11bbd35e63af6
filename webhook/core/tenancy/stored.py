"""A ledger as the TenantUsage object that holds it in a cluster, and back."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from webhook.core.tenancy import tally
from webhook.core.tenancy.ledger import Ledger

KIND: Final = "TenantUsage"


def read(status: Mapping[str, Any]) -> Ledger:
    """The ledger in the status of a TenantUsage; raises ValueError where somebody has written something else."""
    return Ledger(
        hard=tally.read(status.get("hard") or {}),
        held={namespace: tally.read(amount) for namespace, amount in (status.get("held") or {}).items()},
        view=int(status.get("view") or 0),
        pending={
            name: {uid: tally.read(amount) for uid, amount in by_uid.items()}
            for name, by_uid in (status.get("pending") or {}).items()
        },
        joining={namespace: str(token) for namespace, token in (status.get("joining") or {}).items()},
        recount=int(status.get("recount") or 0),
        recounted=int(status.get("recounted") or 0),
    )


def write(ledger: Ledger) -> dict[str, Any]:
    """The status of a TenantUsage; `used` and `percent` are for people, and never read."""
    used = ledger.used
    return {
        "hard": {key: tally.text_of(key, limit) for key, limit in sorted(ledger.hard.items())},
        "used": {key: tally.text_of(key, used.get(key, Fraction(0))) for key in sorted({*ledger.hard, *used})},
        "percent": tally.percent(used, ledger.hard),
        "held": {namespace: tally.write(amount) for namespace, amount in sorted(ledger.held.items())},
        "view": str(ledger.view),
        "pending": {
            name: {uid: tally.write(amount) for uid, amount in by_uid.items()}
            for name, by_uid in ledger.pending.items()
        },
        "joining": dict(ledger.joining),
        "recount": ledger.recount,
        "recounted": ledger.recounted,
    }
