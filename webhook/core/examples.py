"""The examples that rules carry, executed: each back end alone, on a pod with one container."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.core.forms.document import Problem, failing_examples
from webhook.core.kube import fields, pod
from webhook.core.mutate import mutate
from webhook.core.plan import plan
from webhook.core.policy import usage
from webhook.core.quota import tally
from webhook.core.request import PREFIX
from webhook.core.review import creating
from webhook.core.rules.backend import Backend, Example
from webhook.core.rules.rulebook import Rulebook
from webhook.core.validate import validate
from webhook.core.violations import Refusal

ASKS: Final = (
    {"gpu": "1"}, {"gpu": "2"}, {"gpu": "0.5"}, {"gpu": "0.33"}, {"gpu": "2x0.5"}, {"gpu-cores": "30"},
    {"gpu-memory": "8Gi"}, {"gpu": "0.5", "gpu-memory": "3000Mi"}, {"gpu": "0.5", "gpu-cores": "80"},
)  # fmt: skip
"""What is asked of every rule beside its examples: whatever it makes of these has to be readable again."""


def failing(backend: Backend, alone: Rulebook) -> Iterator[Problem]:
    """A problem for each example that does not come out, and for what the rule writes and cannot read back.

    `alone` is a rulebook with this back end only.
    """

    def mistake(example: Example) -> str | None:
        """What becomes of an example instead of what it expects."""
        raw = pod_of(example)
        try:
            planned = plan.make(pod.read(raw), alone)
        except Refusal as error:
            return f"has a pod that cannot be one: {error.violations[0].message}"
        if planned.violations:
            messages = "\n".join(map(str, planned.violations))
            if example.refused is None:
                return f"is refused: {planned.violations[0].message}"
            if example.refused not in messages:
                return f'is refused, but not with "{example.refused}": {messages.splitlines()[0]}'
            return None
        after = fields.applied(fields.to_patch(planned.edits, raw), raw)
        written = sections(after)
        if example.refused is not None:
            return f"is not refused; it becomes {shown(written['limits'])}"
        expected = example.expected or {}
        if "charge" in expected:
            written["charge"] = tally.write(usage.pod_usage(usage.holdings(pod.read(after), alone)).tally)
        if (parts := expected.get("warnings")) is not None:
            alike = zip(parts, planned.warnings, strict=False)
            same = len(parts) == len(planned.warnings) and all(part in warning for part, warning in alike)
            written["warnings"] = parts if same else planned.warnings
        for section, value in expected.items():
            if written[section] != _texts(value):
                return f"expects {section} {shown(_texts(value))}, and gets {shown(written[section])}"
        return None

    yield from failing_examples(backend.examples, mistake)
    for ask, raw in trials(backend, alone):
        first = mutate(creating(raw, "example"), alone)
        if not first.allowed:
            continue
        after = fields.applied(first.patch, raw)
        again, final = mutate(creating(after, "example"), alone), validate(creating(after, "example"), alone)
        wrong = "is changed when it is seen again" if again.patch else None
        if refusal := next((decision for decision in (again, final) if not decision.allowed), None):
            wrong = f"cannot be read back: {refusal.violations[0].message}"
        if wrong is not None:
            words = " ".join(f"{key}={value}" for key, value in ask.items())
            yield Problem(backend.at, "spec.modes", f"what becomes of {words} {wrong}")
            return


def trials(backend: Backend, alone: Rulebook) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:
    """What every rule is asked, and its own examples: the words of each, and a pod that says them."""
    models = [device.model for device in alone.devices.values() if device.vendor in backend.vendors][:1]
    for ask in (*ASKS, *({**ask, "gpu-model": model} for ask in ASKS for model in models)):
        yield ask, _pod(ask)
    for example in backend.examples:
        yield example.ask, pod_of(example)


def pod_of(example: Example) -> dict[str, Any]:
    """The pod that an example is tried on."""
    merged: dict[str, Any] = _merged(_pod(example.ask), example.pod)
    return merged


def _pod(ask: Mapping[str, str]) -> dict[str, Any]:
    annotations = {PREFIX + key.removeprefix("gpu-"): value for key, value in ask.items() if "/" not in key}
    limits = {key: value for key, value in ask.items() if "/" in key}
    container = {"name": "main", "resources": {"limits": limits}} if limits else {"name": "main"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def _merged(base: Any, more: Any) -> Any:
    """Mappings merged; a list's entries too, by their place."""
    if isinstance(base, dict) and isinstance(more, dict):
        return {**base, **{key: _merged(base[key], more[key]) if key in base else more[key] for key in more}}
    if isinstance(base, list) and isinstance(more, list):
        return [*map(_merged, base, more), *base[len(more) :], *more[len(base) :]]
    return more


def sections(after: Mapping[str, Any]) -> dict[str, Any]:
    """What a translation has put on the example's pod, by the sections that an example may expect."""
    spec, metadata = after["spec"], after["metadata"]
    container = spec["containers"][0]
    terms = fields.at(after, *pod.TERMS) or [{}]
    return {
        "limits": (container.get("resources") or {}).get("limits") or {},
        "env": {variable["name"]: variable["value"] for variable in container.get("env") or ()},
        "annotations": {key: value for key, value in metadata["annotations"].items() if not key.startswith(PREFIX)},
        "claims": [claim["resourceClaimTemplateName"] for claim in spec.get("resourceClaims") or ()],
        "labels": metadata.get("labels") or {},
        "nodeAffinity": {line["key"]: line.get("values", []) for line in terms[0].get("matchExpressions", ())},
        "tolerations": _texts(spec.get("tolerations") or []),
        "schedulerName": spec.get("schedulerName") or "",
        "runtimeClassName": spec.get("runtimeClassName") or "",
    }


def shown(value: Any) -> str:
    """A value as a rule's author would write it: `{acme.example/card: 2}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(entry)}" for key, entry in value.items()) + "}"
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else str(value)


def _texts(value: Any) -> Any:
    """The expected value as Kubernetes would hold it: every scalar a string."""
    if isinstance(value, dict):
        return {key: _texts(entry) for key, entry in value.items()}
    return [*map(_texts, value)] if isinstance(value, list) else str(value)
