"""The two webhook configurations: which requests the API server sends us, and what it does if we are away."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from webhook.core.forms.document import API_VERSION
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.registration import conditions
from webhook.core.registration.conditions import Condition
from webhook.core.review import TIMEOUT_SECONDS
from webhook.core.rules import cluster, load
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.workload import resource

NAME: Final = "gpu-webhook"
"""Of both configurations, and of the Service. Mutating configurations run in the order of their names. Ours comes
before those of the back ends (hami, kai, koordinator, volcano), which see the pod as we translated it."""

LABELS: Final = "gpu-webhook.io/"
"""Leases of the certificate program have a label that begins so and ends in the first word of a webhook's name.
`ping` calls a replica, so that this program sees which API servers reach one; and so does `active`, once pods are
brought to be mutated."""

WANTED: Final = "gpu-webhook.io/rules"
"""The annotation with the rules that the certificate program copies when replicas answer (`certs/activation.py`)."""

WARNING_SECONDS: Final = 2
"""A warning that comes too late stands in the status and the events of the object, too: nobody waits long for it."""

_ALWAYS_ACTIVE: Final = "ping.gpu-webhook.io"
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
_SUBRESOURCES: Final = {**_PODS, "resources": ["pods/ephemeralcontainers", "pods/resize", "pods/status"]}
"""A rule on pods covers no subresource: each that is looked at is named."""

_BINDINGS: Final = {**_PODS, "resources": ["pods/binding", "bindings"]}
_APPS: Final = {
    "apiGroups": ["apps"],
    "apiVersions": ["v1"],
    "resources": ["deployments", "statefulsets", "daemonsets", "replicasets"],
}
_POLICIES: Final[dict[str, Any]] = {
    "apiGroups": [API_VERSION.partition("/")[0]],
    "apiVersions": [API_VERSION.partition("/")[2]],
    "resources": [*load.POLICY_KINDS],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "scope": "Cluster",
}
_LEASES: Final = {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "resources": ["leases"]}
_BATCH: Final = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs", "cronjobs"]}


class NotExemptError(ValueError):
    """The Cluster document lists a namespace not as exempt that has to be; the message says why."""


def both(rulebook: Rulebook, namespace: str = cluster.OWN) -> list[dict[str, Any]]:
    """The mutating and the validating configuration for a server in a namespace; raises NotExemptError.

    `caBundle` is not set: the program that issues the certificate writes it into the live objects, or `trusting`.
    """
    hook = partial(_of_pods, namespace, _exempt(rulebook, namespace))
    pods, anew = conditions.of_pods(rulebook), conditions.of_restated_pods()
    made, changed = ["CREATE"], ["CREATE", "UPDATE"]
    # A container that a later webhook adds is seen, too.
    mutate = hook("mutate", "mutate", [_rule(_PODS, changed)], [*pods, *anew], reinvocationPolicy="IfNeeded")
    # Quota is reserved on a real create, never on a dry run.
    rules = [_rule(_PODS, changed), _rule(_SUBRESOURCES, ["UPDATE"])]
    validate = hook("validate", "validate", rules, pods, sideEffects="NoneOnDryRun")
    # Most pods that have the node are no tenant's, as a network plugin's: without us they start all the same.
    node = hook("node-access", "validate", rules, conditions.of_reaching_pods(rulebook), failurePolicy="Ignore")
    bindings = hook("bindings", "validate", [_rule(_BINDINGS, made)], conditions.of_bindings(rulebook))
    own = [_rule(_APPS, changed), _rule(_BATCH, changed)]
    aside = {"failurePolicy": "Ignore", "timeoutSeconds": WARNING_SECONDS}  # warnings: nobody waits for them
    templates = hook("templates", "templates", own, conditions.of_workloads(rulebook), **aside)
    unfit = hook("unfit-templates", "templates", own, conditions.of_unfit_workloads(), **aside)
    workloads = hook("workloads", "templates", [*_custom(rulebook)], conditions.of_custom_workloads(), **aside)
    policies = hook("policies", "policies", [_POLICIES], conditions.of_policies(), **aside, namespaceSelector={})
    mutating = [mutate, unfit, *_of_leases("mutating", "mutate", namespace)]
    leases = _of_leases("validating", "validate", namespace)
    return [
        _configuration("MutatingWebhookConfiguration", mutating),
        _configuration(
            "ValidatingWebhookConfiguration", [validate, bindings, templates, workloads, policies, node, *leases]
        ),
    ]


def _of_pods(
    namespace: str,
    selected: Any,
    name: str,
    path: str,
    rules: Sequence[Any],
    matching: list[Condition],
    **changed: Any,
) -> dict[str, Any]:
    return {
        "name": f"{name}.gpu-webhook.io",
        "clientConfig": {"service": {"namespace": namespace, "name": NAME, "port": 443, "path": f"/{path}"}},
        "rules": rules,
        "matchPolicy": "Equivalent",
        "namespaceSelector": selected,
        "matchConditions": matching,
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
        **changed,
    }


def _custom(rulebook: Rulebook) -> Iterator[dict[str, Any]]:
    """The kinds that documents say pods of; those that a cluster does not have are never asked about."""
    for workload in sorted(
        {id(workload): workload for workload in rulebook.workloads.values()}.values(),
        key=lambda workload: workload.name,
    ):
        if workload.name and workload.pods:
            kinds = {
                "apiGroups": [workload.objects.group],
                "apiVersions": [*workload.objects.versions] or ["*"],
                "resources": [resource(kind) for kind in workload.objects.kinds],
            }
            yield _rule(kinds, ["CREATE", "UPDATE"])


def inactive(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is applied: webhooks of pods without rules, which stand in the annotation WANTED."""
    hooks = configuration["webhooks"]
    wanted = {hook["name"]: hook["rules"] for hook in hooks if hook["name"] != _ALWAYS_ACTIVE}
    lines = ",\n  ".join(f"{json.dumps(name)}: {_lines(rules)}" for name, rules in wanted.items())
    metadata = {**configuration["metadata"], "annotations": {WANTED: f"{{\n  {lines}\n}}"}}
    without = [
        {key: value for key, value in hook.items() if key != "rules" or hook["name"] not in wanted} for hook in hooks
    ]
    return {**configuration, "metadata": metadata, "webhooks": without}


def trusting(configuration: Mapping[str, Any], bundle: bytes) -> dict[str, Any]:
    """The configuration with a CA bundle (PEM), for a certificate that the operator issues."""
    encoded = base64.b64encode(bundle).decode()
    hooks = [
        {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": encoded}} for hook in configuration["webhooks"]
    ]
    return {**configuration, "webhooks": hooks}


def _lines(rules: Sequence[Any]) -> str:
    return "[\n    " + ",\n    ".join(json.dumps(rule) for rule in rules) + "\n  ]"


def _of_leases(configuration: str, path: str, namespace: str) -> Iterator[dict[str, Any]]:
    """The webhooks that only the certificate program has called, by Leases of its own."""
    if configuration == "mutating":
        yield _of_lease("active", path, namespace)
    yield _of_lease("ping", path, namespace)


def _of_lease(name: str, path: str, namespace: str) -> dict[str, Any]:
    return {
        "name": f"{name}.gpu-webhook.io",
        "clientConfig": {"service": {"namespace": namespace, "name": NAME, "port": 443, "path": f"/{path}"}},
        "rules": [_rule(_LEASES, ["CREATE"])],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}},
        "objectSelector": {"matchExpressions": [{"key": f"{LABELS}{name}", "operator": "Exists"}]},
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": TIMEOUT_SECONDS,
        "admissionReviewVersions": ["v1"],
    }


def _configuration(kind: str, hooks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": hooks,
    }


def _rule(resources: dict[str, list[str]], operations: list[str]) -> dict[str, Any]:
    return {**resources, "operations": operations, "scope": "Namespaced"}


def _exempt(rulebook: Rulebook, namespace: str) -> dict[str, Any]:
    """The selector of all namespaces but the exempt ones, which the server leaves alone, too."""
    for problem in rulebook.cluster.unlisted(cluster.KUBERNETES, namespace):
        raise NotExemptError(str(problem))
    exempt = rulebook.cluster.system_namespaces
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": sorted(exempt)}]}
