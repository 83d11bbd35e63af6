"""Which back end serves a container: the one it names, else the tenant's default, else by the cluster's order.

The nodes of a back end count, too: a pod selects its nodes, and a rule writes labels that select the back end's.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

from webhook.core.backends import cards, read_back, translate
from webhook.core.backends.translate import ANY_MODEL, TRIED, CannotExpressError, Translation, Way, as_text
from webhook.core.forms.document import did_you_mean
from webhook.core.interpret import extended_resources
from webhook.core.interpret.interpret import ContainerRequest
from webhook.core.kube.pod import Bounds, Pod, Requirement, node_bounds, require_nodes, selects_nodes
from webhook.core.kube.quantity import QuantityError, listed, show_size
from webhook.core.request import (
    KEYS,
    WHOLE,
    Devices,
    FieldValue,
    GpuRequest,
    ask_for,
    build,
    key_of,
    nothing_of,
    pasteable,
)
from webhook.core.rules.backend import Backend
from webhook.core.rules.catalog import Card
from webhook.core.rules.modes import Constant, Mode, Output
from webhook.core.rules.rulebook import Rulebook, nearest_backend
from webhook.core.rules.verbs import CONTAINER, holes
from webhook.core.violations import Alternative, Refusal, Violation, either, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Translation):
    """A container's request (`demand`) as one back end serves it."""

    demand: ContainerRequest
    backend: Backend


class Failure(NamedTuple):
    """A back end that cannot serve a container, and why."""

    backend: Backend
    reason: CannotExpressError


Candidate = Assignment | Failure
"""One back end in the choice: how it serves the container, or why it cannot."""


MOST_TRIALS: Final = 400
"""How often fixes are tried for one pod: 16 ms at most [measured]."""


@dataclass(slots=True)
class Trials:
    """How often fixes may still be tried for one pod."""

    left: int


class Preference(NamedTuple):
    """What decides between the back ends that can serve, beside the cluster's order; None decides nothing.

    tenant_default         the back end that the tenant prefers, by name
    policy_allows          whether the tenant's policy allows a candidate
    node_selection_allows  whether the pod's own node selection leaves any node of a candidate
    bound_to_nodes_of      whether every node that the pod may run on is one of a candidate
    trials                 what is left of those in which fixes are tried, and the nearest that is served looked for
    beside                 what the author does anyhow, as it is tried with a fix
    """

    tenant_default: str | None = None
    policy_allows: Callable[[Assignment], bool] | None = None
    node_selection_allows: Callable[[Assignment], bool] | None = None
    bound_to_nodes_of: Callable[[Assignment], bool] | None = None
    trials: Trials | None = None
    beside: Alternative | None = None

    def allows(self, candidate: Assignment) -> bool:
        """Whether the policy and the pod's node selection allow a candidate."""
        judges = (self.policy_allows, self.node_selection_allows)
        return all(judge is None or judge(candidate) for judge in judges)


def choose(demand: ContainerRequest, rulebook: Rulebook, preference: Preference) -> Assignment | None:
    """The first candidate that can serve; None for resources of back ends that this cluster does not enable.

    A candidate that the policy or the pod's node selection does not allow is taken only if no other can serve.
    Resources that several back ends own are of the one to whose nodes the pod is bound. Raises Refusal with the
    reason of every candidate.
    """
    failures: list[Failure] = []
    not_allowed: Assignment | None = None
    at_home = False  # whether a back end fails on whose nodes the pod has to run
    considered: Iterable[Candidate] = candidates(demand, rulebook, preference.tenant_default)
    bound = preference.bound_to_nodes_of
    if bound is not None and demand.request is None:
        resources = [rulebook.resources[name] for name in demand.extended.amounts]
        if all(resource.shared for resource in resources) and not all(resource.only_counts for resource in resources):
            # Only a label of the node tells which back end the resources are of.
            considered = sorted(considered, key=lambda choice: isinstance(choice, Failure) or not bound(choice))
    for candidate in considered:
        if isinstance(candidate, Failure):
            failures.append(candidate)
            own = {key: values for key, values in candidate.backend.nodes.labels.items() if values}
            bounds = [(demand.nodes.get(key, frozenset()), values) for key, values in own.items()]
            at_home |= bool(own) and all(bound and bound.issubset(values) for bound, values in bounds)
            if candidate.reason.code == "GPU203" and not demand.extended.amounts:
                break  # a zero contradicts the shorthand; another back end must not be taken instead
        elif preference.allows(candidate):
            return candidate
        else:
            not_allowed = not_allowed or candidate
    if (not_allowed is not None and not at_home) or (not failures and demand.request is None):
        return not_allowed
    raise Refusal(_unserved(demand, failures, rulebook, preference))


def candidates(
    demand: ContainerRequest, rulebook: Rulebook, tenant_default: str | None = None
) -> Iterator[Candidate]:
    """The back ends that may serve, in order of preference; each is judged when the iterator reaches it.

    Raises Refusal for a back end that cannot be had, and for resources of several systems on one container.
    """
    resources, container = rulebook.resources, demand.container
    stated = demand.stated.get("gpu-backend")
    names = [*demand.extended.amounts, *([demand.fraction] if demand.fraction else ())]
    groups = {name: resources[name].owners for name in names}
    owners = _owners(groups, demand, rulebook) if names else None

    # The back end that the container names.
    if stated is not None:
        name, order = stated.value, rulebook.orders["whole"]
        if name not in order:
            enabled = [backend.name for backend in rulebook.enabled]
            attempts = [attempt(demand, backend, rulebook) for backend in rulebook.enabled]
            able = [candidate.backend.name for candidate in attempts if isinstance(candidate, Assignment)]
            is_loaded = name in rulebook.backends
            near = "" if is_loaded else nearest_backend(name, rulebook)
            why = "is not enabled in this cluster" if is_loaded else f"is not known here{did_you_mean(near)}"
            message = f'the back end "{name[:63]}" {why}'
            fix = f"name {near}" if near in able else f"name one of: {', '.join(able or enabled)}"
            rule = rulebook.cluster.at.of(rulebook.cluster.name)
            raise Refusal(Violation(code="GPU302", path=stated.path, message=message, fix=fix, rule=rule))
        backend = order[name]
        if owners is not None and backend not in owners:
            # What it does not own may come from the mutator of another one that shares its resources.
            lacking = [name for name in demand.extended.amounts if name not in backend.owns]
            akin = all(backend.owns & owner.owns for name in lacking for owner in groups[name])
            if demand.request is None or not akin:
                resource = next(resources[name] for name in names if backend not in groups[name])
                whose = [owner.name for owner in resource.owners[:MENTIONED]] or ["no back end of this cluster"]
                path = extended_resources.where(container, resource.name)
                message = f"{stated}, and {resource.name} on the container belongs to {' or '.join(whose)}"
                fix = f"remove {resource.name}, or write gpu-backend: {whose[0]}"
                raise Refusal(Violation(code="GPU203", path=path, message=message, fix=fix))
        owners, tenant_default = [backend], None

    # The owners of the resources on the container, or else all, in the cluster's order.
    elif demand.request is not None:
        devices = demand.request.devices
        order = rulebook.orders[devices]
        if owners or rulebook.surroundings.present is not None:
            # Nodes decide only among back ends of equal rank: a pool that is scaled to zero must be able to grow.
            owners = _ordered(owners or order.values(), devices, rulebook)
        else:
            owners = [*order.values()]
    elif owners is not None and len(owners) > 1:
        # The order is that for the request which the resources mean to the first owner that can read them.
        for owner in owners:
            with contextlib.suppress(CannotExpressError):
                request, _ = read_back.understand(demand.extended.amounts, owner, demand.annotations)
                owners = _ordered(owners, request.devices, rulebook)
                break
    if tenant_default is not None:
        owners = sorted(owners or (), key=lambda backend: backend.name != tenant_default)
    for backend in owners or ():
        yield attempt(demand, backend, rulebook)


def _owners(
    groups: Mapping[str, Sequence[Backend]], demand: ContainerRequest, rulebook: Rulebook
) -> Sequence[Backend]:
    """The enabled back ends that own every resource on the container; `groups` are the owners of each."""
    resources, container, names = rulebook.resources, demand.container, [*groups]
    first, *others = groups.values()
    owners = [owner for owner in first if all(owner in group for group in others)]
    enabled = [name for name in names if groups[name]]
    if not owners and len(enabled) == len(names):
        systems = {owner.name: owner for group in groups.values() for owner in group}.values()
        foreign = [[name for name in names if owner not in groups[name]] for owner in systems]
        fixes = dict.fromkeys(f"remove {' and '.join(unwanted)}" for unwanted in foreign)
        owned = [f"{name} ({', '.join(owner.name for owner in groups[name][:3])})" for name in names]
        path = extended_resources.where(container, names[0])
        message = f"one container asks for resources of different systems: {' and '.join(owned)}"
        fix = f"{', or '.join(fixes)}, or use two containers"
        raise Refusal(Violation(code="GPU405", path=path, message=message, fix=fix))
    if len(enabled) < len(names) and (demand.request is not None or enabled):
        # A resource of a back end that is not enabled must not hide the request beside it.
        resource = next(resources[name] for name in names if not groups[name])
        disabled = ", ".join(owner.name for owner in resource.known[:MENTIONED])
        path = extended_resources.where(container, resource.name)
        message = (
            f"{resource.name} belongs to {disabled}, which this cluster does not enable, "
            f"and stands beside {', '.join(enabled) or 'the shorthand'}"
        )
        fix = f"remove {resource.name}, or use two containers"
        raise Refusal(Violation(code="GPU405", path=path, message=message, fix=fix, rule=resource.rule))
    return owners


def _ordered(owners: Iterable[Backend], devices: str, rulebook: Rulebook) -> Sequence[Backend]:
    """In the cluster's order; among back ends of equal rank, those with nodes come first."""
    ranks, present = rulebook.ranks[devices], rulebook.surroundings.present or frozenset()
    return sorted(owners, key=lambda owner: (ranks[owner.name], owner.name not in present))


def attempt(demand: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Candidate:
    """How one back end serves a container, or why it cannot."""
    sharing, present, kinds = demand.stated.get("gpu-sharing"), rulebook.surroundings.present, backend.sharing
    if "fractional" in kinds and demand.request is not None and demand.request.devices != "profile":
        kinds -= {"partitioned"}  # its partitions are had by their names alone
    if sharing is not None and sharing.value not in kinds:
        part = demand.request is not None and demand.request.devices == "part"
        fitting = " or ".join(kind for kind in sorted(kinds) if (kind == "exclusive") != part)
        ways = [Way("leave it out" if fitting else "leave gpu-sharing out", {"gpu-sharing": ""})]
        if fitting:
            ways.insert(0, Way(f"ask for gpu-sharing: {fitting}", {"gpu-sharing": fitting.partition(" ")[0]}))
        message = f"its sharing is {' or '.join(sorted(kinds))}, not {sharing.value}"
        return Failure(backend, CannotExpressError("GPU301", message, ways, "gpu-sharing"))
    if present is not None and backend.nodes.required and backend.name not in present:
        message, fix = "no node of this cluster has it", "ask for what another back end serves"
        return Failure(backend, CannotExpressError("GPU301", message, fix))
    try:
        if demand.request is None:
            return _as_it_stands(demand, backend, rulebook)
        return _translated(demand, demand.request, backend, rulebook)
    except CannotExpressError as reason:
        return Failure(backend, reason)


def _translated(demand: ContainerRequest, request: GpuRequest, backend: Backend, rulebook: Rulebook) -> Assignment:
    """A container with shorthand. The resources on it have to be what the shorthand becomes.

    More is accepted only if the shorthand leaves it open: a back end's own mutator may have added it.
    """
    translation = translate.translate(request, backend, rulebook)
    assignment = Assignment(
        demand=demand,
        backend=backend,
        request=translation.request,
        mode=translation.mode,
        card=translation.card,
        amounts=translation.amounts,
        warnings=translation.warnings,
    )
    amounts, zeros = demand.extended.amounts, demand.extended.zeros
    if not amounts and zeros.isdisjoint(assignment.amounts):
        return assignment
    outputs = assignment.mode.amounts
    own = {name: number for name, number in amounts.items() if name in backend.owns}
    if all(own.get(name, outputs[name].absent) == number for name, number in assignment.amounts.items()):
        if own.keys() <= assignment.amounts.keys():
            return assignment
        given, _ = read_back.understand(own, backend, demand.annotations)
        if read_back.gives(given, assignment.request, assignment.card):
            return assignment
    stated = [str(field) for key, field in sorted(demand.stated.items()) if key != "gpu-container"]
    becomes = ", ".join(f"{name}: {as_text(outputs[name], number)}" for name, number in assignment.amounts.items())
    names = [*amounts, *sorted(zeros)]
    texts = {extended_resources.where(demand.container, name): demand.extended.texts[name] for name in names}
    there = " and ".join(f"{path} says {text}" for path, text in texts.items())
    message = (
        "the shorthand and the container's resources disagree: "
        f"{' and '.join(stated)}, which is {becomes} on {backend.name}, and {there}"
    )
    raise CannotExpressError("GPU203", message, f"remove {' and '.join(texts)}; the shorthand writes what it needs")


def _as_it_stands(demand: ContainerRequest, backend: Backend, rulebook: Rulebook) -> Assignment:
    """A container with the back end's own resources: they are read, kept, and completed."""
    amounts = demand.extended.amounts
    models, placement = demand.models, demand.stated.get("gpu-placement")
    card = translate.find_card(models, rulebook, backend)
    could_be = models or ((card.model,) if card else ())
    there = cards.for_nodes(backend, demand.nodes, rulebook)
    request, mode = read_back.understand_or_advise(amounts, there, demand.annotations, could_be)
    own = [key for key, line in mode.pool.items() if "profile" in line.words and key in backend.nodes.labels]
    if own and not request.profile:
        message = f"it gives partitions, and the pod does not select nodes with one of its own by {own[0]}"
        raise CannotExpressError("GPU301", message, f"ask for gpu-profile: {min(backend.profiles)} instead")
    request = replace(request, models=models, placement=placement and placement.value)
    translate.check_cards(request, backend, rulebook)
    translate.check_mode(request, mode, card, backend, rulebook)
    if card is not None and mode.when.devices == "profile" and request.devices == "part":
        request = translate.smallest_partition(request, card, backend)

    # A number of devices that is left out is added; 0 beside what asks for a part of each is a mistake.
    counts = [name for name, output in mode.amounts.items() if isinstance(output.absent, int)]
    for name in sorted(demand.extended.zeros.intersection(counts)):
        fix = f"write 1, or remove {' and '.join(amounts)}"
        raise CannotExpressError("GPU405", f"{name} is 0, which is no device", fix, name)
    completed = {**amounts, **{name: request.count for name in counts if name not in amounts}}
    return Assignment(demand=demand, backend=backend, request=request, mode=mode, card=card, amounts=completed)


# Why no back end can serve.

NOTHING_SHARED: Final = "this cluster shares no GPUs"
MENTIONED: Final = 4
"""How many further reasons, and back ends of each, a message names; `explain` lists them all."""


def _unserved(
    demand: ContainerRequest, failures: Sequence[Failure], rulebook: Rulebook, preference: Preference
) -> Violation:
    """The reason of the preferred back end, and in notes those of the others.

    Where the cluster has none for any such request, the message says that first.
    """
    if not failures:
        return Violation(
            code="GPU301",
            path=demand.request.path() if demand.request is not None else "",
            message="this cluster has no GPUs: it has no back end that is enabled",
            fix="an administrator enables what the cluster has (gpu-webhook survey)",
            rule=rulebook.cluster.at.of(rulebook.cluster.name),
        )
    # A message begins with a disagreement, and ends with "not my vendor"; the others stand by preference.
    rank = {"GPU203": 0, "GPU303": 2}
    (first, reason), *others = sorted(failures, key=lambda failure: rank.get(failure.reason.code, 1))
    if reason.code == "GPU203":
        others = []
    if demand.request is not None:
        subject = str(demand.request)
    else:
        subject = " and ".join(f"{name}: {demand.extended.texts[name]}" for name in demand.extended.amounts)
    same = bool(others) and all(other.reason.message == reason.message for other in others)
    if reason.code == "GPU203" or (same and reason.key == "gpu-tflops"):
        message = reason.message
    elif same:
        message = f"no enabled back end can serve {subject}: {reason.message}"
    elif others:
        message = f"no enabled back end can serve {subject}; {first.name}: {reason.message}"
    else:
        message = f"{first.name} cannot serve {subject}: {reason.message}"

    # A fraction of a count, `nvidia.com/gpu: 0.5`, is a mistake in the resource if nobody shares that.
    code, fix = reason.code, _fix(demand, first, reason, rulebook, preference)
    if demand.fraction is not None and code == "GPU301":
        code, fix = "GPU402", f"write {demand.fraction}: 1, which is a whole device"
    companions = [mode.companions for mode in first.modes if mode.companions and demand.request]
    if needs := {f"{key}: {value}": "" for each in companions for key, value in each.requires.items()}:
        fix = f"{fix}; the pod needs {' and '.join(needs)}, too"
    # An administrator can help with a part of some card that there is.
    request, largest = demand.request, max((card.memory for card in rulebook.devices.values()), default=0)
    part = request and request.devices in {"part", "profile"} and (request.memory or 0) <= largest
    wholes = any(mode.when.devices in {"whole", None} for backend in rulebook.enabled for mode in backend.modes)
    told = rulebook.trial or preference.beside is not None
    if request and request.devices == "whole" and not wholes and not told:
        fix = f"{fix}; or an administrator enables a back end that gives whole GPUs (gpu-webhook survey)"
        message = f"this cluster gives no whole GPUs; {message}"
    counted = demand.fraction and not any(owner.shares for owner in rulebook.resources[demand.fraction].known)
    if part and not counted and not told and not any(backend.shares for backend in rulebook.enabled):
        fix = f"{fix}; or an administrator enables a back end that shares GPUs (gpu-webhook survey)"
        message = f"{NOTHING_SHARED}; {message}"

    # The reasons of the others, each once.
    names: dict[str, list[str]] = {}
    for other in others:
        names.setdefault(other.reason.message, []).append(other.backend.name)
    names.pop(reason.message, None)
    notes = [f"{listed(backends, MENTIONED)}: {why}" for why, backends in [*names.items()][:MENTIONED]]
    if len(names) > MENTIONED:
        notes.append(f"{len(names) - MENTIONED} more reasons of other back ends; gpu-webhook explain lists them all")

    # The key or resource at fault.
    if reason.key in demand.stated:
        path = demand.stated[reason.key].path
    elif demand.request is not None:
        path = demand.request.path()
    else:
        amounts = demand.extended.amounts
        key = max(amounts, key=lambda name: amounts[name]) if reason.key == "gpu-memory" else reason.key
        path = extended_resources.where(demand.container, key or next(iter(amounts)))
    container = demand.container.name
    return Violation(
        code=code,
        path=path,
        message=message.replace(CONTAINER, container),
        fix=fix.replace(CONTAINER, container),
        rule=first.rule,
        notes=tuple(note.replace(CONTAINER, container) for note in notes),
    )


LISTED: Final = 6
"""How many models a fix names."""


def reworded(demand: ContainerRequest, words: Mapping[str, str]) -> ContainerRequest | None:
    """The demand with other words, of which empty ones leave a key out; None if it asks for no GPU then."""
    stated = {key: value for key, value in demand.stated.items() if key not in words}
    try:
        stated |= {key: FieldValue(KEYS[key](text), "", text) for key, text in words.items() if text}
    except QuantityError:
        return None
    request = build(stated, demand.annotations)
    return None if request is None else replace(demand, stated=stated, request=request)


def _fix(
    demand: ContainerRequest,
    backend: Backend,
    reason: CannotExpressError,
    rulebook: Rulebook,
    preference: Preference,
) -> str:
    """The ways of a reason that lead to what its back end serves; if none does, the nearest request that it serves.

    A container with resources of its own is advised where these are read.
    """
    request, trials = demand.request, preference.trials
    if request is None or not reason.ways or trials is None or trials.left <= 0:
        return reason.fix
    models, least = cards.models_here(rulebook, backend), request.memory or 0
    models = sorted(models, key=lambda model: rulebook.devices[model.lower()].memory < least)
    models = [model for model in request.models if model in models] or models[:TRIED]

    def served(words: Mapping[str, str]) -> str:
        """The first model with which the request is served that has these words; empty if it is not."""
        for model in models if ANY_MODEL in words.values() else [""]:
            trials.left -= 1
            if trials.left < 0:
                break
            other = reworded(demand, {**words, "gpu-model": model} if model else words)
            candidate = attempt(other, backend, rulebook) if other is not None else None
            if isinstance(candidate, Assignment) and preference.allows(candidate):
                return model or ANY_MODEL
        return ""

    def beside(words: Mapping[str, str], text: str) -> str:
        """The text, after what its author does anyhow, if no key among these words does that."""
        paths = {demand.stated[key].path for key in words if key in demand.stated}
        anyhow = preference.beside
        return text if anyhow is None or not paths.isdisjoint(anyhow.readings) else f"{anyhow.text}, and {text}"

    texts: list[str] = []
    helps = False
    for way in reason.ways:
        if not way.words:
            texts += [way.text] if preference.beside is None else []
        elif ANY_MODEL in way.words.values():
            able = [model for model in models if served({**way.words, "gpu-model": model})]
            key, verb = key_of("gpu-model", request), "ask for" if request.models else "add"
            texts += [beside(way.words, f"{verb} {key}: {either(able[:LISTED])}")] if able else []
            helps = helps or bool(able)
        elif served(way.words):
            texts.append(beside(way.words, way.text))
            helps = True
    if helps:
        return joined(texts)

    # Each amount is tried as it is, without a way of sharing, and with no model or another.
    card = translate.find_card(request.models, rulebook, backend)
    amounts = _nearest_amounts(request, card, backend, rulebook)
    gone = nothing_of(request)
    selections = [{}, *([{"gpu-model": ""}] if request.models else [])]
    selections += [{"gpu-model": ANY_MODEL}] if request.models or not card else []
    sharings = [{}, {"gpu-sharing": ""}] if request.sharing else [{}]
    for (pods, amount), sharing, selection in product(amounts, sharings, selections):
        changed = {**amount, **sharing, **selection}
        if model := served(changed):
            words = {key: text for key, text in amount.items() if text}
            words |= {"gpu-model": model} if model != ANY_MODEL else {}
            lines = " and ".join(pasteable(key_of(key, request), text) for key, text in words.items())
            wish = ask_for(words, request) if amount.keys() >= gone.keys() else f"ask for {lines}"
            wish = f"use {pods} pods, each with {wish.removeprefix('ask for ')}" if pods > 1 else wish
            fixes = [wish] if words else []
            left = [key_of(key, request) for key, text in {**sharing, **selection}.items() if not text]
            return beside(changed, ", and ".join([f"leave {' and '.join(left)} out", *fixes] if left else fixes))
    if trials.left < 0:
        return reason.fix
    return joined(way.text for way in reason.ways if not way.words) or "ask for what it serves"


def _nearest_amounts(
    request: GpuRequest, card: Card | None, backend: Backend, rulebook: Rulebook
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Amounts in words of the shorthand, the nearest to the request first, each with the number of pods that ask so.

    Fewer devices in more pods; else as much in other words; else an example. An empty text leaves a key out.
    """
    yield 1, {}
    for most in dict.fromkeys([*(mode.when.count[1] or 0 for mode in backend.modes), 1]):
        if 0 < most < request.count:
            pods = request.count // most if request.count % most == 0 else 1
            yield pods, {"gpu": str(Devices(most, request.share))}
    gone = nothing_of(request)
    cuts = [card.profiles[name] for name in backend.profiles & card.profiles.keys()] if card else []
    if cuts and request.devices == "whole":
        largest = max(cuts, key=lambda cut: (cut.memory_slices, cut.compute_slices, cut.name))
        yield request.count, {**gone, "gpu-profile": largest.name.replace("+", ".")}
    size = card.memory if card and request.devices == "whole" else request.memory
    for other in (card,) if card else cards.card_served(backend, rulebook):
        if cut := other.profiles.get(request.profile or ""):
            size = max(size or 0, cut.memory)
    if size:
        memory = {**gone, "gpu-memory": show_size(size)}
        several = {"gpu": str(request.count)} if request.count > 1 else {}
        for pods, words in ((1, memory | several), (request.count, memory)):
            yield pods, words
            yield pods, {**words, "gpu-cores": "100"}
    examples = [{"gpu": "0.5"}, {"gpu": "0.1"}, {"gpu-memory": "8Gi"}, {"gpu-memory": "8Gi", "gpu-cores": "10"}]
    for words in ({"gpu": str(request.count)}, WHOLE, *examples):
        yield 1, {**gone, **words}


# The text that rules write into annotations, labels, env and node affinity.


def texts(output: Output, assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """The values of an output, in order; empty if it is to be left out."""
    request = assignment.request
    if not isinstance(output, Constant):
        if output.is_number:
            number, _ = translate.express(output, request, assignment.card)
            return [] if number is None else [translate.as_text(output, number)]
        values = _words(output.what, output.form, assignment, rulebook)
        return [text for value in values for text in output.values.get(value, (value,))]
    filled: list[str] = []
    for template in output.texts:
        # A hole is filled with each product or model in turn; without any value the text is left out.
        variants = [template]
        open_holes = holes(template)
        for hole in dict.fromkeys(open_holes):
            words = _words(hole, "label", assignment, rulebook)
            if hole == "product" and "profile" in open_holes and not request.models:
                able = cards.card_served(assignment.backend, rulebook)
                names = [name for card in able if request.profile in card.profiles for name in card.names]
                words = [cards.as_label(name) for name in names]
            variants = [text.replace(f"{{{hole}}}", word) for text in variants for word in words]
        filled += [text for text in variants if text]
    return filled


def rule_text(output: Output, assignment: Assignment, rulebook: Rulebook) -> str | None:
    """The values of an output joined by commas; None if it is to be left out."""
    if output.what in {"product", "lookalikes", "model"} and not assignment.request.models:
        return None  # as these words have no value
    return ",".join(texts(output, assignment, rulebook)) or None


def _words(what: str, form: str, assignment: Assignment, rulebook: Rulebook) -> Sequence[str]:
    """What a word of a rule stands for in this request; empty if it has no value."""
    request = assignment.request
    match what:
        case "container":
            return (assignment.demand.container.name,)
        case "memory":
            return () if request.memory is None else (show_size(request.memory),)
        case "model":
            return request.models
        case "product":
            names = [name for model in request.models for name in rulebook.devices[model.lower()].names]
        case "lookalikes":
            names = [name for _, name in _lookalikes("product", request.models, rulebook)] if request.models else []
        case "profile" | "placement" | "claim":
            value = getattr(request, what)
            return () if value is None else (value,)
        case _:
            return ()
    return [cards.as_label(name) for name in names] if form == "label" else names


def lookalike_cards(models: Sequence[str], modes: Iterable[Mode], rulebook: Rulebook) -> Sequence[Card]:
    """The cards that a system with one of these modes may give, beside the models that it is asked for."""
    loosely = {mode.loosely for mode in modes if mode.loosely} if models else ()
    alike = (card for what in loosely for card, _ in _lookalikes(what, models, rulebook))
    return list({card.model: card for card in alike}.values())


def _lookalikes(what: str, models: Sequence[str], rulebook: Rulebook) -> list[tuple[Card, str]]:
    """Other cards and their products whose names contain a requested one, as `NVIDIA A100` contains `NVIDIA A10`.

    `what` is `product` or `model`: the names by which they are requested. The products of all cards are listed once
    for each rulebook, and those that are like a card once for each card.
    """
    products: list[tuple[Card, str]] | None = rulebook.cache.get(_lookalikes)
    if products is None:
        by_model = {card.model: card for card in rulebook.devices.values()}
        products = rulebook.cache[_lookalikes] = [(card, name) for card in by_model.values() for name in card.names]
    requested = {card.model: card for card in (rulebook.devices[model.lower()] for model in models)}
    vendors = {card.vendor for card in requested.values()}
    places: set[int] = set()
    for card in requested.values():
        alike: list[int] | None = rulebook.cache.get((_lookalikes, what, card.model))
        if alike is None:
            parts = [name.lower() for name in (card.names if what == "product" else [card.model])]
            names = [name.lower() for _, name in products]
            alike = [place for place, name in enumerate(names) if any(part in name for part in parts)]
            rulebook.cache[_lookalikes, what, card.model] = alike
        places.update(alike)
    others = (products[place] for place in sorted(places))
    return [(card, name) for card, name in others if card.vendor in vendors and card.model not in requested]


# On the nodes of which back ends a pod may run, by its own node selection.


class NodeSelection:
    """The nodes that one pod may run on. Answers are cached: it may have many containers and many terms.

    `selects` says whether the pod selects its nodes at all.
    """

    def __init__(self, pod: Pod, rulebook: Rulebook) -> None:
        self.pod, self.rulebook = pod, rulebook
        self.selects = selects_nodes(pod)
        self._allowed: dict[object, tuple[bool, Mode]] = {}

    @cached_property
    def _bounds(self) -> Bounds:
        return node_bounds(self.pod)

    def allows(self, assignment: Assignment) -> bool:
        """Whether the pod's own node selection leaves any node of a back end, whatever card is asked for."""
        mode, request = assignment.mode, assignment.request
        if not mode.outputs.node_affinity or not self.selects:
            return True
        key = (assignment.backend.name, id(mode), request.models, request.profile)
        if key not in self._allowed:
            # With the mode, which may be one of this pod alone: another must not get its id.
            self._allowed[key] = not self.excludes(assignment, mode.outputs.node_affinity), mode
        return self._allowed[key][0]

    def excludes(self, assignment: Assignment, keys: Iterable[str]) -> bool:
        """Whether the pod excludes the nodes that the constants among these lines of a rule ask for."""
        lines = assignment.mode.outputs.node_affinity
        wanted = requirements(assignment, {key: lines[key] for key in keys if not lines[key].what}, self.rulebook)
        return any(isinstance(edit, Violation) for edit in require_nodes(self.pod, wanted))

    def binds_to(self, assignment: Assignment) -> bool:
        """Whether every node that the pod may run on is of the back end; False where no label tells its nodes."""
        return self.selects and self._within(self.pool(assignment))

    def binds_to_card(self, assignment: Assignment) -> bool:
        """Whether every node that the pod may run on has a card that is asked for; False if no label tells cards."""
        mode = assignment.mode
        lines = {key: line for key, line in mode.outputs.node_affinity.items() if key not in mode.pool}
        return self.selects and self._within(list(requirements(assignment, lines, self.rulebook)))

    def pool(self, assignment: Assignment) -> Sequence[Requirement]:
        """What tells the back end's nodes from those of others; empty if no label does."""
        return list(requirements(assignment, assignment.mode.pool, self.rulebook))

    def models(self, assignment: Assignment) -> Sequence[str]:
        """The models that a container may get, by the nodes there are and those that it selects; none if unknown.

        A resource of several back ends is of any of them where the pod excludes the nodes of the one that serves it.
        """
        owners, around = [assignment.backend], self.rulebook.surroundings
        if assignment.demand.request is None and not self.allows(assignment):
            resources = map(self.rulebook.resources.__getitem__, assignment.demand.extended.amounts)
            owners = [owner for resource in resources for owner in resource.owners]
        models = [{card.model for card in around.cards.get(owner.name, ())} for owner in owners]
        unknown = [
            owner for owner in owners if owner.name in (around.present or ()) and owner.name not in around.cards
        ]
        # A pool that the pod selects may have no node now.
        for _, selected in self._selected():
            meant = {card.model for card in selected for owner in owners if owner.serves(card)}
            models.append(meant)
            unknown += [] if meant else owners
        return [] if unknown else sorted(set().union(*models))

    def excludes_models(self, assignment: Assignment) -> str:
        """The label by which the pod selects nodes without the models asked for, if no rule writes it; or none."""
        models, ruled = assignment.demand.models, assignment.mode.outputs.node_affinity
        there: dict[str, set[str]] = {}
        for key, selected in self._selected() if models else ():
            there.setdefault(key, set()).update(card.model for card in selected)
        excluding = (key for key, named in there.items() if named and key not in ruled and named.isdisjoint(models))
        return next(excluding, "")

    def _selected(self) -> Iterator[tuple[str, Sequence[Card]]]:
        """Labels of products by which the pod selects its nodes, each with the cards that one of its values means."""
        products = cards.labels(self.rulebook).products if self.selects else {}
        for key in sorted(products.keys() & self._bounds.keys()) if products else ():
            yield from ((key, cards.of_label(products[key], value)) for value in self._bounds[key])

    def bind(self, demand: ContainerRequest) -> ContainerRequest:
        """The demand of a container with the bounds of the pod's node selection, if it has resources alone."""
        return replace(demand, nodes=self._bounds) if self.selects and demand.request is None else demand

    def _within(self, wanted: Sequence[Requirement]) -> bool:
        return bool(wanted) and all(requirement.holds_within(self._bounds) for requirement in wanted)


def requirements(assignment: Assignment, lines: Mapping[str, Output], rulebook: Rulebook) -> Iterator[Requirement]:
    """What these lines of a rule require of the nodes; a line without a value requires nothing."""
    for key, output in lines.items():
        values = texts(output, assignment, rulebook)
        if values or (isinstance(output, Constant) and output.value == ()):
            yield Requirement(key, tuple(map(cards.as_label, values)), output.rule, assignment.demand.container.name)
