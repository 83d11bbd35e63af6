"""What editors show of an `Exemption`; read by `webhook.core.schema.exemptions`."""

from __future__ import annotations

from typing import Final

from webhook.core import instant
from webhook.core.editor.pieces import Schema, filled, form, many, mapping, says, word
from webhook.core.editor.tenantpolicies import globs
from webhook.core.tenancy.policy import RULES

SPEC: Final[Schema] = mapping(
    {
        "namespaces": says("Names, where * stands for any characters and ? for one.", globs(), ["vision-dev"]),
        "users": says(
            "Names of users, where * stands for any characters; if left out, everybody who may create pods there.",
            many(filled(), minItems=1),
            ["system:serviceaccount:ci:*"],
        ),
        "lifts": says(
            "Which rules are lifted. Where several exemptions hold for a pod, only what all of them lift.",
            many(word(RULES), minItems=1),
            ["quota"],
        ),
        "owner": says("Whom to ask about it.", filled(), "ml-platform@example.com"),
        "reason": says("Why it is there.", filled(), "the yearly retraining"),
        "expires": says(
            "Until when it holds, with the zone.",
            form(f"^{instant.FORM}$", "write day, time and zone, as 2027-01-31T00:00:00Z"),
            "2027-01-31T00:00:00Z",
        ),
    },
    needs=("namespaces", "lifts", "owner", "reason", "expires"),
)
