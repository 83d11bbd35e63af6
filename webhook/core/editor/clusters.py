"""What editors show of a `Cluster`; read by `webhook.core.schema.clusters`."""

from __future__ import annotations

from typing import Final

from webhook.core.editor.pieces import Schema, each, either, flag, many, mapping, says, text, word

_BACK_END: Final = text()

SPEC: Final[Schema] = mapping(
    {
        "backends": says(
            "Names of back ends, the preferred ones first; one that is not listed serves nobody. Those of an inner"
            " list are as good as each other: the first that has nodes is taken.",
            many(either(_BACK_END, many(_BACK_END)), minItems=1),
            ["nvidia-gpu", "hami-vgpu"],
        ),
        "defaults": says(
            "Which back end is tried first.",
            mapping(
                {
                    "whole": says("For whole devices.", _BACK_END),
                    "part": says("For shares and sizes.", _BACK_END),
                }
            ),
            {"whole": "nvidia-gpu", "part": "hami-vgpu"},
        ),
        "device": says(
            "The model of the card, if all nodes have the same: shares become sizes without `gpu-model`.",
            text(),
            "A100-80GB",
        ),
        "parameters": says(
            "By back end, values for the parameters that it declares.",
            each(each({})),
            {"nvidia-gpu": {"runtimeClassName": "nvidia"}},
        ),
        "unknownValue": says(
            'What `gpu: "true"` or another value that is no request means: `warn` (the default) leaves it alone.',
            word(("warn", "refuse")),
        ),
        "systemNamespaces": says(
            "Namespaces of device plugins and their kin, whose pods are neither changed nor judged.",
            many(text()),
            ["kube-system", "gpu-operator"],
        ),
        "provisioners": says(
            "Which back end serves the claims of a class, by the provisioner that the class names.", each(_BACK_END)
        ),
        "namespacesWithoutPolicy": says(
            "What may ask for GPUs in a namespace that no TenantPolicy selects: everything (`allow`) or nothing"
            " (`deny`). If left out, everything until there is a policy.",
            word(("allow", "deny")),
        ),
        "observe": says(
            "`true`: pods are neither changed nor refused; users are warned of what would become of them.", flag()
        ),
    },
    needs=("backends",),
)
