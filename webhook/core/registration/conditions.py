"""Match conditions: what the API server decides alone, so that a pod without a device never needs us.

Each is a superset of what a review may change or refuse, so that new rules need no new configuration. It asks for
words that all rules have in common. Only keys that lack them are taken from the loaded rules: annotations and labels
that ask by themselves or name a claim, and what a Binding may carry.

An API server counts what an expression costs, by the length of texts, and one that costs too much errs; and it takes
time, 3 to 5 us for each element of a list [measured]. Who writes a pod chooses how many and how long they are. So
nothing is looked at of a list or a text that is longer than what is said below: the pod comes to us, who can tell in
a millisecond. Each list is looked at once, in the one place that decides: variables by the policies (`reaching`), all
else by the conditions. What is searched for in hundreds of texts is one regular expression.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

from webhook.core import projection, review
from webhook.core.kube.pod import CORE, SECTIONS
from webhook.core.policy import device_access, updates
from webhook.core.rules.cluster import ANY, Protected, ProtectedNames, parents, protected_names
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


def short(text: str, names: ProtectedNames) -> str:
    """As much of a text as tells whether it is one of the names: what is asked of it costs by its length."""
    letters = max(map(len, names.every), default=0) + 1
    return f"({text}.size() > {letters} ? {text}.substring(0, {letters}) : {text})"


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

CONTAINERS: Final = 16
"""The most containers of all kinds that are looked at here."""

MANY: Final = 100
"""The most labels, annotations and volumes, and variables of a container, that are looked at here."""

FEW: Final = 32
"""The most limits, requests, mounts and added capabilities of a container that are looked at here."""

LETTERS: Final = 128
"""The longest key and path that is looked at here; of other text the beginning is."""

CREATED: Final = "request.operation == 'CREATE'"

CHANGED: Final = """\
(request.operation != 'UPDATE' ||
  object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) ||
  object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({}) ||
  (request.?subResource.orValue('') != 'status' && object.spec != oldObject.spec))"""
"""An update that changes none of these concerns nobody here, such as the status that kubelets write all day. It is
asked first: of two large pods the rest would be dear."""

PODS: Final = "(request.operation == 'UPDATE' ? [object, oldObject] : [object])"
"""The old pod, too, so that taking a label away is seen."""

NEW_POD: Final = f"({CREATED} || object.spec != oldObject.spec || !has(object.metadata.uid))"
"""Schedulers annotate pods all day. A pod without a UID was sent as a whole, as by `kubectl replace`."""

_NEW_CONTAINERS: Final = f"({CREATED} || request.?subResource.orValue('') == 'ephemeralcontainers')"
"""Of other updates the API server itself refuses those that change a mount or a volume."""

NEW_SPEC: Final = f"{CREATED} || object.?spec != oldObject.?spec"
"""A status, which operators write often, changes no pod."""

_NEW_LABELS: Final = """\
object.metadata.?labels.orValue({}) != oldObject.metadata.?labels.orValue({}) ||
object.metadata.?annotations.orValue({}) != oldObject.metadata.?annotations.orValue({})"""
"""They change no pod of a workload, and may have been meant to."""

OF_A_CRONJOB: Final = "request.resource.resource == 'cronjobs'"

BY_A_PERSON: Final = f"""\
!object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false) &&
  owner.kind in {[kind for (group, kind), workload in BUILT_IN.items() if group and workload.pods]})"""
"""Not what the controllers of Deployments and CronJobs make, which their author has read about already."""

_TEMPLATES: Final = f"[{OF_A_CRONJOB} ? object.spec.jobTemplate.spec.template : object.spec.template]"
_AMOUNTS: Final = "[holder.?resources.?limits.orValue({}), holder.?resources.?requests.orValue({})].exists(amounts,"
_ENTRIES: Final = "[{0}.?labels.orValue({{}}), {0}.?annotations.orValue({{}})].exists(entries,"
_LABELLED: Final = """\
[object.metadata.?labels.orValue({}), object.?spec.?jobTemplate.?metadata.?labels.orValue({}),
object.metadata.?annotations.orValue({}), object.?spec.?jobTemplate.?metadata.?annotations.orValue({})
].exists(entries,"""
_CONTAINERS: Final = f"[{', '.join(f'pod.spec.?{section}.orValue([])' for section in SECTIONS)}]"
_VOLUMES: Final = "pod.spec.?volumes.orValue([])"
_ADDED: Final = "holder.?securityContext.?capabilities.?add.orValue([])"
UNMASKED: Final = f"{{}}.?procMount.orValue('') == '{device_access.UNMASKED}'"
_MANY_CONTAINERS: Final = (
    " + ".join(f"pod.spec.?{section}.orValue([]).size()" for section in SECTIONS) + f" > {CONTAINERS}"
)

UNFIT: Final = f"""\
{_TEMPLATES}.exists(pod,
  [pod.spec.?containers.orValue([]) + pod.spec.?initContainers.orValue([])].exists(holders,
    holders.size() <= {CONTAINERS} && holders.exists(holder,
      {_AMOUNTS}
        amounts.size() <= {FEW} &&
        amounts.exists(name, name.contains('/') ? amounts[name].endsWith('m') : name.startsWith('{WORD}'))))))"""
"""A resource `gpu` or a fraction of a device. The API server serves `0.3` as `300m`."""

Condition = dict[str, str]


def by_webhook(rulebook: Rulebook) -> Mapping[str, list[Condition]]:
    """The conditions of each webhook, by the first word of its name."""
    asks, names_devices = asking(rulebook), naming(rulebook)
    # Whether a mount may be at a protected path, in any spelling.
    paths = protected_names(rulebook.protections)["mount_paths"].every
    guarded = "|".join(re.escape(path.removesuffix(ANY)) for path in sorted(paths)) or "$."
    mounts = f"""\
{_CONTAINERS}.exists(holders, holders.exists(holder,
  [holder.?volumeMounts.orValue([])].exists(mounts, mounts.size() > {FEW} || mounts.exists(mount,
    mount.mountPath.size() > {LETTERS} ||
    mount.mountPath.matches({literal(f"^([^/]|{guarded})|{_ODD}")})))))"""
    # A workload, or its template of jobs, may itself be labelled or annotated with what was meant for its pods.
    labelled = f"{_LABELLED}\n{indented(_has_key([WORD], []))})"
    of_templates = {"made-by-a-person": BY_A_PERSON, "changes-the-spec-or-labels": f"{NEW_SPEC} ||\n{_NEW_LABELS}"}
    template = indented(any_of([asks, names_devices, mounts]))
    conditions = {
        # /mutate gets of updates only those that may state again what was translated, or what was taken out.
        "mutate": {"asks-for-a-device": f"{NEW_POD} &&\n{_changing(asks)}"},
        "remove": {"names-a-device": f"{NEW_POD} &&\n{_changing(names_devices)}"},
        # Variables, and what gives the node, are judged by the policies that the settler keeps (`policies.py`).
        "validate": {
            "asks-for-a-device": _changing(
                asks, f"{_NEW_CONTAINERS} && [object].exists(pod,\n{indented(any_of([mounts, _BEYOND]))})"
            )
        },
        "bindings": {"carries-what-a-pod-counts-by": _carrying(rulebook)},
        "templates": {**of_templates, "asks-for-a-device": f"{labelled} ||\n{_TEMPLATES}.exists(pod,\n{template})"},
        # Workloads that the API server will refuse, as a bare pod may have what their template has.
        "unfit-templates": {**of_templates, "has-what-no-template-may-have": UNFIT},
        # Templates that stand anywhere: any change of the spec. There are few of them.
        "workloads": {
            "made-by-a-person": BY_A_PERSON,
            "changes-the-spec-or-labels": f"{NEW_SPEC} ||\n({_NEW_LABELS}) &&\n{labelled}",
        },
        # Our own objects. What the settler writes into their status changes nothing that they say.
        "policies": {"changes-the-spec": f"request.operation == 'DELETE' || {NEW_SPEC}"},
    }
    return {
        webhook: [{"name": name, "expression": expression} for name, expression in its.items()]
        for webhook, its in conditions.items()
    }


def _changing(asks: str, also: str = "false") -> str:
    """Whether a pod that a request creates or changes, or the one before, asks; or something else holds."""
    return f"{CHANGED} && (\n{PODS}.exists(pod,\n{indented(asks)}) ||\n{also})"


def asking(rulebook: Rulebook) -> str:
    """Whether `pod` has anything that a rule may take for a request, or a protected key or runtime class."""
    prefixes = {prefix for source in rulebook.sources for prefix in source.prefixes}
    heard = set(rulebook.all_slots["annotation"]) if any(rulebook.slots.values()) else set()
    alone = {key for numbers in rulebook.all_slots.values() for key, number in numbers.items() if number.alone}
    names = protected_names(rulebook.protections)
    exact = {key for section in ("labels", "annotations") for key in names[section].exact}
    heads = {head for section in ("labels", "annotations") for head in names[section].beginnings}
    heads |= {word.partition(CONTAINER)[0] for word in prefixes | heard | alone if WORD not in word}
    return f"""\
has(pod.spec.resourceClaims) ||
{_MANY_CONTAINERS} ||
[dyn([pod.spec]), pod.spec.?containers.orValue([]), pod.spec.?initContainers.orValue([])].exists(holders,
  holders.exists(holder,
    {_AMOUNTS}
      amounts.size() > {FEW} ||
      amounts.exists(name, !(name in {[*CORE]}) && !name.startsWith('hugepages-'))))) ||
{_ENTRIES.format("pod.?metadata")}
{indented(_has_key(heads, exact))}) ||
{is_protected("pod.spec.?runtimeClassName.orValue('')", names["runtime_classes"])}"""


def naming(rulebook: Rulebook) -> str:
    """Whether a variable of `pod` may name devices, or a container has more of them than are looked at."""
    names = protected_names(rulebook.protections)["env"]
    return f"""\
{_CONTAINERS}.exists(holders, holders.exists(holder,
  [holder.?env.orValue([])].exists(variables, variables.size() > {MANY} || variables.exists(variable,
{indented(_names_devices(names), 4)}))))"""


def _names_devices(names: ProtectedNames) -> str:
    """Whether a `variable` has a protected name, or a long one, and none of the values with which that gives nothing.

    There may be hundreds: the first letter is asked first, and all beginnings by one pattern, which takes a third of
    the time of `startsWith` for each [measured].
    """
    longest = max(map(len, names.every), default=0)
    first = sorted({name[0] for name in (*names.exact, *filter(None, names.beginnings))})
    values = [
        f"{name}={value}"
        for name, protected in names.exact.items()
        for value in protected.harmless
        if value and not value.endswith(ANY)
    ]
    heads = "|".join(map(re.escape, names.beginnings)) or "$."
    return f"""\
{f"variable.name.charAt(0) in {first}" if "" not in names.beginnings else "true"} && (variable.name in
{indented(list_literal(names.exact))} ||
  variable.name.size() > {longest} || variable.name.matches({literal(f"^({heads})")})) &&
!(variable.?value.orValue('').size() <= {LETTERS} && variable.name + '=' + variable.?value.orValue('') in
{indented(list_literal(values))})"""


_ODD: Final = r"//|/\."
"""In a path that may be spelled in another way."""

_BEYOND: Final = f"""\
{_VOLUMES}.size() > {MANY} ||
{_VOLUMES}.exists(volume, has(volume.hostPath) && volume.hostPath.path.size() > {LETTERS}) ||
{_CONTAINERS}.exists(holders, holders.exists(holder, holder.?env.orValue([]).size() > {MANY} ||
  {_ADDED}.size() > {FEW}))"""
"""Whether `pod` has more of something, or something longer, than the policies look at: it comes to us instead."""


def vendor_classes(rulebook: Rulebook) -> list[str]:
    """The runtime classes of the cluster, by name, that a vendor's runtime handles."""
    handlers = rulebook.tenancy.handlers
    names = protected_names(rulebook.protections, handlers)["runtime_classes"]
    return [name for name in sorted(handlers) if names.find(name)]


def reaching(rulebook: Rulebook) -> str:
    """Whether `pod` may reach a device that it does not ask for: by a variable, a privilege, a capability, a path.

    No answer for a pod that is `_BEYOND`. Runtimes read a capability in capitals, and some letters beyond ASCII have
    those of ASCII.
    """
    names = protected_names(rulebook.protections)
    classes = vendor_classes(rulebook)
    of_a_class = f"pod.spec.?runtimeClassName.orValue('') in {list_literal(classes)} ||\n  " if classes else ""
    paths = [path.removesuffix(ANY) for path in names["host_paths"].every]
    roots = [path for path in paths if not any(path.startswith(other) for other in paths if other != path)]
    also = [f"/var{path}" for path in roots if path.startswith("/run")]
    holders = {parent.rstrip("/") for path in paths for parent in parents(path)} | {"/var/run"}
    exact = list_literal(sorted({f"{parent}{end}" for parent in holders for end in ("", "/")} - {""}))
    below = " ||\n    ".join(begins("path", sorted({*roots, *also})))
    capabilities = list_literal(f"{cap}{name}" for name in names["capabilities"].every for cap in ("", "CAP_"))
    return f"""\
[object].exists(pod, !({_MANY_CONTAINERS}) && (
  {of_a_class}pod.spec.?hostPID.orValue(false) ||
  pod.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false) ||
  {_CONTAINERS}.exists(holders, holders.exists(holder, [holder.?securityContext].exists(context,
    context.?privileged.orValue(false) || {UNMASKED.format("context")} ||
    context.?windowsOptions.?hostProcess.orValue(false) ||
    [{_ADDED}].exists(added, added.size() <= {FEW} && added.exists(name, name.size() <= {LETTERS} &&
      (bytes(name).size() > name.size() || name.upperAscii() in {capabilities})))) ||
    [holder.?env.orValue([])].exists(variables, variables.size() <= {MANY} && variables.exists(variable,
{indented(_names_devices(names["env"]), 6)})))) ||
  [{_VOLUMES}].exists(volumes, volumes.size() <= {MANY} && volumes.exists(volume,
    has(volume.hostPath) && [volume.hostPath.path].exists(path, path.size() <= {LETTERS} && (
    path.matches({literal(f"^[^/]|{_ODD}")}) || path in {exact} ||
    {below}))))))"""


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
    heads: set[str] = set()
    for glob in {*updates.reserved(every), *names["labels"].every, *names["annotations"].every}:
        before, wild, _ = glob.partition(ANY)
        (heads if wild else keys).add(before)
    most = max(projection.LABELS.most, projection.ANNOTATIONS.most)
    return f"{_ENTRIES.format('object.?metadata')}\n{indented(_has_key(heads, keys, most))})"


def _has_key(heads: Iterable[str], exact: Iterable[str], most: int = MANY) -> str:
    """Whether one of the `entries` has WORD in its key, or one of these keys or beginnings; or there are too many."""
    keys = sorted(key for key in exact if WORD not in key.lower())
    heads = sorted(head for head in heads if WORD not in head.lower())
    beginnings = "|".join([f"(?i:{WORD})", *(f"^{re.escape(head)}" for head in heads if "/" not in head)])
    within = [head for head in heads if "/" in head]
    domains = sorted({head.partition("/")[0] for head in within})
    ways = [
        f"key.size() > {LETTERS}",
        f"key.matches({literal(beginnings)})",
        *([f"key in {list_literal(keys)}"] if keys else []),
        *(
            [f"key.split('/')[0] in {list_literal(domains)} && (\n{indented(any_of(begins('key', within)))})"]
            if within
            else []
        ),
    ]
    return f"entries.size() > {most} || entries.exists(key,\n{indented(any_of(ways))})"


# What of a pod `policy.device_access` calls a bypass, as lists of names for a message. An update is judged by what it
# adds. Values that a back end may give are harmless in a pod that it may serve.

NEW_CONTAINERS: Final = f"""\
{CREATED} ? dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])) :
dyn(object.spec.?ephemeralContainers.orValue([])).filter(holder,
  !oldObject.spec.?ephemeralContainers.orValue([]).exists(old, old.name == holder.name))"""
"""As a list of CEL, named `containers` wherever it is looked at."""

_RUNNING: Final = f"""\
{CREATED} ? [] :
dyn(oldObject.spec.containers) + dyn(oldObject.spec.?initContainers.orValue([])) +
dyn(oldObject.spec.?ephemeralContainers.orValue([]))"""

_HOST_PID: Final = "object.spec.?hostPID.orValue(false)"

_VALUE: Final = """\
!has(variable.valueFrom) ? variable.?value.orValue('') :
has(variable.valueFrom.fieldRef) ? 'fieldRef ' + variable.valueFrom.fieldRef.fieldPath :
has(variable.valueFrom.configMapKeyRef) ? 'configMapKeyRef ' + variable.valueFrom.?configMapKeyRef.?name.orValue('') :
has(variable.valueFrom.secretKeyRef) ? 'secretKeyRef ' + variable.valueFrom.?secretKeyRef.?name.orValue('') :
'another source '"""

_OF: Final = "' of the container \"' + holder.name + '\"'"

_CAPITALS: Final = "added.replace('\u017f', 's').replace('\u0131', 'i').upperAscii()"
"""As a node's runtime writes a capability: the letters that are plain only as capitals are these two."""

_CLEAN: Final = "'/' + {}.split('/').filter(part, part != '' && part != '.').join('/')"
"""A path without doubled slashes and `.`, as `device_access.absolute` has it."""


class Bypasses:
    """What the Protections of a rulebook name; `policies.carries` says whether a back end may serve the pod."""

    def __init__(self, rulebook: Rulebook) -> None:
        self._names: Final = protected_names(rulebook.protections, rulebook.tenancy.handlers)
        self._rulebook: Final = rulebook
        self._enabled: Final = {backend.name for backend in rulebook.enabled}

    def of_names(self) -> Mapping[str, str]:
        """Labels, annotations, the runtime class and mounts."""
        sections = {}
        for section in ("labels", "annotations"):
            entries, before = (f"{holder}.metadata.?{section}.orValue({{}})" for holder in ("object", "oldObject"))
            refused = indented(self._refused(section, "key", f"{entries}[key]"))
            added = f"{CREATED} || !(key in {before}) || {before}[key] != {entries}[key]"
            sections[section] = f"{entries}.filter(key,\n{refused} &&\n  ({added}))"
        names = indented(is_protected("name", self._names["runtime_classes"]))
        path = indented(self._guarded("mount_paths", "mount.mountPath"))
        path = f"[{_CLEAN.format('mount.mountPath')}].exists(path,\n{path})"
        mount = f"mount.mountPath.size() <= {LETTERS} && !(mount.mountPath + '/').contains('../') &&\n{path}"
        return {
            **sections,
            "runtimeClasses": f"{CREATED} && [object.spec.?runtimeClassName.orValue('')].exists(name,\n"
            f"{names}) && !variables.byResource ?\n[object.spec.runtimeClassName] : []",
            "volumeMounts": _of_containers("volumeMounts", "mount", "mount.mountPath", mount),
        }

    def of_devices(self) -> Mapping[str, str]:
        """Variables, and what gives the whole node: flags, capabilities, host paths.

        Nothing of a list, or a path, that is longer than what is looked at: the conditions send such a pod to us. The
        API server takes no host path with `..`.
        """
        privileged = "holder.?securityContext.?privileged.orValue(false)"
        process = "?securityContext.?windowsOptions.?hostProcess.orValue(false)"
        names = indented(is_protected("name", self._names["runtime_classes"]))
        runtime = f"[object.spec.?runtimeClassName.orValue('')].exists(name,\n{names})"
        flags = []
        for flag, condition, unless in (
            ("privileged", privileged, f"variables.running.exists(holder, {privileged})"),
            ("hostProcess", f"holder.{process}", f"!({CREATED})"),
            ("hostProcess", f"object.spec.{process}", ""),
            ("hostPID", f"{_HOST_PID} && {runtime}", ""),
        ):
            if flag not in self._names["flags"].exact:
                continue
            if unless:
                holders = f"variables.containers.filter(holder, {condition})"
                flags.append(f"({unless} ? [] :\n  {holders}.map(holder, '{flag}: true' + {_OF}))")
            else:
                flags.append(f"({CREATED} && {condition} ? ['{flag}: true'] : [])")
        if "procMount" in self._names["flags"].exact:
            holders = f"variables.containers.filter(holder, {UNMASKED.format('holder.?securityContext')})"
            flags.append(f"{holders}.map(holder, 'procMount: {device_access.UNMASKED}' + {_OF})")

        plain = f"[{_CAPITALS}].map(name, name.startsWith('CAP_') ? name.substring(4) : name)"
        host_pid = f"{_HOST_PID} ? 'hostPID: true' : 'hostPID: false'"
        capability = f"{plain}.exists(name,\n{indented(self._refused('capabilities', 'name', host_pid))})"
        name = short("variable.name", self._names["env"])
        variable = f"[{name}].exists(name,\n{indented(self._refused('env', 'name', _VALUE))})"
        linked = "(path + '/').startsWith('/var/run/')"
        real = f"[{_CLEAN.format('volume.hostPath.path')}].map(path, {linked} ? path.substring(4) : path)"
        named = vendor_classes(self._rulebook)
        classes = f"{CREATED} && object.spec.?runtimeClassName.orValue('') in {list_literal(named)}"
        runtime_class = f"{classes} && !variables.byResource ? [object.spec.runtimeClassName] : []"
        return {
            **({"runtimeClasses": runtime_class} if named else {}),
            "running": _RUNNING,
            "flags": " +\n".join(flags) or "[]",
            "capabilities": _of_containers("securityContext.?capabilities.?add", "added", "added", capability),
            "env": _of_containers("env", "variable", "variable.name", variable, MANY),
            "hostPaths": f"""\
!({CREATED}) || object.spec.?volumes.orValue([]).size() > {MANY} ? [] :
object.spec.?volumes.orValue([]).filter(volume, has(volume.hostPath) && volume.hostPath.path.size() <= {LETTERS} &&
  {real}.exists(path,
{indented(self._guarded("host_paths", "path", above=True), 4)})
).map(volume, volume.hostPath.path)""",
        }

    def _refused(self, section: str, name: str, value: str) -> str:
        """Whether a name is protected and its value gives something; most names are none, so that is asked first.

        Of the entries that the name fits the first decides, as in `ProtectedNames.find`.
        """
        names = self._names[section]
        exact: dict[str, list[str]] = {}
        for protected in names.exact.values():
            exact.setdefault(self._harmless(protected, "value"), []).append(protected.name)
        steps = [(f"{name} in {list_literal(entries)}", allows) for allows, entries in exact.items()]
        for allows, group in groupby(names.heads, lambda protected: self._harmless(protected, "value")):
            steps.append((any_of(begins(name, (protected.name.removesuffix(ANY) for protected in group))), allows))
        harmless = "".join(f"{condition} ?\n  ({allows}) :\n" for condition, allows in steps) + "true"
        beginning = f"[{value}].map(value, value.size() > {LETTERS} ? value.substring(0, {LETTERS}) : value)"
        return f"({is_protected(name, names)}) &&\n!{beginning}.exists(value,\n{indented(harmless, 4)})"

    def _guarded(self, section: str, value: str, *, above: bool = False) -> str:
        """Whether a `path` is a protected one or below it, and its value gives something; or is what one is in."""
        names = self._names[section]
        groups: dict[str, list[str]] = {}
        for protected in (*names.exact.values(), *names.heads):
            groups.setdefault(self._harmless(protected, value), []).append(protected.name)
        conditions = []
        for allows, paths in groups.items():
            roots = [f"{path}/" for path in paths if not path.endswith(ANY)]
            heads = [path.removesuffix(ANY) for path in paths if path.endswith(ANY)]
            folders = sorted({parent for path in paths for parent in parents(path)}) if above else []
            within = any_of([*begins("below", roots), *begins("path", heads)])
            at = [f"[path + '/'].exists(below,\n{indented(within)})"]
            at += [f"path in {list_literal(folders)}"] if folders else []
            conditions.append(f"(!({allows}) && (\n{indented(any_of(at))}))")
        return any_of(conditions)

    def _harmless(self, protected: Protected, value: str) -> str:
        """Whether a value gives nothing: to any pod, or because an enabled back end may give it."""
        of_backends = {glob for name, globs in protected.backends.items() if name in self._enabled for glob in globs}
        conditions = []
        for globs, form in ((protected.harmless, "%s"), (of_backends, "(variables.served && (%s))")):
            exact = [glob for glob in sorted(globs) if not glob.endswith(ANY)]
            fits = [f"{value} in {list_literal(exact)}"] if exact else []
            fits += begins(value, (glob.removesuffix(ANY) for glob in sorted(globs) if glob.endswith(ANY)))
            conditions += [form % any_of(fits)] if fits else []
        return any_of(conditions)


def _of_containers(field: str, variable: str, name: str, refused: str, most: int = FEW) -> str:
    """The names of what is refused in a list of each new container."""
    return f"""\
variables.containers.map(holder, [holder.?{field}.orValue([])].filter(entries, entries.size() <= {most}).map(entries,
  entries.filter({variable},
{indented(refused, 4)}
  ).map({variable}, {name}.size() > {LETTERS} ? 'with a long name' : {name})
).map(names, names.size() == 0 ? '' : names.join(', ') + {_OF}).join('')).filter(names, names != '')"""
