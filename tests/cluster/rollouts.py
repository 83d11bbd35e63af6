"""The Deployment of the admission servers, run as controllers and kubelets do: by what the stored object says.

The pods are processes of this machine, of the container `webhook` alone. Left out is what would only give a restart
more time: `minReadySeconds`, and the seconds that a kubelet takes to probe.
"""

import contextlib
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.accounts import NAMESPACE, WEBHOOK, kubeconfig_of
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.installation import SERVING, SITE, Image, Installation, Replica, is_ready, write
from tests.cluster.plane import free_port
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM
from tests.server.test_changed_rules import Volume

DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "gpu-webhook", "namespace": NAMESPACE},
}
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap"}
LATE_SECONDS = 1.0
"""The longest that the controller of EndpointSlices takes here to mark a pod that is being deleted."""


SERVING_REVIEWS = Image([PROGRAM])


@dataclass(slots=True)
class Pod:
    """A replica, and the volume of its rules."""

    replica: Replica
    rules: Volume
    image: Image


@dataclass(slots=True)
class Rollouts:
    """The pods of the Deployment in one installation; `ended` has the exit code and seconds of those that left."""

    installed: Installation
    pods: list[Pod] = field(default_factory=list)
    ended: list[tuple[int, float]] = field(default_factory=list)
    _leaving: list[threading.Timer] = field(default_factory=list)

    @property
    def spec(self) -> Any:
        """The stored Deployment's spec."""
        return self.installed.client.get(DEPLOYMENT)["spec"]

    @property
    def container(self) -> Any:
        """The admission server's container."""
        return next(each for each in self.spec["template"]["spec"]["containers"] if each["name"] == "webhook")

    @property
    def probed_seconds(self) -> float:
        """The longest that a kubelet takes to give up a pod that answers no more, but for the last probe's second."""
        probe = self.container["readinessProbe"]
        return float(probe["periodSeconds"] * probe["failureThreshold"])

    def scale(self, image: Image = SERVING_REVIEWS) -> None:
        """Start as many pods as the Deployment wants."""
        while len(self.pods) < self.spec["replicas"]:
            self.pods.append(self._started(image))
        self.report(image)

    def replace(self, image: Image = SERVING_REVIEWS) -> None:
        """Replace the oldest pod, with maxSurge 1 and maxUnavailable 0; those before it may still be leaving."""
        assert self.spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
        self.pods.append(self._started(image))
        self.delete(self.pods[0])
        self.report(image)

    def report(self, image: Image) -> None:
        """The status of the Deployment, as its controller writes it while its template has this image."""
        updated = sum(pod.image is image for pod in self.pods)
        report(self.installed.client, replicas=len(self.pods), updated=updated)

    def delete(self, pod: Pod) -> None:
        """What a kubelet does with a deleted pod, and at the same time the controller of EndpointSlices."""
        self.pods.remove(pod)
        spec = self.spec
        pause = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        grace = float(spec["template"]["spec"]["terminationGracePeriodSeconds"])
        late = random.uniform(0, LATE_SECONDS)  # noqa: S311  not a secret
        leaving = [
            threading.Timer(late, self._unpublish, (pod.replica.port,)),
            threading.Timer(pause, self._end, (pod.replica, grace - pause)),
        ]
        for each in leaving:
            each.start()
        self._leaving += leaving

    def fail(self, pod: Pod, how: signal.Signals) -> None:
        """End (SIGKILL) or freeze (SIGSTOP) a pod's program; its endpoint stays for as long as a kubelet probes."""
        self.pods.remove(pod)
        self.installed.replicas.remove(pod.replica)
        pod.replica.process.send(how)
        noticed = time.monotonic() + self.probed_seconds
        until(lambda: time.monotonic() > noticed, "the kubelet gives the pod up", within=60)
        self._publish(pod.replica.port, ready=False)
        pod.replica.process.kill()

    def mount_rules(self) -> None:
        """All kubelets bring changed rules into the pods."""
        for pod in self.pods:
            pod.rules.publish(self.mounted())

    def await_ends(self) -> None:
        """Wait for all pods that are leaving."""
        while self._leaving:
            self._leaving.pop().join()

    def close(self) -> None:
        """Delete every pod that is left, without a pause."""
        self.await_ends()
        for pod in self.pods:
            pod.replica.process.popen.send_signal(signal.SIGINT)

    # One pod

    def _started(self, image: Image) -> Pod:
        """A new pod, ready and an endpoint of the Service."""
        port, stored = free_port(), self.installed.client.get(SERVING)
        name = f"pod-{port}-{len(self.ended)}"
        folder = self.installed.planes[0].processes.folder / name
        write(folder, stored)
        rules = Volume(folder / "rules")
        rules.publish(self.mounted())
        process = self.installed.planes[0].processes.start(
            name,
            *image.command,
            *(_here(word, folder, port) for word in self.container["args"]),
            env={"KUBECONFIG": str(kubeconfig_of(self.installed.planes[0], WEBHOOK)), **image.env},
            farewell=signal.SIGINT,
        )
        replica = Replica(port, folder, process, stored["metadata"]["resourceVersion"])
        until(partial(is_ready, process, port), f"{process.name} is ready", within=60)
        self.installed.replicas.append(replica)
        self._publish(port)
        return Pod(replica, rules, image)

    def mounted(self) -> dict[str, str]:
        """The files of the ConfigMaps that the volume `rules` projects."""
        volume = next(each for each in self.spec["template"]["spec"]["volumes"] if each["name"] == "rules")
        names = [source["configMap"]["name"] for source in volume["projected"]["sources"]]
        read = [
            self.installed.client.get({**CONFIG_MAP, "metadata": {"name": name, "namespace": NAMESPACE}})
            for name in names
        ]
        return {name: text for each in read for name, text in each["data"].items()}

    def _publish(self, port: int, **conditions: bool) -> None:
        self.installed.slice(SITE.service, NAMESPACE, port, port, **conditions)

    def _unpublish(self, port: int) -> None:
        with contextlib.suppress(RefusedError):  # its namespace may be gone
            self._publish(port, ready=False, terminating=True)

    def _end(self, replica: Replica, granted: float) -> None:
        """SIGTERM, and no SIGKILL: the seconds that are granted have to be enough."""
        began = time.monotonic()
        replica.process.popen.send_signal(signal.SIGTERM)
        code = replica.process.popen.wait(granted)
        self.installed.replicas.remove(replica)
        self.ended.append((code, time.monotonic() - began))


def report(client: Client, *, replicas: int, updated: int) -> None:
    """Write how far a rollout is; the last old replica ended long ago."""
    generation = client.get(DEPLOYMENT)["metadata"]["generation"]
    status = {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated}
    client.patch(DEPLOYMENT, {"status": status}, subresource="status")


def _here(word: str, folder: Path, port: int) -> str:
    """An argument of the container for this machine."""
    places = {
        "0.0.0.0:8443": f"0.0.0.0:{port}",
        "0.0.0.0:8444": "127.0.0.1:0",
        "/etc/gpu-webhook/rules": f"{folder}/rules",
        "/etc/gpu-webhook/tls": f"{folder}/data",
        "/run/gpu-webhook": str(folder),
    }
    for there, here in places.items():
        word = word.replace(there, here)
    return word
