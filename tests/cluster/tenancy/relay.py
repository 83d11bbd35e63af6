"""Passes TCP connections on, as kube-proxy does: each to the next target that accepts it, for as long as both last.

    python relay.py PORT TARGET...        all of them ports of loopback

SIGUSR1 freezes the connections that there are: nothing is passed on, and nobody is told. New ones are passed on.
SIGUSR2 lets the frozen ones go on with what was held back. It imports nothing but the standard library.
"""

import asyncio
import contextlib
import itertools
import signal
import sys
from collections.abc import Iterator, Sequence

CHUNK = 1 << 16
GIVEN_UP = 1.0
"""Seconds after which a target that does not even accept is passed over."""


class Relay:
    """The connections of one port, and their targets in turn."""

    def __init__(self, targets: Sequence[int]) -> None:
        self._count = len(targets)
        self._turn: Iterator[int] = itertools.cycle(targets)
        self._gates: set[asyncio.Event] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on until either end closes it."""
        gate = asyncio.Event()
        gate.set()
        self._gates.add(gate)
        try:
            there = await self._connect()
            if there is None:
                return
            pumps = (_pump(reader, there[1], gate), _pump(there[0], writer, gate))
            _, going = await asyncio.wait(
                [asyncio.ensure_future(pump) for pump in pumps], return_when="FIRST_COMPLETED"
            )
            for each in going:
                each.cancel()
            there[1].transport.abort()
        finally:
            self._gates.discard(gate)
            writer.transport.abort()

    def freeze(self) -> None:
        """Pass nothing on that comes on the connections there are."""
        for gate in self._gates:
            gate.clear()

    def thaw(self) -> None:
        """Go on."""
        for gate in self._gates:
            gate.set()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for target in itertools.islice(self._turn, self._count):
            with contextlib.suppress(OSError, TimeoutError):
                return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", target), GIVEN_UP)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            await gate.wait()
            writer.write(data)
            await writer.drain()


async def main() -> None:
    port, *targets = map(int, sys.argv[1:])
    relay = Relay(targets)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, relay.freeze)
    loop.add_signal_handler(signal.SIGUSR2, relay.thaw)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", port, backlog=1000)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
