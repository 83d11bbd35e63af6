"""The committed CustomResourceDefinitions are those that forms and what is added by hand make."""

from typing import Any

import pytest
import yaml

from tests import crds


@pytest.mark.parametrize("name", crds.SPECS)
def test_the_committed_definition_is_what_the_form_makes(name: str) -> None:
    assert (crds.WRITTEN / f"{name}.yaml").read_text() == crds.definition(name), "say: python -m tests.crds"


def _paths(schema: Any, path: str = "") -> set[str]:
    own = {f"{path}.{key}" for key in schema.get("properties", ())}
    inner = {f"{path}.{key}": child for key, child in schema.get("properties", {}).items()}
    inner |= {f"{path}[]": schema["items"]} if "items" in schema else {}
    inner |= {f"{path}.*": schema["additionalProperties"]} if "additionalProperties" in schema else {}
    return own | {deeper for at, child in inner.items() if isinstance(child, dict) for deeper in _paths(child, at)}


@pytest.mark.parametrize("name", crds.SPECS)
def test_nothing_is_added_by_hand_to_a_key_that_the_form_has_not(name: str) -> None:
    by_hand = yaml.safe_load((crds.BY_HAND / f"{name}.yaml").read_text())
    spec = by_hand["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    assert _paths(spec) <= _paths(crds.SPECS[name])
