"""A pod of one GPU system, rewritten for another: understood by the rule of the one, translated by that of the other.

What the first system needed beside resources goes as well: its scheduler, tolerations, node labels, annotations, as
far as its rule would write them; what the pod's author added stays. A part of a card's memory, where the first system
leaves compute open, becomes a share: that part of the compute as well, as the shorthand means it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.core.backends import cards
from webhook.core.interpret.locations import CONTAINER, NOTE, annotation, claimed
from webhook.core.kube import node_affinity, pod
from webhook.core.kube.pod import Pod
from webhook.core.kube.quantity import show, show_size
from webhook.core.plan import remove, text
from webhook.core.plan.choose import Assignment
from webhook.core.plan.plan import Plan
from webhook.core.reports import explain
from webhook.core.reports.explain import Explanation
from webhook.core.reports.missing import NOWHERE, Setting
from webhook.core.request.request import PREFIX, Devices
from webhook.core.rules import index
from webhook.core.rules.rulebook import Rulebook


def convert(
    document: Mapping[str, Any],
    target: str,
    rulebook: Rulebook,
    source: str | None = None,
    setting: Setting = NOWHERE,
) -> list[Explanation]:
    """Each pod of a document as the back end `target` would have it; `source` says whose resources it has.

    Without `source` all back ends are asked, those of the cluster first. Raises KeyError for unknown names.
    """
    every = index.every(rulebook) if source is None else index.only(source, rulebook)
    wanted = replace(index.only(target, rulebook), tenancy=rulebook.tenancy)
    found = explain.explain(document, every, setting)
    return [_convert(one, wanted, setting) for one in found]


def _convert(understood: Explanation, wanted: Rulebook, setting: Setting) -> Explanation:
    # The pod's request has to be clear; what policies (1xx) and its first system (5xx) say does not matter here.
    codes = [each.code for each in understood.decision.violations if not each.code.startswith(("GPU1", "GPU5"))]
    if codes or understood.planned is None or not understood.planned.served:
        return understood
    seen = pod.read(understood.before)
    neutral, asked = _neutral(seen, understood.planned, wanted)
    result = explain.explain_pod(understood.title, neutral, understood.namespace, wanted, setting)
    allowed = result.decision.allowed
    after = _without_annotations(result.after, asked) if allowed else understood.before
    return replace(
        result,
        before=understood.before,
        after=after,
        converted=understood.planned,
        pods=understood.pods,
        named=understood.named,
    )


def _neutral(seen: Pod, planned: Plan, rulebook: Rulebook) -> tuple[dict[str, Any], set[str]]:
    """The pod without anything of the system it is for, asking in shorthand; and the annotations that ask."""
    bare = remove.bare(seen, planned.served)
    asked: dict[str, str] = {}
    for served in planned.served:
        for key, value in _shorthand(served, seen, rulebook).items():
            asked[annotation(key, served.asked.container.name)] = value
    metadata = dict(bare.get("metadata") or {})
    named = tuple(prefix for source in rulebook.sources for prefix in source.prefixes)
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(named)
    }
    kept = {key: value for key, value in annotations.items() if not _about_backend(key)}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if not _about_backend(key)}
    if all(served.request.claim is None for served in planned.served):
        kept, labels = _without_claims(kept), _without_claims(labels)
    metadata |= {"annotations": {**asked, **kept}, **({"labels": labels} if "labels" in metadata else {})}
    return {**bare, "metadata": metadata}, asked.keys() - kept.keys()


def _without_claims(said: Mapping[str, Any]) -> dict[str, Any]:
    """Labels or annotations without the words for claims, which ask in their own words by now."""
    own = annotation("gpu-claim", "")
    return {k: v for k, v in said.items() if k not in {"gpu-claim", PREFIX + "claim"} and not k.startswith(own)}


def _about_backend(key: str) -> bool:
    """Whether a key names the system that served the pod so far, or notes what it did."""
    own = key.startswith((annotation("gpu-backend", ""), claimed("")))
    return own or key in {NOTE, CONTAINER, "gpu-backend", PREFIX + "backend"}


def _without_annotations(raw: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """The pod without the words that only carried the request over."""
    metadata = raw["metadata"]
    own = any(PREFIX in key and key not in names | {NOTE, CONTAINER} for key in metadata["annotations"])
    gone = names if own else names | {NOTE, CONTAINER}
    kept = {key: value for key, value in metadata["annotations"].items() if key not in gone}
    return {**raw, "metadata": remove.with_value(metadata, "annotations", kept)}


def _shorthand(served: Assignment, seen: Pod, rulebook: Rulebook) -> dict[str, str]:
    """What a container asks, in the words of the shorthand by key."""
    request = served.request
    said = {"gpu-memory": None if request.memory is None else show_size(request.memory)}
    if request.profile is not None:
        said |= {"gpu": str(request.count), "gpu-profile": request.profile}
    else:
        said |= {"gpu": str(Devices(request.count, request.memory_share or request.share))}
        if request.cores is not None and request.cores != 100 * (request.memory_share or 0):
            said["gpu-cores"] = show(request.cores)
    models = request.models or tuple(_models(served, seen, rulebook))
    said |= {"gpu-model": ",".join(models) or None, "gpu-placement": request.placement}
    return {key: value for key, value in said.items() if value is not None}


def _models(served: Assignment, seen: Pod, rulebook: Rulebook) -> Iterator[str]:
    said = {**seen.labels, **seen.annotations}
    written = {**served.mode.outputs.labels, **served.mode.outputs.annotations}
    known = {cards.as_label(name).lower(): device.model for name, device in rulebook.devices.items()}
    names = [
        name for key in said if key in written and text.tells_model(written[key]) for name in said[key].split(",")
    ]
    labels = [cards.as_label(name).lower() for name in names]
    card = cards.labels(rulebook).recognise(_nodes(seen), served.backend).card
    yield from dict.fromkeys([known[label] for label in labels if label in known] + ([card.model] if card else []))


def _nodes(seen: Pod) -> dict[str, str]:
    """The node labels that the pod selects, with a value of each."""
    expressions = [one for term in node_affinity.terms(seen) for one in term.get("matchExpressions") or ()]
    selected = [one for one in expressions if one.get("operator") == "In" and one.get("values")]
    values = {str(one.get("key")): one["values"][0] for one in selected} | (seen.spec.get("nodeSelector") or {})
    return {key: str(value) for key, value in values.items()}
