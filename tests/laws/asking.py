"""Pods that ask for a GPU, in every form and of every back end."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests import tables
from tests.cases.served import as_served
from tests.laws import clusters, own, surroundings
from webhook.core.backends import translate
from webhook.core.interpret import locations
from webhook.core.request import KEYS, PREFIX, FieldValue, GpuRequest, build
from webhook.core.rules.rulebook import Rulebook

Object = dict[str, Any]
Words = Mapping[str, str]
"""A request in shorthand, by the keys of labels."""

SHORTHAND = ("labels", "qualified annotations", "plain annotation", "container annotations")
RESOURCES = ("bare limits", "bare requests", "qualified limits")
NATIVE = ("native limits", "native requests", "native fraction")
"""Forms in the back end's own words."""

FORMS = (*SHORTHAND, *RESOURCES, *NATIVE)
POD_WIDE = ("labels", "qualified annotations", "plain annotation")
"""Forms that say nothing of a container."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A pod, and how it came to be: `words` is what the container called `container` asks for."""

    form: str
    backend: str
    cluster: str
    container: str
    words: Words
    pod: Object

    @property
    def rulebook(self) -> Rulebook:
        return clusters.rulebook(self.cluster)

    @property
    def native(self) -> bool:
        """Whether the pod asks in the back end's own words only."""
        return self.form in NATIVE

    @property
    def request(self) -> GpuRequest:
        request = request_of(self.words)
        assert request is not None
        return request


def request_of(words: Words) -> GpuRequest | None:
    """What the words mean."""
    return build({key: FieldValue(KEYS[key](text), "", text) for key, text in words.items()})


SHARES = st.one_of(st.integers(1, 999), st.integers(1, 100)).map(lambda number: f"{number / 1000:.3f}".rstrip("0"))
COUNTS = st.integers(1, 8).map(str)
SIZES = st.one_of(
    st.integers(1, 15).map(lambda size: f"{size}Gi"),
    st.integers(300, 24_000).map(lambda size: f"{size}Mi"),
    st.sampled_from(["1.5Gi", "8G", "40Gi"]),
)
PERCENTS = st.one_of(st.integers(1, 100), st.integers(1, 10)).map(str)
PLAIN: Mapping[str, st.SearchStrategy[Words]] = {
    "whole": st.fixed_dictionaries({"gpu": COUNTS}),
    "share": st.fixed_dictionaries({"gpu": SHARES}),
    "shares": st.fixed_dictionaries({"gpu": st.builds("{}x{}".format, st.integers(2, 4), SHARES)}),
    "memory": st.fixed_dictionaries({"gpu-memory": SIZES}),
    "memories": st.fixed_dictionaries({"gpu": COUNTS, "gpu-memory": SIZES}),
    "cores": st.fixed_dictionaries({"gpu-cores": PERCENTS}),
    "memory and cores": st.fixed_dictionaries({"gpu-memory": SIZES, "gpu-cores": PERCENTS}),
    "share and memory": st.fixed_dictionaries({"gpu": SHARES, "gpu-memory": SIZES}),
    "tflops": st.fixed_dictionaries({"gpu-tflops": st.integers(1, 300).map(str)}),
}
"""Requests of every shape that asks no vendor for anything of its own."""

SHAPES = (*PLAIN, "profile")
_SAMPLES: Mapping[str, Sequence[Words]] = tables.table(__file__, "samples")
_SIZED = ("whole", "share", "memory", "memories", "cores", "memory and cores", "share and memory")
_SAYABLE: Mapping[str, Sequence[str]] = {
    "plain annotation": ("whole", "share", "shares"),
    "bare limits": _SIZED,
    "bare requests": _SIZED,
    "native fraction": ("share",),
}


@cache
def profiles(backend: str) -> Sequence[str]:
    """The partitions of the cluster's card that the back end has, as a label can say them."""
    having = clusters.backend(backend).profiles & clusters.card(backend).profiles.keys()
    spelled = (name.replace("+me", ".me").replace("+gfx", ".gfx") for name in sorted(having))
    return [name for name in spelled if "me.all" not in name]


_SERVED: Mapping[str, Sequence[str]] = {"gke-tpu": ("1", "4", "8")}
"""Of back ends that serve few numbers of devices, these."""


@cache
def _words(backend: str, shape: str) -> st.SearchStrategy[Words]:
    if shape == "whole" and backend in _SERVED:
        return st.one_of(PLAIN[shape], st.fixed_dictionaries({"gpu": st.sampled_from(_SERVED[backend])}))
    if shape != "profile":
        return PLAIN[shape]
    name = st.sampled_from([*profiles(backend), "1g.10gb"])
    return st.fixed_dictionaries({"gpu-profile": name}, optional={"gpu": st.just("2")})


def samples(backend: str, shape: str) -> Sequence[Words]:
    bare = _SAMPLES.get(shape) or [{"gpu-profile": name} for name in profiles(backend)]
    return [{**words, **needed(backend)} for words in bare]


@cache
def needed(backend: str) -> Words:
    """The model of a card, where the back end serves nothing without."""
    whole = _SAMPLES["whole"]
    named = {"gpu-model": clusters.card(backend).model}
    without = any(_translated(words, backend) for words in (*whole, *_SAMPLES["share"]))
    return {} if without or not any(_translated({**words, **named}, backend) for words in whole) else named


@cache
def shapes(backend: str, form: str) -> Sequence[str]:
    """The shapes that the form can say and the back end can serve; all that it can say if there is none."""
    sayable = _SAYABLE.get(form, SHAPES)
    return [shape for shape in sayable if servable(shape, backend)] or sayable


@cache
def servable(shape: str, backend: str) -> bool:
    """Whether the back end can serve requests of this shape."""
    return any(_translated(words, backend) for words in samples(backend, shape))


def _translated(words: Words, backend: str) -> bool:
    """Whether the back end can say it at all."""
    rules = clusters.rulebook(backend)
    request = request_of(words)
    try:
        return request is not None and bool(translate.translate(request, rules.backends[backend], rules))
    except translate.CannotExpressError:
        return False


@cache
def _qualifiers(backend: str) -> Sequence[Words]:
    """Words that say which or how, and that the back end can hear; most often none."""
    whole = next((shape for shape in SHAPES if servable(shape, backend)), "whole")
    sample = next((words for words in samples(backend, whole) if _translated(words, backend)), {"gpu": "1"})
    models = [{"gpu-model": card.model} for card in clusters.cards(backend)]
    said = [words for words in models if _translated({**sample, **words}, backend)]
    some = said[:: max(1, len(said) // 10)]
    how = [{"gpu-sharing": sharing} for sharing in sorted(clusters.backend(backend).sharing)]
    return [*[{}] * (2 * len(some) + 10), *some, *how, {"gpu-placement": "binpack"}]


@cache
def _annotated(backend: str) -> Sequence[Words]:
    """Annotations that the back end's rule depends on; most often none."""
    annotations = frozenset[str]().union(*clusters.rulebook(backend).annotations.values())
    said = [dict([each.split("=", 1)]) if "=" in each else {each: "on"} for each in sorted(annotations)]
    return [*[{}] * 2 * len(said), *said] or [{}]


@cache
def forms(backend: str, among: Collection[str] = FORMS) -> Sequence[str]:
    """The forms in which the back end can be asked."""
    without = set() if own.counts(clusters.backend(backend)) else {"native fraction"}
    if not own.spoken(clusters.backend(backend)):
        without |= {*NATIVE}
    return [form for form in FORMS if form in among and form not in without]


def can_be_served(form: str, backend: str) -> bool:
    """Whether any pod of the form can be: a fraction of a back end that has whole devices only cannot.

    Nor can amounts of a back end whose nodes tell the partition by a label of their own, which no pod here selects.
    """
    there = clusters.backend(backend)
    labelled = (
        "profile" in line.words and key in there.nodes.labels
        for mode in there.modes
        for key, line in mode.pool.items()
    )
    if form in NATIVE[:2]:
        return not any(labelled)
    return any(servable(shape, backend) for shape in shapes(backend, form))


@cache
def words(backend: str, form: str) -> st.SearchStrategy[Words]:
    """What can be asked of the back end in the form: mostly what it can serve."""
    return st.sampled_from(shapes(backend, form)).flatmap(lambda shape: _words(backend, shape))


@st.composite
def askings(draw: st.DrawFn, backend: str, among: Sequence[str] = FORMS, *, named: bool = False) -> Asking:
    """A pod whose one container asks, in one form, in a cluster that has the back end alone or all of them.

    Of a container that is meant anyway, half the pods do not give the name, unless it is to be `named`.
    """
    form = draw(st.sampled_from(forms(backend, tuple(among))))
    said = draw(words(backend, form)) if form not in NATIVE[:2] else {}
    seed = draw(surroundings.SEEDS)
    dice = random.Random(seed)  # noqa: S311  not a secret
    if form not in NATIVE:
        said = {**said, **dice.choice(_qualifiers(backend))}
    return _asking(form, backend, {**needed(backend), **said}, surroundings.pod(seed), dice, named=named)


def _asking(form: str, backend: str, words: Words, pod: Object, dice: random.Random, *, named: bool) -> Asking:
    container, kind = _container(backend, pod, dice)
    accompany(backend, pod, container)
    cluster = dice.choice([backend, backend, clusters.ALL])
    _annotate(pod, dice.choice(_annotated(backend)))
    say(form, words, backend, pod, container, dice)
    meant = kind == "containers" and container is pod["spec"]["containers"][0]
    if form in POD_WIDE and (named or not meant or dice.random() < 0.5):
        _annotate(pod, {PREFIX + "container": container["name"]})
    if cluster == clusters.ALL and form not in NATIVE:
        _annotate(pod, {PREFIX + "backend": backend})
    if dice.random() < 0.5:
        pod = as_served(pod)
    return Asking(form, backend, cluster, container["name"], words, pod)


def _container(backend: str, pod: Object, dice: random.Random) -> tuple[Object, str]:
    """The container that asks: seldom an init container, where the back end serves none."""
    kinds = [kind for kind in ("containers", "initContainers") if kind in pod["spec"]]
    forbidden = any("initContainers" in companions.forbids for companions in own.companions(backend))
    kind = "containers" if forbidden and dice.random() < 0.9 else dice.choice(kinds)
    first = own.first_only(clusters.backend(backend))
    return pod["spec"][kind][0] if first else dice.choice(pod["spec"][kind]), kind


def accompany(backend: str, pod: Object, container: Object) -> None:
    """Give the pod what its author has to write for this back end."""
    for companions in own.companions(backend):
        for word, value in companions.requires.items():
            if word == "hostIPC":
                pod["spec"]["hostIPC"] = True
            elif word == "runAsUser":
                pod["spec"]["securityContext"] = {"runAsUser": int(value)}
            else:
                volume = f"needed-by-{backend}"
                pod["spec"].setdefault("volumes", []).append({"name": volume, "hostPath": {"path": value}})
                container.setdefault("volumeMounts", []).append({"name": volume, "mountPath": value})


def say(form: str, words: Words, backend: str, pod: Object, container: Object, dice: random.Random) -> None:
    """Write the words where the form has them."""
    if form == "labels":
        pod["metadata"].setdefault("labels", {}).update(words)
    elif form in {"qualified annotations", "plain annotation"}:
        for key, text in words.items():
            plain = form == "plain annotation" and key == "gpu"
            _annotate(pod, {key if plain else PREFIX + key.removeprefix("gpu-"): text})
    elif form == "container annotations":
        _annotate(pod, {locations.annotation(key, container["name"]): text for key, text in words.items()})
    else:
        section = "requests" if form.endswith("requests") else "limits"
        for name, value in _resources(form, words, backend, pod, container, dice):
            container.setdefault("resources", {}).setdefault(section, {})[name] = value


def _annotate(pod: Object, said: Words) -> None:
    if said:
        pod["metadata"].setdefault("annotations", {}).update(said)


def _resources(
    form: str, words: Words, backend: str, pod: Object, container: Object, dice: random.Random
) -> Iterator[tuple[str, Any]]:
    if form.startswith("bare"):
        _annotate_rest(words, pod, container)
        yield from ((key, text) for key, text in words.items() if key in locations.RESOURCES)
    elif form == "qualified limits":
        yield from _qualified(words, pod, container).items()
    elif form == "native fraction":
        yield dice.choice(own.counts(clusters.backend(backend))), words["gpu"]
    else:
        one = clusters.backend(backend)
        _annotate_rest(words, pod, container)
        yield from own.say(own.words(one, clusters.card(backend), dice), pod, container)


def _qualified(words: Words, pod: Object, container: Object) -> dict[str, Any]:
    """Only whole numbers pass in a pod template, so what cannot be one is said by annotation."""
    said: dict[str, Any] = {}
    request = request_of({key: text for key, text in words.items() if key == "gpu"})
    if request is not None:
        said[PREFIX + "gpu"] = request.count
        if request.share is not None:
            said[PREFIX + "percent"] = str(-(-100 * request.share // 1))
    for key in ("gpu-memory", "gpu-cores"):
        if key in words:
            said[PREFIX + key.removeprefix("gpu-")] = words[key]
    _annotate_rest(words, pod, container)
    return said


def _annotate_rest(words: Words, pod: Object, container: Object) -> None:
    """What no resource can say, as annotations of the container."""
    for key in words.keys() - {"gpu", "gpu-memory", "gpu-cores"}:
        _annotate(pod, {locations.annotation(key, container["name"]): words[key]})
