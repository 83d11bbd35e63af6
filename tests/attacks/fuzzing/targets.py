"""Everything that is fuzzed: how an input is made, and what holds for it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any, Final

import orjson
import yaml

from tests import builders
from tests.attacks import monsters
from tests.attacks.fuzzing import doors, mutation, reviews, seeds
from tests.attacks.fuzzing.api_server import NotTakenError, amount, patched
from tests.edited import edited
from tests.laws import clusters, edits
from webhook.core.kube import fields, quantity
from webhook.core.mutate import mutate
from webhook.core.request import KEYS, Devices, pasteable
from webhook.core.validate import validate
from webhook.files import rule_files


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed: `make` throws an input, `run` raises for one that fails or returns whether an oracle judged it.

    `inputs` of a hundred thousand are for it.
    """

    make: Callable[[Random], bytes]
    run: Callable[[bytes], object]
    inputs: int


# Reviews

RARE: Final = 1 / 2000


@cache
def _mutator() -> mutation.Mutator:
    return mutation.Mutator(seed.pod for seed in seeds.pods())


def _review(dice: Random) -> bytes:
    if dice.random() < RARE:
        return _head("mutate", clusters.ALL) + monsters.review_of(monsters.several(dice, dice.choice((10**5, 10**6))))
    seed = dice.choice(seeds.pods())
    path = dice.choice(("mutate",) * 16 + ("validate", "templates", "policies"))
    cluster = seed.cluster if seed.cluster and dice.random() < 0.8 else _cluster(dice)
    pod = _copied(seed.pod if path in reviews.PATHS[:2] else dice.choice(seeds.objects()))
    if path in reviews.PATHS[:2] and dice.random() < 0.2:
        _ask_twice(pod["spec"], dice)
    if path in reviews.PATHS[:2] and dice.random() < 0.15:
        doors.opened(pod, dice)
    old = {**_copied(pod), "metadata": {**pod["metadata"], "uid": "u"}} if dice.random() < 0.15 else None
    whole = reviews.of(pod, "UPDATE" if old else "CREATE", old, _RESOURCES.get(pod.get("kind"), "pods"))
    _mutator().mutate(whole if dice.random() < 0.1 else pod, dice)
    body = mutation.encoded(whole)
    return _head(path, cluster) + (mutation.raw(body, dice) if dice.random() < 0.03 else body)


def _ask_twice(spec: Any, dice: Random) -> None:
    """Another container with the resources of one, of any kind."""
    there = [each for section in ("containers", "initContainers") for each in spec.get(section) or ()]
    one = _copied(max(there[:8], key=lambda each: len(str(each.get("resources")))))
    section = dice.choice(("containers", "initContainers"))
    kind = {"restartPolicy": "Always"} if section == "initContainers" and dice.random() < 0.6 else {}
    spec[section] = [*(spec.get(section) or ()), {**one, "name": "another", **kind}]


_RESOURCES: Final = {"TenantPolicy": "tenantpolicies", "Exemption": "exemptions", "Deployment": "deployments"}


def _cluster(dice: Random) -> str:
    return dice.choice((clusters.ALL, clusters.ALL, reviews.SHIPPED, dice.choice(clusters.names())))


def _head(path: str, cluster: str) -> bytes:
    return f"{path} {cluster}\n".encode()


def _copied(document: Any) -> Any:
    return orjson.loads(orjson.dumps(document))


# Quantities

_PLAIN: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,18})?")


def _quantity(dice: Random) -> bytes:
    said = dice.choice(mutation.NUMBERS)
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        said = mutation.text(said, dice)
    return said.encode("utf-8", "surrogatepass")


def _read_quantity(content: bytes) -> bool:
    """Each reader either agrees with Kubernetes, or says how to write it; plain numbers are read by all."""
    said = content.decode("utf-8", "replace")
    exact = _amount(said)
    found = [_or_none(read, said) for read in (quantity.decimal, quantity.served, quantity.size)]
    assert all(value is None or value == exact for value in found), (said, exact, found)
    plain = _PLAIN.fullmatch(said) is not None and Decimal(said) <= quantity.INT64_MAX
    assert (found[0] is not None) == plain, (said, found)
    kept = exact is not None and 10**9 % exact.denominator == 0
    assert (found[1] is not None) or not (plain and kept), (said, found)
    assert not quantity.is_whole(said) or (exact is not None and exact % 1 == 0), said
    other = said[:-1]
    assert not quantity.same(said, other) or _amount(other) == exact, said
    assert quantity.shown(said).isprintable()
    if found[2] is not None:
        assert quantity.size_shown(quantity.show_size(int(found[2]))) == found[2]
    return exact is not None


def _amount(said: str) -> Fraction | None:
    try:
        return amount(said)
    except NotTakenError:
        return None


def _or_none(read: Callable[[str], Any], said: str) -> Any:
    try:
        return read(said)
    except quantity.QuantityError as error:
        _check_said(error)
        return None


def _check_said(error: quantity.QuantityError) -> None:
    assert error.message
    assert error.fix
    assert f"{error}".isprintable()


# Shorthand

_DEVICES: Final = re.compile(r"(?:([0-9]{1,9})x)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)|([0-9]{1,3})%)")


def _word(dice: Random) -> bytes:
    key = dice.choice([*KEYS, "gpu", "gpu", "gpu-memory"])
    said = _mutator().known(key, dice) if dice.random() < 0.4 else dice.choice((*mutation.NUMBERS, *mutation.WORDS))
    said = said if isinstance(said, str) else str(said)
    for _ in range(dice.choice((0, 1, 1, 2))):
        said = mutation.text(said, dice)
    return f"{key}\n{said}".encode("utf-8", "surrogatepass")


def _read_word(content: bytes) -> bool:
    key, _, said = content.decode("utf-8", "replace").partition("\n")
    if key not in KEYS:
        return False
    value = _or_none(KEYS[key], said)
    line = pasteable(key, said)
    assert not said.isprintable() or yaml.safe_load(line) == {key: said}, line
    if key != "gpu" or said.lower() == "none":
        return value is not None
    meant = _devices(said)
    assert (value is not None) == (meant is not None), (said, value, meant)
    if isinstance(value, Devices):
        assert (value.count, value.share) == meant
    return value is not None


def _devices(said: str) -> tuple[int, Fraction | None] | None:
    """How many devices a text is, and which share of each, as the README says; None for none."""
    match = _DEVICES.fullmatch(said)
    if match is None:
        return None
    times, each = int(match[1] or 1), Fraction(match[2] or 0) + Fraction(int(match[3] or 0), 100)
    if each == 0 or times == 0 or times * each > 1024 or (match[3] and each > 1):
        return None
    if each < 1:
        return (times, each) if times <= 1024 else None
    return (times * int(each), None) if each.denominator == 1 else None


# Patches


def _patch(dice: Random) -> bytes:
    pod = _copied(dice.choice(seeds.small()))
    _mutator().mutate(pod, dice)
    return b"%d\n" % dice.randrange(10**9) + orjson.dumps(pod)


def _apply(content: bytes) -> bool:
    """Any edits of any object, their patch by our own application, and their patch by another come to the same."""
    seed, _, text = content.partition(b"\n")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if not seed.isdigit() or not isinstance(document, dict) or reviews.is_deep(document):
        return False
    made = edits.some(document, Random(int(seed)))  # noqa: S311  not a secret
    operations = orjson.loads(orjson.dumps(fields.to_patch(made, document)))
    after = edited(made, document)
    assert fields.applied(operations, document) == after
    assert patched(orjson.loads(text), operations) == after
    assert document == orjson.loads(text)
    return bool(operations)


# Rules


def _rules(dice: Random) -> bytes:
    page = mutation.lines(dice.choice(seeds.rules()), seeds.lines(), dice)
    content = page.encode("utf-8", "surrogatepass")
    return mutation.raw(content, dice) if dice.random() < 0.1 else content


_PLACE: Final = re.compile(r"(fuzzed\.yaml|catalog\.yaml|rules):[1-9][0-9]*:[1-9][0-9]*: ")
_ASKING: Final = (
    {"gpu": "1"},
    {"gpu": "2x0.5"},
    {"gpu-memory": "8Gi", "gpu-cores": "30"},
    {"gpu-profile": "1g.10gb"},
)


@cache
def _folder() -> Path:
    """A folder of rules with a catalogue alone."""
    folder = Path(mkdtemp(prefix="fuzzed-"))
    (folder / seeds.CATALOGUE).write_text(seeds.catalogue())
    return folder


def _load(content: bytes) -> bool:
    """A file loads, and pods are answered by it, or it is said where it is wrong."""
    file = _folder() / "fuzzed.yaml"
    file.write_bytes(content)
    try:
        rulebook = rule_files.load(_folder())
    except rule_files.RuleFilesError as error:
        _check_problems(error)
        return False
    for labels in _ASKING:
        asked = builders.creating(builders.pod(labels=labels))
        decision = mutate(asked, rulebook)
        if decision.allowed:
            validate(asked._replace(pod=fields.applied(decision.patch, asked.pod or {})), rulebook)
    return True


def _check_problems(error: rule_files.RuleFilesError) -> None:
    """Whether it is said what is wrong, and where."""
    assert error.problems
    assert all(problem.message for problem in error.problems)
    assert all(_PLACE.match(f"{problem}") for problem in error.problems), f"{error}"


TARGETS: Final[Mapping[str, Target]] = {
    "reviews": Target(_review, reviews.live, 48_000),
    "quantities": Target(_quantity, _read_quantity, 20_000),
    "shorthand": Target(_word, _read_word, 18_000),
    "patches": Target(_patch, _apply, 10_000),
    "rules": Target(_rules, _load, 4_000),
}
"""By name. An oracle's finding is a FoundError or a failed assertion; whatever else is raised is a fault, too."""
