"""What editors show of a mode of a `Backend`; read by `webhook.core.schema.modes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.core.companions import FORBIDDABLE
from webhook.core.editor.outputs import ASKING, HOLED, NOT_THERE, SELECTED, WRITTEN
from webhook.core.editor.pieces import (
    Schema,
    each,
    either,
    filled,
    flag,
    form,
    many,
    mapping,
    says,
    shared,
    text,
    whole,
    word,
)
from webhook.core.request import DEVICES, PREFIX
from webhook.core.shorthand import SHARINGS

_DIMENSIONS: Final = many(word(("share", "memory", "cores", "profile", "model")))

_RESOURCE: Final = form(
    rf"^(?!{PREFIX.replace('.', '[.]')})[a-z0-9]([a-z0-9.-]*[a-z0-9])?/"
    r"([A-Za-z0-9]|\{profile\}|\{memory\})([A-Za-z0-9._-]|\{profile\}|\{memory\}){0,62}$",
    "write the name of an extended resource, as vendor.example/gpu",
)

WRITES: Final[Mapping[str, Schema]] = {
    "annotations": says(
        "Annotations of the pod: text, which may have holes as `{model}`, or a verb.",
        each(WRITTEN),
        {"acme.example/placement": {"placement": {}}},
    ),
    "labels": says("Labels of the pod: text, which may have holes as `{model}`, or a verb.", each(WRITTEN)),
    "env": says(
        "Environment of the container: text, a verb, or `{value: ..., enforce: true}`.",
        each(WRITTEN),
        {"NVIDIA_VISIBLE_DEVICES": {"value": "void", "enforce": True}},
    ),
    "nodeAffinity": says(
        "Labels that the node has to have: a text, a list of them (one is enough), a verb, or `{absent: true}`.",
        each(SELECTED),
        {"acme.example/model": {"product": {}}},
    ),
}
"""What a mode or `inject` writes beside limits."""

COMPANIONS: Final[Mapping[str, Schema]] = {
    "requires": says(
        "What the pod's author has to write. It is never injected, as that would lower security unseen.",
        mapping(
            {
                "hostIPC": says("The pod has to have `hostIPC: true`.", flag()),
                "runAsUser": says("The container has to run as this user.", whole(0), 1000),
                "hostPath": says("The container has to mount a volume with this path of the host.", filled()),
            }
        ),
    ),
    "forbids": says("What the pod must not have.", many(word(FORBIDDABLE)), ["privileged"]),
    "reserves": says(
        "Annotations that only the system's own scheduler writes; `X_*` is all that begin so.",
        many(text()),
        ["ALIYUN_COM_GPU_MEM_*"],
    ),
    "perPod": says(
        "What holds for the containers of a pod together.",
        mapping(
            {
                "containers": says("So many containers of a pod are served.", whole()),
                "devices": says("1: all containers of a pod share one device, and have to fit it.", whole(maximum=1)),
            }
        ),
        {"containers": 1},
        {"devices": 1},
    ),
}
"""What a mode or a back end needs of the rest of the pod."""

_RANGE: Final = mapping({"min": says("At least so many.", whole()), "max": says("At most so many.", whole())})

_WHEN: Final = mapping(
    {
        "devices": says(
            "`whole` devices, a `part` of each, a `profile` (a hardware partition), or a `claim`.", word(DEVICES)
        ),
        "count": says("A number of devices, or `{min: 2, max: 4}`.", either(whole(), _RANGE), 1, {"min": 2}),
        "has": says("Requests that say all of these.", _DIMENSIONS, ["memory"]),
        "lacks": says("Requests that say none of these.", _DIMENSIONS, ["cores"]),
        "models": says("Requests for one of these card models.", many(text()), ["A100-80GB"]),
        "sharing": says("Requests that say this with `gpu-sharing`.", word(SHARINGS)),
        "annotations": says(
            "Pods that their author annotated so, or with `{absent: true}` did not.", each(either(text(), NOT_THERE))
        ),
    }
)
_SIZES: Final = mapping(
    {
        "unit": says("What one of the number is.", form("^([1-9][0-9]{0,5})?(MiB|GiB)$", "write MiB or GiB")),
        "max": says("The greatest number.", whole()),
    },
    needs=("unit", "max"),
)
_ASKS: Final = {
    "anyOf": [
        {"required": ["limits"]},
        {"required": ["claims"]},
        {"required": ["annotations"], "properties": {"annotations": ASKING}},
        {"required": ["labels"], "properties": {"labels": ASKING}},
    ]
}

MODE: Final = mapping(
    {
        "name": says("What messages call it.", text(), "whole cards"),
        "when": says("Which requests it is for; all of them if left out.", _WHEN, {"devices": "part", "count": 1}),
        "limits": says(
            "Extended resources of the container: a whole number, or a verb. `{profile}` in a name stands for each"
            " partition of the catalogue, `{memory}` for each of `sizes`.",
            each(shared("limit"), propertyNames=_RESOURCE),
            {"acme.example/memory": {"memory": {"unit": "MiB", "round": "up"}}},
        ),
        **WRITES,
        "claims": says(
            "Names of templates of resource claims (DRA); the container gets a claim of each.",
            many(HOLED),
            ["gpu-{profile}"],
        ),
        "sizes": says(
            "The mode stands for one of each size up to `max`; `{memory}` in the name of a resource is the number.",
            _SIZES,
            {"unit": "GiB", "max": 96},
        ),
        **COMPANIONS,
    },
    allOf=[_ASKS],
)
