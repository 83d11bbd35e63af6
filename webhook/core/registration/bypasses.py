"""In CEL: what of a pod `policy.device_access` calls a bypass, as lists of names for a message.

An update is judged by what it adds. Values that a back end may give are harmless in a pod that it may serve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from webhook.core.registration.conditions import any_of, indented, list_literal, literal
from webhook.core.rules.protection import ANY, Protected, ProtectedNames, parents

CREATING: Final = "request.operation == 'CREATE'"

CONTAINERS: Final = f"""\
{CREATING} ? dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([])) :
dyn(object.spec.?ephemeralContainers.orValue([])).filter(holder,
  !oldObject.spec.?ephemeralContainers.orValue([]).exists(old, old.name == holder.name))"""
"""The containers that are new."""

_RUNNING: Final = f"""\
{CREATING} ? [] :
dyn(oldObject.spec.containers) + dyn(oldObject.spec.?initContainers.orValue([])) +
dyn(oldObject.spec.?ephemeralContainers.orValue([]))"""

_VALUE: Final = """\
!has(variable.valueFrom) ? variable.?value.orValue('') :
has(variable.valueFrom.fieldRef) ? 'fieldRef ' + variable.valueFrom.fieldRef.fieldPath :
has(variable.valueFrom.configMapKeyRef) ? 'configMapKeyRef ' + variable.valueFrom.?configMapKeyRef.?name.orValue('') :
has(variable.valueFrom.secretKeyRef) ? 'secretKeyRef ' + variable.valueFrom.?secretKeyRef.?name.orValue('') :
'another source '"""

_OF: Final = "' of the container \"' + holder.name + '\"'"

_CAPITALS: Final = "added.replace('\u017f', 's').replace('\u0131', 'i').upperAscii()"
"""As a node's runtime writes a capability: the letters that are plain only as capitals are these two."""

Known = Mapping[str, ProtectedNames]


class Values:
    """Which values of a protected name give nothing, in a pod that these back ends may serve."""

    def __init__(self, enabled: Iterable[str]) -> None:
        self._enabled: Final = frozenset(enabled)

    def harmless(self, one: Protected, value: str) -> str:
        """Whether a value gives nothing."""
        more = {glob for name, globs in one.backends.items() if name in self._enabled for glob in globs}
        serving = [f"(variables.served && ({_fits(value, more)}))"] if more else []
        return any_of([*([_fits(value, one.harmless)] if one.harmless else []), *serving])

    def all_harmless(self, names: ProtectedNames, name: str, value: str) -> str:
        """Whether the entry for a name, if there is one, allows its value; the first decides, as in `Names.find`."""
        exact: dict[str, list[str]] = {}
        for one in names.exact.values():
            exact.setdefault(self.harmless(one, value), []).append(one.name)
        steps = [(f"{name} in {list_literal(found)}", allows) for allows, found in exact.items()]
        for allows, found in groupby(names.heads, lambda one: self.harmless(one, value)):
            steps.append((_begins(name, (one.name.removesuffix(ANY) for one in found)), allows))
        return "".join(f"{condition} ?\n  ({allows}) :\n" for condition, allows in steps) + "true"

    def refused(self, names: ProtectedNames, name: str, value: str) -> str:
        """Whether a name is protected and its value gives something; most names are none, so that is asked first."""
        harmless = indented(self.all_harmless(names, name, "value"), 4)
        return f"({_found(name, names)}) &&\n![{value}].exists(value,\n{harmless})"


def of_names(known: Known, values: Values) -> Mapping[str, str]:
    """Labels, annotations, the runtime class, variables and mounts."""
    sections = {section: _of_metadata(known[section], section, values) for section in ("labels", "annotations")}
    variable = values.refused(known["env"], "variable.name", _VALUE)
    mount = _guarded(known["mount_paths"], "mount.mountPath", values)
    return {
        **sections,
        "runtimeClasses": f"""\
{CREATING} && [object.spec.?runtimeClassName.orValue('')].exists(name,
{indented(_found("name", known["runtime_classes"]))}) && !variables.served ?
[object.spec.runtimeClassName] : []""",
        "env": _of_containers("env", "variable", "variable.name", variable),
        "volumeMounts": _of_containers(
            "volumeMounts",
            "mount",
            "mount.mountPath",
            f"!(mount.mountPath + '/').contains('../') &&\n"
            f"[{_clean('mount.mountPath')}].exists(path,\n{indented(mount)})",
        ),
    }


def of_nodes(known: Known, values: Values) -> Mapping[str, str]:
    """What gives the whole node: flags, capabilities, host paths. The API server takes no host path with `..`."""
    paths = _guarded(known["host_paths"], "path", values, above=True)
    linked = "(path + '/').startsWith('/var/run/')"
    real = f"[{_clean('volume.hostPath.path')}].map(path, {linked} ? path.substring(4) : path)"
    capability = _found("name", known["capabilities"])
    return {
        "running": _RUNNING,
        "flags": " +\n".join(_of_flags(known)) or "[]",
        "capabilities": f"""\
variables.containers.map(holder, holder.?securityContext.?capabilities.?add.orValue([]).filter(added,
  [{_CAPITALS}].map(name, name.startsWith('CAP_') ? name.substring(4) : name).exists(name,
{indented(capability, 4)})
).map(added, added + {_OF}).join(', ')).filter(found, found != '')""",
        "hostPaths": f"""\
!({CREATING}) ? [] :
object.spec.?volumes.orValue([]).filter(volume, has(volume.hostPath) &&
  {real}.exists(path,
{indented(paths, 4)})
).map(volume, volume.hostPath.path)""",
    }


def _of_metadata(names: ProtectedNames, section: str, values: Values) -> str:
    entries, before = (f"{holder}.metadata.?{section}.orValue({{}})" for holder in ("object", "oldObject"))
    refused = values.refused(names, "key", f"{entries}[key]")
    return f"""\
{entries}.filter(key,
{indented(refused)} &&
  ({CREATING} || !(key in {before}) || {before}[key] != {entries}[key]))"""


def _of_containers(field: str, one: str, name: str, refused: str) -> str:
    """The names of what is refused in a list of each new container."""
    return f"""\
variables.containers.map(holder, holder.?{field}.orValue([]).filter({one},
{indented(refused)}
).map({one}, {name} + {_OF}).join(', ')).filter(found, found != '')"""


def _of_flags(known: Known) -> Iterator[str]:
    flags = known["flags"].exact
    of_pod = {
        "hostProcess": "object.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false)",
        "hostPID": "object.spec.?hostPID.orValue(false) && [object.spec.?runtimeClassName.orValue('')].exists(name,\n"
        + indented(_found("name", known["runtime_classes"]))
        + ")",
    }
    if "privileged" in flags:
        said = "holder.?securityContext.?privileged.orValue(false)"
        yield f"""\
(variables.running.exists(holder, {said}) ? [] :
  variables.containers.filter(holder, {said}).map(holder, 'privileged: true' + {_OF}))"""
    if "hostProcess" in flags:
        said = "holder.?securityContext.?windowsOptions.?hostProcess.orValue(false)"
        yield f"""\
(!({CREATING}) ? [] :
  variables.containers.filter(holder, {said}).map(holder, 'hostProcess: true' + {_OF}))"""
    yield from (f"({CREATING} && {said} ? ['{flag}: true'] : [])" for flag, said in of_pod.items() if flag in flags)


def _guarded(names: ProtectedNames, value: str, values: Values, *, above: bool = False) -> str:
    """Whether a `path` is a protected one or below it, and its value gives something; or is what one is in."""
    every = [*names.exact.values(), *names.heads]
    groups: dict[str, list[Protected]] = {}
    for one in every:
        groups.setdefault(values.harmless(one, value), []).append(one)
    return any_of(f"(!({allows}) && (\n{indented(_at(found, above=above))}))" for allows, found in groups.items())


def _at(found: Iterable[Protected], *, above: bool) -> str:
    """The same of some names; `below` is the path with a slash at its end."""
    every = [one.name for one in found]
    roots = [f"{name}/" for name in every if not name.endswith(ANY)]
    heads = [name.removesuffix(ANY) for name in every if name.endswith(ANY)]
    folders = sorted({parent for name in every for parent in parents(name)}) if above else []
    within = any_of([*([_begins("below", roots)] if roots else []), *([_begins("path", heads)] if heads else [])])
    return f"[path + '/'].exists(below,\n{indented(within)})" + (
        f" ||\npath in {list_literal(folders)}" if folders else ""
    )


def _found(name: str, names: ProtectedNames) -> str:
    return any_of(
        [f"{name} in {list_literal(names.exact)}", *([_begins(name, names.beginnings)] if names.heads else [])]
    )


def _begins(name: str, heads: Iterable[str]) -> str:
    return any_of(f"{name}.startsWith({literal(head)})" for head in heads)


def _fits(value: str, globs: Iterable[str]) -> str:
    """Whether a value is what one of the globs of a Protection says."""
    every = sorted(globs)
    exact = [glob for glob in every if not glob.endswith(ANY)]
    begins = (f"{value}.startsWith({literal(glob[:-1])})" for glob in every if glob.endswith(ANY))
    return any_of([*([f"{value} in {list_literal(exact)}"] if exact else []), *begins])


def _clean(path: str) -> str:
    """A path without doubled slashes and `.`, as `device_access.absolute` has it."""
    return f"'/' + {path}.split('/').filter(part, part != '' && part != '.').join('/')"
