"""What commands and the console show of the current cluster, read once; they could also read it from files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.core.forms.document import API_VERSION
from webhook.core.rules.rulebook import Rulebook
from webhook.files import inventory_objects, survey_objects, tenant_objects
from webhook.files.documents import UnreadableError

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"
TENANTS: Final = (
    *(f"/apis/{API_VERSION}/{plural}" for plural in ("tenantpolicies", "exemptions", "tenantusages")),
    "/api/v1/namespaces",
)


def inventory() -> inventory_objects.Objects:
    """The nodes, and the pods that are not over; raises UnreadableError."""
    from webhook.cluster import client, session  # noqa: PLC0415 - 55 MiB, and files need none of it

    async def read(api: client.Api) -> inventory_objects.Objects:
        return inventory_objects.Objects(await api.list("/api/v1/nodes"), await api.list("/api/v1/pods", NOT_OVER))

    try:
        return session.ask(read)
    except client.ApiError as error:
        raise UnreadableError(str(error)) from None


def surveyed(rulebook: Rulebook) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """What a survey looks at, by kind, without kinds that may not be read; raises UnreadableError without nodes."""
    from webhook.cluster import client, session  # noqa: PLC0415 - 55 MiB, and files need none of it

    async def read(api: client.Api) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        found: dict[str, Sequence[Mapping[str, Any]]] = {}
        for kind, path in survey_objects.paths(rulebook):
            try:
                found[kind] = found.get(kind) or await api.list(path)
            except client.MissingError:
                found[kind] = []
            except client.ApiError:
                if kind == "Node":
                    raise
        return found

    try:
        return session.ask(read)
    except client.ApiError as error:
        raise UnreadableError(f"{error}; or give files, from: {survey_objects.KUBECTL}") from None


def tenants() -> tenant_objects.Objects:
    """The policies, exemptions, ledgers and namespaces of the current cluster; raises UnreadableError."""
    from webhook.cluster import client, session  # noqa: PLC0415 - 55 MiB, and files need none of it

    async def read(api: client.Api) -> tenant_objects.Objects:
        policies, exemptions, usages, namespaces = [await api.list(path) for path in TENANTS]
        return tenant_objects.Objects(policies, exemptions, usages, namespaces, whole=True)

    try:
        return session.ask(read)
    except client.MissingError:
        reason = "the cluster knows no tenants: its custom resources (manifests/base/crds) are not installed"
        raise UnreadableError(reason) from None
    except client.ApiError as error:
        files = "kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json"
        raise UnreadableError(f"{error}; or give files, from: {files}") from None
