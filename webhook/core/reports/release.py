"""What this version of Kubernetes lacks of what the configurations and the rules use."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.core.reports.checkup import Check, Result, several
from webhook.core.rules.backend import Backend
from webhook.core.rules.rulebook import Rulebook

MATCH_CONDITIONS: Final = 30
"""The minor version from which matchConditions are stable; two before that have them as beta, by default."""

CLAIMS: Final = "resource.k8s.io"
BY_CLASS: Final = "deviceclass.resource.kubernetes.io/"
EXTENDED_RESOURCES: Final = 36
"""The minor version from which a DeviceClass can stand for an extended resource by default (KEP-5004)."""


class _Lack(NamedTuple):
    result: Result
    text: str


def check(version: Mapping[str, Any], groups: Collection[str], rulebook: Rulebook) -> Check:
    """What is missing. `version` is the answer of /version, `groups` are the API groups that are served."""
    known = [re.match("[0-9]+", str(version.get(part, ""))) for part in ("major", "minor")]
    name = str(version.get("gitVersion") or "of an unknown version")
    if known[0] is None or known[1] is None:
        return Check("kubernetes", "warn", f"/version says {name}: what it lacks is not known", "none is needed")
    minor = int(known[1][0]) if int(known[0][0]) == 1 else 1000
    lacks = list(_lacks(minor, groups, rulebook))
    if not lacks:
        return Check("kubernetes", "ok", f"{name} has all that the configurations and the enabled back ends use")
    result: Result = "fail" if any(lack.result == "fail" for lack in lacks) else "warn"
    fix = "upgrade Kubernetes, or take the back ends that need it out of the Cluster document"
    return Check("kubernetes", result, f"{name}: {several([lack.text for lack in lacks])}", fix)


def _lacks(minor: int, groups: Collection[str], rulebook: Rulebook) -> Iterator[_Lack]:
    if minor < MATCH_CONDITIONS - 2:
        text = "it ignores matchConditions, so every pod waits for us, and none is created while we are away"
        yield _Lack("fail", text)
    elif minor < MATCH_CONDITIONS:
        yield _Lack("warn", "matchConditions are beta, and must not be switched off")
    claiming = [backend.name for backend in rulebook.enabled if any(mode.claims for mode in backend.modes)]
    if claiming and CLAIMS not in groups:
        yield _Lack("fail", f"it has no resource claims (DRA), which {several(claiming, ', ')} gives pods")
    by_class = sorted({owner.name for each in _by_class(rulebook) for owner in each})
    if by_class and minor < EXTENDED_RESOURCES:
        text = f"the feature gate DRAExtendedResource, which {several(by_class, ', ')} needs, is off by default"
        yield _Lack("warn", text)


def _by_class(rulebook: Rulebook) -> Iterator[tuple[Backend, ...]]:
    return (each.owners for name, each in rulebook.resources.items() if name.startswith(BY_CLASS))
