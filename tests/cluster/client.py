"""Talks to the API server: JSON over HTTPS for what a test asserts on, kubectl for what a person sees."""

import http.client
import json
import os
import re
import select
import ssl
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

Object = Mapping[str, Any]

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_JSON, MERGE = "application/json", "application/merge-patch+json"
_TIMEOUT = 40.0  # seconds; the API server itself gives up after 34


class Answer(dict[str, Any]):
    """The object that came back, and the warnings that came with it."""

    warnings: tuple[str, ...] = ()


class RefusedError(Exception):
    """The API server said no."""

    def __init__(self, code: int, status: dict[str, Any], warnings: tuple[str, ...]) -> None:
        super().__init__(status.get("message", ""))
        self.code = code
        self.status = status
        self.warnings = warnings


class _Connection(http.client.HTTPSConnection):
    """Hangs up when nobody has it any more."""

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Client:
    """An administrator of one cluster, with a namespace for whatever names none itself."""

    url: str
    tls: ssl.SSLContext
    kubectl_path: Path
    kubeconfig: Path
    namespace: str = "default"
    user: str = ""
    group: str = "system:masters"
    _resources: dict[tuple[str, str], tuple[str, bool]] = field(default_factory=dict)
    _kept: threading.local = field(default_factory=threading.local)

    def create(self, obj: Object, *, dry_run: bool = False) -> Answer:
        """Create the object."""
        return self.send("POST", self.collection(obj), obj, query=_dry(dry_run))

    def get(self, obj: Object) -> Answer:
        """The stored object of the same kind, namespace and name."""
        return self.send("GET", self.path(obj))

    def exists(self, obj: Object) -> bool:
        """Whether `get` finds anything."""
        try:
            self.get(obj)
        except RefusedError as refusal:
            if refusal.code != http.client.NOT_FOUND:
                raise
            return False
        return True

    def update(self, obj: Object, *, subresource: str = "", dry_run: bool = False) -> Answer:
        """Replace the object, or one of its subresources."""
        return self.send("PUT", self.path(obj, subresource), obj, query=_dry(dry_run))

    def patch(self, obj: Object, change: Object, *, subresource: str = "") -> Answer:
        """Merge a change into the stored object."""
        path = self.path(obj, subresource)
        return self.send("PATCH", path, change, content_type=MERGE)

    def apply(self, obj: Object, *, manager: str = "tests", dry_run: bool = False) -> Answer:
        """Apply on the server's side, taking over fields that others own."""
        query = {"fieldManager": manager, "force": "true", **_dry(dry_run)}
        content_type = "application/apply-patch+yaml"
        return self.send("PATCH", self.path(obj), obj, query=query, content_type=content_type)

    def delete(self, obj: Object) -> Answer:
        """Delete at once; a finalizer still holds the object."""
        return self.send("DELETE", self.path(obj), query={"gracePeriodSeconds": "0"})

    def list(self, obj: Object, **query: str) -> list[dict[str, Any]]:
        """The stored objects of this kind in the object's namespace."""
        items: list[dict[str, Any]] = self.send("GET", self.collection(obj), query=query)["items"]
        return items

    def path(self, obj: Object, subresource: str = "") -> str:
        """The URL path of an object, or of one of its subresources."""
        return f"{self.collection(obj)}/{obj['metadata']['name']}{'/' if subresource else ''}{subresource}"

    def collection(self, obj: Object) -> str:
        """The URL path of all objects of this kind in the object's namespace."""
        version = obj["apiVersion"]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = self._resource(prefix, obj["kind"])
        namespace = obj.get("metadata", {}).get("namespace", self.namespace)
        return f"{prefix}/namespaces/{namespace}/{plural}" if namespaced else f"{prefix}/{plural}"

    def _resource(self, prefix: str, kind: str) -> tuple[str, bool]:
        """A kind's plural, and whether it lives in namespaces: asked of the API server once."""
        if (prefix, kind) not in self._resources:
            for resource in self.send("GET", prefix)["resources"]:
                if "/" not in resource["name"]:
                    self._resources[prefix, resource["kind"]] = (resource["name"], resource["namespaced"])
        return self._resources[prefix, kind]

    def send(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Answer:
        """One request; RefusedError for every answer that is not a success."""
        sent = None if body is None else json.dumps(body).encode()
        code, headers, received = self.exchange(method, f"{path}?{urlencode(query or {})}", sent, content_type)
        answer = Answer(json.loads(received))
        answer.warnings = _warnings(headers)
        if code >= http.client.BAD_REQUEST:
            raise RefusedError(code, dict(answer), answer.warnings)
        return answer

    def text(self, path: str) -> str:
        """What a path answers that is not JSON, or "" when it does not answer well (yet)."""
        try:
            code, _, received = self.exchange("GET", path, None)
        except OSError:
            return ""
        return received.decode() if code == http.client.OK else ""

    def exchange(
        self, method: str, path: str, body: bytes | None, content_type: str = _JSON, seconds: float = _TIMEOUT
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request as it is, and its answer; OSError if there is none in so many seconds."""
        connection = self._connection()
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(seconds)
            # Whoever an administrator acts as may do everything, too: what is tried is admission.
            acting = {"Impersonate-User": self.user, "Impersonate-Group": self.group} if self.user else {}
            connection.request(method, path, body, {**acting, **({"Content-Type": content_type} if body else {})})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, http.client.HTTPException):
                raise OSError(f"{type(error).__name__}: {error}") from None
            raise

    def _connection(self) -> "_Connection":
        """That of this thread, as a handshake costs more than a request; a new one if the API server has ended it."""
        kept: _Connection | None = getattr(self._kept, "connection", None)
        if kept is None:
            kept = self._kept.connection = _Connection(urlsplit(self.url).netloc, context=self.tls, timeout=_TIMEOUT)
        elif kept.sock is not None:
            waiting = select.poll()
            waiting.register(kept.sock, select.POLLIN)
            if waiting.poll(0):
                kept.close()
        return kept

    def close(self) -> None:
        """Hang up; the connections of other threads end with them."""
        self._connection().close()

    def in_namespace(self, name: str) -> "Client":
        """The same client in a namespace of that name, made when there is none."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        if not self.exists(namespace):
            self.create(namespace)
        return replace(self, namespace=name)

    def acting_as(self, user: str) -> "Client":
        """The same client, whose requests are those of a user; kubectl stays the administrator's."""
        return replace(self, user=user)

    def with_rights_of(self, user: str) -> "Client":
        """The same client, whose requests are those of a user, with no other rights than the user's."""
        return replace(self, user=user, group="system:authenticated")

    def kubectl(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl against this cluster; it prints and exits as it does for a person."""
        caches = self.kubeconfig.parent / "kubectl-cache"
        within = [] if self.namespace == "default" else [f"--namespace={self.namespace}"]
        return subprocess.run(
            [str(self.kubectl_path), *within, *args],
            input=stdin,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(caches)},
            capture_output=True,
            text=True,
            check=False,
        )


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001  private, and named by its only callers
    return {"dryRun": "All"} if dry_run else {}


def _warnings(headers: http.client.HTTPMessage) -> tuple[str, ...]:
    texts = _WARNING.findall(", ".join(headers.get_all("Warning", [])))
    return tuple(re.sub(r"\\(.)", r"\1", text) for text in texts)
