"""One reason why a policy minds a pod, and where in the pod it stands."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core import native
from webhook.core.places import SUFFIX
from webhook.core.tenancy.counting import Holding
from webhook.core.tenancy.policy import Action
from webhook.core.violations import Violation


class Breach(NamedTuple):
    """What is wrong by one rule of a policy: `lift` is the rule's name among those that an exemption can lift."""

    lift: str
    action: Action
    violation: Violation


def path(holding: Holding, *keys: str) -> str:
    """Where a container says it: the first of these words of the shorthand, any word of it, or its resource.

    Words that stand for the container alone may have been in its resources, which is where to mend them.
    """
    asked = holding.asked
    said = [asked.stated[key].path for key in keys if key in asked.stated]
    said += [asked.request.path()] if asked.request is not None else []
    if said and SUFFIX not in said[0]:
        return said[0]
    if asked.native.amounts:
        return native.where(holding.container, next(iter(asked.native.amounts)))
    return said[0] if said else "spec.containers"
