"""An installation by the real helm; its programs run on this machine, by what the stored objects say."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster import binaries
from tests.cluster.accounts import NAMESPACE, SETTLER, kubeconfig_of
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Object
from tests.cluster.installation import SERVING, Installation, servers
from tests.cluster.plane import free_port
from tests.cluster.processes import Process
from tests.cluster.rollouts import Rollouts
from tests.cluster.waiting import until
from tests.cluster.webhook import PROGRAM, shipped
from tests.server.test_changed_rules import Volume

RELEASE = "gpu-webhook"


def helm(client: Client, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> list[str]:
    """Run helm against a cluster, with values if there are some; the lines that it prints."""
    given = [] if values is None else ["--values=-"]
    done = subprocess.run(
        [binaries.helm(), *arguments, *given, f"--namespace={NAMESPACE}"],
        env={
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(client.kubeconfig),
            "HOME": str(client.kubeconfig.parent),
        },
        input=None if values is None else json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


@dataclass(slots=True)
class Release:
    """A release of the chart whose certificate program, one replica and settler run."""

    installed: Installation
    rollouts: Rollouts
    folder: Path
    settler: Process
    rules: Volume

    @property
    def client(self) -> Client:
        """An administrator."""
        return self.installed.client

    def upgrade(self, values: Mapping[str, Any]) -> None:
        """Upgrade with other values; as controllers do, mount the ConfigMaps and replace the settler."""
        helm(self.client, "upgrade", RELEASE, self.folder, values=values)
        self.rollouts.mount_rules()
        self.rules.publish(self.rollouts.mounted())
        self.settler.stop()
        self.settler = _settler(self.installed, self.rules.directory)


def _settler(installed: Installation, rules: Path) -> Process:
    """A settler with the arguments of the stored Deployment."""
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SETTLER, "namespace": NAMESPACE},
    }
    [container] = installed.client.get(deployment)["spec"]["template"]["spec"]["containers"]
    port = free_port()
    here = {"--bind": f"--bind=127.0.0.1:{port}", "--rules": f"--rules={rules}"}
    words = [here.get(word.partition("=")[0], word) for word in container["args"]]
    kubeconfig = kubeconfig_of(installed.planes[0], SETTLER)
    return installed.planes[0].processes.start(
        f"settler-{port}", PROGRAM, *words, env={"KUBECONFIG": str(kubeconfig)}
    )


def _active(client: Client) -> bool:
    stored = [client.get(configuration) for configuration in shipped()]
    return all(hook.get("rules") for configuration in stored for hook in configuration["webhooks"])


@contextmanager
def release(
    programs: Binaries, made: Path, folder: Path, values: Mapping[str, Any], *objects: Object, **namespaces: Object
) -> Iterator[Release]:
    """A chart from its installation until its webhooks are active.

    Objects, and policies of namespaces, come before that. In the folder are the rules of the settler.
    """
    with ExitStack() as stack:
        installed = stack.enter_context(servers(programs, count=1))
        installed.publish()
        helm(installed.client, "install", RELEASE, made, "--create-namespace", values=values)
        for each in objects:
            installed.client.create(each)
        for name, policy in namespaces.items():
            installed.client.in_namespace(name)
            installed.client.create(policy)
        stack.enter_context(installed.issuer(rights=None))
        until(lambda: installed.stored(SERVING), "the serving Secret", within=60)
        rollouts = Rollouts(installed)
        stack.callback(rollouts.close)
        rules = Volume(folder / "rules")
        rules.publish(rollouts.mounted())
        settler = _settler(installed, folder / "rules")
        rollouts.scale()
        until(partial(_active, installed.client), "the webhooks are active", within=90)
        yield Release(installed, rollouts, made, settler, rules)
