"""The Secrets and webhook configurations as they are stored, and our values in them: read leniently, written whole.

Whatever cannot be read counts as missing: an operator may have deleted it, or have written anything into it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from certs import issue
from certs.issue import Pair
from certs.rotation import Authorities

Object = Mapping[str, Any]

PROBE: Final = "probe.gpu-webhook.io"
"""The webhook in each of our configurations that comes to this program instead of the replicas."""

OURS: Final = ".gpu-webhook.io"
"""What the names of our webhooks end in. Others in the same configurations are left alone."""

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"


class Site(NamedTuple):
    """The names of everything this program reads and writes."""

    namespace: str = "gpu-webhook-system"
    service: str = "gpu-webhook"
    own_service: str = "gpu-webhook-certs"
    configuration: str = "gpu-webhook"

    @property
    def names(self) -> Sequence[str]:
        """What a leaf serves. This program's own are among them, so that it can show the very leaf (probe.py)."""
        return (
            *issue.service_names(self.service, self.namespace),
            *issue.service_names(self.own_service, self.namespace),
        )

    @property
    def secrets(self) -> str:
        """The path of all Secrets of the namespace."""
        return f"/api/v1/namespaces/{self.namespace}/secrets"

    @property
    def authorities(self) -> str:
        """The path of the Secret with the CA's key. No serving pod mounts it."""
        return f"{self.secrets}/{self.service}-ca"

    @property
    def serving(self) -> str:
        """The path of the Secret that replicas mount."""
        return f"{self.secrets}/{self.service}-tls"

    @property
    def deployment(self) -> str:
        """The path of the replicas' Deployment."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.service}"

    @property
    def configurations(self) -> Mapping[str, str]:
        """The path of each configuration, by a word for it."""
        return {
            kind: f"{_CONFIGURATIONS}/{kind}webhookconfigurations/{self.configuration}"
            for kind in ("mutating", "validating")
        }


def secret(path: str, kind: str, present: Object | None, data: Mapping[str, bytes]) -> Object:
    """A Secret to be written: the present one with other values, or a new one of that kind.

    Keys that are not ours stay: a Secret that cert-manager left is of the kind kubernetes.io/tls, which demands two.
    """
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    if present is not None:
        return {**present, "data": {**(present.get("data") or {}), **encoded}}
    namespace, _, name = path.rpartition("/namespaces/")[2].split("/")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": "gpu-webhook-certs"}},
        "type": kind,
        "data": encoded,
    }


def pair(stored: Object | None) -> Pair | None:
    """The certificate and key of a Secret of the kind kubernetes.io/tls."""
    found = Pair(_value(stored, "tls.crt"), _value(stored, "tls.key"))
    return found if all(found) else None


def authorities(stored: Object | None) -> Authorities:
    """What the Secret of CAs says. Each of its values may be lost without the others."""
    signer = Pair(_value(stored, "ca.crt"), _value(stored, "ca.key"))
    return Authorities(signer if all(signer) else None, issue.certificates(_value(stored, "trusted.crt")))


def authorities_data(known: Authorities) -> Mapping[str, bytes]:
    """The data of the Secret of CAs."""
    signer = known.signer or Pair(b"", b"")
    return {"ca.crt": signer.certificate, "ca.key": signer.key, "trusted.crt": b"".join(known.trusted)}


def bundles(configuration: Object) -> Iterator[tuple[int, str, bytes]]:
    """The place, the name and the CA bundle of each of our webhooks in a configuration."""
    for place, hook in enumerate(configuration.get("webhooks") or ()):
        if hook["name"].endswith(OURS):
            yield place, hook["name"], _decoded(hook["clientConfig"].get("caBundle"))


def additions(present: Object, values: Mapping[str, Any]) -> Sequence[Object]:
    """The JSON Patch that adds values, by their paths, if the object has not changed since it was read."""
    version = present["metadata"]["resourceVersion"]
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        *({"op": "add", "path": path, "value": value} for path, value in values.items()),
    ]


def publication(configuration: Object, bundle: bytes) -> Sequence[Object]:
    """The JSON Patch that gives our webhooks the bundle, if the configuration has not changed since it was read."""
    encoded = base64.b64encode(bundle).decode()
    others = (place for place, _, present in bundles(configuration) if present != bundle)
    return additions(configuration, {f"/webhooks/{place}/clientConfig/caBundle": encoded for place in others})


def with_bundle(configuration: Object, bundle: bytes) -> Object:
    """The configuration with this CA bundle in all of our webhooks."""
    encoded = base64.b64encode(bundle).decode()
    hooks = [
        {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": encoded}}
        if hook["name"].endswith(OURS)
        else hook
        for hook in configuration.get("webhooks") or ()
    ]
    return {**configuration, "webhooks": hooks}


def found(serving: Object | None, configurations: Mapping[str, Object], at: datetime) -> Sequence[bytes]:
    """Every valid certificate beside the leaf, and in the bundles of our webhooks."""
    said = [bundle for each in configurations.values() for _, _, bundle in bundles(each)]
    valid = (each for bundle in (_value(serving, "ca.crt"), *said) for each in issue.split(bundle, at))
    return tuple(dict.fromkeys(valid))


def _value(stored: Object | None, key: str) -> bytes:
    return _decoded(((stored or {}).get("data") or {}).get(key))


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "")
    except binascii.Error:
        return b""
