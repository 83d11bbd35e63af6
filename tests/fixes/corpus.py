"""Pods that are refused: those of the golden cases, and generated ones with all that people get wrong."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import jsonpatch

from tests import builders, tables
from tests.cases import golden
from tests.cases.served import NeverServedError, as_served
from tests.fixes.follow import short, stated, value_at
from tests.laws import asking, clusters
from webhook.core.interpret import locations
from webhook.core.mutate import mutate
from webhook.core.request import ASKING
from webhook.core.rules.rulebook import Rulebook, with_only
from webhook.core.validate import validate
from webhook.core.violations import Violation
from webhook.files.rule_files import RuleFilesError

Object = dict[str, Any]


class Refused(NamedTuple):
    """A pod as its author wrote it, and what is wrong with it."""

    name: str
    pod: Object
    rules: Rulebook
    violations: Sequence[Violation]
    namespace: str = "default"


def violations(pod: Object, rules: Rulebook, namespace: str = "default") -> Sequence[Violation]:
    """Why the API server would not store a pod; nothing for one that is admitted."""
    try:
        seen = as_served(pod)
    except NeverServedError:
        seen = pod
    decision = mutate(builders.creating(seen, namespace), rules)
    if not decision.allowed:
        return decision.violations
    stored = as_served(jsonpatch.apply_patch(seen, decision.patch))
    return validate(builders.creating(stored, namespace), rules).violations


def may_get(pod: Object, rules: Rulebook, namespace: str = "default") -> bool:
    """Whether a pod gets a GPU as it stands, or is refused."""
    decision = mutate(builders.creating(pod, namespace), rules)
    return bool(decision.backends) or not decision.allowed


NOTHING = ("none", "0", "0.0", "None", "False", "")
"""Values that ask for no GPU."""


def asks(pod: Object) -> bool:
    """Whether the author of a pod wants a GPU, by the keys and resources of it."""
    places = [*stated(pod)]
    values = {short(str(at[-1])): str(value_at(pod, at)) for at in places}
    wants = any(key in ASKING and value not in NOTHING for key, value in values.items())
    return wants and values.get("gpu") not in NOTHING


def golden_cases() -> Iterator[Refused]:
    """The refused pods of the cases."""
    for case in golden.find():
        if not case.has_pod:
            continue
        try:
            rules = case.rulebook()
        except RuleFilesError:
            continue
        if found := violations(case.pod(), rules):
            yield Refused(case.name, case.pod(), rules, found)


SAID: dict[str, Sequence[str]] = tables.table(__file__, "said")
OF_ANNOTATIONS: dict[str, Sequence[str]] = tables.table(__file__, "of annotations")
OF_CONTAINERS: dict[str, Sequence[str]] = tables.table(__file__, "of containers")
CLUSTERS: Sequence[Any] = tables.table(__file__, "clusters")


@cache
def _cluster(name: str) -> Rulebook:
    shipped = builders.rulebook(builders.shipped_files())
    return with_only(name, shipped) if name else shipped


BASES: Sequence[Object] = tables.table(__file__, "bases")
"""What is right with a pod, where its cluster can serve it."""

MISTAKES: Sequence[tuple[str, str, str]] = [
    (section, key, value)
    for section, words in (("labels", SAID), ("annotations", OF_ANNOTATIONS), ("limits", OF_CONTAINERS))
    for key, values in words.items()
    for value in values
]


def generated() -> Iterator[Refused]:
    """Each mistake in each pod that would be right without it, in each cluster; those that are refused."""
    for name, base, (section, key, value) in product(CLUSTERS, BASES, MISTAKES):
        rules = _cluster(name)
        if not _right(name, json.dumps(base)) or _twice(base, section, key):
            continue
        said = {**base, section: {**base.get(section, {}), key: value}}
        if found := violations(pod := _pod(said), rules):
            yield Refused(f"{name or 'the shipped cluster'}: {said}", pod, rules, found)


CONTRADICTIONS: Sequence[Mapping[str, Any]] = tables.table(__file__, "contradictions")
UNQUOTED: Sequence[Mapping[str, Any]] = tables.table(__file__, "unquoted")


def contradicting() -> Iterator[Refused]:
    """Pairs of keys that contradict each other, and values without quotes, for the pod and for a container."""
    for name, words in product(CLUSTERS, (*CONTRADICTIONS, *UNQUOTED)):
        of_container = {
            locations.annotation(key, "main"): value for key, value in words.items() if key != "gpu-container"
        }
        for section, said in (("labels", words), ("annotations", of_container)):
            pod = _pod({section: said})
            if found := violations(pod, _cluster(name)):
                yield Refused(f"{name or 'the shipped cluster'}: {section} {said}", pod, _cluster(name), found)


ASKS: Mapping[str, Object] = tables.table(__file__, "asks")
AT_MOST: Mapping[str, float] = tables.table(__file__, "gives at most")


def asked(name: str) -> Iterator[tuple[str, Object]]:
    """What people ask of a back end, each in a pod: in its own words, too."""
    models = {"MODEL": clusters.card(name).model, "PROFILE": (*asking.profiles(name), "1g.10gb")[0]}
    for ask, said in ASKS.items():
        words = {part: {key: models.get(text, text) for key, text in said.get(part, {}).items()} for part in PARTS}
        pod = _pod(words)
        if "first" in said:
            pod["spec"]["initContainers"] = [builders.container("first")]
        yield ask, pod
    for seed in range(2 if asking.forms(name, ("native limits",)) else 0):
        pod = builders.pod(labels={}, annotations={})
        asking.say("native limits", {}, name, pod, pod["spec"]["containers"][0], random.Random(seed))  # noqa: S311
        yield f"in its own words, {seed}", pod


PARTS = ("labels", "annotations", "limits")

WRONG_AMOUNTS = ("1500m", "-1", "8Gi", "3", "7", "150", "99999")
"""What people write for an amount of a back end's own resource."""
WRONG_WORDS: Sequence[Any] = tables.table(__file__, "wrong words")
WRONG_SPECS: Sequence[Object] = (
    {"schedulerName": "mine"},
    {"runtimeClassName": "mine"},
    {"nodeName": "node-1"},
    {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-P4", "amd.com/gpu.product-name": "AMD_Instinct_MI210"}},
)
"""What the rest of a pod may have that a back end cannot work with."""


def of_every_back_end() -> Iterator[Refused]:
    """Each back end's own words with one amount wrong, one left out, one twice; shorthand; pods it cannot serve."""
    for name in clusters.names()[1:]:
        rules = clusters.rulebook(name)
        for number, pod in enumerate(_of_back_end(name)):
            if found := violations(pod, rules):
                yield Refused(f"{name}, {number}: {json.dumps(pod)}", pod, rules, found)


def _of_back_end(name: str) -> Iterator[Object]:
    for words in WRONG_WORDS:
        yield builders.pod(labels={**asking.needed(name), **words})
    if not asking.forms(name, ("native limits",)):
        return
    for seed in range(2):
        made = builders.pod(labels={}, annotations={})
        one = made["spec"]["containers"][0]
        asking.accompany(name, made, one)
        asking.say("native limits", {}, name, made, one, random.Random(seed))  # noqa: S311 - no secret
        yield from ({**made, "spec": {**made["spec"], **spec}} for spec in WRONG_SPECS)
        yield {**made, "spec": {**made["spec"], "containers": [one, {**one, "name": "other"}]}}
        moved = {**made["spec"], "initContainers": [{**one, "name": "first"}], "containers": [builders.container()]}
        yield {**made, "spec": moved}
        limits = (one.get("resources") or {}).get("limits") or {}
        for resource, right in limits.items():
            rest = {key: value for key, value in limits.items() if key != resource}
            tried = [{**rest, resource: wrong} for wrong in WRONG_AMOUNTS if wrong != right]
            for wrong in [*tried, rest] if rest else tried:
                resources = {"limits": wrong}
                yield {**made, "spec": {**made["spec"], "containers": [{**one, "resources": resources}]}}
            twice = {"limits": limits, "requests": {resource: "77"}}
            yield {**made, "spec": {**made["spec"], "containers": [{**one, "resources": twice}]}}


def _twice(base: Object, section: str, key: str) -> bool:
    """Whether the pod would say the same thing in two places, which is another mistake."""
    said = {short(name) for name in base.get("labels", ())}
    if short(key) == "gpu" and said & {"gpu-memory", "gpu-profile"}:
        return True
    if section != "limits" and base.get("limits"):
        return short(key) in {*ASKING, "gpu-backend"}
    if section == "labels" or base.get("limits"):
        return short(key) in ASKING and section == "limits"
    return bool(said) if section == "limits" else short(key) in said


@cache
def _right(name: str, base: str) -> bool:
    return not violations(_pod(json.loads(base)), _cluster(name))


def _pod(said: Object) -> Object:
    limits = said.get("limits")
    one = builders.container(limits=limits) if limits else builders.container()
    return builders.pod(one, labels=said.get("labels", {}), annotations=said.get("annotations", {}))
