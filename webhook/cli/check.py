"""The commands about rule files: check, schema."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from webhook.cli import options
from webhook.cli.options import FINE, NOT_FINE, UsageError
from webhook.core import examples
from webhook.core.backends import read_back
from webhook.core.backends.amounts import CannotExpressError
from webhook.core.examples import pod_of
from webhook.core.forms.document import Problem, nearest
from webhook.core.kube import pod, quantity
from webhook.core.plan import plan
from webhook.core.plan.choose import Assignment
from webhook.core.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.cluster import Cluster
from webhook.core.rules.modes import Mode, When
from webhook.core.rules.rulebook import Rulebook, with_backend_alone
from webhook.core.violations import Refusal
from webhook.server import settings

# The commands about rule files: check, schema.


def check_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook check` takes."""
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=settings.default_rules(),
        metavar="DIR",
        help="rule files (default: %(default)s)",
    )
    command.add_argument(
        "--losses", action="store_true", help="list requests that cannot be recovered from a pod's resources"
    )
    options.output_option(command)
    command.set_defaults(command=_check)


def _check(given: argparse.Namespace) -> int:
    if not given.directory.is_dir():
        raise UsageError(f"{given.directory} is not a directory")
    from webhook.cli import policy_advice
    from webhook.cli.checkup import number
    from webhook.core.policy import membership, unknown_devices
    from webhook.core.rules import cluster
    from webhook.files import rule_files

    try:
        rulebook = rule_files.load(given.directory)
        rule_files.check_installable(given.directory, rulebook.cluster)
    except rule_files.RuleFilesError as error:
        if given.output == "json":
            options.print_json(broken(error.problems))
        else:
            print(error)
        return NOT_FINE
    lost = _losses(rulebook) if given.losses else None
    own = rulebook.cluster.unlisted(cluster.OWN, fix="add it if the webhook is installed there")
    warnings = [*map(str, own), *doubts(rulebook), *policy_advice.every(rulebook, time.time())]
    if given.output == "json":
        found = {} if lost is None else {"losses": lost}
        options.print_json({"fine": True, "problems": [], "warnings": warnings, **found, **counts(rulebook)})
        return FINE
    fine = f"fine, but {number(len(warnings), 'warning')}" if warnings else "all fine"
    print("\n".join([f"{given.directory}: {describe(counts(rulebook))}: {fine}", *warnings]))
    if strict := unknown_devices.refused_by_default(rulebook.tenancy, rulebook.cluster):
        print(f"{', '.join(strict)}: {membership.STRICT}")
    if lost:
        print("cannot be recovered from a pod's resources (a pod that states them itself counts as a whole device):")
        print(*(f"  {each}" for each in lost), sep="\n")
    return FINE


def _losses(rulebook: Rulebook) -> list[str]:
    from webhook.core.rules.rulebook import with_only

    backends = rulebook.backends.items()
    return [str(loss) for name, backend in backends for loss in losses(backend, with_only(name, rulebook))]


def schema_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook schema` takes."""
    command.add_argument("kind", nargs="?", metavar="KIND", help="a kind of document, such as Backend (default: all)")
    command.set_defaults(command=_schema)


def _schema(given: argparse.Namespace) -> int:
    from webhook.core.rules import load as schemas
    from webhook.core.rules.load import KINDS

    if given.kind not in {None, *KINDS}:
        raise UsageError(
            f'no kind of rule is called "{given.kind}"{nearest(given.kind, KINDS)}; there are {", ".join(KINDS)}'
        )
    print(schemas.schema_text(schemas.schema(given.kind)))
    return FINE


# What a directory of rules holds, or what is wrong with it: in numbers, and in plain values for scripts.


def broken(problems: Iterable[Problem]) -> dict[str, Any]:
    """Everything that is wrong with rules that cannot be used."""
    located = [
        {"file": one.at.file, "line": one.at.line, "column": one.at.column, "path": one.path, "message": one.message}
        for one in problems
    ]
    return {"fine": False, "problems": located}


def counts(rulebook: Rulebook) -> dict[str, int]:
    """Counts of what is loaded."""
    return {
        "backends": len(rulebook.backends),
        "enabled": len(rulebook.enabled),
        "devices": len({device.model for device in rulebook.devices.values()}),
        "examples": sum(len(backend.examples) for backend in rulebook.backends.values()),
    }


def describe(counted: Mapping[str, int]) -> str:
    """What `counts` gives as a phrase: `4 back ends, 28 card models, 27 examples`."""
    return f"{counted['backends']} back ends, {counted['devices']} card models, {counted['examples']} examples"


def contract(rulebook: Rulebook) -> dict[str, Any]:
    """The body of `GET /api/rules`, and what the page shows of rules that can be used."""
    enabled = {backend.name for backend in rulebook.enabled}
    others = [rulebook.backends[name] for name in sorted(rulebook.backends.keys() - enabled)]
    devices = {device.model: device for device in rulebook.devices.values()}
    by_size = sorted(devices.values(), key=lambda device: (device.vendor, device.memory, device.model))
    return {
        "fine": True,
        "problems": [],
        "digest": rulebook.digest,
        "counts": counts(rulebook),
        "cluster": _cluster(rulebook.cluster),
        "backends": [_backend(backend, enabled) for backend in (*rulebook.enabled, *others)],
        "devices": [_device(device) for device in by_size],
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "at": cluster.at.line_only,
        "whole": cluster.whole,
        "part": cluster.part,
        "device": cluster.device,
        "unknownValue": cluster.unknown_value,
        "systemNamespaces": sorted(cluster.system_namespaces),
    }


def _backend(backend: Backend, enabled: set[str]) -> dict[str, Any]:
    return {
        "name": backend.name,
        "at": backend.at.line_only,
        "enabled": backend.name in enabled,
        "description": backend.description,
        "vendors": sorted(backend.vendors),
        "sharing": sorted(backend.sharing),
        "owns": sorted(backend.owns),
        "modes": [{"name": mode.name, "at": mode.at.line_only} for mode in backend.modes],
        "examples": [
            {"name": example.name, "at": example.at.line_only, "ask": dict(example.ask), "refused": example.refused}
            for example in backend.examples
        ],
    }


def _device(device: Card) -> dict[str, Any]:
    # In mebibytes, as in vendors' own figures, cards can be compared at a glance.
    memory = quantity.show_size(device.memory) if device.memory % (1 << 20) else f"{device.memory >> 20}Mi"
    return {
        "model": device.model,
        "vendor": device.vendor,
        "names": list(device.names),
        "memory": memory,
        "tflops": None if device.tflops is None else quantity.show(device.tflops),
        "at": device.at.line_only,
    }


# Modes of enabled back ends that load, and probably do not mean what their author meant: warnings of `check`.


def doubts(rulebook: Rulebook) -> Iterator[str]:
    """Sentences, each with the line of the mode that it is about."""
    for backend in rulebook.enabled:
        yield from _of_modes(backend, with_backend_alone(backend, rulebook.devices))


def _of_modes(backend: Backend, alone: Rulebook) -> Iterator[str]:
    """Modes that no request reaches, that no example shows, or whose way of sharing is not offered."""
    shown = {mode.at for mode in _shown(backend, alone)}
    for mode in reversed({mode.at: mode for mode in reversed(backend.modes)}.values()):
        rule = f"{mode.at.of(backend.name)} spec.modes"
        before = _before(mode, backend)
        if before is not None:
            taken = f'as "{before.name}" ({before.at.line_only}) takes them all'
            yield f'{rule}: no request becomes "{mode.name}", {taken}; it only reads what pods bring along'
        elif mode.at not in shown:
            yield f'{rule}: no example shows "{mode.name}"'
        if mode.when.sharing is not None and mode.when.sharing not in backend.sharing:
            yield f'{rule}: nobody can ask for "{mode.name}", as sharing does not list {mode.when.sharing}'


def _shown(backend: Backend, alone: Rulebook) -> Iterator[Mode]:
    """The modes that the examples of a back end come to."""
    for example in backend.examples:
        try:
            planned = plan.make(pod.read(pod_of(example)), alone)
        except Refusal:
            continue
        yield from (served.mode for served in planned.assignments)


def _before(mode: Mode, backend: Backend) -> Mode | None:
    """The mode before it that takes all of its requests, whatever the card."""
    earlier = backend.modes[: [each.at for each in backend.modes].index(mode.at)]
    whole = (each for each in earlier if each.profile is None and each.size is None)
    return next((each for each in whole if _covers(each.when, mode.when)), None)


def _covers(general: When, special: When) -> bool:
    """Whether each request that meets the special condition meets the general one, too."""
    (low, high), (least, most) = general.count, special.count
    return (
        least >= low
        and (high is None or (most is not None and most <= high))
        and general.devices in {None, special.devices}
        and general.sharing in {None, special.sharing}
        and general.has <= special.has
        and general.lacks <= special.lacks
        and (not general.models or (bool(special.models) and special.models <= general.models))
        and general.annotated <= special.annotated
        and general.unannotated <= special.unannotated
    )


# Requests that cannot be recovered from a pod's resources, found by trying the examples of each rule.


class Loss(NamedTuple):
    """A word of the shorthand that cannot be recovered from what one mode of a back end writes."""

    rule: str
    mode: str
    key: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.mode}: {self.key}"


def losses(backend: Backend, alone: Rulebook) -> list[Loss]:
    """Every loss of a back end, in order; `alone` is a rulebook with this back end only."""
    found = [
        Loss(backend.rule, served.mode.name, key)
        for _, raw in examples.trials(backend, alone)
        for served in plan.make(pod.read(raw), alone).assignments
        for key in _lost(served)
    ]
    return list(dict.fromkeys(found))


def _lost(served: Assignment) -> Iterator[str]:
    asked = served.request
    try:
        read, _ = read_back.understand(
            served.amounts, served.backend, served.demand.annotations | served.mode.enforced
        )
    except CannotExpressError:
        yield from (key for key, value in _values(asked).items() if value is not None)
        return
    back, outputs = _values(read), served.mode.outputs
    others = [*outputs.node_affinity.values(), *outputs.annotations.values()]
    written = {output.what for output in (*served.mode.amounts.values(), *others)}
    for key, value in _values(asked).items():
        expressed = key in {"gpu", "gpu-profile", "gpu-claim"} or {key.removeprefix("gpu-"), "share"} & written
        if value is not None and expressed and back[key] is None:
            yield key


def _values(request: GpuRequest) -> Mapping[str, object]:
    memory = request.memory if request.memory is not None else request.memory_share
    return {
        "gpu": request.count,
        "gpu-memory": memory,
        "gpu-cores": request.cores,
        "gpu-profile": request.profile,
        "gpu-claim": request.claim,
    }
