"""In CEL: whether a container, or a pod, asks for more whole devices than its policy lets one have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor
from typing import Final

from webhook.core.kube.cel import listed, text
from webhook.core.registration.policies import tenants
from webhook.core.registration.policies.resource_quotas import whole_devices
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenant_policy import Ceiling
from webhook.core.violations import Action

_SIDECAR: Final = "holder.?restartPolicy.orValue('') == 'Always'"
_ALL: Final = 100
_ANY: Final = "1000000000.0"
_EXCEEDED: Final = {
    "container": (
        "[GPU102] a container asks",
        "variables.asked.exists(holders, holders.exists(devices, devices > variables.container))",
    ),
    "pod": (
        "[GPU103] the pod asks",
        "variables.asked[0].sum() > variables.pod || variables.asked[1].exists(devices, devices > variables.pod)",
    ),
}


def of(rulebook: Rulebook, action: Action) -> tuple[Mapping[str, str], list[Mapping[str, str]]]:
    """The variables and validations of the ceilings that have an action; no validation if none has.

    `asked` are the whole devices of the containers that run at once, and of the init containers.
    """
    resources = whole_devices(rulebook)
    variables = {
        "asked": f"""\
[dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])).filter(holder, {_SIDECAR}),
 dyn(object.spec.?initContainers.orValue([])).filter(holder, !({_SIDECAR}))].map(holders, holders.map(holder,
  [holder.?resources.?limits.orValue({{}})].map(limits, limits.filter(name, name in {listed(resources)}
  ).map(name, quantity(limits[name]).asApproximateFloat()).sum())[0]))"""
    }
    refused = []
    for scope, (said, exceeded) in _EXCEEDED.items():
        most = [f"{text(name)}: {devices}.0" for name, devices in _most(rulebook, scope, action)]
        if most and resources:
            variables[scope] = f"{{{', '.join(most)}}}[?variables.policy].orValue({_ANY})"
            refused.append(_validation(scope, said, f"{tenants.spared(rulebook.tenancy, scope)} ||\n!({exceeded})"))
    return variables, refused


def _validation(scope: str, said: str, holds: str) -> Mapping[str, str]:
    return {
        "expression": holds,
        "messageExpression": f"{text(f'{said} for more than ')} + string(int(variables.{scope})) + "
        f"' whole devices, the most that the policy ' + variables.policy + {text(f' lets a {scope} have')}",
        "message": f"{said} for more whole devices than the policy lets a {scope} have",
        "reason": "Forbidden",
    }


def _most(rulebook: Rulebook, scope: str, action: Action) -> Iterator[tuple[str, int]]:
    """The most whole devices, each with all of its compute, by the policy's name."""
    for policy in rulebook.tenancy.policies:
        ceiling: Ceiling | None = getattr(policy, scope)
        if ceiling and ceiling.action == action:
            said = [(ceiling.devices, 1), (ceiling.cores, _ALL)]
            bounds = [floor(most / each) for most, each in said if most is not None]
            yield from ((policy.name, bound) for bound in sorted(bounds)[:1])
