"""Whatever can be asked, in whatever form, has a case: a new word or a new back end is not done without one."""

from collections.abc import Iterator

from tests import builders
from tests.cases import golden
from webhook.core.interpret import locations
from webhook.core.request import KEYS, PREFIX
from webhook.core.violations import CODES

CORE = builders.ROOT / "tests" / "core"
CASES = golden.find()
PODS = [case.pod() for case in CASES if case.has_pod]


def _written(section: str) -> set[str]:
    return {key for pod in PODS for key in pod["metadata"].get(section, {})}


def _resources() -> Iterator[str]:
    for pod in PODS:
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            yield from (container.get("resources") or {}).get("limits", {})


def test_every_key_of_the_shorthand_is_asked_by_label() -> None:
    assert KEYS.keys() - _written("labels") == set()


def test_every_key_of_the_shorthand_is_asked_by_annotation() -> None:
    qualified = {PREFIX + key.removeprefix("gpu-") for key in KEYS}

    assert ({"gpu"} | qualified) - _written("annotations") == set()


def test_every_key_of_the_shorthand_is_asked_for_one_container() -> None:
    asked = {key.partition(locations.SUFFIX)[0] for key in _written("annotations") if locations.SUFFIX in key}

    assert {key.removeprefix("gpu-") for key in KEYS} - {"container"} - asked == set()


def test_every_resource_of_the_shorthand_is_asked() -> None:
    assert locations.RESOURCES - set(_resources()) == set()


def test_every_resource_of_every_enabled_back_end_is_asked() -> None:
    known = builders.rulebook(builders.shipped_files()).resources
    enabled = {name for name, resource in known.items() if resource.owners}

    assert enabled - set(_resources()) == set()


def test_every_message_that_a_pods_author_can_get_is_shown() -> None:
    # By explain, by /validate, and by the ledger.
    said_elsewhere = {"GPU001", "GPU002", "GPU004", "GPU005", "GPU007", "GPU115", "GPU601", "GPU602"}
    tests = "".join(file.read_text() for file in (CORE / "policy").glob("test_*"))
    said_of_tenants = {code for code in CODES if code.startswith("GPU1") and code in tests}
    texts = [text for case in CASES for text in map(case.expected().get, ("denied.txt", "refused.txt")) if text]
    shown = {code for code in CODES if any(f"[{code}]" in text for text in texts)}

    assert CODES.keys() - said_elsewhere - said_of_tenants - shown == set()
