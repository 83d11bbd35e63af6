"""Which names are due, and when a waiter is woken for them."""

import asyncio
from time import monotonic

import pytest

from webhook import settler
from webhook.settler import WorkQueue


def test_who_is_added_twice_is_due_once() -> None:
    queue = WorkQueue()
    queue.add(["vision", "speech"])
    queue.add(["vision"])
    queue.add(["vision"], monotonic() - 1)

    assert queue.due() == ["speech", "vision"]
    assert queue.due() == []


def test_of_two_times_the_earlier_counts() -> None:
    queue = WorkQueue()
    queue.add(["vision"], monotonic() + 3600)
    assert queue.due() == []

    queue.add(["vision"], monotonic() - 1)
    queue.add(["vision"], monotonic() + 3600)
    assert queue.due() == ["vision"]


def test_who_is_due_now_is_not_due_again_later() -> None:
    queue = WorkQueue()
    queue.add(["vision"], monotonic() + 0.001)
    queue.add(["vision"])
    assert queue.due() == ["vision"]

    asyncio.run(asyncio.wait_for(_silent(queue), 5))


async def _silent(queue: WorkQueue) -> None:
    await queue.wait(0.05)
    assert queue.due() == []


@pytest.mark.parametrize(
    ("took", "pause"), [(0.01, settler.SOON_SECONDS), (0.15, 0.15 * settler.PACE), (9.0, settler.LONGEST_PAUSE)]
)
def test_who_takes_long_is_due_later_so_that_others_can_write_meanwhile(took: float, pause: float) -> None:
    async def waited() -> float:
        queue = WorkQueue()
        queue.took("vision", took)
        began = monotonic()
        queue.soon("vision")
        while not queue.due():
            await queue.wait()
        return monotonic() - began

    assert pause <= asyncio.run(asyncio.wait_for(waited(), 5)) < pause + 1


def test_who_a_request_waits_for_is_due_at_once_however_long_it_took() -> None:
    queue = WorkQueue()
    queue.took("vision", 9.0)
    queue.soon("vision")
    queue.add(["vision"])

    assert queue.due() == ["vision"]


def test_a_wait_ends_when_the_first_is_due() -> None:
    async def due() -> list[str]:
        queue = WorkQueue()
        queue.add(["later"], monotonic() + 3600)
        queue.add(["soon"], monotonic() + 0.05)
        assert queue.due() == []
        await queue.wait()
        return queue.due()

    assert asyncio.run(asyncio.wait_for(due(), 5)) == ["soon"]


def test_a_wait_ends_when_names_are_added_even_if_there_are_none() -> None:
    async def due() -> list[list[str]]:
        queue = WorkQueue()
        asyncio.get_running_loop().call_soon(queue.add, ["vision"])
        await queue.wait()
        first = queue.due()
        asyncio.get_running_loop().call_soon(queue.add, [])
        await queue.wait()
        return [first, queue.due()]

    assert asyncio.run(asyncio.wait_for(due(), 5)) == [["vision"], []]
