"""Pods that ask for a GPU, in every form and of every back end."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.cases.served import as_served
from tests.laws import clusters, surroundings
from webhook.core import places, translate
from webhook.core.amounts import CannotExpressError
from webhook.core.request import PREFIX, GpuRequest, Stated, build
from webhook.core.rulebook import Amount, Rulebook
from webhook.core.shorthand import KEYS

Object = dict[str, Any]
Words = Mapping[str, str]
"""A request in shorthand, by the keys of labels."""

FORMS = (
    "labels",
    "qualified annotations",
    "plain annotation",
    "container annotations",
    "bare limits",
    "bare requests",
    "qualified limits",
    "native limits",
    "native requests",
    "native fraction",
)
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
    def request(self) -> GpuRequest:
        request = request_of(self.words)
        assert request is not None
        return request


def request_of(words: Words) -> GpuRequest | None:
    """What the words mean."""
    return build({key: Stated(KEYS[key](text), "", text) for key, text in words.items()})


def _decimal(share: Fraction) -> str:
    return f"{float(share):.3f}".rstrip("0")


SHARES = st.integers(1, 999).map(lambda thousandths: _decimal(Fraction(thousandths, 1000)))
COUNTS = st.integers(1, 8).map(str)
SIZES = st.one_of(
    st.integers(1, 15).map(lambda size: f"{size}Gi"),
    st.sampled_from(["4000Mi", "1000Mi", "512Mi", "1.5Gi", "8G", "7777Mi"]),
)
PERCENTS = st.integers(1, 100).map(str)
PROFILES = st.sampled_from(["1g.10gb", "1g.10gb.me", "3g.40gb", "7g.80gb"])

SHAPES: Mapping[str, st.SearchStrategy[Words]] = {
    "whole": st.fixed_dictionaries({"gpu": COUNTS}),
    "share": st.fixed_dictionaries({"gpu": SHARES}),
    "shares": st.fixed_dictionaries({"gpu": st.builds("{}x{}".format, st.integers(2, 4), SHARES)}),
    "memory": st.fixed_dictionaries({"gpu-memory": SIZES}),
    "memories": st.fixed_dictionaries({"gpu": COUNTS, "gpu-memory": SIZES}),
    "cores": st.fixed_dictionaries({"gpu-cores": PERCENTS}),
    "memory and cores": st.fixed_dictionaries({"gpu-memory": SIZES, "gpu-cores": PERCENTS}),
    "share and memory": st.fixed_dictionaries({"gpu": SHARES, "gpu-memory": SIZES}),
    "tflops": st.fixed_dictionaries({"gpu-tflops": st.integers(1, 65).map(str), "gpu-model": st.just("T4")}),
    "profile": st.fixed_dictionaries({"gpu-profile": PROFILES}, optional={"gpu": st.just("2")}),
}
_SAMPLES: Mapping[str, Words] = {
    "whole": {"gpu": "1"},
    "share": {"gpu": "0.5"},
    "shares": {"gpu": "2x0.5"},
    "memory": {"gpu-memory": "8Gi"},
    "memories": {"gpu": "2", "gpu-memory": "8Gi"},
    "cores": {"gpu-cores": "50"},
    "memory and cores": {"gpu-memory": "8Gi", "gpu-cores": "50"},
    "share and memory": {"gpu": "0.5", "gpu-memory": "8Gi"},
    "tflops": {"gpu-tflops": "20", "gpu-model": "T4"},
    "profile": {"gpu-profile": "1g.10gb"},
}
_SAYABLE: Mapping[str, tuple[str, ...]] = {
    "plain annotation": ("whole", "share", "shares"),
    "bare limits": ("whole", "share", "memory", "memories", "cores", "memory and cores", "share and memory"),
    "bare requests": ("whole", "share", "memory", "memories", "cores", "memory and cores", "share and memory"),
    "native fraction": ("share",),
}


@cache
def shapes(backend: str, form: str) -> tuple[str, ...]:
    """The shapes that the form can say and the back end can serve; all that it can say if there is none."""
    sayable = _SAYABLE.get(form, tuple(SHAPES))
    return tuple(shape for shape in sayable if servable(shape, backend)) or sayable


@cache
def _qualifiers(backend: str) -> Sequence[Words]:
    """Words that say which or how, and that the back end can hear; most often none."""
    rules = clusters.rulebook(backend)
    vendors = rules.backends[backend].vendors
    models = sorted({card.model for card in rules.devices.values() if not vendors or card.vendor in vendors})
    said = [
        {"gpu-model": model} for model in models if _limits({"gpu": "1", "gpu-model": model}, backend) is not None
    ]
    return [{}] * 10 + said[:10] + [{"gpu-placement": "binpack"}]


def servable(shape: str, backend: str) -> bool:
    """Whether the back end can serve requests of this shape."""
    return _limits(_SAMPLES[shape], backend) is not None


@cache
def pairs() -> tuple[tuple[str, str], ...]:
    """Every form with every back end, but for fractions of a count where nothing is counted."""
    every = itertools.product(FORMS, clusters.names())
    return tuple((form, name) for form, name in every if form != "native fraction" or _counts(name))


def can_be_served(form: str, backend: str) -> bool:
    """Whether any pod of the form can be: a fraction of a back end that has whole devices only cannot."""
    return any(servable(shape, backend) for shape in shapes(backend, form))


def _limits(words: Words, backend: str) -> Mapping[str, int | str] | None:
    """The back end's own resources for a request, None if it cannot say it."""
    rules = clusters.rulebook(backend)
    request = request_of(words)
    try:
        return None if request is None else translate.translate(request, rules.backends[backend], rules).amounts
    except CannotExpressError:
        return None


@st.composite
def askings(
    draw: st.DrawFn, forms: Collection[str] = FORMS, backends: Collection[str] = (), *, named: bool = False
) -> Asking:
    """A pod whose one container asks, in one form, in a cluster that has the back end alone or all of them.

    Of a container that is meant anyway, half the pods do not give the name, unless it is to be `named`.
    """
    wanted = [(form, name) for form, name in pairs() if form in forms and (not backends or name in backends)]
    form, backend = draw(st.sampled_from(wanted))
    tenth = draw(st.integers(0, 9))
    shape = draw(st.sampled_from(shapes(backend, form) if tenth else _SAYABLE.get(form, tuple(SHAPES))))
    words = {**draw(SHAPES[shape]), **draw(st.sampled_from(_qualifiers(backend)))}
    pod = draw(surroundings.pods())
    kind = draw(st.sampled_from([kind for kind in ("containers", "initContainers") if kind in pod["spec"]]))
    container = draw(st.sampled_from(pod["spec"][kind]))
    cluster = draw(st.sampled_from([backend, clusters.ALL]))
    say(form, words, backend, pod, container)
    meant = container is pod["spec"]["containers"][0]
    if form in POD_WIDE and (named or not meant or draw(st.booleans())):
        _annotate(pod, PREFIX + "container", container["name"])
    if cluster == clusters.ALL and not form.startswith("native"):
        _annotate(pod, PREFIX + "backend", backend)
    if draw(st.booleans()):
        pod = as_served(pod)
    return Asking(form, backend, cluster, container["name"], words, pod)


def say(form: str, words: Words, backend: str, pod: Object, container: Object) -> None:
    """Write the words where the form has them."""
    if form == "labels":
        pod["metadata"].setdefault("labels", {}).update(words)
    elif form in {"qualified annotations", "plain annotation"}:
        for key, text in words.items():
            plain = form == "plain annotation" and key == "gpu"
            _annotate(pod, key if plain else PREFIX + key.removeprefix("gpu-"), text)
    elif form == "container annotations":
        for key, text in words.items():
            _annotate(pod, places.annotation(key, container["name"]), text)
    else:
        section = "requests" if form.endswith("requests") else "limits"
        for name, value in _resources(form, words, backend, pod, container).items():
            container.setdefault("resources", {}).setdefault(section, {})[name] = value


def _annotate(pod: Object, key: str, text: str) -> None:
    pod["metadata"].setdefault("annotations", {})[key] = text


def _resources(form: str, words: Words, backend: str, pod: Object, container: Object) -> Mapping[str, Any]:
    if form.startswith("bare"):
        _annotate_rest(words, pod, container)
        return {key: text for key, text in words.items() if key in places.RESOURCES}
    if form == "qualified limits":
        return _qualified(words, pod, container)
    if form == "native fraction":
        return {_counts(backend)[0]: words["gpu"]}
    return _limits(words, backend) or _limits({"gpu": "1"}, backend) or {}


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
        _annotate(pod, places.annotation(key, container["name"]), words[key])


@cache
def _counts(backend: str) -> list[str]:
    """The resources of the back end that count cards, not partitions of them."""
    modes = [mode for mode in clusters.rulebook(backend).backends[backend].modes if mode.profile is None]
    limits = {name: output for mode in modes for name, output in mode.limits.items()}
    return [name for name, output in limits.items() if isinstance(output, Amount) and output.what == "count"]
