"""In CEL: what of a pod `policy.device_access` calls a bypass, as lists of names for a message.

An update is judged by what it adds. Values that a back end may give are harmless in a pod that it may serve.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from webhook.core.policy import device_access
from webhook.core.registration.conditions import (
    CREATED,
    FEW,
    LETTERS,
    MANY,
    UNMASKED,
    any_of,
    begins,
    indented,
    is_protected,
    list_literal,
    short,
    vendor_classes,
)
from webhook.core.rules.cluster import ANY, Protected, parents, protected_names
from webhook.core.rules.rulebook import Rulebook

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

        Nothing of a list, or a path, that is longer than what is looked at: `conditions` sends such a pod to us. The
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
