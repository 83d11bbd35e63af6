"""When the API server asks us about pods: not before replicas answer. Pure functions of a stored configuration.

The manifests ship the webhooks of pods without `rules`, and an API server calls a webhook without rules for nothing.
So nobody is refused between the first `kubectl apply` and the first ready replica. The rules stand beside them, in an
annotation of the configuration, and are copied when every API server was seen to get an answer (`ping`).

They are copied again when the annotation changes, or when somebody takes them out. Nothing takes them out because
replicas are away: a pod that asks for a GPU then waits, and is not created uncounted. Rules that bring replicas more
than those of an active configuration are copied when no replica of a former version is left (`rollout`), which may
not know it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from certs import stored
from certs.stored import OURS, Object

WANTED: Final = "gpu-webhook.io/rules"
"""The annotation: a JSON object with the rules of each webhook, by its name."""

Rules = Mapping[int, Sequence[Any]]
"""The rules of webhooks, by place in their configuration."""


class UnreadableError(ValueError):
    """The annotation is not what this program can copy; the message says why."""


def inactive(configuration: Object) -> Rules:
    """The rules that webhooks should have and do not have; raises UnreadableError."""
    wanted = _wanted(configuration)
    hooks = enumerate(configuration.get("webhooks") or ())
    return {
        place: wanted[hook["name"]]
        for place, hook in hooks
        if hook["name"] in wanted and _stored(hook.get("rules")) != _stored(wanted[hook["name"]])
    }


def widens(configuration: Object, rules: Rules) -> bool:
    """Whether these rules bring replicas requests that the configuration, which is active, does not bring now."""
    hooks, ours = configuration["webhooks"], _wanted(configuration)
    return any(hook.get("rules") for hook in hooks if hook["name"] in ours) and any(
        not any(_within(rule, present) for present in _stored(hooks[place].get("rules")))
        for place, wanted in rules.items()
        for rule in _stored(wanted)
    )


def deactivated(configuration: Object) -> Object:
    """The configuration without those rules; raises UnreadableError."""
    wanted = _wanted(configuration)
    hooks = [
        {key: value for key, value in hook.items() if key != "rules" or hook["name"] not in wanted}
        for hook in configuration.get("webhooks") or ()
    ]
    return {**configuration, "webhooks": hooks}


def operations(configuration: Object, rules: Rules) -> Sequence[Object]:
    """The JSON Patch that gives webhooks their rules, if the configuration has not changed since it was read."""
    return stored.additions(configuration, {f"/webhooks/{place}/rules": value for place, value in rules.items()})


def names(configuration: Object, rules: Rules) -> str:
    """The names of those webhooks."""
    return ", ".join(configuration["webhooks"][place]["name"] for place in rules)


def _stored(rules: Sequence[Any] | None) -> Sequence[Any]:
    """Rules as an API server stores them: of every scope if they name none."""
    return [{**each, "scope": each.get("scope") or "*"} if isinstance(each, dict) else each for each in rules or ()]


def _within(rule: Any, other: Any) -> bool:
    """Whether a rule asks for nothing that the other one does not ask for."""
    if not isinstance(rule, dict) or rule.keys() != other.keys():
        return False
    return all(
        value == other[key] or (isinstance(value, list) and all(one in [*other[key]] for one in value))
        for key, value in rule.items()
    )


def _wanted(configuration: Object) -> Mapping[str, Sequence[Any]]:
    text = (configuration["metadata"].get("annotations") or {}).get(WANTED, "{}")
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"its annotation {WANTED} is not JSON: {error}") from None
    if not isinstance(wanted, dict) or not all(isinstance(rules, list) for rules in wanted.values()):
        raise UnreadableError(f"its annotation {WANTED} is not an object with a list for each webhook")
    return {name: rules for name, rules in wanted.items() if name.endswith(OURS)}
