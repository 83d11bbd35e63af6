"""Steps of tables: calls of a settlement, a view or an account, and what comes of them.

A step is a list: the method, what it is given, and behind that what it gives, if that is to be looked at. A ledger is
what differs in it from the one that the table begins with; `last` is the one that the last step gave. A tally is a
number of devices, or a mapping. `[set, NAME, 4]` sets a constant of the module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from inspect import signature
from types import ModuleType
from typing import Any

import pytest

from webhook.core.quota.ledger import Ledger
from webhook.core.quota.settlement import Step, ViewedPod
from webhook.core.quota.tally import Ask, Tally


def tally(written: Any) -> Tally:
    """A number of devices, or amounts by their names."""
    amounts = written if isinstance(written, dict) else {"devices": written}
    return {key: Fraction(amount) for key, amount in amounts.items()}


def _tallies(written: Mapping[str, Any]) -> Mapping[str, Tally]:
    return {key: tally(amount) for key, amount in written.items()}


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "hard": tally,
    "held": _tallies,
    "advances": _tallies,
    "pending": lambda written: {name: _tallies(by_uid) for name, by_uid in written.items()},
    "unread": tuple,
    "problems": tuple,
    "amount": tally,
    "get": frozenset,
    "look": frozenset,
}


def fields(written: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ledger, an ask or a step."""
    return {key: _FIELDS.get(key, lambda value: value)(value) for key, value in written.items()}


def ask(written: Any, **usual: Any) -> Ask:
    """An ask for one device in the namespace `dev`, by its name; or the fields in which it differs."""
    given = written if isinstance(written, dict) else {"name": written}
    usual = {"namespace": "dev", "amount": tally(1), "uid": f"uid-{given['name']}", **usual}
    return Ask(**usual | fields(given))


def viewed(written: Any) -> ViewedPod:
    """A pod with one device in the namespace `dev`, by its UID; or the fields in which it differs."""
    given = written if isinstance(written, dict) else {"uid": written}
    return ViewedPod(**{"namespace": "dev", "name": f"pod-of-{given['uid']}", "amount": tally(1)} | fields(given))


class Steps:
    """Whose methods are called, the ledger that others differ from, and what is usual of an ask."""

    def __init__(self, *objects: object, ledger: Ledger | None = None, **usual: Any) -> None:
        self.objects, self.usual = objects, usual
        self.ledger = self.last = ledger or Ledger()

    def run(self, steps: Sequence[Any], module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make all calls, and compare what they give; a step may be a list of them."""
        for step in steps:
            if isinstance(step[0], list):
                self.run(step, module, monkeypatch)
            elif step[0] == "set":
                monkeypatch.setattr(module, *step[1:])
            else:
                self._call(*step)

    def _call(self, name: str, *written: Any) -> None:
        method = next(getattr(each, name) for each in self.objects if hasattr(each, name))
        parameters = [*signature(method).parameters] if callable(method) else []
        given = [self._read(name, *pair) for pair in zip(parameters, written, strict=False)]
        result = method(*given) if callable(method) else method
        for expected in written[len(parameters) :]:
            meant = given[0] if expected == "same" else self._expected(result, expected)
            assert result == meant, f"{name} {written[: len(parameters)]}: {result} instead of {meant}"
            assert expected != "same" or result is meant, f"{name} has made another object that is equal"
        self.last = result if isinstance(result, Ledger) else self.last

    def _expected(self, result: object, written: Any) -> object:
        if isinstance(result, Step):
            ledger = {"ledger": self._ledger(written["ledger"])} if "ledger" in written else {}
            return Step(**fields(written) | ledger)
        read: Mapping[type, Callable[[Any], Any]] = {Ledger: self._ledger, dict: tally}
        return read.get(type(result), lambda value: value)(written)

    def _ledger(self, written: Any) -> Ledger:
        if written == "last" or "last" in written:
            return replace(self.last, **fields(written["last"] if isinstance(written, dict) else {}))
        return replace(self.ledger, **fields(written))

    def _read(self, method: str, parameter: str, written: Any) -> Any:
        read: Mapping[str, Callable[[Any], Any]] = {
            "hard": tally,
            "pod": viewed,
            "pods": lambda pods: [viewed(pod) if method == "listed" else tuple(pod) for pod in pods],
            "ask": lambda asked: ask(asked, **self.usual),
            "admitted": lambda asks: [ask(asked, **self.usual) for asked in asks],
            "ledger": self._ledger,
            "ledgers": lambda ledgers: {tenant: self._ledger(ledger) for tenant, ledger in ledgers.items()},
        }
        return read.get(parameter, lambda value: value)(written)
