"""Our own server, started as a user starts it, and registered with a control plane as the manifests do."""

import base64
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from certs import activation
from tests.cluster.client import Client, Object, RefusedError
from tests.cluster.plane import ControlPlane, accepts, free_port
from tests.cluster.processes import Process
from tests.cluster.waiting import until
from webhook.playground import imagined

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("gpu-webhook")
MANIFEST = ROOT / "manifests" / "base" / "webhook-configurations.yaml"
MUTATE = "mutate.gpu-webhook.io"
VALIDATE = "validate.gpu-webhook.io"
OF_LEASES = frozenset({"active.gpu-webhook.io", "ping.gpu-webhook.io"})
"""What only the certificate program has called."""

_CALLED = re.compile(
    r'^apiserver_admission_webhook_request_total\{.*name="(?P<name>[^"]+)".*\} (?P<count>\d+)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Webhook:
    """A running admission server."""

    url: str
    authority: bytes
    process: Process


@contextmanager
def running_webhook(
    plane: ControlPlane, *, rules: Path | None = None, surroundings: Path | None = None
) -> Iterator[Webhook]:
    """Start the server on a free port with a certificate of its own, and await it; it ends with the block.

    Without `rules` it has those of `make run`, and so its imagined cluster.
    """
    port = free_port()
    state = plane.processes.folder / f"webhook-{port}"
    process = plane.processes.start(
        f"webhook-{port}",
        PROGRAM,
        "serve",
        f"--bind=127.0.0.1:{port}",
        f"--rules={rules or imagined(state / 'rules')}",
        *([f"--surroundings={surroundings}"] if surroundings else []),
        env={"XDG_STATE_HOME": str(state)},
        farewell=signal.SIGINT,  # gunicorn's quick end; SIGTERM drains for ten seconds
    )
    certificate = state / "gpu-webhook" / "tls.crt"

    def answers() -> bool:
        process.assert_running()
        return certificate.exists() and accepts(port)

    try:
        until(answers, "the webhook listens", within=30)
        yield Webhook(f"https://127.0.0.1:{port}", certificate.read_bytes(), process)
    finally:
        process.stop()


def shipped() -> list[dict[str, Any]]:
    """Both webhook configurations of the shipped manifest: not active."""
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def configurations() -> list[dict[str, Any]]:
    """Both of them with the rules that the certificate program gives them."""
    made = shipped()
    for configuration in made:
        for place, rules in activation.inactive(configuration).items():
            configuration["webhooks"][place]["rules"] = rules
    return made


def activate(client: Client) -> None:
    """Give the configurations that were applied their rules, as the certificate program does when replicas answer."""
    for made in configurations():
        rules = {hook["name"]: hook["rules"] for hook in made["webhooks"]}
        stored = client.get(made)
        client.update({**stored, "webhooks": [{**hook, "rules": rules[hook["name"]]} for hook in stored["webhooks"]]})


def register(client: Client, webhook: Webhook) -> None:
    """Send the shipped configurations, pointed at a server outside the cluster, and await their enforcement."""
    point(client, webhook)
    await_enforcement(client)


def point(client: Client, webhook: Webhook) -> None:
    """Send the shipped configurations, pointed at a server; the API server may go on asking another for a while."""
    for configuration in configurations():
        client.apply(_pointed_at(webhook, configuration))


def unregister(client: Client) -> None:
    """Take both configurations away; pods are admitted without us from about now on."""
    for configuration in configurations():
        client.delete(configuration)


def calls(client: Client) -> dict[str, int]:
    """How often the API server has called each of our webhooks, as it counts itself."""
    counted = {MUTATE: 0, VALIDATE: 0}
    for found in _CALLED.finditer(client.text("/metrics")):
        counted[found["name"]] = counted.get(found["name"], 0) + int(found["count"])
    return counted


def await_enforcement(client: Client) -> None:
    """Try a pod that asks for a GPU, on dry run, until it comes back rewritten and both webhooks were called."""
    before = calls(client)

    def enforced() -> bool:
        try:
            answer = client.create(_PROBE, dry_run=True)
        except RefusedError as refusal:
            return _not_there_yet(refusal)
        after = calls(client)
        return "limits" in answer["spec"]["containers"][0]["resources"] and all(
            after[name] > before[name] for name in (MUTATE, VALIDATE)
        )

    until(enforced, "the webhook configurations are enforced", within=30)


def _not_there_yet(refusal: RefusedError) -> bool:
    """False for a webhook that cannot be called yet, or knows too little; a refusal by the webhook is an error."""
    if "failed calling webhook" in str(refusal) or refusal.code == HTTPStatus.SERVICE_UNAVAILABLE:
        return False
    raise refusal


_PROBE: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "enforcement-probe", "labels": {"gpu": "1"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


def _pointed_at(webhook: Webhook, configuration: dict[str, Any]) -> dict[str, Any]:
    """The configuration with our URL and CA bundle where the manifest names a Service."""
    for hook in configuration["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        bundle = base64.b64encode(webhook.authority).decode()
        hook["clientConfig"] = {"url": webhook.url + path, "caBundle": bundle}
    return configuration
