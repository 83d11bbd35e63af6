"""What the policy of a tenant makes of a pod before it is translated: its defaults, its marks, its nodes.

A default becomes a word on the pod, as if its author had written it: whoever counts the pod later reads it there, and
what becomes of the policy meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from webhook.core import edits, places, plan, pod
from webhook.core.asked import Asked
from webhook.core.choice import Served
from webhook.core.edits import Edit, Put
from webhook.core.interpret import Interpretation, check_size, interpret
from webhook.core.plan import Plan
from webhook.core.pod import Pod
from webhook.core.quantity import show_size
from webhook.core.rulebook import Rulebook
from webhook.core.tenancy import confine, kinds
from webhook.core.tenancy.membership import member
from webhook.core.tenancy.policy import Defaults, TenantPolicy


def make(seen: Pod, rulebook: Rulebook) -> Plan:
    """The plan for a pod as its tenant's policy wants it; raises Refusal."""
    check_size(seen, rulebook)
    if not rulebook.tenancy.policies:
        return plan.make(seen, rulebook)
    policy = member(seen.namespace, rulebook.tenancy).policy
    if policy is None or policy.action == "dryrun":
        return plan.make(seen, rulebook)
    found = interpret(seen, rulebook)
    if not any(asked.anything for asked in found.asked):
        return plan.make(seen, rulebook, interpretation=found)
    marked, made, wrong = confine.confined(seen, policy)
    planned = _with_defaults(marked, found, policy, rulebook, same=marked is seen)
    planned.edits[:0] = made
    if policy.action == "deny":
        planned.violations += wrong  # else /validate says it
    return planned


def _with_defaults(seen: Pod, found: Interpretation, policy: TenantPolicy, rulebook: Rulebook, *, same: bool) -> Plan:
    """The plan with the policy's defaults, or without them, where they would make the pod fail.

    `found` is the interpretation of the pod before it was marked; `same`: nothing was marked.
    """
    said = {asked.container.name: dict(_defaults(asked, policy.defaults)) for asked in found.asked if asked.anything}
    words = [
        Put(("metadata", "annotations", places.annotation(key, name)), text, policy.defaults.rule)
        for name, by_key in said.items()
        for key, text in by_key.items()
    ]
    if words:
        planned = _plan(pod.read(edits.apply(words, seen.raw), seen.namespace), policy, rulebook)
        if not planned.violations:
            planned.edits[:0] = words
            planned.warnings += _told(said, policy)
            return planned
    return _plan(seen, policy, rulebook, found if same else None)


def _told(said: Mapping[str, Mapping[str, str]], policy: TenantPolicy) -> Iterator[str]:
    for name, by_key in said.items():
        if by_key:
            added = ", ".join(f"{key}: {text}" for key, text in by_key.items())
            yield f'the policy "{policy.name}" gives the container "{name}" {added}; say otherwise for another'


def _defaults(asked: Asked, defaults: Defaults) -> Iterator[tuple[str, str]]:
    """The words that a container does not say, and that go together with those it does."""
    request, said = asked.request, asked.stated
    if defaults.model is not None and "gpu-model" not in said:
        yield "gpu-model", defaults.model
    bare = request is not None and request.devices == "whole" and request.count == 1
    exclusive = "gpu-sharing" in said and said["gpu-sharing"].value == "exclusive"
    part = request is not None and request.devices == "part"
    if defaults.memory is not None and bare and not exclusive:
        part = True
        yield "gpu-memory", show_size(defaults.memory)
    kind = "partitioned" if request is not None and request.devices == "profile" else None
    fits = defaults.sharing == kind if kind else (defaults.sharing == "exclusive") != part
    if defaults.sharing is not None and "gpu-sharing" not in said and request is not None and fits:
        yield "gpu-sharing", defaults.sharing


def _plan(seen: Pod, policy: TenantPolicy, rulebook: Rulebook, found: Interpretation | None = None) -> Plan:
    """The plan, in which each container keeps the back end that it has by the policy's choice.

    A quota chooses none: it only leaves out those that claim, and what the others write is read as it stands.
    """
    preferred = policy.defaults.backend
    planned = plan.make(seen, rulebook, preferred, _lets(policy), found)
    if preferred is not None or policy.allowed is not None or policy.forbidden is not None:
        for served in planned.served:
            if "gpu-backend" not in served.asked.stated:
                planned.edits.append(_kept(served, policy))
    return planned


def _kept(served: Served, policy: TenantPolicy) -> Edit:
    key = places.annotation("gpu-backend", served.asked.container.name)
    return Put(("metadata", "annotations", key), served.backend.name, policy.defaults.rule or policy.rule)


def _lets(policy: TenantPolicy) -> Callable[[Served], bool] | None:
    """What the policy lets be; None where it minds nothing."""
    if policy.allowed is None and policy.forbidden is None and policy.quota is None:
        return None
    return partial(_minds_not, policy)


def _minds_not(policy: TenantPolicy, served: Served) -> bool:
    """Whether nothing that the policy denies is in how a container would be served; claims cannot be counted."""
    if served.mode.claims and policy.quota is not None and policy.quota.action != "dryrun":
        return False
    return kinds.lets(policy, served)
