"""What editors show of a `ClaimSource`; read by `webhook.core.schema.claimsources`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.core.editor.backends import ASK, PARAMETERS
from webhook.core.editor.pieces import (
    Schema,
    each,
    filled,
    form,
    many,
    mapping,
    says,
    shared,
    text,
    word,
)

_ADDRESS: Final = form(r"^[^{]{2,}\{container\}$", "has to end in {container}, as vendor.example/claim-{container}")

_OBJECT: Final[Mapping[str, Schema]] = {
    "kind": says("The kind of the objects.", filled(), "ElasticGPUClaim"),
    "group": says("Their API group.", filled(), "acme.example"),
    "versions": says("Versions of it, the preferred one first.", many(filled(), minItems=1), ["v1alpha1"]),
    "plural": says("Their name in URLs.", filled(), "elasticgpuclaims"),
}
_CLAIMS: Final = mapping(
    {
        **_OBJECT,
        "resources": says("The field with what is asked for.", filled(), "spec.resources"),
        "class": says("Fields that may name the class; the first that is there counts.", many(filled())),
    },
    needs=(*_OBJECT, "resources"),
)
_CLASSES: Final = mapping(
    {
        **_OBJECT,
        "provisioner": says("Fields that may name the provisioner.", many(filled(), minItems=1), ["provisioner"]),
    },
    needs=(*_OBJECT, "provisioner"),
)
_READ: Final = mapping(
    {
        "devices": says(
            "What these resources ask for: `whole` devices, or a `part` of each.", word(("whole", "part"))
        ),
        "resources": says("What stands in a claim, and what it means: a verb of `limits`.", each(shared("limit"))),
    },
    needs=("devices", "resources"),
)
_EXAMPLE: Final = mapping(
    {
        "name": says("What messages call it.", text()),
        "resources": says("What stands in the claim.", {"type": "object"}, {"acme.example/compute": 50}),
        "asks": says("What it means in the shorthand, by the keys of labels.", ASK),
        "refused": says("A part of the message that refuses it.", filled()),
    },
    needs=("resources",),
    oneOf=[{"required": ["refused"]}, {"type": "object", "required": ["asks"]}],
)

SPEC: Final[Schema] = mapping(
    {
        "description": says("One line for people.", text()),
        "parameters": PARAMETERS,
        "annotations": says(
            "Annotations of pods that name a claim for a container.",
            many(_ADDRESS, minItems=1),
            ["acme.example/claim-{container}"],
        ),
        "claims": says("The objects that pods name, and where in them it stands what is asked.", _CLAIMS),
        "classes": says("The objects that say who provides for a claim.", _CLASSES),
        "reads": says("What resources of a claim mean; the first that fits.", many(_READ, minItems=1)),
        "names": says("Other spellings of resources, by the one under `reads`.", each(many(text()))),
        "examples": says("Executed whenever the rules are loaded.", many(_EXAMPLE, minItems=1)),
    },
    needs=("description", "annotations", "claims", "reads", "examples"),
)
