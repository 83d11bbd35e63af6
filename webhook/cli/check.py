"""`gpu-webhook check`: whether rule files can be used, what they hold, and what their author should look at."""

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.cli import options
from webhook.core import examples, mutants
from webhook.core.backends import read_back
from webhook.core.backends.translate import CannotExpressError
from webhook.core.forms.document import DocumentError, Node, Problem
from webhook.core.kube import pod, quantity
from webhook.core.mutants import Mutant
from webhook.core.plan import plan
from webhook.core.request import GpuRequest
from webhook.core.rules.backend import Backend
from webhook.core.rules.modes import When
from webhook.core.rules.rulebook import Rulebook, with_backend_alone, with_only
from webhook.core.violations import Refusal
from webhook.server import settings

if TYPE_CHECKING:  # what tries suites is loaded only for them
    from webhook.cli.test import Suite


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook check` takes."""
    default = settings.default_rules()
    what = f"a directory of rules, or files, which are checked by the rules beside them or those in {default}"
    command.add_argument("target", nargs="*", default=[str(default)], metavar="DIR|FILE|-", help=what)
    losses = "list requests that cannot be recovered from a pod's resources"
    command.add_argument("--losses", action="store_true", help=losses)
    coverage = (
        "name the lines and modes of rules and policies that no example and no suite reaches; 1 if there are any"
    )
    command.add_argument("--coverage", action="store_true", help=coverage)
    mutate = "change rules and policies in small ways, and name each change that no example and no suite notices"
    command.add_argument("--mutate", action="store_true", help=mutate)
    least = "with --mutate: 1 if less than this is noticed"
    command.add_argument("--fail-under", type=int, default=0, metavar="PERCENT", help=least)
    options.output_option(command)


def run(arguments: argparse.Namespace) -> int:
    """Print what is wrong with rule files, or what they hold; NOT_FINE where they cannot be used."""
    directory, contents = Path(arguments.target[0]), dict[str, bytes]()
    if len(arguments.target) > 1 or not directory.is_dir():
        contents = {name: content for content, name in map(options.read_content, arguments.target)}
        beside = directory.parent / "cluster.yaml"
        directory = beside.parent if beside.is_file() else settings.default_rules()
    suites = _suites(directory, contents) if arguments.coverage or arguments.mutate else {}
    loaded: list[Node] = []

    def kept(nodes: list[Node]) -> list[Node]:
        loaded[:] = nodes
        return nodes

    from webhook.cli import policy_advice
    from webhook.cli.table import number
    from webhook.core.policy import in_force, unknown_devices
    from webhook.core.rules import cluster
    from webhook.files import rule_files

    try:
        with options.progress("running the examples of the rules"):
            rules = {name: content for name, content in contents.items() if name not in suites}
            rulebook = (
                rule_files.load_beside(directory, rules, kept) if contents else rule_files.load(directory, kept)
            )
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
    tried: list[Mutant] = []
    if arguments.coverage or arguments.mutate:
        with options.progress("changing rules and policies, to see what notices"):
            tried = [*_mutants(loaded, rulebook, contents, suites)]
    shown, code = _score(tried, arguments)
    if arguments.output == "json":
        more = shown if lost is None else {"losses": lost, **shown}
        options.print_json({"fine": True, "problems": [], "warnings": warnings, **more, **counts(rulebook)})
        return code
    fine = f"fine, but {number(len(warnings), 'warning')}" if warnings else "all fine"
    print("\n".join([f"{', '.join(arguments.target)}: {describe(counts(rulebook))}: {fine}", *warnings]))
    if strict := unknown_devices.refused_by_default(rulebook.tenancy, rulebook.cluster):
        print(f"{', '.join(strict)}: {in_force.STRICT}")
    if lost:
        print("cannot be recovered from a pod's resources (a pod that states them itself counts as a whole device):")
        print(*(f"  {loss}" for loss in lost), sep="\n")
    for place in shown.get("unreached", ()):
        print("{file}:{line}: no example and no suite reaches this {what}: {path}".format(**place))
    for change in shown.get("survivors", ()):
        print("{file}:{line}: nothing notices {path}: {before} -> {after}".format(**change))
    missed = {place["file"] for places in ("unreached", "survivors") for place in shown.get(places, ())}
    for total in shown.get("totals", ()):
        if total["file"] in missed or total is shown["totals"][-1]:
            print(_sum(total))
    return code


# What the examples and suites of rules and policies notice: see `webhook.core.mutants`.

Suites = Sequence[tuple[str, "Suite"]]


def _suites(directory: Path, contents: Mapping[str, bytes]) -> dict[str, tuple[Sequence[Node], Suites]]:
    """The suites among the files that are given, and those in the folder `tests` of the rules, by their files."""
    from webhook.cli import snapshot, test
    from webhook.files import documents

    folder = directory / "tests"
    beside = {file: Path(file).read_bytes() for file in snapshot.files([str(folder)] if folder.is_dir() else [])}
    suites: dict[str, tuple[Sequence[Node], Suites]] = {}
    for file, content in {**beside, **contents}.items():
        with suppress(DocumentError):  # which is told when rules are loaded
            nodes = documents.parse(content, file)
            if any(mutants.kind(node) == "Suite" for node in nodes):
                suites[file] = nodes, [*test.read(content, file)]
    return suites


def _mutants(
    loaded: Sequence[Node],
    rulebook: Rulebook,
    contents: Mapping[str, bytes],
    files: Mapping[str, tuple[Sequence[Node], Suites]],
) -> Iterator[Mutant]:
    """The mutants of all rules and policies, or of those in files with these contents, and of those in suites."""
    from webhook.cli import test
    from webhook.core.rules import load
    from webhook.files import rule_files

    def policies(node: Node) -> Iterator[Node]:
        if mutants.kind(node) in load.POLICY_KINDS.values():
            yield node
        elif isinstance(node.value, dict | list):
            children = node.value.values() if isinstance(node.value, dict) else node.value
            yield from (policy for child in children for policy in policies(child))

    chosen = [node for node in loaded if not contents or node.at.file in contents]
    around = [node for node in chosen if mutants.kind(node) in load.POLICY_KINDS.values()]
    given = tuple(node.plain() for node in around)
    suites = [
        (name, replace(suite, given=(*given, *suite.given))) for _, some in files.values() for name, suite in some
    ]
    now, memory = time.time(), load.Memory(rule_files.MAX_REMEMBERED)

    def fails(suites: Suites, rulebook: Rulebook) -> bool:
        return any(result.failures for name, suite in suites for result in test.tried(suite, name, rulebook, now))

    def rule_noticed(documents: Sequence[Node]) -> bool:
        try:
            return bool(suites) and fails(suites, load.read(documents, "", memory).rulebook)
        except DocumentError:
            return True

    def policy_noticed(before: object, after: Mapping[str, Any]) -> bool:
        def put(given: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
            return tuple(after if raw == before else raw for raw in given)

        for name, suite in suites:
            cases = tuple(replace(case, given=put(case.given)) for case in suite.cases)
            changed = replace(suite, given=put(suite.given), cases=cases)
            if changed != suite and fails([(name, changed)], rulebook):
                return True
        return False

    if fails(suites, rulebook):
        raise options.UsageError("a suite fails as it is: run gpu-webhook test")
    for node in chosen:
        if mutants.kind(node) == "Backend":
            yield from mutants.of_backend(loaded, mutants.name_of(node), memory, rule_noticed)
    of_suites = (node for file, (nodes, _) in files.items() if file in contents or not contents for node in nodes)
    for policy in (*around, *(policy for node in of_suites for policy in policies(node))):
        yield from mutants.of_policy(policy, rulebook, partial(policy_noticed, policy.plain()))


def _score(tried: Sequence[Mutant], arguments: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """What is not reached, what nobody notices and the totals, by what is asked for; and the exit code."""
    if not (arguments.coverage or arguments.mutate):
        return {}, options.FINE
    unreached, totals, survivors = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    files = [*dict.fromkeys(mutant.change.at.file for mutant in tried)]
    for file in files if len(files) == 1 else [*files, "all"]:
        of_file = [mutant for mutant in tried if file in {mutant.change.at.file, "all"}]
        total: dict[str, Any] = {"file": file}
        for what in ("line", "mode") if arguments.coverage else ():
            places: dict[tuple[str, int], list[Mutant]] = {}
            for mutant in of_file:
                if at := mutant.change.at if what == "line" else mutant.change.mode:
                    places.setdefault((at.file, at.line), []).append(mutant)
            missed = {at: there for at, there in places.items() if not any(mutant.noticed for mutant in there)}
            total[f"{what}s"] = {"reached": len(places) - len(missed), "of": len(places)}
            if file != "all":
                unreached += [
                    {"file": file, "line": line, "what": what, "path": there[0].change.path}
                    for (_, line), there in missed.items()
                ]
        if arguments.mutate:
            noticed = sum(mutant.noticed for mutant in of_file)
            total["mutants"] = {"noticed": noticed, "of": len(of_file)}
            total["percent"] = 100 * noticed // max(len(of_file), 1)
        totals.append(total)
    if arguments.mutate:
        changes = (mutant.change for mutant in tried if not mutant.noticed)
        survivors = [
            {"file": at.file, "line": at.line, "path": path, "before": before, "after": after}
            for at, path, before, after, _ in changes
        ]
    few = arguments.mutate and totals[-1]["percent"] < arguments.fail_under
    code = options.NOT_FINE if unreached or few else options.FINE
    return {"unreached": unreached, "survivors": survivors, "totals": totals}, code


def _sum(total: Mapping[str, Any]) -> str:
    """`hami.yaml: 12 of 12 lines, 3 of 3 modes, 96 of 97 mutants noticed (98 %)`."""
    parts = [
        f"{total[what]['reached']} of {total[what]['of']} {what}" for what in ("lines", "modes") if what in total
    ]
    if "mutants" in total:
        parts.append("{noticed} of {of} mutants noticed".format(**total["mutants"]) + f" ({total['percent']} %)")
    return f"{total['file']}: {', '.join(parts)}"


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
