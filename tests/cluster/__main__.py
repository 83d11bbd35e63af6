"""`make cluster`: a real API server with the webhook registered, for a person to try, until Ctrl-C."""

import shlex
import shutil
import signal
import sys
from types import FrameType
from typing import NoReturn

from tests.cluster import binaries
from tests.cluster.plane import ControlPlane, control_plane
from tests.cluster.processes import Process
from tests.cluster.tenancy import world
from tests.cluster.webhook import Webhook, register
from tests.missing import UnavailableError

GUIDE = """\
Ready: a real API server with the webhook in front of it. There are no nodes, so pods stay Pending.
In another terminal, paste:

{kubectl} create -f - <<EOF
apiVersion: v1
kind: Pod
metadata:
  name: third
  labels: {{gpu: "0.3"}}
spec:
  containers:
  - {{name: main, image: nginx}}
EOF
{kubectl} get pod third -o yaml

and look at spec.containers[0].resources: the label asks for 0.3 of a GPU, the limits ask for the same in the
words of a back end (webhook/console/demo/cluster.yaml says which). What makes no sense is refused, with a way out:

{kubectl} run odd --image nginx --labels gpu=1.5

Tenants have limits, which hold whoever asks at the same time:

{kubectl} create -f - <<EOF
apiVersion: gpu-webhook.io/v1alpha1
kind: TenantPolicy
metadata: {{name: vision}}
spec:
  namespaces: {{names: [default]}}
  quota: {{devices: 2}}
EOF
{kubectl} wait tenantpolicy/vision --for=condition=Accepted --timeout=60s
{kubectl} run many --image nginx --labels gpu=3
{kubectl} get tenantusage

API server     {url}
kubeconfig     {kubeconfig}
webhook's log  {log}
settler's log  {settler}

Ctrl-C here takes all of it down.
"""


def main() -> int:
    """Start everything, say how to use it, and wait for the end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return _run()
    except KeyboardInterrupt:
        _say("\nTaken down.")
        return 0
    except UnavailableError as reason:
        _say(f"There is no control plane: {reason}")
        return 1


def _run() -> int:
    programs = binaries.find(_say)
    _say("Starting etcd, kube-apiserver, the webhook and the settler ...")
    with control_plane(programs, controllers=programs.has_controllers) as plane:
        world.define(plane.client)
        with world.attached_webhook(plane, "webhook") as webhook:
            settler = world.start_settler(plane)
            register(plane.client, webhook)
            _say(_guide(plane, webhook, settler))
            webhook.process.popen.wait()
            _say(f"The webhook has ended:\n{webhook.process.tail()}")
            return 1


def _guide(plane: ControlPlane, webhook: Webhook, settler: Process) -> str:
    client = plane.client
    kubectl = "kubectl" if shutil.which("kubectl") else shlex.quote(str(client.kubectl_path))
    return GUIDE.format(
        kubectl=f"{kubectl} --kubeconfig {client.kubeconfig}",
        url=client.url,
        kubeconfig=client.kubeconfig,
        log=webhook.process.log,
        settler=settler.log,
    )


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  this is a command


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
