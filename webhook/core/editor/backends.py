"""What editors show of a `Backend`; read by `webhook.core.schema.backends`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.core.editor import outputs
from webhook.core.editor.modes import COMPANIONS, MODE, WRITES
from webhook.core.editor.pieces import (
    Schema,
    each,
    either,
    filled,
    flag,
    many,
    mapping,
    says,
    shared,
    text,
    whole,
    word,
)
from webhook.core.schema.backends import EXPECTED
from webhook.core.shorthand import KEYS, SHARINGS

_SCALARS: Final = each({"type": ["string", "integer", "number", "boolean"]})

_EXPECTATIONS: Final[Mapping[str, Schema]] = {
    "limits": says("The container's resources.", _SCALARS, {"acme.example/card": 1}),
    "annotations": says("Annotations of the pod, without those of the webhook.", _SCALARS),
    "labels": says("Labels of the pod.", _SCALARS),
    "env": says("Environment of the container.", _SCALARS),
    "nodeAffinity": says("Values of each node label.", each(many({"type": ["string", "integer", "number"]}))),
    "claims": says("Names of templates of resource claims.", many(text())),
    "schedulerName": says("The pod's scheduler.", text()),
    "runtimeClassName": says("The pod's runtime class.", text()),
}
ASK: Final = mapping({key: text() for key in KEYS})

_EXAMPLE: Final = mapping(
    {
        "name": says("What messages call it.", text()),
        "ask": says(
            "The shorthand, by the keys of labels; values are quoted.",
            ASK,
            {"gpu": "0.3", "gpu-model": "T4"},
        ),
        "pod": says("What else the pod has.", {"type": "object"}, {"spec": {"hostIPC": True}}),
        "refused": says("A part of the message that refuses it.", filled()),
        **_EXPECTATIONS,
    },
    needs=("ask",),
    oneOf=[{"required": ["refused"]}, {"type": "object", "anyOf": [{"required": [key]} for key in EXPECTED]}],
)

_EQUAL: Final = {"enum": ["Equal"]}
_EXISTS: Final = {"enum": ["Exists"]}
_OTHER_EFFECTS: Final = {"enum": ["NoSchedule", "PreferNoSchedule"]}
_TOLERATION: Final = mapping(
    {
        "key": says("The taint's key; left out with `operator: Exists` it is any.", text(), "acme.example/card"),
        "operator": says("`Exists` for any value, `Equal` (the default) for this one.", word(("Exists", "Equal"))),
        "value": says("The taint's value, with `operator: Equal`.", text()),
        "effect": says("The taint's effect; any if left out.", word(("NoSchedule", "PreferNoSchedule", "NoExecute"))),
        "tolerationSeconds": says("With `effect: NoExecute`, how long it is tolerated.", whole(0)),
    },
    allOf=[
        {"not": {"type": "object", "required": ["operator", "value"], "properties": {"operator": _EXISTS}}},
        {"anyOf": [{"required": ["key"]}, {"required": ["operator"], "properties": {"operator": {"not": _EQUAL}}}]},
        {
            "anyOf": [
                {"not": {"type": "object", "required": ["tolerationSeconds"]}},
                {"required": ["effect"], "properties": {"effect": {"not": _OTHER_EFFECTS}}},
            ]
        },
    ],
)
_INJECT: Final = mapping(
    {
        "runtimeClassName": says("The pod's runtime class; a pod's own is kept, and an empty one is none.", text()),
        "schedulerName": says("The pod's scheduler; a pod that names yet another one is refused.", text()),
        "tolerations": says(
            "Tolerations of the pod.",
            many(shared("toleration")),
            [{"key": "acme.example/card", "operator": "Exists", "effect": "NoSchedule"}],
        ),
        **WRITES,
    }
)
_PARTITIONS: Final = mapping(
    {
        "names": says("Spellings of profiles that differ from the catalogue's.", each(text())),
        "only": says("The profiles it has, where these are not all; `*` is any text.", many(text()), ["1g.*"]),
    }
)
_NODES: Final = mapping(
    {
        "labels": says(
            "Labels that all hold: a value, a list of which one holds, or nothing for any value.",
            each(either(outputs.HOLED, many(outputs.HOLED), {"type": "null"})),
            {"acme.example/mode": "shared"},
        ),
        "devices": says(
            "The label, or the resource, that says how many cards a node has.", text(), "acme.example/cards"
        ),
        "replicas": says("How often each card is counted in a resource that counts cards.", whole(1), 10),
        "required": says("It serves only if such a node is known; else nodes may come later.", flag()),
    }
)
_PARAMETER: Final = mapping(
    {
        "default": says("The value unless the Cluster document sets another.", {}),
        "description": says("What for.", {}),
    },
    needs=("default",),
)
PARAMETERS: Final = says(
    "Values that a site may change, written as `$(name)` in keys and values.",
    each(_PARAMETER),
    {"resource": {"default": "acme.example/card", "description": "what the device plugin advertises"}},
)

SPEC: Final[Schema] = mapping(
    {
        "description": says("One line for people.", text(), "shares of NVIDIA cards, by HAMi"),
        "extends": says(
            "Another back end, whose spec this one takes over: mappings are merged, lists replaced, an empty value"
            " deletes. Examples are not inherited.",
            text(),
            "nvidia-gpu",
        ),
        "vendors": says(
            "Whose cards it serves, as the catalogues spell it; none means any.", many(text()), ["nvidia"]
        ),
        "models": says(
            "The only card models it serves; if they are alike, a share becomes a size without `gpu-model`.",
            many(text()),
        ),
        "sharing": says("What `gpu-sharing` may say.", many(word(SHARINGS)), ["exclusive", "fractional"]),
        "parameters": PARAMETERS,
        "partitions": says(
            "`{}` if it serves hardware partitions: a share or a size then gets the smallest profile that has it.",
            _PARTITIONS,
            {},
        ),
        "unenforced": says(
            "What it only counts, so that nothing stops a container that takes more; its author is warned.",
            many(word(("memory", "compute"))),
            ["memory", "compute"],
        ),
        "writers": says(
            "Users that are parts of it, as globs: they may change the annotations and labels it is asked in on a pod"
            " that runs, which nobody else may.",
            many(text()),
            ["system:serviceaccount:kai-scheduler:*"],
        ),
        "modes": says(
            "Ways to serve a request; the first whose `when` matches is taken, and none means a refusal.",
            many(shared("mode"), minItems=1),
        ),
        "inject": says("What a pod gets beside resources, whatever the mode.", _INJECT),
        **COMPANIONS,
        "nodes": says("How its nodes are recognised.", _NODES),
        "requestOnly": says(
            "A resource in requests without a limit: `repair` (the default) or `refuse`.", word(("repair", "refuse"))
        ),
        "examples": says(
            "Executed whenever the rules are loaded.",
            many(shared("example"), minItems=1),
            [{"ask": {"gpu": "1"}, "limits": {"acme.example/card": 1}}],
        ),
    },
    needs=("description", "sharing", "modes", "examples"),
)

PARTS: Final[Mapping[str, Schema]] = {
    "mode": MODE,
    "example": _EXAMPLE,
    "toleration": _TOLERATION,
    **outputs.PARTS,
}
"""What a back end has often, by the name of its form."""
