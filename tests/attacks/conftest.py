"""Fixtures of the rooms whose servers are attacked."""

from tests.cluster.conftest import controllers, programs
from tests.server.conftest import fraction

__all__ = ["controllers", "fraction", "programs"]
