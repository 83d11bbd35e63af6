"""Match conditions: what the API server decides alone, so that a pod without a device never needs us.

Each is a superset of what a review may change or refuse, so that new rules need no new configuration. It asks for
words that all rules have in common. Only keys that lack them are taken from the loaded rules: annotations and labels
that ask by themselves or name a claim, and what a Binding may carry.

The cost has to stay within the API server's budget, and every step costs time: 30 us for each key and `contains`
[measured]. Who writes a pod chooses how many keys it has. So nothing is looked at of a pod with more of something
than a review takes of one that asks for a GPU (`projection.py`): it comes to us, who can tell in a millisecond.
Keys are joined, and the text is searched once. There is no regular expression and no chain over names.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Final

from webhook.core import projection, review
from webhook.core.kube.pod import CORE, SECTIONS
from webhook.core.policy import updates
from webhook.core.rules.cluster import ANY, ProtectedNames, parents, protected_names
from webhook.core.rules.objects import BUILT_IN
from webhook.core.rules.rulebook import Rulebook, with_every_backend
from webhook.core.rules.verbs import CONTAINER

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


def indented(expression: str, width: int = 2) -> str:
    """The expression, so many columns further in."""
    return textwrap.indent(expression, " " * width)


def any_of(conditions: Iterable[str]) -> str:
    """Whether one of the conditions holds."""
    return " ||\n".join(conditions) or "false"


def begins(value: str, heads: Iterable[str]) -> list[str]:
    """For each of the heads, whether a value begins so."""
    return [f"{value}.startsWith({literal(head)})" for head in heads]


def is_protected(value: str, names: ProtectedNames) -> str:
    """Whether a value is one of the names, or begins as one of them."""
    return any_of([f"{value} in {list_literal(names.exact)}", *begins(value, names.beginnings)])


def like(globs: Iterable[str], value: str) -> str:
    """Whether a value is what one of the globs says, with `*` and `?`; whatever stands from a bracket on fits."""
    exact, matching = [], []
    for glob in sorted(globs):
        before, bracket, _ = glob.partition("[")
        if bracket or set(glob) & set("*?"):
            wild = {"*": ".*", "?": "."}
            regex = "".join(wild.get(char) or re.escape(char) for char in before) + (".*" if bracket else "")
            matching.append(f"{value}.matches({literal(f'^{regex}$')})")
        else:
            exact.append(glob)
    return any_of([*([f"{value} in {list_literal(exact)}"] if exact else []), *matching])


# Match conditions: what the API server decides alone, so that a pod without a device never needs us.

WORD: Final = "gpu"
"""A label or annotation key with this in it comes to us, wherever in the key it is, in any capitals."""

CONTAINERS: Final = 30
"""The most containers of one kind that are looked at here."""

MANY: Final = 100
"""The most labels or annotations, volumes, and variables or mounts of a container, that are looked at here."""

AMOUNTS: Final = 100
"""The most limits, or requests, of one container; ordinary ones have three, and one for each size of huge pages."""

CHANGED: Final = """\
(request.operation != 'UPDATE' || object.spec != oldObject.spec ||
  object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) ||
  object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({}))"""
"""An update that changes none of these concerns nobody here, such as the status that kubelets write all day. It is
asked first: of two large pods the rest would be dear."""

PODS: Final = "(request.operation == 'UPDATE' ? [object, oldObject] : [object])"
"""The old pod, too, so that taking a label away is seen."""

NEW_POD: Final = "request.operation == 'CREATE' || object.spec != oldObject.spec || !has(object.metadata.uid)"
"""Schedulers annotate pods all day. A pod without a UID was sent as a whole, as by `kubectl replace`."""

NEW_SPEC: Final = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
"""A status, which operators write often, changes no pod."""

OF_A_CRONJOB: Final = "request.resource.resource == 'cronjobs'"
NEW_TEMPLATE: Final = f"""\
request.operation == 'CREATE' || ({OF_A_CRONJOB} ?
  object.spec.jobTemplate.spec.template != oldObject.spec.jobTemplate.spec.template :
  object.spec.template != oldObject.spec.template)"""
"""Scaling, a controller's status or a new annotation changes no pod."""

BY_A_PERSON: Final = f"""\
!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) &&
  owner.kind in {[kind for (group, kind), workload in BUILT_IN.items() if group and workload.pods]})"""
"""Not what the controllers of Deployments and CronJobs make, which their author has read about already."""

_TEMPLATES: Final = f"[{OF_A_CRONJOB} ? object.spec.jobTemplate.spec.template : object.spec.template]"
_AMOUNTS: Final = "[holder.?resources.?limits.orValue({}), holder.?resources.?requests.orValue({})].exists(amounts,"
_ENTRIES: Final = "[{0}.?labels.orValue({{}}), {0}.?annotations.orValue({{}})].exists(entries,"
_CONTAINERS: Final = f"[{', '.join(f'pod.spec.?{section}.orValue([])' for section in SECTIONS)}]"

UNFIT: Final = f"""\
{_TEMPLATES}.exists(pod,
  [pod.spec.?containers.orValue([]) + pod.spec.?initContainers.orValue([])].exists(holders,
    holders.size() <= {CONTAINERS} && holders.exists(holder,
      {_AMOUNTS}
        amounts.size() <= {AMOUNTS} &&
        amounts.exists(name, name.contains('/') ? amounts[name].endsWith('m') : name.startsWith('{WORD}'))))))"""
"""A resource `gpu` or a fraction of a device. The API server serves `0.3` as `300m`."""

Condition = dict[str, str]


def by_webhook(rulebook: Rulebook) -> Mapping[str, list[Condition]]:
    """The conditions of each webhook, by the first word of its name."""
    asks = f"exists(pod,\n{indented(asking(rulebook))})"
    of_pods = {"asks-for-a-device": f"{CHANGED} &&\n{PODS}.{asks}"}
    # A workload may itself be labelled or annotated with what was meant for its template.
    labelled = f"{_ENTRIES.format('object.metadata')}\n  {_has_a_word([WORD])}) ||"
    of_templates = {"made-by-a-person": BY_A_PERSON, "changes-the-template": NEW_TEMPLATE}
    conditions = {
        # /mutate gets of updates only those that may state again what was translated.
        "mutate": {**of_pods, "changes-the-spec": NEW_POD},
        "validate": of_pods,
        # Pods that may have their node and that the condition above leaves out.
        "node-access": {
            "may-have-the-node": f"{CHANGED} &&\n{PODS}.exists(pod,\n{indented(_reaching(rulebook))})",
            "asks-for-no-device": f"!{PODS}.{asks}",
        },
        "bindings": {"carries-what-a-pod-counts-by": _carrying(rulebook)},
        "templates": {**of_templates, "asks-for-a-device": f"{labelled}\n{_TEMPLATES}.{asks}"},
        # Workloads that the API server will refuse, as a bare pod may have what their template has.
        "unfit-templates": {**of_templates, "has-what-no-template-may-have": UNFIT},
        # Templates that stand anywhere: any change of the spec. There are few of them.
        "workloads": {"made-by-a-person": BY_A_PERSON, "changes-the-spec": NEW_SPEC},
        # Our own objects. What the settler writes into their status changes nothing that they say.
        "policies": {"changes-the-spec": f"request.operation == 'DELETE' || {NEW_SPEC}"},
    }
    return {
        webhook: [{"name": name, "expression": expression} for name, expression in its.items()]
        for webhook, its in conditions.items()
    }


def asking(rulebook: Rulebook) -> str:
    """Whether `pod` has anything that a rule may take for a request, or may name a device by another way."""
    prefixes = {prefix for source in rulebook.sources for prefix in source.prefixes}
    heard = set(rulebook.all_slots["annotation"]) if any(rulebook.slots.values()) else set()
    alone = {key for numbers in rulebook.all_slots.values() for key, number in numbers.items() if number.alone}
    rest = {word.partition(CONTAINER)[0] for word in prefixes | heard | alone if WORD not in word}
    names = protected_names(rulebook.protections)
    rest |= {key.removesuffix(ANY) for section in ("labels", "annotations") for key in names[section].every}
    words = [WORD, *sorted(word for word in rest if WORD not in word)]

    # The other ways: a runtime class, a variable, a mount.
    variable = indented(is_protected("name", names["env"]), 6)
    values = (f"{entry.name}={value}" for entry in names["env"].exact.values() for value in entry.harmless)
    harmless = indented(list_literal(pair for pair in values if pair[-1] not in {"=", ANY}), 6)
    folders = (path.removesuffix(ANY).rpartition("/")[2] for path in names["mount_paths"].every)
    mounts = " || ".join(f"paths.contains('{folder}')" for folder in folders)
    return f"""\
has(pod.spec.resourceClaims) ||
[[pod.spec] + pod.spec.?containers.orValue([]) + pod.spec.?initContainers.orValue([])].exists(holders,
  holders.size() > {CONTAINERS} || holders.exists(holder,
    {_AMOUNTS}
      amounts.size() > {AMOUNTS} ||
      amounts.exists(name, !(name in {[*CORE]}) && !name.startsWith('hugepages-'))))) ||
{_ENTRIES.format("pod.?metadata")}
  {_has_a_word(words)}) ||
{is_protected("pod.spec.?runtimeClassName.orValue('')", names["runtime_classes"])} ||
{_CONTAINERS}.exists(holders, holders.exists(holder,
  [holder.?env.orValue([])].exists(variables, variables.size() > {MANY} ||
    variables.exists(variable, [variable.name].exists(name,
{variable}) &&
      !(variable.name + '=' + variable.?value.orValue('') in
{harmless}))) ||
  [holder.?volumeMounts.orValue([])].exists(mounts, mounts.size() > {MANY} ||
    [mounts.map(mount, mount.mountPath).join(' ')].exists(paths, {mounts or "false"}))))"""


def _reaching(rulebook: Rulebook) -> str:
    """Whether `pod` may have its node: by a path, a privilege, a capability.

    Runtimes read a capability in capitals, and some letters beyond ASCII have those of ASCII.
    """
    names = protected_names(rulebook.protections)
    paths = [path.removesuffix(ANY) for path in names["host_paths"].every]
    roots = [path for path in paths if not any(path.startswith(other) for other in paths if other != path)]
    also = [f"/var{path}" for path in roots if path.startswith("/run")]
    holders = {parent.rstrip("/") for path in paths for parent in parents(path)} | {"/var/run"}
    exact = list_literal(sorted({f"{parent}{end}" for parent in holders for end in ("", "/")} - {""}))
    below = " ||\n    ".join(begins("path", sorted({*roots, *also})))
    capabilities = list_literal(f"{cap}{name}" for name in names["capabilities"].every for cap in ("", "CAP_"))
    return f"""\
pod.spec.?volumes.orValue([]).size() > {MANY} ||
pod.spec.?volumes.orValue([]).exists(volume, has(volume.hostPath) && [volume.hostPath.path].exists(path,
    !path.startsWith('/') || path.contains('//') || path.contains('/.') || path in {exact} ||
    {below})) ||
pod.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false) ||
{_CONTAINERS}.exists(holders, holders.exists(holder, [holder.?securityContext].exists(context,
  context.?privileged.orValue(false) || context.?windowsOptions.?hostProcess.orValue(false) ||
  context.?capabilities.?add.orValue([]).exists(name,
    bytes(name).size() > name.size() || name.upperAscii() in {capabilities}))))"""


def _carrying(rulebook: Rulebook) -> str:
    """Whether a Binding has a label or annotation that the API server merges into the pod and a pod counts by."""
    every = with_every_backend(rulebook)
    read = projection.allow_list(every)
    keys = set()
    for section, carried in (("labels", read.labels.exact), ("annotations", read.annotations.exact)):
        for key in carried:
            binding = review.creating({"metadata": {section: {key: "1"}}}, uid="")
            if updates.unnamed(binding, binding, every):
                keys.add(key)
    names = protected_names(rulebook.protections)
    globs = {*updates.reserved(every), *names["labels"].every, *names["annotations"].every}
    words = {WORD}
    for glob in globs:
        before, wild, _ = glob.partition("*")
        domain, slash, _ = glob.partition("/")
        if not wild:
            keys.add(glob)
        elif WORD not in glob:  # what all keys of its domain have in common: few words are to be searched
            words.add(domain + slash if slash else before)
    named = list_literal(sorted(key for key in keys if not any(word in key for word in words)))
    most = max(projection.LABELS.most, projection.ANNOTATIONS.most)
    searched = f"{_has_a_word([WORD, *sorted(words - {WORD})], most)} ||\nentries.exists(key, key in {named})"
    return f"{_ENTRIES.format('object.?metadata')}\n{indented(searched)})"


def _has_a_word(words: Iterable[str], most: int = MANY) -> str:
    lowered = {WORD: ".lowerAscii()"}
    searched = " ||\n  ".join(f"keys{lowered.get(word, '')}.contains('{word}')" for word in words)
    return f"entries.size() > {most} || [entries.map(key, key).join(' ')].exists(keys, {searched})"
