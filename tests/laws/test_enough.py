"""Nobody gets less than was asked, and what one replica made is accepted by every other."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from hypothesis import strategies as st

from tests import builders
from tests.cases.served import as_served
from tests.laws import clusters, every
from tests.laws.asking import NATIVE, RESOURCES, SHORTHAND, Asking
from tests.laws.outcome import asked_again, stored
from tests.laws.vendors import READINGS
from tests.laws.vendors.seen import Given
from webhook.core.backends import read_back, translate
from webhook.core.request import GpuRequest
from webhook.core.rules.catalog import Card
from webhook.core.validate import validate

IN_RESOURCES = tuple(name for name in clusters.names() if any(mode.amounts for mode in clusters.backend(name).modes))
"""The back ends whose requests can be read again from resources, annotations or labels."""

TOLD_BY_NODES = {"gke-mig", "gke-sharing", "nvidia-mig-single"}
"""Back ends whose own words are a count, and a node's label says of what."""

TOLD_BY_CARD = {"hami-mig"}
"""Back ends whose own words are a size, and the card says which partition that is."""


@every.backend(
    16,
    least=3,
    forms=(*SHORTHAND, *RESOURCES),
    backends=[name for name in IN_RESOURCES if name not in TOLD_BY_NODES | TOLD_BY_CARD],
)
def test_the_amounts_read_back_are_at_least_what_was_asked(asked: Asking) -> bool:
    done = stored(asked)
    if done is None:
        return False
    rulebook, owner = asked.rulebook, done.served.backend
    again = asked_again(as_served(done.pod), asked.container, rulebook)
    card = translate.find_card(asked.request.models, rulebook, owner)
    models = (card.model,) if card else asked.request.models
    given, _ = read_back.understand(again.extended.amounts, owner, again.annotations, models)
    if done.served.request.profile is not None and given.profile is None:
        return False  # which partition it is, an annotation or a node's label says

    assert read_back.gives(given, translate.with_cores(asked.request, card), card)
    return True


def _whole(request: GpuRequest) -> bool:
    return request.devices == "whole"


def _memory(request: GpuRequest, card: Card) -> Fraction:
    """Bytes of each device, by the table of meanings, said once more; compute alone asks for none."""
    if request.memory is not None:
        return Fraction(request.memory)
    return card.memory * (Fraction(1) if _whole(request) else request.share or Fraction(0))


def _cores(request: GpuRequest, card: Card) -> Fraction:
    """Percent of each device."""
    if "gpu-cores" in request.stated:
        return Fraction(request.stated["gpu-cores"].text)
    if request.tflops is not None:
        return 100 * request.tflops / (card.tflops or 1)
    return Fraction(100) if _whole(request) else 100 * (request.share or Fraction(0))


@every.backend(40, least=10, forms=(*SHORTHAND, *RESOURCES), backends=[*READINGS])
def test_the_vendors_reading_is_at_least_what_was_asked(asked: Asking) -> bool:
    done = stored(asked)
    given = done.reading() if done else None
    if done is None or given is None:
        return False
    assert done.card is not None

    rounded = any("rounded up" in warning for warning in done.planned.warnings)

    assert rounded or given.devices == asked.request.count
    assert is_enough(given, asked.request, done.card, done.planned.warnings)
    return True


def is_enough(given: Given, request: GpuRequest, card: Card, warnings: Sequence[str]) -> bool:
    """Whether what a vendor gives is at least what was asked."""
    counted = given.devices >= request.count
    if request.profile is not None:
        return counted
    memory, cores = _memory(request, card), _cores(request, card)
    part = memory / card.memory if request.memory is None else 0  # where it was asked as a part of a card
    if given.cores is not None:
        limited = given.cores >= cores
    else:  # compute that nobody limits is enough, if the author who asked for some is warned
        limited = not cores or any("does not limit compute" in warning for warning in warnings)
    return counted and (given.memory >= memory or given.part >= (part or 2)) and limited


@every.backend(
    40,
    least=10,
    forms=NATIVE[:2],
    backends=[name for name in IN_RESOURCES if name in READINGS.keys() - TOLD_BY_NODES],
)
def test_own_words_are_understood_as_their_vendor_does(asked: Asking) -> bool:
    """What is charged for them is what they get; and what is let in, the vendor takes."""
    done = stored(asked) if asked.cluster != clusters.ALL else None
    given = done.reading() if done else None
    if done is None or given is None or done.card is None:
        return False
    request, card = done.served.request, done.card

    assert given.devices == request.count
    if request.profile is None:
        part = request.memory_share or 1
        assert given.memory == request.memory or (
            not request.memory and part in {given.part, given.memory / card.memory}
        )
        assert given.cores == _understood_cores(request, card)
    return True


def _understood_cores(request: GpuRequest, card: Card) -> Fraction | None:
    """Percent of each device; who has all of the memory has it to itself."""
    if request.tflops is not None:
        return 100 * request.tflops / (card.tflops or 1)
    alone = _whole(request) or (request.memory or 0) >= card.memory or request.memory_share == 1
    return Fraction(100) if request.cores is None and alone else request.cores


MISREAD: Mapping[str, str] = {"aliyun-gpushare-mib": clusters.ALL}
"""Back ends whose MiB another replica takes for GiB, and more than any node has, unless it knows them."""


@every.backend(16, least=4, backends=clusters.names(), also=[st.sampled_from([clusters.ALL, *clusters.names()])])
def test_every_replica_accepts_what_another_made(asked: Asking, other: str) -> bool:
    done = stored(asked)
    if done is None:
        return False
    replica = clusters.replica(MISREAD.get(done.served.backend.name, other), asked.cluster)

    assert validate(builders.creating(as_served(done.pod)), replica).violations == ()
    return True


@every.backend(16, least=4, forms=SHORTHAND)
def test_who_was_not_translated_is_not_let_in(asked: Asking) -> bool:
    if stored(asked) is None:
        return False

    codes = [v.code for v in validate(builders.creating(asked.pod), asked.rulebook).violations]

    assert codes == ["GPU601"]
    return True


@every.backend(16, least=16)
def test_a_pod_that_exists_can_be_cleaned_up(asked: Asking) -> bool:
    """Whatever stands in it: an update that changes nothing about GPUs is neither refused nor warned about."""
    cleaned = {**asked.pod, "metadata": {**asked.pod["metadata"], "finalizers": []}}
    decision = validate(builders.updating(asked.pod, cleaned), asked.rulebook)

    assert (decision.allowed, list(decision.warnings)) == (True, [])
    return True
