"""What editors show of a `TenantPolicy`; read by `webhook.core.schema.tenantpolicies` and `.labels`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from webhook.core.editor.pieces import Schema, each, either, filled, form, many, mapping, says, text, whole, word
from webhook.core.schema import labels, tenantpolicies
from webhook.core.shorthand import SHARINGS
from webhook.core.tenancy.policy import ACTIONS

_GLOB: Final = form(
    f"^{tenantpolicies.GLOB}$", 'write the name of a namespace, or a pattern with * or ?, as "vision-*"'
)
_NUMBER: Final = either(
    whole(0, maximum=999_999_999), form(f"^{tenantpolicies.NUMBER}$", 'write 2, or "0.5" in quotes')
)
_SIZE: Final = form(r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i|[kMGT])$", "write a size with its unit, as 40Gi or 40960Mi")
_NAME: Final = f"(?=.{{1,{labels.MAX_NAME}}}$){labels.NAME}"
_PREFIX: Final = f"(?:(?=.{{1,{labels.MAX_PREFIX}}}/){labels.SUBDOMAIN}/)?"
_KEY: Final = f"^{_PREFIX}{_NAME}$"
_ANY_CASE: Final = f"^{_PREFIX.replace('a-z', 'A-Za-z')}{_NAME}$"
_VALUE: Final = form(f"^(?:{_NAME})?$", "write the value of a label, of at most 63 characters")

_DEVICES: Final = says("How many devices; a share counts as a fraction.", _NUMBER, 2, "0.5")
_MEMORY: Final = says("Memory of all the devices together, with its unit.", _SIZE, "40Gi")
_OWN: Final = says("What becomes of a pod that breaks this rule, if not what the policy says.", word(ACTIONS))


def globs() -> Schema:
    """Names of namespaces."""
    return many(_GLOB, minItems=1)


def _any_of(*keys: str) -> Schema:
    """At least one of the keys stands there."""
    return {"anyOf": [{"required": [key]} for key in keys]}


def _limits(*keys: str) -> Schema:
    """A mapping of what is limited, at least one."""
    cores = says("Percent of a device's compute, of all devices together; 100 is all of one.", _NUMBER, 100, 200)
    known = {"devices": _DEVICES, "memory": _MEMORY, "cores": cores}
    return mapping({**{key: known[key] for key in keys}, "enforcementAction": _OWN}, **_any_of(*keys))


def _requirement(operators: Collection[str]) -> Schema:
    """One line of a selector."""
    return mapping(
        {
            "key": says("The label.", form(_KEY, "write the key of a label, as team or example.com/team"), "team"),
            "operator": says("How the label is compared.", word(operators)),
            "values": says("What it is compared with.", many(_VALUE), ["vision"]),
        },
        needs=("key", "operator"),
        allOf=[
            _given(("In", "NotIn"), {"required": ["values"], "properties": {"values": {"minItems": 1}}}),
            _given(("Exists", "DoesNotExist"), {"properties": {"values": {"maxItems": 0}}}),
            *([_given(("Gt", "Lt"), _ONE_NUMBER)] if "Gt" in operators else []),
        ],
    )


_ONE_NUMBER: Final[Schema] = {
    "required": ["values"],
    "properties": {"values": {"minItems": 1, "maxItems": 1, "items": {"pattern": "^[0-9]{1,18}$"}}},
}


def _given(operators: Collection[str], then: Schema) -> Schema:
    """What holds of a requirement with one of these operators."""
    return {"if": {"required": ["operator"], "properties": {"operator": {"enum": [*operators]}}}, "then": then}


def _keyed(keys: str, value: Schema) -> Schema:
    return each(value, propertyNames={"pattern": keys, "not": {"pattern": r"^gpu$|^gpu-|gpu-webhook\.io/"}})


_SELECTOR: Final = mapping(
    {
        "matchLabels": says(
            "Labels with their values.", each(_VALUE, propertyNames={"pattern": _KEY}), {"team": "vision"}
        ),
        "matchExpressions": says("Labels with several values, or any.", many(_requirement(labels.SELECTING))),
    }
)
_NAMESPACES: Final = mapping(
    {
        "names": says("Names, where * stands for any characters and ? for one.", globs(), ["vision-dev", "vision-*"]),
        "selector": says("Labels of the namespaces; all of it has to hold. `{}` selects all.", _SELECTOR),
    },
    **_any_of("names", "selector"),
)
_WORDS: Final = many(text(), minItems=1)
_KINDS: Final = mapping(
    {
        "backends": says("Back ends, by name.", _WORDS, ["hami-vgpu"]),
        "vendors": says("Vendors, as catalogues name them.", _WORDS, ["nvidia"]),
        "models": says("Card models, by name or alias.", _WORDS, ["A100-80GB"]),
        "sharing": says("Ways of sharing a device.", many(word(SHARINGS), minItems=1), ["fractional"]),
        "profiles": says("Partitions, by name.", _WORDS, ["1g.10gb"]),
        "enforcementAction": _OWN,
    },
    **_any_of(*tenantpolicies.LISTS),
)
_DEFAULTS: Final = mapping(
    {
        "backend": says("The back end that serves them.", text(), "hami-vgpu"),
        "model": says("The card model.", text(), "A100-80GB"),
        "sharing": says("The way of sharing a device.", word(SHARINGS)),
        "memory": says("The memory of a bare `gpu: 1`.", _SIZE, "8Gi"),
    },
    **_any_of("backend", "model", "sharing", "memory"),
)
_QUOTA: Final = mapping(
    {
        "devices": _DEVICES,
        "memory": _MEMORY,
        "models": says(
            "The same of single card models, by name or alias.",
            each(mapping({"devices": _DEVICES, "memory": _MEMORY}, **_any_of("devices", "memory")), minProperties=1),
            {"A100-80GB": {"devices": 4, "memory": "320Gi"}},
        ),
        "enforcementAction": _OWN,
    },
    **_any_of("devices", "memory", "models"),
)

SPEC: Final[Schema] = mapping(
    {
        "priority": says(
            "Of several policies that select a namespace the one with the highest priority holds; where two are as"
            " high, no GPU pod is admitted there. 0 if left out.",
            whole(-tenantpolicies.MAX_PRIORITY, maximum=tenantpolicies.MAX_PRIORITY),
        ),
        "enforcementAction": says(
            "What becomes of a pod that breaks a rule: it is refused (`deny`, the default), admitted with a warning"
            " to its user (`warn`), or only logged and counted (`dryrun`).",
            word(ACTIONS),
        ),
        "namespaces": says("Which namespaces the tenant has, by name, by label, or by either.", _NAMESPACES),
        "ceilings": says(
            "The most that one container, and one pod, may ask.",
            mapping(
                {
                    "container": says("Of each container.", _limits("devices", "memory", "cores")),
                    "pod": says("Of all containers together.", _limits("devices", "memory", "cores")),
                },
                **_any_of("container", "pod"),
            ),
            {"container": {"devices": 2, "memory": "40Gi"}},
        ),
        "allowed": says("What may be used; a list that is not there allows all.", _KINDS, {"models": ["A100-80GB"]}),
        "forbidden": says("What may not be used, even if it is allowed.", _KINDS, {"sharing": ["time-sliced"]}),
        "defaults": says("What is meant where a pod does not say.", _DEFAULTS, {"backend": "hami-vgpu"}),
        "affinity": says(
            "Labels of the nodes that the tenant's GPU pods may run on; all of it has to hold.",
            many(_requirement(labels.COMPARING)),
            [{"key": "pool", "operator": "In", "values": ["vision"]}],
        ),
        "labels": says(
            "Labels that the tenant's GPU pods get.", _keyed(_KEY, _VALUE), {"scheduler.example/queue": "vision"}
        ),
        "annotations": says(
            "Annotations that the tenant's GPU pods get.",
            _keyed(_ANY_CASE, text()),
            {"scheduler.example/queue-name": "vision"},
        ),
        "quota": says(
            "The most that all live pods of the tenant may hold together.", _QUOTA, {"devices": 16, "memory": "640Gi"}
        ),
    },
    needs=("namespaces",),
)

NAME: Final = filled(pattern=f"^{labels.SUBDOMAIN}$", maxLength=labels.MAX_NAME)
"""What a policy or an exemption can be called."""
