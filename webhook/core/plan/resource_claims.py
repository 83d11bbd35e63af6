"""Resource claims (Kubernetes DRA): a container gets devices by the name of a template instead of a quantity.

The template has to exist in the pod's namespace. A claim's name within the pod is made of its container's name, so
each container gets its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Final

from webhook.core.backends.amounts import CannotExpressError
from webhook.core.kube.patch import Append, Edit
from webhook.core.kube.paths import at, objects
from webhook.core.kube.pod import Container, Pod
from webhook.core.plan import text
from webhook.core.plan.choose import Assignment
from webhook.core.rules.rulebook import Rulebook

_LONGEST: Final = 63

_LEGAL: Final = str.maketrans("+_", ".-")
"""Characters of a profile that no object's name can have: 1g.10gb+me is claimed as 1g.10gb.me."""


def templates(served: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The names of the templates that a container's request becomes."""
    filled = (text.text(claim, served, rulebook) for claim in served.mode.claims)
    return [name.lower().translate(_LEGAL) for name in filled if name is not None]


def names(container: Container) -> set[str]:
    """The claims that a container has, by their names within the pod."""
    return {str(claim.get("name")) for claim in objects(at(container.raw, "resources", "claims"))}


def used(pod: Pod, container: Container) -> set[str]:
    """The templates that a container claims."""
    there = names(container)
    return _templates_of(there, _by_name(pod)) if there else set()


def made_for(pod: Pod, container: Container) -> bool:
    """Whether a container has claims, and each is an object by its name: a webhook may have made it of resources."""
    by_name = _by_name(pod)
    there = names(container)
    return bool(there) and all(name in by_name and by_name[name] is None for name in there)


def _by_name(pod: Pod) -> dict[str, Any]:
    """The template of each claim of the pod; made once for all containers."""
    known: dict[str, Any] | None = pod.cache.get(_by_name)
    if known is None:
        claims = objects(pod.spec.get("resourceClaims"))
        known = {str(claim.get("name")): claim.get("resourceClaimTemplateName") for claim in claims}
        pod.cache[_by_name] = known
    return known


def _templates_of(names: Collection[str], by_name: Mapping[str, Any]) -> set[str]:
    return {template for name in names if isinstance(template := by_name.get(name), str)}


def claim(pod: Pod, served: Sequence[Assignment], rulebook: Rulebook) -> Iterator[Edit]:
    """The edits that add each container's missing claims."""
    if not any(one.mode.claims for one in served):
        return
    by_name = _by_name(pod)
    taken = set(by_name)
    for one in served:
        container = one.asked.container
        there = _templates_of(names(container), by_name) if one.mode.claims else set()
        rule = one.mode.claims[0].rule if one.mode.claims else ""
        wanted = templates(one, rulebook)
        if one.mode.claims and not wanted:
            raise CannotExpressError("GPU301", f"{one.backend.name} has no template for this", "name one (gpu-claim)")
        for template in wanted:
            if template not in there:
                name = _name(container.name, template, taken)
                taken.add(name)
                entry = {"name": name, "resourceClaimTemplateName": template}
                yield Append(("spec", "resourceClaims"), entry, rule)
                yield Append((*container.path, "resources", "claims"), {"name": name}, rule)


def _name(container: str, template: str, taken: Collection[str]) -> str:
    """A DNS label for a claim of one container, unique in the pod."""
    text = f"{container}-{template.replace('.', '-')}"
    numbered = (f"{text[: _LONGEST - 7].rstrip('-')}-{number}" for number in count(len(taken) + 1))
    return next(name for name in chain([text[:_LONGEST].rstrip("-")], numbered) if name not in taken)
