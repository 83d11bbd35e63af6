"""Whatever can be asked, in whatever form, has a case: a new word or a new back end is not done without one."""

from collections.abc import Iterator

from tests import builders
from tests.cases import golden
from webhook.core import places, shorthand
from webhook.core.request import PREFIX
from webhook.core.violations import CODES

CASES = golden.find()
PODS = [case.pod() for case in CASES if case.has_pod]


def _written(section: str) -> set[str]:
    return {key for pod in PODS for key in pod["metadata"].get(section, {})}


def _resources() -> Iterator[str]:
    for pod in PODS:
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            yield from (container.get("resources") or {}).get("limits", {})


def test_every_key_of_the_shorthand_is_asked_by_label() -> None:
    assert shorthand.KEYS.keys() - _written("labels") == set()


def test_every_key_of_the_shorthand_is_asked_by_annotation() -> None:
    qualified = {PREFIX + key.removeprefix("gpu-") for key in shorthand.KEYS}

    assert ({"gpu"} | qualified) - _written("annotations") == set()


def test_every_key_of_the_shorthand_is_asked_for_one_container() -> None:
    asked = {key.partition(places.SUFFIX)[0] for key in _written("annotations") if places.SUFFIX in key}

    assert {key.removeprefix("gpu-") for key in shorthand.KEYS} - {"container"} - asked == set()


def test_every_resource_of_the_shorthand_is_asked() -> None:
    assert places.RESOURCES - set(_resources()) == set()


def test_every_resource_of_every_enabled_back_end_is_asked() -> None:
    known = builders.rulebook(builders.shipped_files()).resources
    enabled = {name for name, resource in known.items() if resource.owners}

    assert enabled - set(_resources()) == set()


def test_every_message_that_a_pods_author_can_get_is_shown() -> None:
    said_elsewhere = {"GPU001", "GPU002", "GPU601", "GPU602"}  # by explain, and by /validate
    shown = {code for case in CASES for code in CODES if f"[{code}]" in case.expected().get("denied.txt", "")}

    assert CODES.keys() - said_elsewhere - shown == set()
