"""A ledger as the status of the TenantUsage object that holds it in a cluster, and back.

The API server's work for a write grows with the number of values in the object, some 10 µs each [measured]. So a
reservation, of which there may be hundreds, is one line, `namespace/name uid devices=0.3 memory=8Gi`, and so is an
escrow, `token devices=8`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from webhook.core.quota import tally
from webhook.core.quota.ledger import Ledger, Pending
from webhook.core.quota.tally import Tally

KIND: Final = "TenantUsage"


def read(status: Mapping[str, Any]) -> Ledger:
    """The ledger in the status of a TenantUsage; raises ValueError if the status was edited into another form."""
    return Ledger(
        hard=tally.read(status.get("hard") or {}),
        held={namespace: tally.read(amount) for namespace, amount in (status.get("held") or {}).items()},
        view=int(status.get("view") or 0),
        pending=_pending(status.get("pending") or ()),
        advances=dict(_advance(line) for line in status.get("advances") or ()),
        joining={namespace: str(token) for namespace, token in (status.get("joining") or {}).items()},
        recount=int(status.get("recount") or 0),
        recounted=int(status.get("recounted") or 0),
    )


def _pending(lines: Iterable[str]) -> Pending:
    found: dict[str, dict[str, Tally]] = {}
    for line in lines:
        name, uid, *amounts = line.split(" ")
        found.setdefault(name, {})[uid] = _tally(amounts)
    return found


def _advance(line: str) -> tuple[str, Tally]:
    token, *amounts = line.split(" ")
    return token, _tally(amounts)


def _tally(amounts: Iterable[str]) -> Tally:
    return tally.read(dict(_pair(amount) for amount in amounts))


def _pair(text: str) -> tuple[str, str]:
    key, equals, amount = text.partition("=")
    if not equals:
        raise ValueError(f"{text} is no amount")
    return key, amount


def write(ledger: Ledger) -> dict[str, Any]:
    """The status of a TenantUsage. `used` and `percent` are for people; no program reads them."""
    used = ledger.used
    return {
        "hard": {key: tally.text_of(key, limit) for key, limit in sorted(ledger.hard.items())},
        "used": {key: tally.text_of(key, used.get(key, Fraction(0))) for key in sorted({*ledger.hard, *used})},
        "percent": tally.percent(used, ledger.hard),
        "held": {namespace: tally.write(amount) for namespace, amount in sorted(ledger.held.items())},
        "view": str(ledger.view),
        "pending": [
            _line(name, uid, amount=amount)
            for name, by_uid in ledger.pending.items()
            for uid, amount in by_uid.items()
        ],
        "advances": [_line(token, amount=amount) for token, amount in ledger.advances.items()],
        "joining": dict(ledger.joining),
        "recount": ledger.recount,
        "recounted": ledger.recounted,
    }


def _line(*words: str, amount: Tally) -> str:
    return " ".join([*words, *(f"{key}={text}" for key, text in tally.write(amount).items())])
