"""What editors show of a `DeviceCatalog`; read by `webhook.core.schema.catalogs`."""

from __future__ import annotations

from typing import Final

from webhook.core.editor.pieces import Schema, each, form, many, mapping, says, text, whole

_SIZE: Final = form(r"^[0-9]{1,19}(\.[0-9]{1,9})?([KMGT]i|[kMGT])$", "write a size with its unit, as 16Gi or 15360Mi")

_PROFILE: Final = mapping(
    {
        "memory": says("Memory of the partition, as the driver reports it.", _SIZE, "9856Mi"),
        "slices": says("How many of the card's memory slices it takes.", whole()),
        "compute": says("How many of the card's compute slices it takes.", whole()),
        "most": says("How many of these one card can hold; 1 if left out.", whole()),
    },
    needs=("memory", "slices", "compute"),
)
_DEVICE: Final = mapping(
    {
        "model": says("The name that `gpu-model` asks for.", text(), "A100-80GB"),
        "aliases": says("Other names that `gpu-model` may use.", many(text()), ["A100"]),
        "names": says(
            "Product names as the driver reports them; node labels have them with dashes for spaces.",
            many(text()),
            ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"],
        ),
        "memory": says("Nominal memory, as in the data sheet.", _SIZE, "80Gi"),
        "usable": says("Memory as the driver reports it: what sizes are compared with.", _SIZE, "81920Mi"),
        "tflops": says("Dense FP16 TFLOPS, for `gpu-tflops`.", {"type": "number", "exclusiveMinimum": 0}, 65, 312),
        "slices": says(
            "Of a card that can be partitioned: the number of its slices.",
            mapping(
                {"memory": says("Slices of memory.", whole()), "compute": says("Slices of compute.", whole())},
                needs=("memory", "compute"),
            ),
            {"memory": 8, "compute": 7},
        ),
        "profiles": says(
            "The partitions that the card can be cut into, by name, the smallest first.",
            each(_PROFILE),
            {"1g.10gb": {"memory": "9856Mi", "slices": 1, "compute": 1, "most": 7}},
        ),
    },
    needs=("model", "memory"),
    dependentRequired={"profiles": ["slices"]},
)

SPEC: Final[Schema] = mapping(
    {
        "vendor": says("Who makes these cards; `vendors` of a back end names it.", text(), "nvidia", "amd"),
        "devices": says("The card models.", many(_DEVICE)),
    },
    needs=("vendor", "devices"),
)
