"""`gpu-webhook explain`: what would become of pods, and why."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from webhook.commands import options, streams
from webhook.commands.options import FINE, NOT_FINE, UsageError
from webhook.core.forms.document import nearest
from webhook.core.interpret import claim_objects
from webhook.core.quota.ledger import Ledger
from webhook.core.reports import convert, explain
from webhook.core.reports.explain import Explanation, Setting
from webhook.core.rules import index
from webhook.core.rules.rulebook import Rulebook
from webhook.files import manifests, rulebook_cache


def explain_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook explain` takes."""
    command.add_argument("file", metavar="FILE|-", help="pods, workloads, lists or reviews, as YAML or JSON")
    command.add_argument(
        "--with",
        dest="around",
        action="append",
        default=[],
        metavar="FILE",
        help="claims that the pods name, their classes, policies, and namespaces with their labels, where they "
        "are not in the same file",
    )
    command.add_argument("-n", "--namespace", metavar="NAME", help="as if created there; default: what a pod says")
    command.add_argument("--user", metavar="NAME", help="as if created by them, where an exemption is for some users")
    command.add_argument(
        "--usage",
        action="append",
        metavar="FILE",
        help="what tenants use: kubectl get tenantusages,tenantpolicies,exemptions,namespaces -o yaml; default: none",
    )
    command.add_argument("--backend", metavar="NAME", help="as if the cluster had only this back end")
    command.add_argument("--to", metavar="NAME", help="rewrite pods of another system for this back end")
    command.add_argument("--from", dest="source", metavar="NAME", help="with --to: the back end they are for now")
    options.rules(command)
    options.output(command)
    command.set_defaults(command=_explain)


def _explain(given: argparse.Namespace) -> int:
    rulebook = rulebook_cache.load(given.rules)
    if given.source and not given.to:
        raise UsageError("--from says whose pods --to rewrites; give both")
    for name in filter(None, (given.backend, given.to, given.source)):
        if name not in rulebook.backends:
            known = f"{nearest(name, rulebook.backends)}; there are {', '.join(sorted(rulebook.backends))}"
            raise UsageError(f'no back end is called "{name}"{known}')
    if given.backend is not None:
        rulebook = replace(index.only(given.backend, rulebook), tenancy=rulebook.tenancy)
    most = manifests.MAX_BYTES + 1
    content, where = streams.content(given.file, most)
    documents = manifests.parse(content, where)
    around = [each for file in given.around for each in manifests.parse(*streams.content(file, most))]
    rulebook = claim_objects.given([*documents, *around], rulebook)
    rulebook, ledgers = _tenants_around([*documents, *around], given.usage, rulebook)
    setting = Setting(namespace=given.namespace or "", user=given.user or "", at=time.time())
    explained = (
        explanation
        for document in documents
        for explanation in (
            convert.convert(document, given.to, rulebook, given.source, setting)
            if given.to
            else explain.explain(document, rulebook, setting)
        )
    )
    found = list(explain.foreseen(explained, rulebook.tenancy, ledgers))
    if not found:
        raise UsageError(f"{where} holds no pod and nothing that makes pods")
    streams.dump(explain.contract(found)) if given.output == "json" else _print_text(found)
    return FINE if all(explanation.decision.allowed for explanation in found) else NOT_FINE


def _tenants_around(
    documents: Iterable[Mapping[str, Any]], files: Sequence[str] | None, rulebook: Rulebook
) -> tuple[Rulebook, Mapping[str, Ledger] | None]:
    """The rulebook with the policies among documents and files, and the ledgers there; None: nothing is used."""
    from webhook.files import tenant_objects

    objects = tenant_objects.Objects()
    for document in documents:
        objects.add(document)
    for file in files or ():
        objects.parse(*streams.content(file))
    tenancy, broken = objects.tenancy(rulebook)
    ledgers, unread = objects.ledgers()
    for one in broken:  # as in a cluster: its own namespaces get no GPU, and the others know nothing of it
        print(f"{one.tenant}: {one.message}", file=sys.stderr)
    if unread:
        raise UsageError("; ".join(f"{one.tenant}: {one.message}" for one in unread))
    return replace(rulebook, tenancy=tenancy), ledgers if files or objects.usages else None


def _print_text(found: Sequence[Explanation]) -> None:
    from webhook.views import terminal
    from webhook.views.explanation import view

    colours = terminal.COLOURS if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    print("\n\n".join("\n".join(terminal.paint(view(explanation), colours)) for explanation in found))
