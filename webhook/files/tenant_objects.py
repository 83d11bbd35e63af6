"""Policies, ledgers, exemptions and namespaces, from files as `kubectl get -o json` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from webhook.core.forms.document import API_VERSION
from webhook.core.kube import paths
from webhook.core.kube.quantity import shown
from webhook.core.policy.membership import NAME_LABEL
from webhook.core.quota import stored
from webhook.core.quota.ledger import Ledger
from webhook.core.reports import tenants
from webhook.core.reports.tenants import Problem, Tenants
from webhook.core.rules import cluster_policies as documents
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.rulebook import Rulebook
from webhook.core.rules.tenancy import Tenancy
from webhook.core.rules.tenant_policy import TenantPolicy
from webhook.files import inventory_objects
from webhook.files.documents import UnreadableError

Object = Mapping[str, Any]

_OURS = f"{API_VERSION.partition('/')[0]}/"
T = TypeVar("T", bound=TenantPolicy | Exemption)


@dataclass(slots=True)
class Objects:
    """Objects that describe tenants, as they are in the Kubernetes API; `whole`: all that there are in a cluster."""

    policies: list[Object] = field(default_factory=list)
    exemptions: list[Object] = field(default_factory=list)
    usages: list[Object] = field(default_factory=list)
    namespaces: list[Object] = field(default_factory=list)
    whole: bool = False

    def add(self, document: Object) -> None:
        """Add an object, or those of a list; objects of other kinds are ignored.

        Raises UnreadableError for one without a name, and for one of ours of another version.
        """
        kinds = {
            "TenantPolicy": self.policies,
            "Exemption": self.exemptions,
            "TenantUsage": self.usages,
            "Namespace": self.namespaces,
        }
        for kind, found in inventory_objects.members(document):
            if kind in kinds:
                if not _name(found):
                    raise UnreadableError(f"there is a {kind} without a name")
                version = str(found.get("apiVersion", API_VERSION))
                if version != API_VERSION and version.startswith(_OURS):
                    raise UnreadableError(
                        f"{kind}/{_name(found)}: there is no apiVersion {version}; write {API_VERSION}"
                    )
                kinds[kind].append(found)

    @property
    def written(self) -> list[str]:
        """The policies and exemptions, as messages name them: `TenantPolicy/vision`."""
        kinds = {"TenantPolicy": self.policies, "Exemption": self.exemptions}
        return [f"{kind}/{_name(each)}" for kind, objects in kinds.items() for each in objects]

    def parse(self, content: bytes, name: str) -> None:
        """Add the objects of a file, in YAML or JSON; raises UnreadableError."""
        for document in inventory_objects.contents(content, name):
            self.add(document)

    def tenancy(self, rulebook: Rulebook, *, tried: bool = False) -> tuple[Tenancy, list[Problem]]:
        """The policies and exemptions of the rulebook and of these objects, and the problems of the objects.

        Of two of a name that of the rulebook counts, as on the server; or these, if they are `tried` instead.
        """
        policies = documents.policies_from(self.policies, rulebook)
        exemptions = documents.exemptions_from(self.exemptions, rulebook)
        problems = [
            Problem(name, f"its policy cannot be used: {problem}")
            for name, broken in policies.broken.items()
            for problem in broken.problems
        ]
        problems += [
            Problem("", f"the exemption {name} cannot be used: {problem}")
            for name, broken in exemptions.broken.items()
            for problem in broken.problems
        ]
        offline = rulebook.tenancy
        replaced = {name: broken.instead for name, broken in policies.broken.items() if broken.instead is not None}
        labels = {
            _name(one): {NAME_LABEL: _name(one), **paths.mapping(one, "metadata", "labels")}
            for one in self.namespaces
        }
        tenancy = replace(
            offline,
            policies=_beside(offline.policies, {**policies.read, **replaced}, tried=tried),
            exemptions=_beside(offline.exemptions, exemptions.read, tried=tried),
            labels={**offline.labels, **labels},
        )
        return tenancy, [*problems, *self._conditions()]

    def _conditions(self) -> Iterator[Problem]:
        """The conflicts in the policies' status: the cluster may have namespaces that are not among these objects."""
        for policy in self.policies if not self.namespaces else ():
            conditions = paths.at(policy, "status", "conditions")
            for condition in conditions if isinstance(conditions, list) else ():
                if paths.at(condition, "type") == "Ambiguous" and paths.at(condition, "status") == "True":
                    yield Problem(_name(policy), str(condition.get("message", "")))

    def ledgers(self) -> tuple[dict[str, Ledger], list[Problem]]:
        """The ledger of each tenant, and a problem for each that cannot be read."""
        found = {_name(raw): stored.read(raw.get("status") or {}) for raw in self.usages}
        unread = {name: (*ledger.problems, *map(shown, ledger.unread)) for name, ledger in found.items()}
        problems = [
            Problem(name, f"its TenantUsage holds what nobody can read: {'; '.join(wrong)}")
            for name, wrong in unread.items()
            if wrong
        ]
        return {name: ledger for name, ledger in found.items() if not unread[name]}, problems

    def view(self, rulebook: Rulebook, at: float, *, live: bool) -> Tenants:
        """The overview at a time; `live`: these are all ledgers of the cluster."""
        tenancy, broken = self.tenancy(rulebook)
        ledgers, unread = self.ledgers()
        seen = {name: {NAME_LABEL: name} for ledger in ledgers.values() for name in ledger.held}
        tenancy = replace(tenancy, labels={**seen, **tenancy.labels})
        return tenants.overview(tenancy, ledgers, at, [*broken, *unread], live=live or bool(self.usages))


def _beside(ruled: Sequence[T], found: Mapping[str, T], *, tried: bool) -> Sequence[T]:
    """Both together, without those of the one side that have a name of the other."""
    by_name = {one.name: one for one in ruled}
    return [*({**by_name, **found} if tried else {**by_name, **found, **by_name}).values()]


def _name(raw: Object) -> str:
    return str(paths.mapping(raw, "metadata").get("name", ""))
