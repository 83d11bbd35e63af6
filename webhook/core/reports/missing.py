"""The inputs of an answer that nobody gave, each with what it may change.

A webhook in a cluster has all of them: policies, exemptions, the labels of the namespace, the user, what is used. On
a desk some are missing, and an answer that does not say so is a promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from webhook.core.decision import Decision
from webhook.core.policy.membership import undecided
from webhook.core.quota.ledger import Ledger
from webhook.core.reports.forecast import Ledgers, Prospect
from webhook.core.rules.exemption import Exemption
from webhook.core.rules.tenancy import Tenancy


class Setting(NamedTuple):
    """By whom and when a pod is created, in seconds since 1970; and where, unless it says so itself.

    `whole`: policies, exemptions and namespaces are those of a cluster, and none is missing.
    """

    namespace: str = ""
    user: str = ""
    at: float = 0.0
    whole: bool = False


NOWHERE: Final = Setting()


class Missing(NamedTuple):
    """An input that nobody gave, and what it may change."""

    input: Literal["TenantPolicy", "Exemption", "TenantUsage", "Namespace", "namespace", "user"]
    effect: str


class Judged(NamedTuple):
    """A pod that may get a GPU, as far as it was judged; `placed`: somebody said its namespace."""

    namespace: str
    placed: bool
    decision: Decision
    prospect: Prospect | None


def find(judged: Judged, tenancy: Tenancy, ledgers: Ledgers, setting: Setting) -> Iterator[Missing]:
    """Everything that is missing for a final answer about a pod."""
    if tenancy.silent:
        if judged.decision.allowed and not setting.whole:
            yield Missing("TenantPolicy", "no TenantPolicy was given: one may refuse this pod, or give it defaults")
        return
    if not judged.placed and not setting.namespace:
        effect = f"no namespace was given, and {judged.namespace} was assumed: another may have another policy"
        yield Missing("namespace", effect)
    yield from _labels(judged.namespace, tenancy, setting)
    yield from _user(judged.namespace, tenancy, setting)
    yield from _usage(judged, ledgers)
    if judged.decision.findings and not (judged.decision.allowed or tenancy.exemptions or setting.whole):
        yield Missing("Exemption", "no Exemption was given: one may lift what refuses this pod")


def _labels(namespace: str, tenancy: Tenancy, setting: Setting) -> Iterator[Missing]:
    if namespace in tenancy.labels:
        return
    names = " and ".join(policy.rule for policy in undecided(namespace, tenancy))
    where = f"the cluster has no namespace {namespace}" if setting.whole else f"no Namespace {namespace} was given"
    if names:
        effect = f"{where}: its labels decide whether {names} is for it"
        yield Missing("Namespace", effect)


def _user(namespace: str, tenancy: Tenancy, setting: Setting) -> Iterator[Missing]:
    for one in () if setting.user else _for_some(namespace, tenancy.exemptions, setting.at):
        lifted = " and ".join(sorted(one.lifts))
        users = " and ".join(one.users)
        yield Missing("user", f"no user was given: for {users} the exemption {one.rule} lifts {lifted}")


def _for_some(namespace: str, exemptions: Sequence[Exemption], at: float) -> Iterator[Exemption]:
    return (one for one in exemptions if one.users and one.covers(namespace) and at < one.expires)


def _usage(judged: Judged, ledgers: Ledgers) -> Iterator[Missing]:
    prospect = judged.prospect
    if prospect is None or prospect.lifted or not prospect.amounts:
        return
    ledger = ledgers.get(prospect.tenant, Ledger())
    if not ledger.view:
        effect = (
            f"no TenantUsage of {prospect.tenant} was given: nothing is counted as used, and its quota may refuse"
        )
        yield Missing("TenantUsage", f"{effect} this pod")
    elif judged.namespace not in ledger.held:
        effect = f"the TenantUsage of {prospect.tenant} does not count {judged.namespace} yet"
        yield Missing("TenantUsage", f"{effect}: GPU pods wait there for the settler")
