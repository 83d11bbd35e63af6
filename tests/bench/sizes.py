"""`python -m tests.bench.sizes [name]`: what a review costs by its size, for pods that are huge in one dimension.

CPU milliseconds of one process, the best of three, each from bytes to bytes: decoded, judged, encoded, and let go.
The decoder's part of it is shown by itself.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import process_time_ns
from typing import Any, Final

import orjson

from tests.attacks.monsters import MIB, MONSTERS, of_size, review_of, without_gpu
from tests.core.policy.tenants import EVERYTHING, RULES
from webhook.cli import workload_advice
from webhook.core import review
from webhook.core.mutate import mutate
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.server.handler import Judge, Memo

ROUNDS: Final = 3
SIZES: Final = (MIB // 10, MIB, 3 * MIB)

COLUMNS: Final[Mapping[str, tuple[Judge, Rulebook]]] = {
    "/mutate": (mutate, RULES),
    "/validate": (validate, RULES),
    "/mutate, a policy": (mutate, EVERYTHING),
    "/validate, a policy": (validate, EVERYTHING),
    "/templates, a policy": (workload_advice.warn, EVERYTHING),
}

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}


def rows(names: Sequence[str], sizes: Sequence[int] = SIZES) -> Iterator[str]:
    """Markdown: a row for each of these monsters, with a GPU and without, in each size."""
    yield f"| pod | MiB | decode | {' | '.join(COLUMNS)} | /mutate without a GPU |"
    yield f"| --- {'| ---: ' * (3 + len(COLUMNS))}|"
    for name in names:
        for size in sizes:
            pod = of_size(MONSTERS[name], size)
            body = review_of(pod)
            times = [_best(lambda: orjson.loads(body))]  # noqa: B023 - called here
            for judge, rulebook in COLUMNS.values():
                sent = review_of_template(pod) if judge is workload_advice.warn else body
                times.append(_best(lambda: answer(sent, judge, rulebook)))  # noqa: B023 - as above
            plain = review_of(without_gpu(pod))
            times.append(_best(lambda: answer(plain, mutate, RULES)))  # noqa: B023 - as above
            yield f"| {name} | {len(body) / MIB:.1f} | {' | '.join(f'{each:.1f}' for each in times)} |"


def answer(body: bytes, judge: Judge, rulebook: Rulebook) -> bytes:
    """The answer to a review, as the server makes it."""
    request = review.decode(body)
    return review.encode(request.uid, Memo().decide("judge", judge, request, rulebook))


def review_of_template(pod: Mapping[str, Any]) -> bytes:
    """The review of a Deployment with this pod in its template."""
    whole = orjson.loads(review_of({**DEPLOYMENT, "spec": {"template": pod}}))
    whole["request"]["resource"] = {"group": "apps", "version": "v1", "resource": "deployments"}
    return orjson.dumps(whole)


def _best(work: Callable[[], object]) -> float:
    """CPU milliseconds, with the collector off as in the server's lane."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(ROUNDS):
        started = process_time_ns()
        work()
        times.append(process_time_ns() - started)
    gc.enable()
    return min(times) / 1e6


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    for row in rows([name for name in MONSTERS if wanted in name]):
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
