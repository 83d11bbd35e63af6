"""The steps of a fix, done to a pod as its author would."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.fixes.sentences import Step, alternatives
from webhook.core.interpret import locations
from webhook.core.request import KEYS, PREFIX
from webhook.core.violations import Violation

Object = dict[str, Any]
_STEP = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|\.?([^.\[]+)')


def path(text: str) -> list[str | int]:
    """The steps of a field path as messages print it."""
    return [found[0] or (int(found[1]) if found[1] else found[2]) for found in _STEP.findall(text)]


def followed(step: Step, violation: Violation, pod: Object) -> list[Object] | None:
    """The pods that a step makes of a pod; None if the step cannot be done to it."""
    at = path(violation.path)
    if step.verb == "split":
        return [_halved(pod, at)] if "two containers" in violation.fix else [*_split(pod)]
    pod = copy.deepcopy(pod)
    if step.verb == "both":
        [first], [then, *_] = alternatives(step.key), alternatives(step.value)
        pods = followed(first, violation, pod) if first else None
        return followed(then, violation, pods[0]) if then and pods else None
    if step.verb == "leave out, then":
        gone = _each(step.key.replace(" and ", "\n"), lambda name: _drop(pod, name))
        [then] = alternatives(step.value)
        return followed(then, violation, pod) if gone and then else None
    return [pod] if _VERBS[step.verb](pod, at, step) else None


def _set_all(pod: Object, at: list[str | int], pairs: str) -> bool:
    return all(_set(pod, at, *pair.split("=", 1)) for pair in pairs.split("\n"))


def _renamed(pod: Object, at: list[str | int], key: str) -> bool:
    value = str(value_at(pod, at))
    return _remove(pod, at) and _set(pod, [*at[:-1], key], "", value)


def _each(text: str, do: Callable[[str], bool]) -> bool:
    return all(do(one) for one in text.split("\n"))


def _unrequested(pod: Object, key: str) -> bool:
    gone = [_without((one.get("resources") or {}).get("requests"), key) for one in _containers(pod)]
    return any(gone)


_VERBS: Mapping[str, Callable[[Object, list[str | int], Step], bool]] = {
    "set": lambda pod, at, step: _set(pod, at, step.key, step.value),
    "set all": lambda pod, at, step: _set_all(pod, at, step.value),
    "instead": lambda pod, at, step: _gone(pod, at, step.key) and _set_all(pod, at, step.value),
    "exchange": lambda pod, at, step: (
        (_drop(pod, step.key) if step.key else _remove(pod, at)) and _set(pod, at, step.value, "1")
    ),
    "leave out, and ask": lambda pod, at, step: (
        _left_out(pod, at) and _set(pod, ["metadata", "labels", step.key], "", step.value.strip('"'))
    ),
    "mount": lambda pod, at, step: _mounted(pod, at, step.key),
    "move": lambda pod, at, _: _moved(pod, at),
    "rename": lambda pod, at, step: _renamed(pod, at, step.key),
    "annotate": lambda pod, _, step: _set(pod, ["metadata", "annotations", step.key], "", step.value),
    "remove all": lambda pod, _, step: _each(step.value, lambda one: _remove(pod, path(one))),
    "drop all": lambda pod, _, step: _each(step.value, lambda one: _drop(pod, one)),
    "move to annotations": lambda pod, at, step: (
        _remove(pod, at) and _set(pod, ["metadata", "annotations", step.key], "", step.value)
    ),
    "remove it, and write": lambda pod, at, step: _remove(pod, at) and _written(pod, at, step.key, step.value),
    "remove": lambda pod, at, step: _drop(pod, step.key) if step.key else _remove(pod, at),
    "remove from requests": lambda pod, _, step: _unrequested(pod, step.key),
    "remove from the pod's node selection": lambda pod, _, step: _deselect(pod, step.key),
}


DOABLE = frozenset([*_VERBS, "split", "both", "leave out, then"])
"""What can be done to a pod without a choice of its author."""


def _gone(pod: Object, at: list[str | int], names: str) -> bool:
    """Remove what a request is made instead of."""
    if names == "its claims":
        for one in [pod["spec"], *_containers(pod)]:
            one.pop("resourceClaims", None)
            (one.get("resources") or {}).pop("claims", None)
            for part in ("limits", "requests"):
                amounts = (one.get("resources") or {}).get(part) or {}
                for name in [name for name in amounts if name.startswith("deviceclass.")]:
                    amounts.pop(name)
        return True
    if names == "requests":
        name = str(at[-1])
        amount = _requests(pod, at).pop(name)
        container = pod["spec"][at[1]][at[2]]["resources"]
        container.setdefault("limits", {})[name] = amount
        at[4] = "limits"
        return True
    if names in {"the claim", "it"}:
        return _remove(pod, at)
    found = [re.sub(r"^(?:the )?(?:annotation|label) ", "", name) for name in names.split(" and ")]
    dropped = [_drop(pod, name) for name in found]
    return any(dropped)


def _written(pod: Object, at: list[str | int], key: str, value: str) -> bool:
    """Write a key where the pod has it already, or else in the place of what was removed."""
    place = next((place for place in stated(pod) if short(str(place[-1])) == short(key)), [*at[:-1], key])
    return _set(pod, place, "", value)


def _set(pod: Object, at: list[str | int], key: str, value: str) -> bool:
    """Write a value where the violation is, or a key in the place beside it where such keys belong."""
    if key:
        place = _place(pod, at, key)
        if place is None:
            return False
        at = place
    holder: Any = pod
    for number, step in enumerate(at[:-1]):
        if isinstance(step, str):
            if isinstance(holder, list):
                return False
            holder = holder.setdefault(step, [] if isinstance(at[number + 1], int) else {})
        elif isinstance(holder, list) and step < len(holder):
            holder = holder[step]
        else:
            return False
    if not isinstance(holder, dict):
        return False
    if "limits" in at and str(at[-1]) in (requests := _requests(pod, at)):
        requests[str(at[-1])] = value
    holder[str(at[-1])] = _TYPED.get(str(at[-1]), str)(value)
    return True


_TYPED: Mapping[str, Callable[[str], Any]] = {"hostIPC": lambda text: text == "true", "runAsUser": int}
"""Fields of a pod that hold no text."""


def _requests(pod: Object, at: list[str | int]) -> Object:
    container = pod["spec"][at[1]][at[2]]
    found: Object = container.get("resources", {}).get("requests") or {}
    return found


def _place(pod: Object, at: list[str | int], key: str) -> list[str | int] | None:
    """Where a person would write a key that a fix names."""
    if key in at:
        return [*at[: at.index(key)], key]
    if locations.SUFFIX in key:
        return ["metadata", "annotations", key]
    if "resources" in at and "/" in key and key in locations.RESOURCES:
        return [*at[:-1], key]
    if plain := short(key):
        if at[:2] == ["metadata", "annotations"] and locations.SUFFIX in str(at[2]):
            return _beside(pod, at, plain)
        return next((place for place in stated(pod) if short(str(place[-1])) == plain), _beside(pod, at, plain))
    if "/" in key and "resources" in at:
        return [*at[:-1], key]
    if at[0] == "metadata":
        return [*at[:2], key]
    if ".".join(map(str, at)).endswith(key):
        return at
    of_the_pod = key.startswith(("hostIPC", "securityContext.", "schedulerName"))
    return ["spec", *key.split(".")] if of_the_pod else None


def _beside(pod: Object, at: list[str | int], plain: str) -> list[str | int]:
    """The place of a key of the shorthand for the container, or for the pod, that the violation is about."""
    if at[0] == "spec" and len(at) > 2 and isinstance(at[2], int):
        return ["metadata", "annotations", locations.annotation(plain, pod["spec"][at[1]][at[2]]["name"])]
    if at[:2] == ["metadata", "annotations"] and locations.SUFFIX in str(at[2]):
        return ["metadata", "annotations", locations.annotation(plain, str(at[2]).partition(locations.SUFFIX)[2])]
    return ["metadata", "labels", plain]


def short(key: str) -> str:
    """The key of the shorthand that a label, an annotation or a resource is; empty if it is none."""
    if key in KEYS:
        return key
    if locations.SUFFIX in key:
        head = key.partition(locations.SUFFIX)[0]
        return head if head == "gpu" else f"gpu-{head}"
    rest = key.removeprefix(PREFIX)
    return "" if rest == key else (rest if rest == "gpu" else f"gpu-{rest}")


def stated(pod: Object) -> Iterator[list[str | int]]:
    for section in ("labels", "annotations"):
        for key in pod["metadata"].get(section) or {}:
            yield ["metadata", section, key]
    for kind in ("initContainers", "containers"):
        for index, one in enumerate(pod["spec"].get(kind) or []):
            for part in ("limits", "requests"):
                for key in (one.get("resources") or {}).get(part) or {}:
                    yield ["spec", kind, index, "resources", part, key]


def _containers(pod: Object) -> Iterator[Object]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod["spec"].get(kind) or []


_ABSENT = object()


def _without(holder: Any, key: str) -> bool:
    return isinstance(holder, dict) and holder.pop(key, _ABSENT) is not _ABSENT


def _remove(pod: Object, at: list[str | int]) -> bool:
    holder = value_at(pod, at[:-1])
    if "limits" in at:
        _requests(pod, at).pop(str(at[-1]), None)
    return _without(holder, str(at[-1]))


def _drop(pod: Object, key: str) -> bool:
    """Remove a key wherever the pod has it."""
    plain = short(key)
    places = [at for at in stated(pod) if at[-1] == key or (plain and short(str(at[-1])) == plain)]
    gone = [_remove(pod, at) for at in places]
    env = [one.get("env") or [] for one in _containers(pod)]
    for variables in env:
        for variable in [each for each in variables if each.get("name") == key]:
            variables.remove(variable)
            gone.append(True)
    spec = pod["spec"]
    gone.append(spec.pop(key, None) is not None)
    contexts = [spec.get("securityContext"), *(one.get("securityContext") for one in _containers(pod))]
    gone += [_without(context, key) for context in contexts]
    return any(gone)


def _deselect(pod: Object, key: str) -> bool:
    spec = pod["spec"]
    gone = [_without(spec.get("nodeSelector"), key)]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(required) or {}
    for term in affinity.get("nodeSelectorTerms") or []:
        kept = [one for one in term.get("matchExpressions") or [] if one["key"] != key]
        gone.append(len(kept) < len(term.get("matchExpressions") or []))
        term["matchExpressions"] = kept
    return any(gone)


def _left_out(pod: Object, at: list[str | int]) -> bool:
    """Take away a field, or the whole element of a list that it belongs to: a variable, a mount, a volume."""
    for section in ("env", "volumeMounts", "volumes"):
        if section in at:
            end = at.index(section) + 1
            holder = value_at(pod, at[:end])
            gone = holder.pop(at[end])
            for one in _containers(pod) if section == "volumes" else ():
                one["volumeMounts"] = [each for each in one.get("volumeMounts") or [] if each["name"] != gone["name"]]
            return True
    return _remove(pod, at)


def value_at(pod: Object, at: list[str | int]) -> Any:
    holder: Any = pod
    for step in at:
        holder = holder[step]
    return holder


def _mounted(pod: Object, at: list[str | int], path: str) -> bool:
    """A path of the node, mounted at the same path in the container."""
    pod["spec"].setdefault("volumes", []).append({"name": "added", "hostPath": {"path": path}})
    pod["spec"][at[1]][at[2]].setdefault("volumeMounts", []).append({"name": "added", "mountPath": path})
    return True


def _moved(pod: Object, at: list[str | int]) -> bool:
    """An init container as a container."""
    one = pod["spec"]["initContainers"].pop(at[2])
    one.pop("restartPolicy", None)
    pod["spec"]["containers"].append(one)
    return True


def _halved(pod: Object, at: list[str | int]) -> Object:
    """The pod with the resource that a violation names in a container of its own."""
    pod = copy.deepcopy(pod)
    one = pod["spec"][at[1]][at[2]]
    other = copy.deepcopy(one) | {"name": f"{one['name']}-2"}
    for part in ("limits", "requests"):
        amounts, others = ((each.get("resources") or {}).get(part) or {} for each in (one, other))
        amounts.pop(str(at[-1]), None)
        for name in [name for name in others if name != at[-1]]:
            others.pop(name)
    pod["spec"][at[1]].append(other)
    return pod


def _split(pod: Object) -> Iterator[Object]:
    """A pod for each container."""
    for kind in ("initContainers", "containers"):
        for one in pod["spec"].get(kind) or []:
            alone = copy.deepcopy(pod)
            alone["spec"].pop("initContainers", None)
            alone["spec"]["containers"] = [copy.deepcopy(one)]
            for section in ("labels", "annotations"):
                alone["metadata"][section] = {
                    key: value
                    for key, value in (pod["metadata"].get(section) or {}).items()
                    if locations.SUFFIX not in key or key.endswith(f"/{one['name']}")
                }
            yield alone
