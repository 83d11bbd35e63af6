"""In CEL: whether a pod asks in the shorthand, and whether it carries anything that its request may have become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.core.interpret import extended_resources, locations
from webhook.core.kube.cel import indented, listed, text
from webhook.core.kube.pod import CORE
from webhook.core.request import shorthand
from webhook.core.request.request import ASKING, PREFIX
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.vocabulary import Slot

LABELS: Final = "object.metadata.?labels.orValue({})"
ANNOTATIONS: Final = "object.metadata.?annotations.orValue({})"

_HOLDERS: Final = "[object.spec.containers, object.spec.?initContainers.orValue([])]"
_AMOUNTS: Final = "[holder.?resources.?limits.orValue({}), holder.?resources.?requests.orValue({})]"
_NUMBER: Final = "matches('^[-+.]?[0-9]')"
_NOTHING: Final = "matches('^(?i:none|[0.]+%?)$')"
_CLAIM: Final = "matches('^[a-z0-9][a-z0-9-]*$')"
_QUALIFIED: Final = [PREFIX + key.removeprefix("gpu-") for key in ASKING]
_OF_A_CONTAINER: Final = [locations.annotation(key, "") for key in ASKING]


def carries(rulebook: Rulebook) -> str:
    """Whether a container may have a device: by a vendor's resource, a claim, or a key by which a back end is asked.

    A resource that no rule knows counts if the pod has the note of a translation, as at /validate.
    """
    domains = {name.partition("/")[0] for name in rulebook.resources if not isinstance(name, Slot)}
    vendors = listed(sorted({f"{domain}/" for domain in domains} | {extended_resources.DEVICE_CLASS}))
    unknown = f"!(name in {listed(CORE)}) && !name.startsWith('hugepages-')"
    slots = [name for by_key in rulebook.slots.values() for name in by_key]
    heads = sorted({slot.partition("{")[0] for slot in slots})
    keys = f"{listed(heads)}.exists(head, key.startsWith(head))"
    asked = f" ||\n[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,\n{indented(keys)}))" if heads else ""
    return f"""\
has(object.spec.resourceClaims) ||
{_amounts(f"{vendors}.exists(vendor, name.startsWith(vendor))")} ||
('{locations.NOTE}' in {ANNOTATIONS} &&
{indented(_amounts(unknown))}){asked}"""


def variables() -> Mapping[str, str]:
    """`none`: some place says that a container gets no GPU. `asked`: a place asks, or says what is refused."""
    return {"none": _none(), "asked": _asked()}


def _amounts(condition: str) -> str:
    """Whether a limit or a request has a `name` that fits."""
    return f"""\
{_HOLDERS}.exists(holders, holders.exists(holder,
  {_AMOUNTS}.exists(amounts, amounts.exists(name,
{indented(condition, 4)}))))"""


def _none() -> str:
    one = listed(["gpu", f"{PREFIX}gpu"])
    head = text(_OF_A_CONTAINER[0])
    return f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key,
  (key in {one} || key.startsWith({head})) && entries[key].{_NOTHING})) ||
{_amounts(f"name == '{PREFIX}gpu' && amounts[name] == '0'")}"""


def _asked() -> str:
    """Numbers only where others may use the same label: `gpu: a100` is left alone."""
    words = listed(shorthand.AMOUNTS)
    plain = listed(key for key in ASKING if key not in {"gpu", "gpu-profile", "gpu-claim"})
    resources = sorted(name for name in locations.RESOURCES if name.startswith(PREFIX))
    return f"""\
[{LABELS}, {ANNOTATIONS}].exists(entries, entries.exists(key, key in {listed(_QUALIFIED)} ||
  (key == 'gpu' && (entries[key].{_NUMBER} || entries[key].lowerAscii() in {words})))) ||
{LABELS}.exists(key, [{LABELS}[key]].exists(value,
  (key in {plain} && value.{_NUMBER}) || (key == 'gpu-profile' && value != '') ||
  (key == 'gpu-claim' && value.{_CLAIM}))) ||
{ANNOTATIONS}.exists(key, {listed(_OF_A_CONTAINER)}.exists(head, key.startsWith(head) && key != head)) ||
{_amounts(f"name in {listed(resources)} && amounts[name] != '0'")}"""
