"""A MutatingAdmissionPolicy: containers without a GPU say that they have none, whatever their image says.

Off by default, as it needs Kubernetes 1.36 and writes into every other pod of tenants with a quota. It is evaluated
before mutating webhooks, so a pod that may ask for a GPU is left to ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.core.kube.cel import text
from webhook.core.registration import conditions
from webhook.core.registration.policies import objects, tenants, validating
from webhook.core.registration.policies.objects import CREATED, DEBUGGED, NOT_OF_A_FILE, Family, Object
from webhook.core.rules.protected_names import names
from webhook.core.rules.rulebook import Rulebook

_NO_DEVICE: Final = {"void", "none"}
"""Values that name no device."""

_SECTIONS: Final = {
    "containers": "request.operation == 'CREATE'",
    "initContainers": "request.operation == 'CREATE'",
    "ephemeralContainers": "request.operation == 'UPDATE'",
}


def render(rulebook: Rulebook) -> Iterator[Object]:
    """The policy and its binding; nothing if every tenant may reach devices as it likes."""
    tenant = validating.of_tenants(rulebook, validating.WHAT_BECOMES["deny"])
    if tenant:
        holding = tenants.holding(rulebook.tenancy)
        variables = {"policy": holding, "tenant": tenant, "values": _values(rulebook)}
        said = [_mutation(section, when) for section, when in _SECTIONS.items()]
        ordinary = conditions.of_ordinary_pods(rulebook, "request.operation == 'UPDATE' || ")
        left_out = [NOT_OF_A_FILE, ordinary]
        yield from objects.mutating(rulebook, Family("no-devices", [CREATED, DEBUGGED], variables, said, left_out))


def _values(rulebook: Rulebook) -> str:
    """The value with which each variable names no device, of those of the vendors whose back ends are enabled."""
    vendors = {vendor for backend in rulebook.enabled for vendor in backend.vendors}
    theirs = names([one for one in rulebook.protections if vendors & {*one.vendors}])
    known = (one for one in theirs["env"].exact.values() if {*one.harmless[:1]} & _NO_DEVICE)
    return f"{{{', '.join(f'{text(one.name)}: {text(one.harmless[0])}' for one in known)}}}"


def _mutation(section: str, when: str) -> dict[str, object]:
    """What adds the variables that a container lacks; a list of plain maps, as the API server fails on typed ones."""
    lacks = "variables.values.filter(name, !holder.?env.orValue([]).exists(variable, variable.name == name))"
    old = f"oldObject.spec.?{section}.orValue([]).exists(old, old.name == holder.name)"
    return {
        "patchType": "JSONPatch",
        "jsonPatch": {
            "expression": f"""\
!variables.tenant || !({when}) ? [] :
object.spec.?{section}.orValue([]).filter(holder, request.operation == 'CREATE' || !{old}).map(holder, JSONPatch{{
  op: 'add',
  path: '/spec/{section}/' + string(object.spec.{section}.indexOf(holder)) + '/env',
  value: holder.?env.orValue([]).filter(variable, true) +
    {lacks}.map(name, {{'name': name, 'value': variables.values[name]}})
}})"""
        },
    }
