"""The two webhook configurations: which requests the API server sends us, and what it does if we are away."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.core.forms.document import API_VERSION, DocumentError
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.registration import conditions
from webhook.core.review import TIMEOUT_SECONDS
from webhook.core.rules import cluster, load
from webhook.core.rules.objects import resource
from webhook.core.rules.rulebook import Rulebook

NAME: Final = "gpu-webhook"
"""Of both configurations, and of the Service. Mutating configurations run in the order of their names. Ours comes
before those of the back ends (hami, kai, koordinator, volcano), which see the pod as we translated it."""

LABELS: Final = "gpu-webhook.io/"
"""Leases of the certificate program have a label that begins so and ends in the first word of a webhook's name.
`ping` calls a replica, so that this program sees which API servers reach one; and so does `active`, once pods are
brought to be mutated."""

REMOVING: Final = "gpu-webhook.io/device-access"
"""The label of a namespace, with `remove`, in which pods that ask for no GPU lose what names one, as their policy
says. To look at all variables costs an API server more than all else: it is asked to only there."""

WANTED: Final = "gpu-webhook.io/rules"
"""The annotation with the rules that the certificate program copies when replicas answer (`certs/activation.py`)."""

WARNING_SECONDS: Final = 2
"""A warning that comes too late stands in the status and the events of the object, too: nobody waits long for it."""

Object = dict[str, Any]


def not_exempt(rulebook: Rulebook) -> Object:
    """The selector of all namespaces but the exempt ones, which the server leaves alone, too."""
    exempt = sorted(rulebook.cluster.system_namespaces)
    return {"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": exempt}]}


def _rule(group: str, resources: list[str], operations: list[str], versions: Sequence[str] = ("v1",)) -> Object:
    kinds = {"apiGroups": [group], "apiVersions": [*versions], "resources": resources}
    return {**kinds, "operations": operations, "scope": "Namespaced"}


_CHANGES: Final = ["CREATE", "UPDATE"]
_PODS: Final = _rule("", ["pods"], _CHANGES)
_SUBRESOURCES: Final = _rule("", ["pods/ephemeralcontainers", "pods/resize", "pods/status"], ["UPDATE"])
"""A rule on pods covers no subresource: each that is looked at is named."""

_BINDINGS: Final = _rule("", ["pods/binding", "bindings"], ["CREATE"])
_APPS: Final = _rule("apps", ["deployments", "statefulsets", "daemonsets", "replicasets"], _CHANGES)
_BATCH: Final = _rule("batch", ["jobs", "cronjobs"], _CHANGES)
_GROUP, _, _VERSION = API_VERSION.partition("/")
_POLICIES: Final = {**_rule(_GROUP, [*load.POLICY_KINDS], [*_CHANGES, "DELETE"], [_VERSION]), "scope": "Cluster"}
_LEASES: Final = _rule("coordination.k8s.io", ["leases"], ["CREATE"])


def both(rulebook: Rulebook, namespace: str = cluster.OWN) -> list[Object]:
    """The mutating and the validating configuration for a server in a namespace; raises DocumentError.

    `caBundle` is not set: the program that issues the certificate writes it into the live objects, or `trusting`.
    """
    for problem in rulebook.cluster.unlisted(cluster.KUBERNETES, namespace):
        raise DocumentError(problem)
    matching = conditions.by_webhook(rulebook)

    def hook(name: str, path: str, rules: list[Object], **changed: Any) -> Object:
        lease = rules == [_LEASES]  # only the certificate program has these called, by Leases of its own
        label = {"key": f"{LABELS}{name}", "operator": "Exists"}
        return {
            "name": f"{name}.gpu-webhook.io",
            "clientConfig": {"service": {"namespace": namespace, "name": NAME, "port": 443, "path": f"/{path}"}},
            "rules": rules,
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchLabels": {NAME_LABEL: namespace}} if lease else not_exempt(rulebook),
            **({"objectSelector": {"matchExpressions": [label]}} if lease else {"matchConditions": matching[name]}),
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
            **changed,
        }

    aside = {"failurePolicy": "Ignore", "timeoutSeconds": WARNING_SECONDS}  # warnings: nobody waits for them
    # The kinds that documents say pods of; those that a cluster does not have are never asked about.
    workloads = {
        workload.name: workload for workload in rulebook.workloads.values() if workload.name and workload.pods
    }
    custom = [
        _rule(of.group, [*dict.fromkeys(map(resource, of.kinds))], _CHANGES, of.versions or ["*"])
        for _, of in sorted((name, workload.objects) for name, workload in workloads.items())
    ]
    removing = {"matchLabels": {REMOVING: "remove"}, **not_exempt(rulebook)}
    hooks = {
        "Mutating": [
            # A container that a later webhook adds is seen, too.
            hook("mutate", "mutate", [_PODS], reinvocationPolicy="IfNeeded"),
            hook("unfit-templates", "templates", [_APPS, _BATCH], **aside),
            hook("active", "mutate", [_LEASES]),
            hook("ping", "mutate", [_LEASES]),
            # What is not taken out is refused (`policies.filled_in`): nobody waits for this either.
            hook("remove", "mutate", [_PODS], **aside, reinvocationPolicy="IfNeeded", namespaceSelector=removing),
        ],
        "Validating": [
            # Quota is reserved on a real create, never on a dry run.
            hook("validate", "validate", [_PODS, _SUBRESOURCES], sideEffects="NoneOnDryRun"),
            hook("bindings", "validate", [_BINDINGS]),
            hook("templates", "templates", [_APPS, _BATCH], **aside),
            hook("workloads", "templates", custom, **aside),
            hook("policies", "policies", [_POLICIES], **aside, namespaceSelector={}),
            hook("ping", "validate", [_LEASES]),
        ],
    }
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": its,
        }
        for kind, its in hooks.items()
    ]


def inactive(configuration: Mapping[str, Any]) -> Object:
    """The configuration as it is applied: webhooks of pods without rules, which stand in the annotation WANTED."""
    hooks, lines = [], []
    for hook in configuration["webhooks"]:
        if hook["name"] == "ping.gpu-webhook.io":
            hooks.append(hook)
            continue
        rules = ",\n    ".join(map(json.dumps, hook["rules"]))
        lines.append(f"{json.dumps(hook['name'])}: [\n    {rules}\n  ]")
        hooks.append({key: value for key, value in hook.items() if key != "rules"})
    wanted = ",\n  ".join(lines)
    metadata = {**configuration["metadata"], "annotations": {WANTED: f"{{\n  {wanted}\n}}"}}
    return {**configuration, "metadata": metadata, "webhooks": hooks}


def filled_in(stored: Mapping[str, Any], rulebook: Rulebook) -> Object:
    """A stored configuration with what depends on rules: match conditions, and the annotation WANTED."""
    wanted = next(inactive(made) for made in both(rulebook, cluster.KUBERNETES) if made["kind"] == stored["kind"])
    matching = {hook["name"]: hook["matchConditions"] for hook in wanted["webhooks"] if "matchConditions" in hook}
    hooks = [
        {**hook, "matchConditions": matching[hook["name"]]} if hook["name"] in matching else hook
        for hook in stored.get("webhooks", ())
    ]
    metadata = stored["metadata"]
    annotations = {**metadata.get("annotations", {}), **wanted["metadata"]["annotations"]}
    return {**stored, "metadata": {**metadata, "annotations": annotations}, "webhooks": hooks}


def trusting(configuration: Mapping[str, Any], bundle: bytes) -> Object:
    """The configuration with a CA bundle (PEM), for a certificate that the operator issues."""
    trusted = {"caBundle": base64.b64encode(bundle).decode()}
    hooks = [{**hook, "clientConfig": {**hook["clientConfig"], **trusted}} for hook in configuration["webhooks"]]
    return {**configuration, "webhooks": hooks}
