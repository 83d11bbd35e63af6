"""A crowd that creates pods at once, and comes again when it is told to, as client-go and controllers do.

`SHAPES` are the ways in which a pod can ask, each with what it holds, worked out by hand.
"""

import json
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from http import HTTPStatus
from time import monotonic
from typing import Any

from tests.cluster.client import Client
from tests.cluster.pods import container, limits, pod
from tests.cluster.tenancy.witness import HOLDS, Witness

Row = tuple[object, ...]
"""What is told of a storm: `Tale.row`."""

CLIENTS = 64
PATIENCE = 90.0
"""Seconds for which a client goes on asking."""

SECONDS = 35.0
"""Until a client hangs up; the API server has given up a second before."""

BACKOFF = 0.3
"""Seconds until somebody who was not told how long to wait comes again."""


def _labelled(**labels: str) -> dict[str, Any]:
    return {"labels": {key.replace("_", "-"): value for key, value in labels.items()}}


def _limited(**quantities: Any) -> dict[str, Any]:
    names = {"nvidia": "nvidia.com/gpu", "percent": "nvidia.com/gpumem-percentage", "cores": "nvidia.com/gpucores"}
    names["amd"] = "amd.com/gpu"
    return {"resources": limits(**{names[name]: quantity for name, quantity in quantities.items()})}


def _of(*containers: Mapping[str, Any], init: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    there = {"containers": [container(f"c{number}", **each) for number, each in enumerate(containers)]}
    first = [container(f"i{number}", **each) for number, each in enumerate(init)]
    return {**there, **({"initContainers": first} if first else {})}


SHAPES: Mapping[str, tuple[Fraction, Mapping[str, Any]]] = {
    "whole": (Fraction(1), _labelled(gpu="1")),
    "two": (Fraction(2), _labelled(gpu="2")),
    "three tenths": (Fraction(3, 10), _labelled(gpu="0.3")),
    "half": (Fraction(1, 2), _labelled(gpu="0.5")),
    "two halves": (Fraction(1), _labelled(gpu="2x0.5")),
    "a resource of NVIDIA's plugin": (Fraction(1), _of(_limited(nvidia=1))),
    "two of AMD's": (Fraction(2), _of(_limited(amd=2))),
    "HAMi's own words": (Fraction(2, 5), _of(_limited(nvidia=1, percent=40, cores=40))),
    "two containers": (Fraction(3), _of(_limited(nvidia=1), _limited(nvidia=2))),
    "an init container that holds more": (Fraction(2), _of(_limited(nvidia=1), init=[_limited(nvidia=2)])),
    "a sidecar": (Fraction(2), _of(_limited(nvidia=1), init=[{**_limited(nvidia=1), "restartPolicy": "Always"}])),
}
"""By name: what is held, in devices, and how it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A pod that somebody wants; `patience`: seconds until he hangs up for the first time, and asks once more."""

    namespace: str
    name: str
    holds: Fraction
    asking: Mapping[str, Any]
    patience: float = SECONDS

    @property
    def body(self) -> bytes:
        """The pod, with what it holds written on it."""
        return json.dumps(pod(self.name, annotations={HOLDS: str(self.holds)}, **self.asking)).encode()


def wishes(seed: int, count: int, namespaces: Sequence[str], shapes: Sequence[str] = tuple(SHAPES)) -> list[Wish]:
    """So many, drawn by a seed."""
    draw = random.Random(seed)  # noqa: S311 - not a secret
    found = []
    for number in range(count):
        holds, asking = SHAPES[draw.choice(shapes)]
        found.append(Wish(namespace=draw.choice(namespaces), name=f"p{number}", holds=holds, asking=asking))
    return found


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of a wish: the last code, and what was said with it."""

    wish: Wish
    code: int
    said: str = ""

    @property
    def refused(self) -> bool:
        """Whether it was over the quota."""
        return self.code == HTTPStatus.FORBIDDEN and "GPU104" in self.said


@dataclass(slots=True)
class Tale:
    """What a crowd has got, and how often somebody had to come again, by why."""

    endings: list[Ending] = field(default_factory=list)
    again: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def admitted(self) -> list[Wish]:
        """Whoever has his pod."""
        return [each.wish for each in self.endings if each.code == HTTPStatus.CREATED]

    def refused(self) -> list[Wish]:
        """Whoever was over the quota."""
        return [each.wish for each in self.endings if each.refused]

    def row(self, storm: str, seed: int, limit: int, witness: Witness, figures: Mapping[str, float]) -> Row:
        """What there is to tell: shown beside a failure or by `pytest -s`, and kept by a soak."""
        asked, got = len(self.endings), len(self.admitted())
        events = ("drawn", "conflict", "recount")
        counted = [round(figures[f'ledger_events_total{{event="{event}"}}']) for event in events]
        waited = round(1000 * figures["reservation_seconds_sum"] / max(1, figures["reservation_seconds_count"]))
        seen = (float(witness.peak.devices), witness.versions)
        found = (
            storm,
            seed,
            asked,
            got,
            sum(self.again.values()),
            limit,
            *seen,
            *counted,
            waited,
            round(self.seconds),
        )
        print(*found, dict(self.again), sep=" | ")  # noqa: T201 - as it says
        return found

    def others(self) -> list[Ending]:
        """Whatever ended in another way."""
        return [each for each in self.endings if each.code != HTTPStatus.CREATED and not each.refused]


Then = Callable[[Ending], None]


class Crowd:
    """Clients that share what they have to ask for. `then` is what each does when one of its wishes has ended."""

    def __init__(self, client: Client, then: Then | None = None, clients: int = CLIENTS) -> None:
        self.tale = Tale()
        self._client = client
        self._then = then
        self._clients = clients
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._left: queue.SimpleQueue[Wish] = queue.SimpleQueue()
        self._failed: list[BaseException] = []
        self.done = 0

    def run(self, all_of_them: Iterable[Wish]) -> Tale:
        """Ask for all of them, and tell what became of each."""
        for wish in all_of_them:
            self._left.put(wish)
        began = monotonic()
        threads = [threading.Thread(target=self._ask, name=f"client {number}") for number in range(self._clients)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self._stopped.set()
        self.tale.seconds = monotonic() - began
        return self.told()

    def told(self) -> Tale:
        """What became of all; raises what a client has failed with."""
        if self._failed:
            raise self._failed[0]
        return self.tale

    def _ask(self) -> None:
        try:
            while not self._failed:
                try:
                    wish = self._left.get_nowait()
                except queue.Empty:
                    return
                ending = self._grant(wish)
                with self._lock:
                    self.tale.endings.append(ending)
                    self.done += 1
                if self._then is not None:
                    self._then(ending)
        except BaseException as error:  # noqa: BLE001 - raised by whoever has started it
            self._failed.append(error)

    def _grant(self, wish: Wish) -> Ending:
        """Ask until there is an answer that will stay."""
        path, body = f"/api/v1/namespaces/{wish.namespace}/pods", wish.body
        until = monotonic() + PATIENCE
        unsure, seconds = False, wish.patience
        while True:
            try:
                code, headers, said = self._client.exchange("POST", path, body, seconds=seconds)
                wait = float(headers.get("Retry-After") or 0) or BACKOFF
            except OSError as error:
                code, wait, said = 0, BACKOFF, str(error).encode()
            text = said.decode()
            if code == HTTPStatus.CONFLICT and unsure:
                return Ending(wish, HTTPStatus.CREATED, text)
            if 0 < code < HTTPStatus.INTERNAL_SERVER_ERROR and code != HTTPStatus.TOO_MANY_REQUESTS:
                return Ending(wish, code, text)
            if monotonic() > until:
                return Ending(wish, code, text)
            seconds = SECONDS
            unsure = unsure or code in {0, HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.INTERNAL_SERVER_ERROR}
            self._count(code, text)
            self._stopped.wait(wait)

    def _count(self, code: int, said: str) -> None:
        with self._lock:
            self.tale.again[_why(code, said)] += 1


def _why(code: int, said: str) -> str:
    for part in ("not counted yet", "wait to be counted", "did not answer in time", "deadline exceeded", "timed out"):
        if part in said:
            return f"{code} {part}"
    return f"{code} {said[:60] if code == 0 else json.loads(said).get('message', '')[:110]}"
