"""How programs and commands hold a connection to the cluster: one piece of work, or until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

from webhook.cluster import client
from webhook.cluster.client import Api

T = TypeVar("T")

log = logging.getLogger(__name__)


def ask(work: Callable[[Api], Awaitable[T]]) -> T:
    """Connect, do one piece of work, disconnect; raises ApiError. For commands, and threads of threaded programs."""
    return asyncio.run(_connected(work))


def run(program: Callable[[Api], Awaitable[None]]) -> None:
    """Connect and run a program until SIGTERM or SIGINT cancels it; raises ApiError where there is no cluster."""
    try:
        asyncio.run(_stoppable(program))
    except asyncio.CancelledError:
        log.info("stopped")


async def _stoppable(program: Callable[[Api], Awaitable[None]]) -> None:
    me, loop = asyncio.current_task(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: me and me.cancel())
    await _connected(program)


async def _connected(work: Callable[[Api], Awaitable[T]]) -> T:
    api = await client.connect()
    try:
        return await work(api)
    finally:
        await api.close()
