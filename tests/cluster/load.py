"""Clients that create pods without a pause, and what became of every create."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.pods import pod
from tests.laws import SOAK

ASKING = pod("asking", labels={"gpu": "1"})
ORDINARY = pod("ordinary", labels={"app": "web"})

CLIENTS = 16 if SOAK else 8
"""How many create while replicas, versions and certificates change."""


class Load:
    """Each client creates one pod after the other, on dry run, through all API servers and of all kinds in turn.

    A create that failed is tried again by the same client, as controllers do. After each it rests for a moment.
    `slowest` is the longest create in seconds, `in_a_row` the most failures that one client had without a success.
    A GPU pod that comes back as it was sent is a failure, while `rewriting` is set. With `stored` each pod is created
    for good, under a name of its own.
    """

    PAUSE = 0.1 if SOAK else 0.3

    def __init__(
        self, clients: Sequence[Client], count: int, pods: Sequence[Object] = (ASKING,), *, stored: bool = False
    ) -> None:
        self._stored = stored
        self.created: Counter[str] = Counter()
        self.rewriting = True
        self.failures: list[str] = []
        self.slowest = 0.0
        self.in_a_row = 0
        self._tries = [(client, made) for made in pods for client in clients]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._create, args=(number,)) for number in range(count)]

    def _create(self, number: int) -> None:
        in_a_row = 0
        while not self._ended.wait(self.PAUSE):
            client, made = self._tries[number % len(self._tries)]
            began = time.monotonic()
            failure = self._failure(client, made)
            self.slowest = max(self.slowest, time.monotonic() - began)
            if not failure:
                number, in_a_row = number + 1, 0
                continue
            in_a_row += 1
            self.in_a_row = max(self.in_a_row, in_a_row)
            self.failures.append(failure)

    def _failure(self, client: Client, made: Object) -> str:
        """Why a create failed; "" if it did not."""
        sent = {**made, "metadata": {**made["metadata"], "name": "", "generateName": "a-"}} if self._stored else made
        try:
            answer = client.create(sent, dry_run=not self._stored)
        except (RefusedError, OSError) as error:
            return f"{error!r}"
        self.created[made["metadata"]["name"]] += 1
        return "" if not self.rewriting or made is ORDINARY or rewritten(answer) else "a pod was not rewritten"

    def told(self) -> str:
        """What became of the creates, in a line."""
        return (
            f"{self.created.total():,} creates, {len(self.failures)} failed, at most {self.in_a_row} in a row of a "
            f"client, the slowest took {self.slowest:.2f} s"
        )

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def rewritten(made: Object) -> bool:
    """Whether a created pod has been through the webhook."""
    return "nvidia.com/gpu" in made["spec"]["containers"][0].get("resources", {}).get("limits", {})
