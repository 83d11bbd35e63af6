"""The webhook configurations of a cluster beside those that the rules make, and beside those of others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from webhook.core.kube import paths
from webhook.core.reports.checkup import Check, Result, several

Object = Mapping[str, Any]

RENDER: Final = (
    "apply the manifests with --server-side --force-conflicts, or: gpu-webhook render webhooks | kubectl apply"
    " --server-side --force-conflicts -f -"
)
"""Without --force-conflicts the API server refuses to take back a field that somebody else has written."""

AWAIT: Final = (
    "gpu-webhook-certs writes the rules when a replica answers through every API server and, in an upgrade, no old"
    " one is left; its log says what it waits for. Without that program: gpu-webhook render webhooks --active"
)

_DEFAULTS: Final[Object] = {
    "failurePolicy": "Fail",
    "matchConditions": [],
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "reinvocationPolicy": "Never",
}
"""What the API server fills in (kubernetes/pkg/apis/admissionregistration/v1/defaults.go)."""

_TUNED: Final = frozenset({"timeoutSeconds"})
"""What an operator may have chosen otherwise."""

_CHECKED_APART: Final = frozenset({"failurePolicy", "namespaceSelector", "name", "rules"})


class _Hook(NamedTuple):
    """One webhook as it should be, and as it is."""

    wanted: Object
    found: Object

    @property
    def name(self) -> str:
        return str(self.wanted["name"])

    @property
    def is_active(self) -> bool:
        """The API server calls a webhook without rules for nothing."""
        return bool(self.found.get("rules"))

    @property
    def has_other_rules(self) -> bool:
        """Those of a former version, or of an edit."""
        return self.is_active and _plain(self.wanted["rules"]) != _plain(self.found["rules"])


def check(wanted: Sequence[Object], live: Mapping[str, Object | None]) -> list[Check]:
    """Whether our configurations exist and are as rendered. `live` has those of the cluster, by kind."""
    missing = [each["kind"] for each in wanted if live.get(each["kind"]) is None]
    if missing:
        text = f"there is no {' and no '.join(missing)} called {wanted[0]['metadata']['name']}"
        return [Check("configurations", "fail", text, RENDER)]
    pairs = [(each, live[each["kind"]] or {}) for each in wanted]
    hooks = [hook for each, found in pairs for hook in _hooks(each, found)]
    drifted = [text for each, found in pairs for text in _missing(each, found)]
    drifted += [text for hook in hooks for text in _drift(hook)]
    return [
        _drifted(drifted, [text for hook in hooks for text in _chosen(hook)], hooks),
        _active(hooks),
        _policy(hooks),
        _left_out(hooks),
    ]


def _hooks(wanted: Object, found: Object) -> Iterator[_Hook]:
    by_name = {each["name"]: each for each in found.get("webhooks") or ()}
    for each in wanted["webhooks"]:
        if each["name"] in by_name:
            yield _Hook({**_DEFAULTS, **each}, {**_DEFAULTS, **by_name[each["name"]]})


def _missing(wanted: Object, found: Object) -> Iterator[str]:
    names = [{each["name"] for each in one.get("webhooks") or ()} for one in (wanted, found)]
    yield from (f"{wanted['kind']} has no {name}" for name in sorted(names[0] - names[1]))
    yield from (f"{wanted['kind']} has {name}, which is not rendered" for name in sorted(names[1] - names[0]))


def _drift(hook: _Hook) -> Iterator[str]:
    """What differs from the rendered webhook and was not for an operator to choose."""
    keys = sorted((hook.wanted.keys() | hook.found.keys()) - _CHECKED_APART - _TUNED - {"clientConfig"})
    for key in keys:
        if _plain(hook.wanted.get(key)) != _plain(hook.found.get(key)):
            yield f"{hook.name}: {key} {_difference(hook.wanted.get(key), hook.found.get(key))}"
    wanted, found = (_service(each) for each in hook)
    if found is not None and found != wanted:
        yield f"{hook.name}: clientConfig.service is {found}, not {wanted}"


def _chosen(hook: _Hook) -> Iterator[str]:
    """What an operator has chosen otherwise."""
    for key in sorted(_TUNED):
        if hook.wanted[key] != hook.found[key]:
            yield f"{hook.name}: {key} is {hook.found[key]}, rendered {hook.wanted[key]}"
    if _service(hook.found) is None:
        yield f"{hook.name}: called at {paths.mapping(hook.found, 'clientConfig').get('url')}, not by the Service"


def _service(hook: Object) -> Object | None:
    """Where a Service is called, with the API server's defaults; None for a URL."""
    service = paths.mapping(hook, "clientConfig", "service")
    return {"port": 443, **service} if service else None


def _plain(value: Any) -> Any:
    """A value without the order of its lists, and a rule with the API server's default."""
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=str)
    if isinstance(value, Mapping):
        scope = {"scope": "*"} if "operations" in value else {}
        return {**scope, **{key: _plain(each) for key, each in value.items()}}
    return value


def _difference(wanted: Any, found: Any) -> str:
    if isinstance(wanted, str | int) and isinstance(found, str | int):
        return f"is {found}, rendered {wanted}"
    return "differs from what is rendered" if found else "is missing"


def _drifted(drifted: Sequence[str], chosen: Sequence[str], hooks: Sequence[_Hook]) -> Check:
    result: Result = "fail" if drifted else "warn" if chosen else "ok"
    if result == "ok":
        return Check("configurations", "ok", f"both are there, and their {len(hooks)} webhooks are as rendered")
    fix = RENDER if drifted else "none is needed if that is meant; else " + RENDER
    return Check("configurations", result, several([*drifted, *chosen]), fix)


def _active(hooks: Sequence[_Hook]) -> Check:
    inactive = ", ".join(hook.name for hook in hooks if not hook.is_active)
    if inactive:
        text = f"{inactive}: no rules yet, so the API server never calls it"
        return Check("active", "fail", text, AWAIT)
    if others := ", ".join(hook.name for hook in hooks if hook.has_other_rules):
        return Check("active", "fail", f"{others}: other rules than are rendered", f"{RENDER}; then {AWAIT}")
    return Check("active", "ok", "each webhook has its rules, so the API server calls it")


def _policy(hooks: Sequence[_Hook]) -> Check:
    def with_(wanted: str, found: str) -> str:
        pairs = ((hook.name, hook.wanted["failurePolicy"], hook.found["failurePolicy"]) for hook in hooks)
        return ", ".join(name for name, *pair in pairs if pair == [wanted, found])

    if closed := with_("Ignore", "Fail"):
        text = f"{closed} only warns, and has Fail: nobody can write a workload while no replica answers"
        return Check("failure-policy", "fail", text, RENDER)
    if ignored := with_("Fail", "Ignore"):
        away = "while no replica answers, GPU pods are created as they are, not counted"
        fix = "none is needed to try it (observe-only); else " + RENDER
        return Check("failure-policy", "warn", f"{ignored}: failurePolicy Ignore: {away}", fix)
    return Check("failure-policy", "ok", "Fail for what a policy has to judge, Ignore for warnings")


def _left_out(hooks: Sequence[_Hook]) -> Check:
    wrong, narrower = [], []
    for hook in hooks:
        wanted, found = (_terms(each["namespaceSelector"]) for each in hook)
        if not wanted <= found:
            wrong.append(hook.name)
        elif wanted != found:
            narrower.append(f"{hook.name} asks only about namespaces with {' and '.join(sorted(found - wanted))}")
    if wrong:
        text = f"{', '.join(wrong)} does not leave out the systemNamespaces of the Cluster document"
        return Check("namespaces", "fail", text, RENDER)
    if narrower:
        fix = "none is needed if namespaces opt in; who may label a namespace can take it out of all policies"
        return Check("namespaces", "warn", several(narrower), fix)
    return Check("namespaces", "ok", "those left out are the systemNamespaces of the Cluster document")


def _terms(selector: Object) -> set[str]:
    """Each requirement of a label selector in words, whichever way it is written."""
    labels = {f"{key} In [{value}]" for key, value in (selector.get("matchLabels") or {}).items()}
    lines = selector.get("matchExpressions") or ()
    return labels | {
        f"{one['key']} {one['operator']} [{', '.join(sorted(one.get('values') or ()))}]" for one in lines
    }


def asks_about(configuration: Object | None, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the webhook of that name asks about pods in a namespace with these labels."""
    hooks = [each for each in (configuration or {}).get("webhooks") or () if each["name"] == name]
    return any(_selects(each.get("namespaceSelector") or {}, labels) for each in hooks)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    same = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return same and all(_holds(line, labels) for line in selector.get("matchExpressions") or ())


def _holds(line: Object, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(line["key"]), list(line.get("values") or ())
    match line["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case operator:
            return (value is not None) is (operator == "Exists")


def others(live: Iterable[Object], ours: str, words: Collection[str]) -> Check:
    """Whether another webhook mutates new pods before ours does.

    `words` are the first words of the back ends' names, such as `acme`: a webhook that has one in its name, or `gpu`,
    handles GPUs. One that runs before ours and is not called again never sees what we put on the pod.
    """
    early = [(each, hook) for each in live for hook in each.get("webhooks") or () if _is_early(each, hook, ours)]
    deaf = [
        _called(*one) for one in early if one[1].get("reinvocationPolicy") != "IfNeeded" and _is_of_gpus(one, words)
    ]
    harmless = [_called(*one) for one in early if _called(*one) not in deaf]
    if deaf:
        text = f"runs before {ours} and is not called again, so it misses what a translated pod asks: {several(deaf)}"
        return Check("order", "fail", text, "set reinvocationPolicy: IfNeeded there, or give it a later name")
    if harmless:
        text = f"runs before {ours}: {several(harmless)}"
        return Check("order", "ok", f"{text}; it is called again, or does not handle GPUs by its name")
    return Check("order", "ok", f"{ours} is the first mutating webhook of new pods")


def _called(configuration: Object, hook: Object) -> str:
    return f"{hook.get('name')} of {configuration['metadata']['name']}"


def _is_early(configuration: Object, hook: Object, ours: str) -> bool:
    return configuration["metadata"]["name"] < ours and any(map(_is_for_new_pods, hook.get("rules") or ()))


def _is_for_new_pods(rule: Object) -> bool:
    def has(key: str, *wanted: str) -> bool:
        return not {*wanted}.isdisjoint(rule.get(key) or ())

    return has("apiGroups", "", "*") and has("resources", "pods", "*", "*/*") and has("operations", "CREATE", "*")


def _is_of_gpus(one: tuple[Object, Object], words: Collection[str]) -> bool:
    configuration, hook = one
    service = paths.mapping(hook, "clientConfig", "service")
    names = (configuration["metadata"]["name"], hook.get("name"), service.get("name"), service.get("namespace"))
    text = " ".join(str(name) for name in names)
    return any(word in text for word in (*words, "gpu"))
