"""The objects of the current cluster, where a command or the console could also read them from files."""

from __future__ import annotations

from webhook.files import inventory_objects, tenant_objects
from webhook.files.documents import UnreadableError


def inventory() -> inventory_objects.Objects:
    """The nodes and pods of the current cluster; raises UnreadableError."""
    from webhook.cluster import client, session, snapshot  # noqa: PLC0415 - 55 MiB, and files need none of it

    try:
        return inventory_objects.Objects(*session.ask(snapshot.nodes_and_pods))
    except client.ApiError as error:
        raise UnreadableError(str(error)) from None


def tenants() -> tenant_objects.Objects:
    """The policies, ledgers, exemptions and namespaces of the current cluster; raises UnreadableError."""
    from webhook.cluster import client, session, snapshot  # noqa: PLC0415 - 55 MiB, and files need none of it

    try:
        return tenant_objects.Objects(*session.ask(snapshot.tenants))
    except client.MissingError:
        reason = "the cluster knows no tenants: its custom resources (manifests/base/crds) are not installed"
        raise UnreadableError(reason) from None
    except client.ApiError as error:
        files = "kubectl get tenantpolicies,exemptions,tenantusages,namespaces -o json"
        raise UnreadableError(f"{error}; or give files, from: {files}") from None
