"""A patch is the edits, and the edits are all that changes."""

import copy
from collections.abc import Mapping
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.edited import edited
from tests.laws import edits, every, tried
from tests.laws.asking import Asking
from webhook.core.kube import pod
from webhook.core.kube.fields import Edit, to_patch
from webhook.core.mutate import mutate
from webhook.core.plan import plan


@every.backend(16, least=4)
def test_the_patch_and_the_edits_come_to_the_same_pod(asked: Asking) -> bool:
    before = copy.deepcopy(asked.pod)
    planned = plan.make(pod.read(asked.pod), asked.rulebook)

    applied = edited(planned.edits, asked.pod)

    assert jsonpatch.apply_patch(asked.pod, to_patch(planned.edits, asked.pod)) == applied
    assert asked.pod == before
    return bool(planned.assignments and planned.edits)


@every.backend(16, least=4)
def test_what_nobody_asked_to_change_stays(asked: Asking) -> bool:
    decision = mutate(builders.creating(asked.pod), asked.rulebook)
    if decision.allowed:
        after = jsonpatch.apply_patch(asked.pod, decision.patch)

        assert _kept(asked.pod, asked) == _kept(after, asked, asked.pod)
    return decision.allowed and bool(decision.patch)


def _kept(of: Mapping[str, Any], asked: Asking, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What has to be the same before and after: all but the places where a back end may write.

    Of those places, what the author wrote: `before` says which keys, names and how many elements these are.
    """
    before = of if before is None else before
    spec = {key: value for key, value in of["spec"].items() if key not in _WRITTEN}
    for kind in _KINDS:
        if kind in spec:
            pairs = zip(spec[kind], before["spec"][kind], strict=True)
            spec[kind] = [
                _container(container, was) if was["name"] == asked.container else container
                for container, was in pairs
            ]
    metadata = dict(of["metadata"])
    for section in ("labels", "annotations"):
        written = before["metadata"].get(section) or {}
        metadata[section] = {key: (of["metadata"].get(section) or {}).get(key) for key in written}
    lists = {key: (of["spec"].get(key) or [])[: len(before["spec"].get(key) or [])] for key in _APPENDED}
    return {**of, "metadata": metadata, "spec": spec, **lists}


_KINDS = ("initContainers", "containers")
_APPENDED = ("tolerations", "resourceClaims")
_WRITTEN = {"schedulerName", "runtimeClassName", "affinity", *_APPENDED}


def _container(container: Mapping[str, Any], was: Mapping[str, Any]) -> dict[str, Any]:
    """The container that asks: its own variables but the enforced one, and resources that are nobody's device."""
    own = [variable for variable in was.get("env") or [] if variable["name"] != "MADE_UP_VISIBLE"]
    variables = [variable for variable in container.get("env") or [] if variable["name"] != "MADE_UP_VISIBLE"]
    resources = container.get("resources") or {}
    return {
        **{key: value for key, value in container.items() if key not in {"env", "resources"}},
        "env": variables[: len(own)],
        "resources": {
            section: {name: value for name, value in (resources.get(section) or {}).items() if name in _ORDINARY}
            for section in ("limits", "requests")
        },
    }


_ORDINARY = {"cpu", "memory", "hugepages-2Mi", "example.com/fpga"}

_KEYS = st.sampled_from(["a", "b~c", "d/e", "", "0"])
_DOCUMENTS = st.recursive(
    st.sampled_from([None, 1, "x", True]),
    lambda inner: (
        st.dictionaries(_KEYS, inner, max_size=3) | st.lists(st.dictionaries(_KEYS, inner, max_size=2), max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def _edited(draw: st.DrawFn) -> tuple[dict[str, Any], list[Edit]]:
    """A document, and edits of different places in it."""
    document = copy.deepcopy(draw(st.dictionaries(_KEYS, _DOCUMENTS, max_size=4)))
    return document, edits.apart(draw(st.lists(st.sampled_from([*edits.possible(document)]), max_size=6)))


@pytest.mark.large
@tried(1_000)
@given(_edited())
def test_any_edits_and_their_patch_come_to_the_same(drawn: tuple[dict[str, Any], list[Edit]]) -> None:
    document, made = drawn

    assert jsonpatch.apply_patch(document, to_patch(made, document)) == edited(made, document)
