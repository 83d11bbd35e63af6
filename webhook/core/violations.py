"""Violations: why a pod is refused, so that its author can act: code, field path, rule, arithmetic, fix."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, get_args

CODES: Final = {
    "GPU001": "the object is not a pod that can be read",
    "GPU002": "a pod template holds what Kubernetes takes only in a pod",
    "GPU003": "the pod asks for a GPU and is too large to be read while other reviews wait",
    "GPU004": "no rule says whether objects of this kind hold pods",
    "GPU005": "a field that says where the object has its pods, or how many, cannot be read",
    "GPU006": "a TenantPolicy or an Exemption has a form that cannot be read",
    "GPU007": "the API server refuses a label, an annotation, a name or a quantity of the object",
    "GPU101": "a policy does not let the tenant use such a back end, vendor, model, sharing or profile",
    "GPU102": "a container asks for more than a policy lets one have",
    "GPU103": "a pod asks for more than a policy lets one have",
    "GPU104": "the tenant would be over its quota",
    "GPU105": "no policy selects the namespace, and without one it may not use GPUs",
    "GPU106": "several policies of the same priority select the namespace",
    "GPU107": "a policy limits what depends on the card, and neither the pod nor the cluster says which it gets",
    "GPU108": "the pod has resource claims, or somebody makes one, which no policy can judge and no quota count",
    "GPU109": "a pod that exists changes its GPU, what a quota counts by, or what a policy has put on it",
    "GPU110": "a label, annotation or node selection of the pod contradicts what a policy puts there",
    "GPU111": "whether the pod is within the quota is not known now; the client retries automatically",
    "GPU112": "what a policy puts on the pod is not there yet; the client retries automatically",
    "GPU113": "the policy of the namespace cannot be used, and no pod gets a GPU there until it is mended",
    "GPU114": "a resource looks like a GPU and no rule knows it, or an annotation asks a disabled back end",
    "GPU115": "another pod has this name; the webhook says so before it reserves for the pod",
    "GPU116": "the pod would reach devices that it does not ask for, or lift the limits of those that it has",
    "GPU117": "the pod could run on while its quota is free: a grace period of 0, or a long one",
    "GPU201": "a value of the shorthand cannot be understood",
    "GPU202": "two places ask for different things",
    "GPU203": "the shorthand and a resource on the container disagree",
    "GPU204": "the container that is named for a GPU does not exist, or cannot have one",
    "GPU205": "the claim that the pod names, or its class, is not there yet; the client retries automatically",
    "GPU206": "the claim that the pod names cannot be understood, or no rule reads claims",
    "GPU301": "no enabled back end can serve the request",
    "GPU302": "the back end asked for is unknown here, or not enabled",
    "GPU303": "the GPU model or profile asked for is unknown, or the back end cannot select it",
    "GPU304": "the size of the card is needed, and nothing says which card it is",
    "GPU305": "an amount is outside of what the back end can express",
    "GPU401": "a request differs from its limit",
    "GPU402": "a GPU resource is not a whole number",
    "GPU403": "a GPU resource is not written as a plain whole number",
    "GPU404": "a GPU resource has a request and no limit, and the rule wants it refused",
    "GPU405": "the resources on the container are not a request the back end can serve",
    "GPU501": "two back ends, or the pod and a back end, want different runtime classes or schedulers",
    "GPU502": "the pod's own node selection excludes every node that the back end needs",
    "GPU503": "the pod has something the back end cannot work with, or lacks something it needs",
    "GPU601": "the pod asks for a GPU in shorthand and was not translated",
    "GPU602": "the stored pod would have less than its shorthand asks for",
}
"""Every code that a message can begin with. Stable: 2xx understanding, 3xx back ends, 4xx limits, 5xx the rest
of the pod, 6xx the final check, 1xx policy and quota."""

Action = Literal["deny", "warn", "dryrun"]
"""The enforcement action of a policy or of one of its rules: what becomes of a pod that breaks it."""

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)

QUOTA: Final = "GPU104"
"""The code of a refusal by the ledger; no other violation has it."""

TAKEN: Final = "GPU115"
"""The code of a refusal because of the name; no other violation has it."""

LATER: Final = frozenset({"GPU111", "GPU112", "GPU205"})
"""Codes of violations that may be gone a second later. If a pod has no other, the client is told to retry."""

LATER_FIX: Final = (
    "none is needed: the client retries automatically; if that goes on, show this to an operator of the cluster"
)


Readings = Mapping[str, tuple[str, str]]
"""What is read in place of what stands at field paths: a key of the shorthand, or a resource, with its value."""

NOTHING: Final = ("", "")
"""The reading of a field that is removed."""


AS_WRITTEN: Final[Readings] = MappingProxyType({})


class Alternative(NamedTuple):
    """One thing that a fix says to do: in words, and what is read then."""

    text: str
    readings: Readings


def either(texts: Sequence[str]) -> str:
    """Texts of which any will do: `1, 2 or 2x0.75`."""
    *others, last = texts
    return f"{', '.join(others)} or {last}" if others else last


def joined(texts: Iterable[str]) -> str:
    """Things to do of which any will do: `write 1 or 2, or remove it`, `ask for gpu: "1" or "2" instead of a.b/c`."""
    parts: list[str] = []
    cut = [(*text.partition(" instead of ")[0].rpartition(" "), text) for text in texts]
    for (head, instead), alike in groupby(cut, lambda part: (part[0], part[3].partition(" instead of ")[1:])):
        values, whole = zip(*((value, text) for _, _, value, text in alike), strict=True)
        short = head == "write" or head.endswith(":")
        parts += [f"{head} {either(values)}{''.join(instead)}"] if short else whole
    return ", or ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One reason to refuse a pod.

    `path` is a field path, as `spec.containers[0].resources.limits["a.b/c"]`. `rule` is the rule behind it as
    `name (file:line)`, or empty. `notes` are further lines, as the reasons of other back ends. `alternatives` are
    what the fix may say to do where the plan has to try it, in groups: a later one only if nothing of those before
    leads to a GPU.
    """

    code: str
    path: str
    message: str
    fix: str
    rule: str = ""
    notes: tuple[str, ...] = ()
    alternatives: Sequence[Sequence[Alternative]] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        """The text for people: a first line that suffices by itself, then the field path, the rule and the fix."""
        lines = [f"[{self.code}] {self.message}", f"  at   {self.path}"]
        lines += [f"  also {note}" for note in self.notes]
        if self.rule:
            lines.append(f"  rule {self.rule}")
        lines.append(f"  fix  {self.fix}")
        return "\n".join(lines)


class Breach(NamedTuple):
    """A violation of one rule of a policy. `rule_name` is its name in `spec.lifts` of an Exemption."""

    rule_name: str
    action: Action
    violation: Violation


class Refusal(Exception):  # noqa: N818 - it is an answer to a user, not an error of ours
    """Violations on their way up to the decision."""

    def __init__(self, *violations: Violation) -> None:
        super().__init__("\n".join(map(str, violations)))
        self.violations = violations
