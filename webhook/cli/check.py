"""`gpu-webhook check`: whether rule files can be used, what they hold, and what their author should look at."""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from webhook.cli import options
from webhook.core import examples
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError
from webhook.core.forms.document import Problem
from webhook.core.kube import pod, quantity
from webhook.core.plan import plan
from webhook.core.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import When
from webhook.core.rules.rulebook import Rulebook, with_backend_alone, with_only
from webhook.core.violations import Refusal
from webhook.server import settings


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook check` takes."""
    default = settings.default_rules()
    what = f"a directory of rules, or files, which are checked by the rules beside them or those in {default}"
    command.add_argument("target", nargs="*", default=[str(default)], metavar="DIR|FILE|-", help=what)
    losses = "list requests that cannot be recovered from a pod's resources"
    command.add_argument("--losses", action="store_true", help=losses)
    options.output_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong with rule files, or what they hold; NOT_FINE where they cannot be used."""
    directory, contents = Path(arguments.target[0]), dict[str, bytes]()
    if len(arguments.target) > 1 or not directory.is_dir():
        contents = {name: content for content, name in map(options.read_content, arguments.target)}
        beside = directory.parent / "cluster.yaml"
        directory = beside.parent if beside.is_file() else settings.default_rules()
    from webhook.cli import policy_advice
    from webhook.cli.table import number
    from webhook.core.policy import in_force, unknown_devices
    from webhook.core.rules import cluster
    from webhook.files import rule_files

    try:
        with options.progress("running the examples of the rules"):
            rulebook = rule_files.load_beside(directory, contents) if contents else rule_files.load(directory)
        if not contents:
            rule_files.check_installable(directory, rulebook.cluster)
    except rule_files.RuleFilesError as error:
        if arguments.output == "json":
            options.print_json(broken(error.problems))
        else:
            print(error)
        return options.NOT_FINE
    lost = None
    if arguments.losses:
        named = rulebook.backends.items()
        lost = [loss for name, backend in named for loss in losses(backend, with_only(name, rulebook))]
    own = rulebook.cluster.unlisted(cluster.OWN, fix="add it if the webhook is installed there")
    backends = [backend for backend in rulebook.backends.values() if backend.at.file in contents] or rulebook.enabled
    warnings = [*map(str, own), *doubts(rulebook, backends), *policy_advice.every(rulebook, time.time())]
    if arguments.output == "json":
        more = {} if lost is None else {"losses": lost}
        options.print_json({"fine": True, "problems": [], "warnings": warnings, **more, **counts(rulebook)})
        return options.FINE
    fine = f"fine, but {number(len(warnings), 'warning')}" if warnings else "all fine"
    print("\n".join([f"{', '.join(arguments.target)}: {describe(counts(rulebook))}: {fine}", *warnings]))
    if strict := unknown_devices.refused_by_default(rulebook.tenancy, rulebook.cluster):
        print(f"{', '.join(strict)}: {in_force.STRICT}")
    if lost:
        print("cannot be recovered from a pod's resources (a pod that states them itself counts as a whole device):")
        print(*(f"  {loss}" for loss in lost), sep="\n")
    return options.FINE


# What a directory of rules holds, or what is wrong with it: in numbers, and in plain values for scripts.


def broken(problems: Iterable[Problem]) -> dict[str, Any]:
    """Everything that is wrong with rules that cannot be used."""
    located = [{**asdict(problem.at), "path": problem.path, "message": problem.message} for problem in problems]
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
    cluster = rulebook.cluster
    return {
        "fine": True,
        "problems": [],
        "digest": rulebook.digest,
        "counts": counts(rulebook),
        "cluster": {
            "name": cluster.name,
            "at": cluster.at.line_only,
            "whole": cluster.whole,
            "part": cluster.part,
            "device": cluster.device,
            "unknownValue": cluster.unknown_value,
            "systemNamespaces": sorted(cluster.system_namespaces),
        },
        "backends": [
            {
                "name": backend.name,
                "at": backend.at.line_only,
                "enabled": backend.name in enabled,
                "description": backend.description,
                "vendors": sorted(backend.vendors),
                "sharing": sorted(backend.sharing),
                "owns": sorted(backend.owns),
                "modes": [{"name": mode.name, "at": mode.at.line_only} for mode in backend.modes],
                "examples": [
                    {
                        "name": example.name,
                        "at": example.at.line_only,
                        "ask": dict(example.ask),
                        "refused": example.refused,
                    }
                    for example in backend.examples
                ],
            }
            for backend in (*rulebook.enabled, *others)
        ],
        "devices": [
            {
                "model": device.model,
                "vendor": device.vendor,
                "names": list(device.names),
                # In mebibytes, as in vendors' own figures, cards can be compared at a glance.
                "memory": quantity.show_size(device.memory)
                if device.memory % (1 << 20)
                else f"{device.memory >> 20}Mi",
                "tflops": None if device.tflops is None else quantity.show(device.tflops),
                "at": device.at.line_only,
            }
            for device in by_size
        ],
    }


def doubts(rulebook: Rulebook, backends: Iterable[Backend]) -> Iterator[str]:
    """Modes of back ends that probably do not mean what their author meant, as sentences with their places."""
    for backend in backends:
        # Modes that no request reaches, that no example shows, or whose way of sharing is not offered.
        alone = with_backend_alone(backend, rulebook.devices)
        shown = set()
        for example in backend.examples:
            with suppress(Refusal):
                planned = plan.make(pod.read(examples.pod_of(example)), alone)
                shown |= {served.mode.at for served in planned.assignments}
        for mode in reversed({mode.at: mode for mode in reversed(backend.modes)}.values()):
            rule = f"{mode.at}: spec.modes"
            # The mode before it that takes all of its requests, whatever the card.
            earlier = backend.modes[: [mode.at for mode in backend.modes].index(mode.at)]
            whole = (other for other in earlier if other.profile is None and other.size is None)
            before = next((other for other in whole if _covers(other.when, mode.when)), None)
            if before is not None:
                taken = f'as "{before.name}" ({before.at.line_only}) takes them all'
                yield f'{rule}: no request becomes "{mode.name}", {taken}; it only reads what pods bring along'
            elif mode.at not in shown:
                yield f'{rule}: no example shows "{mode.name}"'
            if mode.when.sharing is not None and mode.when.sharing not in backend.sharing:
                yield f'{rule}: nobody can ask for "{mode.name}", as sharing does not list {mode.when.sharing}'


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


def losses(backend: Backend, alone: Rulebook) -> Sequence[str]:
    """The words of the shorthand that cannot be recovered from what each mode of a back end writes, in order.

    `alone` is a rulebook with this back end only.
    """

    def words(request: GpuRequest) -> Mapping[str, object]:
        return {
            "gpu": request.count,
            "gpu-memory": request.memory if request.memory is not None else request.memory_share,
            "gpu-cores": request.cores,
            "gpu-profile": request.profile,
            "gpu-claim": request.claim,
        }

    lost: dict[str, None] = {}
    for _, raw in examples.trials(backend, alone):
        for served in plan.make(pod.read(raw), alone).assignments:
            mode, back = served.mode, None
            with suppress(CannotExpressError):
                annotations = served.demand.annotations | mode.enforced
                back = words(read_back.understand(served.amounts, served.backend, annotations)[0])
            others = [*mode.outputs.node_affinity.values(), *mode.outputs.annotations.values()]
            written = {"gpu", "profile", "claim", *(output.what for output in (*mode.amounts.values(), *others))}
            for key, value in words(served.request).items():
                expressed = {key.removeprefix("gpu-"), "share"} & written
                if value is not None and (back is None or (expressed and back[key] is None)):
                    lost[f"{backend.rule}: {mode.name}: {key}"] = None
    return [*lost]
