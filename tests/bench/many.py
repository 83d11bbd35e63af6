"""`python -m tests.bench.many`: what a review costs with 400 back ends, beside the same review with 4.

Both rulebooks are asked in turns in one process and CPU time is counted, so whatever else this machine does falls on
both alike.
"""

import sys
from functools import cache
from time import process_time_ns

from tests import builders, tables
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook

FEW, MANY = 4, 400
ROUNDS, REVIEWS = 60, 100

CLUSTER = "backends: [nvidia-gpu, hami-vgpu, amd-gpu, tencent-qgpu%s], defaults: {whole: nvidia-gpu, part: hami-vgpu}"
BACKEND: str = tables.table(__file__, "backend")


@cache
def rulebook(backends: int) -> Rulebook:
    """The shipped rules, of which four are enabled, and as many made-up back ends as it takes."""
    numbers = range(backends - FEW)
    files = {f"many-{number}.yaml": BACKEND.replace("%d", str(number)) for number in numbers}
    names = "".join(f", many-{number}" for number in numbers)
    return builders.rulebook({**builders.shipped_files(), **files, "cluster.yaml": builders.cluster(CLUSTER % names)})


def reviews() -> dict[str, AdmissionRequest]:
    """A share, a whole card, a vendor's own resource, and a pod that has nothing to do with GPUs."""
    native = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    pods = {
        "a share": builders.pod(labels={"gpu": "0.3"}),
        "a whole card": builders.pod(labels={"gpu": "1"}),
        "a vendor's resource": {"metadata": {}, "spec": native},
        "no GPU": builders.pod(labels={"app": "web"}),
    }
    return {name: builders.creating(pod) for name, pod in pods.items()}


def ratio(review: AdmissionRequest, few: Rulebook, many: Rulebook) -> float:
    """The CPU time of the review with many back ends, over that with few: each at its best round."""
    times: dict[int, list[int]] = {0: [], 1: []}
    for _round in range(ROUNDS):
        for which, rules in enumerate((few, many)):
            started = process_time_ns()
            for _ in range(REVIEWS):
                mutate(review, rules)
            times[which].append(process_time_ns() - started)
    return min(times[1]) / min(times[0])


def calls(review: AdmissionRequest, rules: Rulebook) -> int:
    """How many functions one review calls, which no other program on the machine can change."""
    mutate(review, rules)  # what is made once for a rulebook is made
    made = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        mutate(review, rules)
    finally:
        sys.setprofile(None)
    return made


def main() -> int:
    few, many = rulebook(FEW), rulebook(MANY)
    for name, review in reviews().items():
        sys.stdout.write(f"{name}: {ratio(review, few, many):.2f} x with {MANY} back ends\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
