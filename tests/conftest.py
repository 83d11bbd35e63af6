"""What holds for every test, and which tests run beside each other: `make test` starts several workers."""

import fcntl
import gc
import signal
import tempfile
from collections.abc import Generator, Sequence
from typing import IO, Any

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts a job in the background lets it ignore SIGINT, and every program it starts inherits that:
    # the tests that interrupt a program, as Ctrl-C does, would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("patient", deadline=None)  # machines differ, and the other workers have their share
settings.load_profile("patient")

ON_SHARED_PLANES = (
    *("applied_twice", "claims", "dynamic_resources", "enforcement", "golden_cases", "guard", "inventory"),
    *("refusals", "rewrites", "scheduling", "survey", "templates"),
)
"""On the two control planes of a session, which every worker that had one of them would keep to its end."""

GROUPS: Sequence[Sequence[str]] = (
    tuple(f"tests/cluster/tenancy/test_{name}.py" for name in ("net", "neutral", "taken_away")),
    ("tests/cluster/tenancy/test_faults.py",),
    ("tests/cluster/tenancy/test_forms.py",),
    ("tests/cluster/tenancy/",),
    tuple(f"tests/cluster/test_{name}.py" for name in ON_SHARED_PLANES),
    ("tests/cluster/test_doctor.py",),
    ("tests/cluster/test_certs.py",),
    ("tests/cluster/test_upgrading.py",),
    ("tests/cluster/test_rollouts.py",),
    ("tests/image/",),
    ("tests/cases/", "tests/core/test_projection.py", "tests/fixes/"),
    ("tests/laws/test_idempotence.py",),
    ("tests/laws/test_ledger.py",),
    ("tests/laws/test_enough.py",),
    ("tests/test_playground.py",),
    ("tests/test_readme.py",),
    ("tests/server/test_leaving.py",),
    ("tests/server/test_timeouts.py",),
)
"""Files whose tests run in one worker, what takes longest first: they share a control plane, or rulebooks of cases.

Every other file is a group of its own.
"""

ALONE = (
    "tests/attacks/test_reviews.py",
    "tests/attacks/test_sockets.py",
)
"""Tests that measure how long others wait: one worker runs them last, and nothing runs beside them."""

WAITING = ("tests/cluster/", "tests/image/")
"""Tests of control planes and of the image: they wait longer than they compute."""

_turn = pytest.StashKey[IO[bytes]]()
"""A file that a test locks: for itself while it has to be alone, else together with all others."""


def _group(nodeid: str) -> int | str:
    """The place in GROUPS, the file of a test that is in no group, or "alone"."""
    if nodeid.startswith(ALONE):
        return "alone"
    places = (place for place, starts in enumerate(GROUPS) if nodeid.startswith(tuple(starts)))
    return next(places, nodeid.partition("::")[0])


def _order(item: pytest.Item) -> int:
    group = _group(item.nodeid)
    if isinstance(group, int):
        return group
    return len(GROUPS) + (group == "alone")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_order)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among what was collected: it took a tenth of the CPU of laws and cases."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The groups are what workers are given, in their order."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where there are workers

    class Groups(LoadScopeScheduling):  # type: ignore[misc]  # xdist publishes no types
        def _split_scope(self, nodeid: str) -> str:
            return str(_group(nodeid))

        def _assign_work_unit(self, node: Any) -> None:
            """One worker computes while the others wait for programs, as long as there is work of both kinds."""
            computes = node is self.nodes[0]

            def rank(group: str) -> tuple[bool, bool]:
                return group == "alone", next(iter(self.workqueue[group])).startswith(WAITING) == computes

            self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
            super()._assign_work_unit(node)

    return Groups(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker which file is locked."""
    if _turn not in node.config.stash:
        node.config.stash[_turn] = tempfile.NamedTemporaryFile(prefix="turn-")  # noqa: SIM115 - as long as the run
    node.workerinput["turn"] = node.config.stash[_turn].name


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {})
    if "turn" in given:
        config.stash[_turn] = open(given["turn"], "rb")  # noqa: PTH123, SIM115 - as long as the worker


def pytest_unconfigure(config: pytest.Config) -> None:
    if _turn in config.stash:
        config.stash[_turn].close()


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """See that CPython's only b"\\0" is what it was: quicktions writes there when it reads a text of one digit."""
    assert chr(0).encode() == b"\0", f"{item.nodeid}, or a test before it, gave text to quantity.Fraction"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait until nothing runs that must not run beside this test."""
    turn = item.config.stash.get(_turn, None)
    if turn is None:
        return (yield)
    if not item.nodeid.startswith(ALONE):
        fcntl.flock(turn, fcntl.LOCK_SH)
    try:
        return (yield)
    finally:
        fcntl.flock(turn, fcntl.LOCK_UN)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Be alone from here on: what the test needs was made while others ran, as that takes as long as the test."""
    if item.nodeid.startswith(ALONE) and _turn in item.config.stash:
        fcntl.flock(item.config.stash[_turn], fcntl.LOCK_EX)
