"""The oracle of devices: which of them a stored pod reaches by its spec alone, and whether they were charged.

It reads a pod as a kubelet does, and as vendors document their systems (`tests.laws.vendors`); no rule of ours is
asked. Each way to a device is a function in WAYS.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from tests.attacks.fuzzing import api_server
from tests.laws import clusters
from tests.laws.outcome import given
from tests.laws.vendors import READINGS
from webhook.core.rules.catalog import Card

Object = Mapping[str, Any]

SOME: Final = Fraction(1, 10**9)
"""A device of which nobody here knows how much it is: any charge will do."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a container gets: at least so many devices, the way it does, and where that stands in the pod."""

    container: str
    devices: Fraction
    way: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A pod that is stored in one of the clusters of `tests.laws.clusters`; `any_card`: whatever cards that has."""

    pod: Object
    cluster: str
    any_card: bool = False

    @property
    def containers(self) -> Iterator[Object]:
        """Those that start with it."""
        return api_server.containers(self.pod["spec"])

    def cards(self, backend: str) -> Sequence[Card]:
        """The cards that a container may get."""
        return clusters.cards(backend) if self.any_card else [clusters.card(backend)]


Way = Callable[[Stored], Iterator[Device]]
"""Finds what a stored pod reaches."""

_DEVICES: Final = re.compile(
    r"""nvidia\.com/(gpu|mig-.+|gpu-[0-9]+gb|gpumem|gpumem-percentage|gpucores|priority|pgpu)(\.shared)?
    |amd\.com/(gpu|cpx_.+|spx_.+)|gpu\.intel\.com/(i915|xe)|habana\.ai/gaudi|google\.com/tpu
    |aws\.amazon\.com/neuron(core|device)?|k8s\.amazonaws\.com/vgpu
    |huawei\.com/(Ascend|npu-core).*|(aliyun\.com|elasticgpu\.(com|io))/q?gpu.*|tke\.cloud\.tencent\.com/qgpu-.*
    |tencent\.com/vcuda-.*|volcano\.sh/v?gpu-.*|koordinator\.sh/gpu.*|baidu\.com/.*cgpu.*
    |cambricon\.com/(mlu.*|vmlu|real-mlu.*)|hygon\.com/dcu.*|iluvatar\.(ai|com)/.*v?gpu.*|metax-tech\.com/(s?gpu|vcore)
    |mthreads\.com/v?gpu|enflame\.com/(drs-)?gcu|kunlunxin\.com/.+|birentech\.com/.*gpu|vastaitech\.com/va|furiosa\.ai/rngd|rebellions\.ai/(ATOM|REBEL|npu)
    |deviceclass\.resource\.kubernetes\.io/.+""",
    re.VERBOSE,
)
"""Resources that are a device, or a part of one, by the documents of their vendors."""


_VENDORS: Final = re.compile(
    r"""(nvidia|amd|gpu\.intel|google|huawei|aliyun|elasticgpu|tencent|tke\.cloud\.tencent|baidu|cambricon|hygon|iluvatar
    |metax-tech|mthreads|aws\.amazon|k8s\.amazonaws|enflame|kunlunxin|birentech|vastaitech)\.(com|io)/|habana\.ai/|iluvatar\.ai/
    |furiosa\.ai/|rebellions\.ai/|volcano\.sh/|koordinator\.sh/|deviceclass\.resource""",
    re.VERBOSE,
)
"""Resources of those vendors, whether they are a device or not."""


def by_resources(stored: Stored) -> Iterator[Device]:
    """A limit of a vendor's resource: its device plugin hands a device to the container."""
    for container in stored.containers:
        limits = (container.get("resources") or {}).get("limits") or {}
        for name, value in limits.items():
            if _DEVICES.fullmatch(name) and api_server.amount(value) > 0:
                yield Device(container["name"], SOME, f"the limit {name}")


def by_claims(stored: Stored) -> Iterator[Device]:
    """A claim of the pod is allocated, whether a container uses it or not."""
    for claim in stored.pod["spec"].get("resourceClaims") or ():
        users = [
            container["name"]
            for container in stored.containers
            for each in (container.get("resources") or {}).get("claims") or ()
            if each.get("name") == claim["name"]
        ]
        yield Device(users[0] if users else "", SOME, f"the claim {claim['name']}")


def by_vendors_words(stored: Stored) -> Iterator[Device]:
    """What the vendor of a back end makes of resources, annotations, labels and nodes together.

    Where there are all back ends, nobody tells whose a resource is; then only annotations are read.
    """
    # The pod with no resources but those of vendors.
    spec = dict(stored.pod["spec"])
    for section in ("initContainers", "containers"):
        if spec.get(section):
            spec[section] = [{**each, "resources": _vendors(each.get("resources") or {})} for each in spec[section]]
    bare = {**stored.pod, "spec": spec}
    for container in api_server.containers(bare["spec"]):
        for name in _speaking(container["resources"]["limits"], stored.cluster):
            parts = [_read(bare, container["name"], name, card) for card in stored.cards(name)]
            if known := [part for part in parts if part]:
                devices = SOME if stored.cluster == clusters.ALL else min(known)
                yield Device(container["name"], devices, f"the words of {name}")


def _speaking(limits: Object, cluster: str) -> Iterator[str]:
    """The back ends that may give something for these limits, and the annotations of the pod."""
    if cluster == clusters.ALL:
        yield from _ANNOTATED
    elif cluster in _ANNOTATED or (
        cluster in READINGS and any(name.startswith(_OF.get(cluster, "")) for name in limits)
    ):
        yield cluster


_NO_DEVICES: Final = ("", "none", "void")
_VARIABLES: Final = re.compile("(NVIDIA|AMD|ASCEND|HABANA|CAMBRICON)_VISIBLE_DEVICES")


def by_variables(stored: Stored) -> Iterator[Device]:
    """Runtimes of these vendors give the devices that a variable names to any container that has it."""
    for container in stored.containers:
        for variable in container.get("env") or ():
            unknown = isinstance(variable.get("valueFrom"), dict)
            if _VARIABLES.fullmatch(variable.get("name", "")) and (
                unknown or variable.get("value", "") not in _NO_DEVICES
            ):
                yield Device(container["name"], SOME, variable["name"])


_CDI: Final = re.compile(r"[\w.-]+/[\w.-]+=[\w.:-]+(,[\w.-]+/[\w.-]+=[\w.:-]+)*")
_ANNOTATIONS: Final = re.compile(r"(cdi-)?devices\.nri\.io(/.*)?")


def by_annotations(stored: Stored) -> Iterator[Device]:
    """CRI-O and Kata read CDI's annotations, and an NRI plugin those of its own; `pgpu=0` is Kata's virtual card."""
    for key, value in (stored.pod["metadata"].get("annotations") or {}).items():
        named = key.startswith("cdi.k8s.io/") and _CDI.fullmatch(value) and value != "nvidia.com/pgpu=0"
        if named or (_ANNOTATIONS.fullmatch(key) and value):
            yield Device("", SOME, f"the annotation {key}")


def by_privileges(stored: Stored) -> Iterator[Device]:
    """A privileged container has every device; CAP_SYS_ADMIN makes nodes of devices, as capitals of Go read it."""
    for container in stored.containers:
        context = container.get("securityContext") or {}
        if context.get("privileged") is True:
            yield Device(container["name"], SOME, "privileged")
        for name in (context.get("capabilities") or {}).get("add") or ():
            plain = name.upper().removeprefix("CAP_")
            traces = plain == "SYS_PTRACE" and stored.pod["spec"].get("hostPID") is True
            if traces or plain in {"ALL", "SYS_ADMIN", "SYS_RAWIO", "BPF"}:
                yield Device(container["name"], SOME, f"the capability {name}")


_OF_NODES: Final = re.compile(
    "/dev(/(nvidia.*|dri|mem|vfio))?|/proc|/sys|/run(/containerd|/docker.sock)?|/|/var|/var/run"
)
_BY_NAME: Final = "/var/run/nvidia-container-devices"


def by_mounts(stored: Stored) -> Iterator[Device]:
    """Devices and sockets of runtimes are files of the node; NVIDIA's toolkit reads devices from names of mounts."""
    volumes = {each["name"]: each.get("hostPath") for each in stored.pod["spec"].get("volumes") or ()}
    for container in stored.containers:
        for mount in container.get("volumeMounts") or ():
            host = volumes.get(mount["name"])
            path = _cleaned(host["path"]) if isinstance(host, dict) else ""
            if path and _OF_NODES.fullmatch(path.replace("/var/run", "/run", 1)):
                yield Device(container["name"], SOME, f"the host path {path}")
            if _cleaned(mount["mountPath"]).startswith(f"{_BY_NAME}/"):
                yield Device(container["name"], SOME, f"the mount {mount['mountPath']}")


def _cleaned(path: str) -> str:
    """A path as a node takes it, whose /var/run is a link to /run."""
    return posixpath.normpath(f"//{path}")[1:]


_ANNOTATED: Final = frozenset({"kai", "runai"})
"""Systems that give devices for annotations alone."""


_OF: Final = {"iluvatar-vcuda": "iluvatar.ai/v"}
"""Systems whose reading takes a container for theirs that has no resource of them."""


def _vendors(resources: Object) -> Object:
    limits = resources.get("limits") or {}
    return {**resources, "requests": {}, "limits": {name: limits[name] for name in limits if _VENDORS.match(name)}}


def _read(pod: Object, container: str, backend: str, card: Card) -> Fraction | None:
    """The devices that the vendor gives; None if its system does not take what is asked."""
    try:
        found = given(backend, pod, container, card)
    except (AssertionError, LookupError, ValueError, TypeError, AttributeError, StopIteration):
        return None
    return found.devices * min(Fraction(1), max(found.part, (found.cores or Fraction(0)) / 100))


WAYS: Final[Sequence[Way]] = (
    by_resources,
    by_claims,
    by_vendors_words,
    by_variables,
    by_annotations,
    by_privileges,
    by_mounts,
)
"""All ways to a device."""


def free(pod: Object, cluster: str, charged: Fraction) -> list[Device]:
    """What the pod reaches without being charged for it; nothing if the charge is enough for all of it together.

    A pod may select other cards than the one of its cluster; it is not asked how.
    """
    for any_card in (False, True):
        found = [device for way in WAYS for device in way(Stored(pod, cluster, any_card))]
        if effective(pod["spec"], found) <= charged:
            return []
    return found


def effective(spec: Object, found: Sequence[Device]) -> Fraction:
    """What the containers have at the same time, at most: init containers end before the others start."""
    most: dict[str, Fraction] = {}
    for device in found:
        most[device.container] = max(most.get(device.container, Fraction(0)), device.devices)
    staying, peak = Fraction(0), Fraction(0)
    for container in spec.get("initContainers") or ():
        own = most.pop(container["name"], Fraction(0))
        if container.get("restartPolicy") == "Always":
            staying += own
        else:
            peak = max(peak, staying + own)
    return max(peak, staying + sum(most.values()))
