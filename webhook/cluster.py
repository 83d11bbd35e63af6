"""The Kubernetes API for commands and threads: lists in pages, and changes as they come.

Programs with an event loop have `webhook.api`. The `kubernetes` library costs half a second and 55 MiB: nothing that
serves reviews may import this. Objects stay what they came as; of the library we take how to find a cluster and how
to log in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from webhook.core.document import API_VERSION

T = TypeVar("T")

PAGE: Final = 500
"""Objects asked for at once: a list of thousands of nodes in one piece would be hundreds of megabytes here."""

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"

TENANTS: Final = f"/apis/{API_VERSION}"

CONNECT_SECONDS: Final = 5
LIST_SECONDS: Final = 60
WATCH_SECONDS: Final = 240
"""After so long the API server ends a watch, and it is begun again where it stood: a dead one is found out."""


class ClusterError(Exception):
    """The API did not answer, or said no; the message is for people."""


class GoneError(ClusterError):
    """The API server no longer knows what came after a version: list again."""


class AbsentError(ClusterError):
    """The API server has no objects of this kind: nobody has defined it there."""


_ERRORS: Final[Mapping[int, type[ClusterError]]] = {HTTPStatus.GONE: GoneError, HTTPStatus.NOT_FOUND: AbsentError}


class Change(NamedTuple):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    object: Mapping[str, Any]

    @property
    def version(self) -> str:
        """The version to go on from."""
        return str(self.object["metadata"]["resourceVersion"])


class Cluster:
    """One cluster: that of the pod this runs in, else the current one of the kubeconfig."""

    def __init__(self) -> None:
        settings = client.Configuration()
        settings.keep_alive = True
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
                config.load_incluster_config(settings)  # type: ignore[no-untyped-call]  # the library leaves it so
            else:
                config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # the same
        except config.ConfigException as error:
            raise ClusterError(f"no cluster to ask: {error}") from None
        self._client = client.ApiClient(settings)

    def objects(
        self, path: str, keep: Callable[[Mapping[str, Any]], T], more: Mapping[str, str] | None = None
    ) -> tuple[list[T], str]:
        """What `keep` makes of every object of a collection, and the version of the whole."""
        kept: list[T] = []
        following = ""
        while True:
            query = {"limit": str(PAGE), **(more or {}), **({"continue": following} if following else {})}
            page = orjson.loads(self._get(path, query, LIST_SECONDS).read())
            kept += [keep(each) for each in page["items"] or ()]
            following = page["metadata"].get("continue") or ""
            if not following:
                return kept, str(page["metadata"]["resourceVersion"])

    def nodes_and_pods(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """All there are now, the pods without what is over."""
        nodes, _ = self.objects("/api/v1/nodes", lambda node: node)
        pods, _ = self.objects("/api/v1/pods", lambda pod: pod, {"fieldSelector": NOT_OVER})
        return nodes, pods

    def tenants(self) -> list[list[Mapping[str, Any]]]:
        """All policies, exemptions, ledgers and namespaces there are now."""
        ours = (f"{TENANTS}/{plural}" for plural in ("tenantpolicies", "exemptions", "tenantusages"))
        return [self.objects(path, lambda found: found)[0] for path in (*ours, "/api/v1/namespaces")]

    def changes(self, path: str, version: str) -> Iterator[Change]:
        """What happens to a collection after a version, until the API server ends it after some minutes."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        response = self._get(path, query, WATCH_SECONDS + LIST_SECONDS)
        try:
            for line in _lines(response):
                yield _change(orjson.loads(line))
        except HTTPError as error:
            raise ClusterError(f"watching {path} was cut off: {error}") from None
        finally:
            response.close()

    def _get(self, path: str, query: Mapping[str, str], seconds: int) -> Any:
        """The response to a GET, its body not yet read."""
        request = self._client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds)).response
        except (ApiException, HTTPError, OSError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from None
        if answer.status != HTTPStatus.OK:
            raise _refused(path, answer.status, answer.read())
        return answer


def _lines(response: Any) -> Iterator[bytes]:
    left = b""
    for chunk in response.stream():
        *whole, left = (left + chunk).split(b"\n")
        yield from filter(None, whole)


def _change(event: Mapping[str, Any]) -> Change:
    if event["type"] == "ERROR":
        raise _refused("the watch", event["object"].get("code", 0), orjson.dumps(event["object"]))
    return Change(event["type"], event["object"])


def _refused(what: str, status: int, body: bytes) -> ClusterError:
    try:
        said = orjson.loads(body)["message"]
    except (ValueError, KeyError, TypeError):
        said = body[:200].decode(errors="replace")
    return _ERRORS.get(status, ClusterError)(f"{what} was answered with {status}: {said}")
