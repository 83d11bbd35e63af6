"""The Kubernetes API, as far as this program needs it: single objects, compare-and-swap, and what time it is there.

`webhook.cluster.client` is richer, and not imported: the two programs share no code, so that none of the server's is
in the one process that holds the CA's key.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientError, ClientTimeout
from kubernetes.aio import client, config

Object = Mapping[str, Any]

OURS: Final = ".gpu-webhook.io"
"""What the names of our webhooks end in. Others in the same configurations are left alone."""

SECONDS: Final = 10.0
"""For one request; the API server waits for a webhook for 5 s."""


class Site:
    """The names and paths of everything this program reads and writes."""

    def __init__(self, namespace: str = "gpu-webhook-system") -> None:
        secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self.namespace = namespace
        self.service = self.configuration = "gpu-webhook"
        self.program = "gpu-webhook-certs"
        """The Deployment of this program."""
        full = f"{self.service}.{namespace}.svc"  # the name that the API server asks for
        self.names = (self.service, f"{self.service}.{namespace}", full, f"{full}.cluster.local")
        """What a leaf serves."""
        self.authorities = f"{secrets}/{self.service}-ca"
        """The Secret with the keys of the CAs. No serving pod mounts it."""
        self.serving = f"{secrets}/{self.service}-tls"
        """The Secret that replicas mount."""
        self.deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{self.service}"
        self.configurations = {
            kind: f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{self.configuration}"
            for kind in ("mutating", "validating")
        }


class Address(NamedTuple):
    """An IP address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ApiError(Exception):
    """The API server refused or failed, or its answer is not known; the message is for people."""


class MissingError(ApiError):
    """There is no such object."""


class ConflictError(ApiError):
    """The object has been written since it was read, or exists already."""


_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    HTTPStatus.NOT_FOUND: MissingError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.UNPROCESSABLE_ENTITY: ConflictError,  # a `test` of a JSON Patch that fails
}


class Api:
    """A cluster, or one of its API servers."""

    def __init__(self, connected: client.ApiClient, url: str = "") -> None:
        self._client = connected
        # Kept here because a pod's configuration gets the Service's again whenever it is asked for the token.
        self._url: str = url or connected.configuration.host
        self._date = (datetime.min.replace(tzinfo=UTC), 0.0)

    @property
    def now(self) -> datetime:
        """The time of the API server that answered last.

        API servers decide whether a certificate is valid, by their clocks. This machine's may be wrong.
        """
        date, heard = self._date
        return date + timedelta(seconds=monotonic() - heard)

    def of(self, host: str, port: int) -> Api:
        """The API server at an address; its certificate is expected to be for the name that the cluster has."""
        settings = copy.copy(self._client.configuration)
        settings.tls_server_name = settings.tls_server_name or urlsplit(self._url).hostname
        return Api(client.ApiClient(settings), f"https://{Address(host, port)}")

    async def find(self, path: str) -> Object | None:
        """One object, as it is now, or None if there is none."""
        try:
            return (await self.send("GET", path))[0]
        except MissingError:
            return None

    async def put(self, path: str, changed: Object, present: Object | None) -> Object:
        """Compare and swap: create the object, or replace it if nobody has written it since `present` was read."""
        method, target = ("POST", path.rpartition("/")[0]) if present is None else ("PUT", path)
        return (await self.send(method, target, changed))[0]

    async def patch(self, path: str, operations: Sequence[Object]) -> None:
        """A JSON Patch; one that has a field which the API server does not know, and would drop, is refused."""
        await self.send("PATCH", f"{path}?fieldValidation=Strict", operations, "application/json-patch+json")

    async def send(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> tuple[Object, Sequence[str]]:
        """One request: the object, and the values of the header `Warning`; raises ApiError for any other answer."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        url, limits = self._url + path, ClientTimeout(SECONDS)
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            sent = await self._client.call_api(method, url, headers, body, _request_timeout=limits)
            async with sent.response as response:
                text = await response.read()
            if "Date" in response.headers:
                self._date = parsedate_to_datetime(response.headers["Date"]), monotonic()
            content = json.loads(text)
            if not isinstance(content, dict):
                raise ValueError(f"the answer is no object: {text[:100]!r}")  # noqa: TRY004, TRY301 - of a value
        except (ClientError, OSError, TimeoutError, ValueError) as error:
            raise ApiError(f"{method} {path} failed: {str(error) or repr(error):.300}") from None
        if response.status >= HTTPStatus.BAD_REQUEST:
            kind = _ERRORS.get(response.status, ApiError)
            raise kind(f"{method} {path} was answered with {response.status}: {content.get('message', '')!s:.300}")
        return content, response.headers.getall("Warning", ())

    async def close(self) -> None:
        """End all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]  # the library leaves it so


def additions(present: Object, values: Mapping[str, Any]) -> Sequence[Object]:
    """The JSON Patch that adds values, by their paths, if the object has not changed since it was read."""
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": present["metadata"]["resourceVersion"]},
        *({"op": "add", "path": path, "value": value} for path, value in values.items()),
    ]


async def connect() -> Api:
    """The cluster of the pod this runs in, else the kubeconfig's current one; raises ApiError if there is none."""
    settings = client.Configuration()
    # Python 3.13 demands extensions of a CA that those of EKS and MicroK8s lack; Go's clients do not ask for them.
    settings.disable_strict_ssl_verification = True
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            config.load_incluster_config(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
        else:
            await config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the same
    except config.ConfigException as error:
        raise ApiError(f"no cluster to ask: {error}") from None
    return Api(client.ApiClient(settings))
