"""What this program tells of itself over HTTP: `/metrics` for Prometheus, `/healthz` for the kubelet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Final

from aiohttp import web

from certs.endpoints import Address
from certs.turns import Status

STALLED_SECONDS: Final = 120.0
"""Without a turn for so long the program hangs; a restart does no harm."""


async def serve(status: Status, bind: Address) -> web.AppRunner:
    """Answer from now on, until the runner that is returned is cleaned up."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            text="\n".join(lines(status)) + "\n", headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def healthz(_: web.Request) -> web.Response:
        if monotonic() - status.turned > STALLED_SECONDS:
            return web.Response(status=503, text="no turn was taken for too long\n")
        return web.Response(text="ok\n")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/healthz", healthz)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, *bind).start()
    return runner


def lines(status: Status) -> Iterator[str]:
    """The page in the text format of Prometheus."""
    yield from _head("expiry_timestamp_seconds", "gauge", "When certificates end.")
    for certificate, at in sorted(status.expiry.items()):
        yield f'gpu_webhook_certs_expiry_timestamp_seconds{{certificate="{certificate}"}} {at.timestamp():.0f}'
    yield from _head("actions_total", "counter", "Writes, and attempts at them.")
    for (action, result), count in sorted(status.actions.items()):
        yield f'gpu_webhook_certs_actions_total{{action="{action}",result="{result}"}} {count}'
    yield from _head("problems", "gauge", "What is not as it should be, or keeps an action from being done.")
    for what, count in sorted(Counter(each.what for each in status.problems).items()):
        yield f'gpu_webhook_certs_problems{{what="{what}"}} {count}'
    yield from _head("turn_age_seconds", "gauge", "Since the last turn.")
    yield f"gpu_webhook_certs_turn_age_seconds {monotonic() - status.turned:.3f}"


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP gpu_webhook_certs_{name} {text}"
    yield f"# TYPE gpu_webhook_certs_{name} {kind}"
