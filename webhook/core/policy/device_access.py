"""What of a pod gives it devices beside those that it asks for, as Protections say, and what becomes of the pod.

No quota counts such devices: `NVIDIA_VISIBLE_DEVICES: all` gives every card of the node. What names devices counts
where a TenantPolicy is in force; what gives the whole node (`privileged`, a host path), which has other uses, counts
in the namespaces of a tenant only, as long as the Cluster document does not say what becomes of it everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Any, Final, NamedTuple

from webhook.core.kube import pod
from webhook.core.kube.fields import Edit, Path, Put, Remove, at, field_path, mapping, objects
from webhook.core.kube.pod import Container, Pod
from webhook.core.kube.quantity import shown, text_of
from webhook.core.policy.membership import member
from webhook.core.policy.usage import Holding
from webhook.core.rules.cluster import SECTIONS, Access, Cluster, Protected, ProtectedNames, protected_names
from webhook.core.rules.rulebook import Rulebook, kept
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.core.rules.verbs import METADATA
from webhook.core.violations import Breach, Refusal, Violation

CODE: Final = "GPU116"
MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that a kubelet shows."""

UNMASKED: Final = "Unmasked"
UNCOUNTED: Final = "and no quota counts that"
FIX: Final = (
    'leave it out, and ask for GPUs as gpu: "1"; if the pod needs it, ask an operator of the cluster for an Exemption'
    " that lifts deviceAccess"
)

Served = Mapping[str, str]
"""The back end of each container that has a GPU, by the container's name."""


class Bypass(NamedTuple):
    """One way of a pod to devices that it does not ask for.

    holder     what stands in the pod, as the beginning of a sentence
    protected  the entry of a Protection; it says what the pod gets by it
    edits      what removes it; nothing does if there are none
    of_node    it gives the whole node
    """

    path: Path
    holder: str
    protected: Protected
    edits: Sequence[Edit] = ()
    of_node: bool = False


def served(held: Iterable[Holding]) -> Served:
    """The back end of each container that has a GPU."""
    return {holding.container.name: holding.backend.name for holding in held}


_NOTHING: Final = {section: ProtectedNames({}) for section in SECTIONS}


@kept
def protected_by_section(rulebook: Rulebook) -> Mapping[str, ProtectedNames]:
    """The protected names, if any policy or the Cluster document may mind them."""
    if rulebook.tenancy.silent and rulebook.cluster.device_access is None:
        return _NOTHING
    return protected_names(rulebook.protections, rulebook.tenancy.handlers)


def action(policy: TenantPolicy | None, cluster: Cluster) -> Access | None:
    """What becomes of a pod with a bypass; None if nobody minds.

    What the policy or the Cluster document says; else what becomes of a pod that is over the quota.
    """
    access = (policy and policy.device_access) or cluster.device_access
    if access or not policy or not policy.quota:
        return access
    return None if policy.quota.action == "dryrun" else policy.quota.action


def absolute(path: str) -> str:
    """A path without `..` and doubled slashes; the kubelet takes a relative one from the root."""
    return normpath(f"/{path.lstrip('/')}")


def real_path(path: str) -> str:
    """A path of a node, without `..`, doubled slashes, and the link /var/run."""
    clean = absolute(path)
    return clean.removeprefix("/var") if f"{clean}/".startswith("/var/run/") else clean


def find(pod: Pod, served: Served, rulebook: Rulebook) -> Iterator[Bypass]:
    """Every bypass of a pod."""
    names = protected_by_section(rulebook)
    if names is _NOTHING:
        return
    for section, kind in METADATA:
        for key, value in getattr(pod, section).items():
            protected = names[section].find(key)
            if protected and not protected.allows(text_of(value), served.values()):
                path: Path = ("metadata", section, key)
                yield Bypass(path, f"the {kind} {shown(key)}", protected, [Remove(path)])
    runtime_class = str(pod.spec.get("runtimeClassName") or "")
    of_a_class = names["runtime_classes"].find(runtime_class)
    # What is allocated by a claim comes by CDI, without a vendor's runtime.
    if of_a_class and all(any(mode.claims for mode in rulebook.backends[name].modes) for name in served.values()):
        yield Bypass(("spec", "runtimeClassName"), f"the runtime class {shown(runtime_class)}", of_a_class)
    for container in pod.containers:
        yield from _of_container(container, served.get(container.name), names)
    for index, volume in enumerate(objects(pod.spec.get("volumes"))):
        host_path = at(volume, "hostPath", "path")
        if isinstance(host_path, str):
            real = real_path(host_path)
            there = names["host_paths"].at_path(real)
            protected = next((name for name in there if not name.allows(real, served.values())), None)
            if protected:
                path = ("spec", "volumes", index, "hostPath", "path")
                yield Bypass(path, f"the host path {shown(host_path)}", protected, of_node=True)
    host_pid = f"hostPID: {text_of(pod.spec.get('hostPID') is True)}"
    holders = [(container.path, container.raw) for container in pod.containers]
    for path, raw in [*holders, (("spec",), pod.spec)]:
        context = mapping(raw, "securityContext")
        flags = {
            ("securityContext", "privileged"): context.get("privileged"),
            ("securityContext", "windowsOptions", "hostProcess"): at(context, "windowsOptions", "hostProcess"),
            ("hostPID",): of_a_class and raw.get("hostPID"),
            ("securityContext", "procMount"): context.get("procMount"),
        }
        for steps, value in flags.items():
            protected = names["flags"].find(steps[-1]) if value is True or value == UNMASKED else None
            if protected:
                yield Bypass((*path, *steps), f"{steps[-1]}: {text_of(value)}", protected, of_node=True)
        capabilities = at(context, "capabilities", "add")
        for capability in map(str, capabilities) if isinstance(capabilities, list) else ():
            protected = names["capabilities"].find(capability.upper().removeprefix("CAP_"))
            if protected and not protected.allows(host_pid, ()):
                where = f'the capability {shown(capability)} of the container "{raw.get("name")}"'
                yield Bypass((*path, "securityContext", "capabilities", "add"), where, protected, of_node=True)


def _of_container(container: Container, backend: str | None, names: Mapping[str, ProtectedNames]) -> Iterator[Bypass]:
    """Its resources, variables and mounts."""
    backends = [backend] if backend else []
    amounts = {**container.requests, **container.limits}
    for name, amount in amounts.items() if container.kind != pod.EPHEMERAL else ():
        protected = names["resources"].find(name)
        if protected and not protected.allows(text_of(amount), backends):
            path: Path = (*container.path, "resources", "limits" if name in container.limits else "requests", name)
            yield Bypass(path, f'the resource {shown(name)} of the container "{container.name}"', protected)
    for index, variable in enumerate(container.env):
        name = str(variable.get("name"))
        protected = names["env"].find(name)
        if protected is None:
            continue
        value = text_of(variable.get("value") or "")
        for source, chosen in mapping(variable, "valueFrom").items():
            if isinstance(chosen, dict):  # `fieldRef PATH`, `configMapKeyRef NAME`
                value = f"{source} {chosen.get('fieldPath') or chosen.get('name') or ''}"
                break
        if protected.allows(value, backends):
            continue
        path = (*container.path, "env", index)
        edit: Edit = Remove(path)
        if backend is None and protected.harmless:
            # Without a GPU a harmless value is better: an image may bring another one.
            harmless = protected.harmless[0]  # the API server stores no empty value
            edit = Put(path, {"name": name, "value": harmless} if harmless else {"name": name})
        where = f'{name}: "{shown(value)}" of the {container.kind} "{container.name}"'
        yield Bypass(path, where, protected, [edit])
    for index, mount in enumerate(objects(container.raw.get("volumeMounts"))):
        mounted = str(mount.get("mountPath"))
        for protected in names["mount_paths"].below(absolute(mounted)):
            if not protected.allows(mounted, backends):
                path = (*container.path, "volumeMounts", index, "mountPath")
                yield Bypass(path, f'the mount at {shown(mounted)} of the container "{container.name}"', protected)


def removal(pod: Pod, served: Served, rulebook: Rulebook) -> Sequence[Bypass]:
    """What /mutate takes from a pod, if its policy or the Cluster document says `remove`."""
    policy = member(pod.namespace, rulebook.tenancy).policy
    if action(policy, rulebook.cluster) != "remove":
        return ()
    return [bypass for bypass in find(pod, served, rulebook) if bypass.edits]


def removing(bypasses: Sequence[Bypass]) -> list[Edit]:
    """The edits that take these away, the last variable of a container first: removing one moves those after it."""
    return [edit for bypass in reversed(bypasses) for edit in bypass.edits]


def told(bypass: Bypass) -> str:
    """The warning to the author of a pod that loses it."""
    put = next((edit.value.get("value", "") for edit in bypass.edits if isinstance(edit, Put)), None)
    became = "was taken out" if put is None else f'became "{put}"'
    return f"{bypass.holder} {became}: it {bypass.protected.gives}"


def added(old: Pod, new: Pod, held: Served, rulebook: Rulebook) -> Iterator[Bypass]:
    """What an update adds, as a variable of an ephemeral container, or an annotation."""

    def what(pod: Pod, bypass: Bypass) -> tuple[str, str]:
        in_metadata = bypass.path[0] == "metadata"  # what else is found has its value in `holder`
        return bypass.holder, text_of(at(pod.raw, *bypass.path)) if in_metadata else ""

    before = {what(old, bypass) for bypass in find(old, held, rulebook)}
    yield from (bypass for bypass in find(new, held, rulebook) if what(new, bypass) not in before)


def is_mirrored(pod: Pod, user: str) -> bool:
    """Whether the kubelet of the pod's own node shows a pod that it runs from a file: to refuse it ends nothing."""
    node = pod.spec.get("nodeName")
    return bool(node) and user == f"system:node:{node}" and MIRROR in pod.annotations


def breaches(bypasses: Iterable[Bypass], access: Access | None) -> Iterator[Breach]:
    """A breach (GPU116) for each bypass; what /mutate has left of those that it removes is refused."""
    for bypass in bypasses if access else ():
        violation = Violation(
            code=CODE,
            path=field_path(bypass.path),
            message=f"{bypass.holder} {bypass.protected.gives}, {UNCOUNTED}",
            fix=FIX,
            rule=bypass.protected.rule,
        )
        yield Breach("deviceAccess", "warn" if access == "warn" else "deny", violation)


def may_be_in(raw: Mapping[str, Any], rulebook: Rulebook) -> bool:
    """Whether a pod of any size has a bypass, or cannot be read."""
    try:
        return any(find(pod.read(raw), {}, rulebook))
    except Refusal:
        return True
