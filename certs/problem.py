"""What keeps an action from being done, or is not as it should be, for the log and the metrics."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """One problem. It is the same as long as `what` and `whose` are; `why` may change with every look."""

    what: str
    """`cluster`, `configuration`, `write`, `api-server`, `replica`, `inactive` or `rollout`."""

    whose: str
    why: str
