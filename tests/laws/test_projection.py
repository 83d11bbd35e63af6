"""No decision depends on what a projection leaves out, for pods of every back end in every form."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jsonpatch

from tests import builders
from tests.cases.served import as_served
from tests.core.policy.tenants import TENANT
from tests.laws import every
from tests.laws.asking import Asking
from webhook.core import projection
from webhook.core.decision import Decision
from webhook.core.mutate import mutate
from webhook.core.review import AdmissionRequest
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Namespaces, Tenancy
from webhook.core.validate import validate

POLICY = replace(TENANT, namespaces=Namespaces(names=("*",)))


def whole(request: AdmissionRequest, rulebook: Rulebook) -> AdmissionRequest:
    """The request as if it were pruned already, so that nothing is taken away."""
    return request._replace(projection=projection.allow_list(rulebook))


def decisions(pod: Mapping[str, Any], rulebook: Rulebook, *, pruned: bool) -> list[Decision]:
    """What is decided about a pod, about what becomes of it, and about an update between the two."""
    made = []
    stored = pod
    for judge, (before, after) in ((mutate, (None, pod)), (validate, (None, stored)), (validate, (pod, stored))):
        request = builders.creating(after) if before is None else builders.updating(before, after)
        decision = judge(request if pruned else whole(request, rulebook), rulebook)
        if judge is mutate and decision.allowed:
            stored = as_served(jsonpatch.apply_patch(pod, decision.patch))
        made.append(decision)
    return made


@every.backend(12, least=12)
def test_what_is_left_out_changes_no_decision(asked: Asking) -> bool:
    guarded = replace(asked.rulebook, tenancy=Tenancy(policies=[POLICY]))
    for rulebook in (asked.rulebook, guarded):
        assert decisions(asked.pod, rulebook, pruned=True) == decisions(asked.pod, rulebook, pruned=False)
    return True


@every.backend(12, least=12)
def test_a_projection_is_its_own_projection(asked: Asking) -> bool:
    once = projection.project(builders.creating(asked.pod), asked.rulebook)
    assert projection.project(once._replace(projection=None), asked.rulebook) == once
    return True
