"""Match conditions: what the API server decides alone, so that a pod without a device never needs us.

Each is a superset of what a review may change or refuse, so that new rules need no new configuration. It asks for
words that all rules have in common. Only keys that lack them are taken from the loaded rules: annotations and labels
that ask by themselves or name a claim, and what a Binding may carry.

The cost has to stay within the API server's budget, and every step costs time: 30 us for each key and `contains`
[measured]. Who writes a pod chooses how many keys it has. So nothing is looked at of a pod with more of something
than a review takes of one that asks for a GPU (`projection.budget`): it comes to us, who can tell in a millisecond.
Keys are joined, and the text is searched once. There is no regular expression and no chain over names.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Final

from webhook.core import projection, review
from webhook.core.kube.pod import CORE, SECTIONS
from webhook.core.policy import updates
from webhook.core.rules.protection import ANY, ProtectedNames, parents, protected_names
from webhook.core.rules.rulebook import Rulebook, with_every_backend
from webhook.core.rules.verbs import CONTAINER
from webhook.core.rules.workload import BUILT_IN

# Text of CEL: strings, lists, and alternatives.

WIDTH: Final = 100


def literal(value: str) -> str:
    """A string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def list_literal(values: Iterable[str]) -> str:
    """A list of strings, over as many lines as it needs."""
    words = ", ".join(map(literal, values))
    if len(words) <= WIDTH:
        return f"[{words}]"
    return f"[\n{indented(textwrap.fill(words, WIDTH, break_on_hyphens=False, break_long_words=False))}]"


def any_of(conditions: Iterable[str]) -> str:
    """Whether one of the conditions holds."""
    return " ||\n".join(conditions) or "false"


def indented(expression: str, width: int = 2) -> str:
    """The expression, so many columns further in."""
    return textwrap.indent(expression, " " * width)


def like(globs: Iterable[str], value: str) -> str:
    """Whether a value is what one of the globs says, with `*` and `?`; whatever stands from a bracket on fits."""
    every = sorted(globs)
    exact = [glob for glob in every if not set(glob) & set("*?[")]
    matching = (f"{value}.matches({literal(_regex(glob))})" for glob in every if glob not in exact)
    return any_of([*([f"{value} in {list_literal(exact)}"] if exact else []), *matching])


def _regex(glob: str) -> str:
    before, bracket, _ = glob.partition("[")
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in before)
    return f"^{''.join(parts)}{'.*' if bracket else ''}$"


# Match conditions: what the API server decides alone, so that a pod without a device never needs us.

WORD: Final = "gpu"
"""A label or annotation key with this in it comes to us, wherever in the key it is, in any capitals."""

LOWERED: Final = ".lowerAscii()"

CONTAINERS: Final = 30
"""The most containers of one kind that are looked at here."""

MANY: Final = 100
"""The most labels or annotations, volumes, and variables or mounts of a container, that are looked at here."""

_HOLDERS: Final = f"[{', '.join(f'pod.spec.?{section}.orValue([])' for section in SECTIONS)}]"
"""The containers of every kind."""

AMOUNTS: Final = 100
"""The most limits, or requests, of one container; ordinary ones have three, and one for each size of huge pages."""

WORKLOADS: Final = tuple(kind for (group, kind), made in BUILT_IN.items() if group and made.pods)

Condition = dict[str, str]


def _condition(name: str, expression: str) -> Condition:
    return {"name": name, "expression": expression}


CHANGED: Final = """\
(request.operation != 'UPDATE' || object.spec != oldObject.spec ||
  object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) ||
  object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({}))"""
"""An update that changes none of these concerns nobody here, such as the status that kubelets write all day. It is
asked first: of two large pods the rest would be dear."""

PODS: Final = "(request.operation == 'UPDATE' ? [object, oldObject] : [object])"
"""The old pod, too, so that taking a label away is seen."""

BY_A_PERSON: Final = f"""\
!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) &&
  owner.kind in {[*WORKLOADS]})"""
"""Not what the controllers of Deployments and CronJobs make, which their author has read about already."""

OF_A_CRONJOB: Final = "request.resource.resource == 'cronjobs'"
NEW_TEMPLATE: Final = f"""\
request.operation == 'CREATE' || ({OF_A_CRONJOB} ?
  object.spec.jobTemplate.spec.template != oldObject.spec.jobTemplate.spec.template :
  object.spec.template != oldObject.spec.template)"""
"""Scaling, a controller's status or a new annotation changes no pod."""


_TEMPLATES: Final = f"[{OF_A_CRONJOB} ? object.spec.jobTemplate.spec.template : object.spec.template]"
UNFIT: Final = f"""\
{_TEMPLATES}.exists(pod,
  [pod.spec.?containers.orValue([]) + pod.spec.?initContainers.orValue([])].exists(holders,
    holders.size() <= {CONTAINERS} && holders.exists(holder,
      [holder.?resources.?limits.orValue({{}}), holder.?resources.?requests.orValue({{}})].exists(amounts,
        amounts.size() <= {AMOUNTS} &&
        amounts.exists(name, name.contains('/') ? amounts[name].endsWith('m') : name.startsWith('{WORD}'))))))"""
"""A resource `gpu` or a fraction of a device. The API server serves `0.3` as `300m`."""

_NEW_TEMPLATES: Final = (
    _condition("made-by-a-person", BY_A_PERSON),
    _condition("changes-the-template", NEW_TEMPLATE),
)

NEW_SPEC: Final = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
"""A status, which operators write often, changes no pod."""


NEW_POD: Final = "request.operation == 'CREATE' || object.spec != oldObject.spec || !has(object.metadata.uid)"
"""Schedulers annotate pods all day. A pod without a UID was sent as a whole, as by `kubectl replace`."""


def of_pods(rulebook: Rulebook) -> list[Condition]:
    """For pods."""
    return [_condition("asks-for-a-device", f"{CHANGED} &&\n{PODS}.exists(pod,\n{indented(_asks(rulebook))})")]


def of_reaching_pods(rulebook: Rulebook) -> list[Condition]:
    """For pods that may have their node and that the condition above leaves out."""
    reaches = f"{CHANGED} &&\n{PODS}.exists(pod,\n{indented(_reaches(rulebook))})"
    return [_condition("may-have-the-node", reaches), of_ordinary_pods(rulebook)]


def of_ordinary_pods(rulebook: Rulebook, unless: str = "") -> Condition:
    """For pods that have nothing that a rule may take for a request."""
    return _condition("asks-for-no-device", f"{unless}!{PODS}.exists(pod,\n{indented(_asks(rulebook))})")


def of_restated_pods() -> list[Condition]:
    """For pods, too, and /mutate alone: of updates those that may state again what was translated."""
    return [_condition("changes-the-spec", NEW_POD)]


def of_bindings(rulebook: Rulebook) -> list[Condition]:
    """For Bindings, whose labels and annotations the API server merges into the pod."""
    every = with_every_backend(rulebook)
    globs = {glob for glob in updates.reserved(every) | _protected(rulebook) if WORD not in glob}
    words = sorted({_common(glob) for glob in globs if "*" in glob})
    keys = _counting(every) | {glob for glob in globs if "*" not in glob}
    named = list_literal(sorted(key for key in keys if not any(word in key for word in (WORD, *words))))
    most = max(limit.most for limit in projection.OF_METADATA.values())
    found = f"{_joined([WORD, *words], most)} ||\nentries.exists(key, key in {named})"
    return [_condition("carries-what-a-pod-counts-by", f"{_metadata('object.?metadata')}\n{indented(found)})")]


def _common(glob: str) -> str:
    """What all keys of a glob have in common, and other keys of its domain: few words are to be searched."""
    domain, slash, _ = glob.partition("/")
    return domain + slash if slash else glob.partition("*")[0]


def of_workloads(rulebook: Rulebook) -> list[Condition]:
    """For workloads: their template, and what they themselves are labelled or annotated, if that was meant for it."""
    own = f"{_metadata('object.metadata')}\n  {_joined([WORD])}) ||"
    asks = f"{own}\n{_TEMPLATES}.exists(pod,\n{indented(_asks(rulebook))})"
    return [*_NEW_TEMPLATES, _condition("asks-for-a-device", asks)]


def of_unfit_workloads() -> list[Condition]:
    """For workloads that the API server will refuse, as a bare pod may have what their template has."""
    return [*_NEW_TEMPLATES, _condition("has-what-no-template-may-have", UNFIT)]


def of_custom_workloads() -> list[Condition]:
    """For workloads whose templates stand anywhere: any change of the spec. There are few of them."""
    return [_condition("made-by-a-person", BY_A_PERSON), _condition("changes-the-spec", NEW_SPEC)]


def of_policies() -> list[Condition]:
    """For our own objects: any change of what they say. What the settler writes into their status is none."""
    return [_condition("changes-the-spec", f"request.operation == 'DELETE' || {NEW_SPEC}")]


def _asks(rulebook: Rulebook) -> str:
    """Whether `pod` has anything that a rule may take for a request."""
    prefixes = {prefix for source in rulebook.sources for prefix in source.prefixes}
    heard = set(rulebook.all_slots["annotation"]) if any(rulebook.slots.values()) else set()
    alone = {key for numbers in rulebook.all_slots.values() for key, number in numbers.items() if number.alone}
    rest = {word.partition(CONTAINER)[0] for word in prefixes | heard | alone if WORD not in word}
    protected = {key.removesuffix(ANY) for key in _protected(rulebook)}
    words = [WORD, *sorted(word for word in rest | protected if WORD not in word)]
    return f"""\
has(pod.spec.resourceClaims) ||
[[pod.spec] + pod.spec.?containers.orValue([]) + pod.spec.?initContainers.orValue([])].exists(holders,
  holders.size() > {CONTAINERS} || holders.exists(holder,
    [holder.?resources.?limits.orValue({{}}), holder.?resources.?requests.orValue({{}})].exists(amounts,
      amounts.size() > {AMOUNTS} ||
      amounts.exists(name, !(name in {[*CORE]}) && !name.startsWith('hugepages-'))))) ||
{_metadata("pod.?metadata")}
  {_joined(words)}) ||
{_access(rulebook)}"""


def _protected(rulebook: Rulebook) -> set[str]:
    """The labels and annotations, as globs, that give a pod devices."""
    known = protected_names(rulebook.protections)
    return {key for section in ("labels", "annotations") for key in known[section].every}


def _access(rulebook: Rulebook) -> str:
    """Whether `pod` may name a device by another way than a request: a runtime class, a variable, a mount."""
    known = protected_names(rulebook.protections)
    mounts = " || ".join(
        f"paths.contains('{path.removesuffix(ANY).rpartition('/')[2]}')" for path in known["mount_paths"].every
    )
    variable = indented(_one_of("name", known["env"]), 6)
    values = (f"{one.name}={value}" for one in known["env"].exact.values() for value in one.harmless)
    harmless = indented(list_literal(pair for pair in values if pair[-1] not in {"=", ANY}), 6)
    return f"""\
{_one_of("pod.spec.?runtimeClassName.orValue('')", known["runtime_classes"])} ||
{_HOLDERS}.exists(holders, holders.exists(holder,
  [holder.?env.orValue([])].exists(variables, variables.size() > {MANY} ||
    variables.exists(variable, [variable.name].exists(name,
{variable}) &&
      !(variable.name + '=' + variable.?value.orValue('') in
{harmless}))) ||
  [holder.?volumeMounts.orValue([])].exists(mounts, mounts.size() > {MANY} ||
    [mounts.map(mount, mount.mountPath).join(' ')].exists(paths, {mounts or "false"}))))"""


def _reaches(rulebook: Rulebook) -> str:
    """Whether `pod` may have its node: by a path, a privilege, a capability.

    Runtimes read a capability in capitals, and some letters beyond ASCII have those of ASCII.
    """
    known = protected_names(rulebook.protections)
    paths = [one.removesuffix(ANY) for one in known["host_paths"].every]
    roots = [path for path in paths if not any(path.startswith(other) for other in paths if other != path)]
    also = [f"/var{path}" for path in roots if path.startswith("/run")]
    holders = {parent.rstrip("/") for path in paths for parent in parents(path)} | {"/var/run"}
    exact = list_literal(sorted({f"{parent}{end}" for parent in holders for end in ("", "/")} - {""}))
    begins = " ||\n    ".join(f"path.startsWith('{root}')" for root in sorted({*roots, *also}))
    capabilities = list_literal(f"{cap}{name}" for name in known["capabilities"].every for cap in ("", "CAP_"))
    return f"""\
pod.spec.?volumes.orValue([]).size() > {MANY} ||
pod.spec.?volumes.orValue([]).exists(volume, has(volume.hostPath) && [volume.hostPath.path].exists(path,
    !path.startsWith('/') || path.contains('//') || path.contains('/.') || path in {exact} ||
    {begins})) ||
pod.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false) ||
{_HOLDERS}.exists(holders, holders.exists(holder, [holder.?securityContext].exists(context,
  context.?privileged.orValue(false) || context.?windowsOptions.?hostProcess.orValue(false) ||
  context.?capabilities.?add.orValue([]).exists(name,
    bytes(name).size() > name.size() || name.upperAscii() in {capabilities}))))"""


def _one_of(text: str, protected: ProtectedNames) -> str:
    """Whether a text of CEL is one of the names, or begins as one of them."""
    begins = "".join(f" ||\n{text}.startsWith('{head}')" for head in protected.beginnings)
    return f"{text} in {list_literal(protected.exact)}{begins}"


def _metadata(holder: str) -> str:
    return f"[{holder}.?labels.orValue({{}}), {holder}.?annotations.orValue({{}})].exists(entries,"


def _joined(words: Iterable[str], most: int = MANY) -> str:
    searched = " ||\n  ".join(f"keys{LOWERED if word == WORD else ''}.contains('{word}')" for word in words)
    return f"entries.size() > {most} || [entries.map(key, key).join(' ')].exists(keys, {searched})"


def _counting(every: Rulebook) -> set[str]:
    """The label and annotation keys that a pod with a GPU may count by, with every back end enabled."""
    read = projection.allow_list(every)
    carried = [("labels", key) for key in read.labels] + [("annotations", key) for key in read.annotations]
    return {
        key
        for section, key in carried
        for binding in [review.creating({"metadata": {section: {key: "1"}}}, uid="")]
        if updates.unnamed(binding, binding, every)
    }
