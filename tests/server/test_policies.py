"""The policies of a cluster as they come, change and go, while the rules beside them change, too."""

import dataclasses
from typing import Any, cast

from tests import builders
from webhook.cluster.client import Api
from webhook.cluster.policies import Policies

VISION = {
    "apiVersion": "gpu-webhook.io/v1alpha1",
    "kind": "TenantPolicy",
    "metadata": {"name": "vision", "uid": "1", "generation": 1},
    "spec": {"namespaces": {"names": ["vision"]}},
}


def test_a_policy_that_was_deleted_while_the_rules_changed_is_in_force_no_more() -> None:
    before = builders.rulebook(builders.shipped_files())
    after = dataclasses.replace(before, digest="another")
    changes: list[tuple[str, str]] = []
    policies = Policies(cast("Api", None), lambda *change: changes.append(change))

    def names(rulebook: Any) -> list[str]:
        return [policy.name for policy in policies.tenancy(rulebook).policies]

    policies.policies.listed([VISION], 1)
    assert names(before) == ["vision"]
    policies.policies.changed(VISION, 2, exists=False)

    assert names(after) == []
    assert changes == [("TenantPolicy", "vision")] * 2


def test_the_handlers_of_runtime_classes_are_known_as_long_as_these_exist() -> None:
    rulebook = builders.rulebook(builders.shipped_files())
    changes: list[tuple[str, str]] = []
    policies = Policies(cast("Api", None), lambda *change: changes.append(change))
    fast = {"metadata": {"name": "fast"}, "handler": "nvidia"}

    policies.runtime_classes.changed(fast, 1, exists=True)
    there = policies.tenancy(rulebook).handlers
    policies.runtime_classes.changed(fast, 2, exists=False)

    assert (there, policies.tenancy(rulebook).handlers) == ({"fast": "nvidia"}, {})
    assert changes == [("RuntimeClass", "fast")] * 2
