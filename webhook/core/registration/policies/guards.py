"""In CEL: who may change which namespaces a policy is for, and what a ledger says.

RBAC alone says who writes TenantPolicies and Exemptions: rights in one namespace do not reach them. Such rights reach
that Namespace object. Only our programs write ledgers, also if RBAC lets others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.core.forms.document import API_VERSION
from webhook.core.kube.cel import listed, text
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.registration.configurations import LABELS
from webhook.core.registration.policies.objects import Family
from webhook.core.rules.rulebook import Rulebook

VERB: Final = "assign"
"""Of RBAC, on TenantPolicies: who has it says which namespaces are whose."""

_GROUP, _, _VERSION = API_VERSION.partition("/")
_LEDGERS: Final = {
    "apiGroups": [_GROUP],
    "apiVersions": [_VERSION],
    "operations": ["UPDATE"],
    "resources": ["tenantusages/status"],
}
_NAMESPACES: Final = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["namespaces", "namespaces/finalize", "namespaces/status"],
}
_LABELS: Final = {
    "labels": "object.metadata.?labels.orValue({})",
    "before": "request.operation == 'CREATE' ? {} : oldObject.metadata.?labels.orValue({})",
}
_DIFFERS: Final = """\
((key in variables.labels) != (key in variables.before) || variables.labels[key] != variables.before[key])"""
_MAY: Final = f"authorizer.group('{_GROUP}').resource('tenantpolicies').check('{VERB}').allowed()"


def families(rulebook: Rulebook, namespace: str) -> Iterator[Family]:
    """Both policies, for programs in a namespace."""
    keys = {each.key for one in rulebook.tenancy.policies for each in one.namespaces.selector or ()} - {NAME_LABEL}
    theirs = f"(key in {listed(sorted(keys))} || key.startsWith({text(LABELS)}))"
    changed = f"[variables.labels, variables.before].map(labels, labels.filter(key, {theirs} &&\n  {_DIFFERS}))"
    kept = {
        "expression": f"variables.changed.all(keys, keys.size() == 0) || {_MAY}",
        "messageExpression": "'the label ' + (variables.changed[0] + variables.changed[1])[0] + "
        + text(f" says which GPU policy is for the namespace: only who may {VERB} tenantpolicies changes it"),
        "reason": "Forbidden",
    }
    accounts = text(f"system:serviceaccount:{namespace}:")
    settled = {
        "expression": f"request.userInfo.username.startsWith({accounts})",
        "message": f"only accounts of {namespace} write what tenants use; delete a TenantUsage that is wrong, and"
        " the settler counts anew",
        "reason": "Forbidden",
    }
    yield Family("namespaces", [_NAMESPACES], {**_LABELS, "changed": changed}, [kept])
    yield Family("ledgers", [_LEDGERS], {}, [settled])
