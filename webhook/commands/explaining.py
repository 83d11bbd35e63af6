"""`gpu-webhook explain`: what would become of pods, and why."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from webhook.commands import options, streams
from webhook.commands.options import FINE, NOT_FINE, UsageError
from webhook.core.kube import time as times
from webhook.core.reports import explain
from webhook.core.reports.explain import Explanation
from webhook.core.reports.missing import Setting
from webhook.files import manifests, rulebook_cache

if TYPE_CHECKING:
    from webhook.files.question import Answer


def explain_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook explain` takes."""
    command.add_argument(
        "file", metavar="FILE|-", help="pods, workloads, policies, lists or reviews, as YAML or JSON"
    )
    options.around(
        command,
        "claims that the pods name, their classes, policies, and namespaces with their labels, where they are not in"
        " the same file",
    )
    command.add_argument(
        "-n", "--namespace", default="", metavar="NAME", help="namespace of the pods; default: what each pod says"
    )
    command.add_argument("--user", default="", metavar="NAME", help="user who creates the pods, for exemptions")
    command.add_argument(
        "--at", type=_time, metavar="TIME", help="time of the create, as 2027-01-31T00:00:00Z; default: now"
    )
    command.add_argument(
        "--usage",
        action="append",
        default=[],
        metavar="FILE",
        help="what tenants use: kubectl get tenantusages,tenantpolicies,exemptions,namespaces -o yaml; default: none",
    )
    command.add_argument("--backend", default="", metavar="NAME", help="as if the cluster had only this back end")
    command.add_argument("--to", default="", metavar="NAME", help="rewrite pods of another system for this back end")
    command.add_argument(
        "--from", dest="source", default="", metavar="NAME", help="with --to: the back end of the pods at present"
    )
    options.rules(command)
    options.output(command)
    command.set_defaults(command=_explain)


def _explain(given: argparse.Namespace) -> int:
    from webhook.files import question, tenant_objects

    rulebook = rulebook_cache.load(given.rules)
    if given.source and not given.to:
        raise UsageError("--from says whose pods --to rewrites; give both")
    most = manifests.MAX_BYTES + 1
    content, where = streams.content(given.file, most)
    documents = manifests.parse(content, where)
    around = [each for file in given.around for each in manifests.parse(*streams.content(file, most))]
    setting = Setting(given.namespace, given.user, given.at or time.time())
    asked = question.Question(documents, around, setting, given.backend, given.to, given.source)
    there = tenant_objects.Objects()
    for file in given.usage:
        there.parse(*streams.content(file))
    answer = question.answer(asked, rulebook, there)
    found, advice = answer.found, answer.advice
    for one in answer.problems:  # as in a cluster: its own namespaces get no GPU, and the others know nothing of it
        print(f"{one.tenant}: {one.message}" if one.tenant else one.message, file=sys.stderr)
    if not found and answer.tried:
        return _print_policies(answer, given.output)
    if not found:
        raise UsageError(f"{where} holds no pod and nothing that makes pods")
    for line in advice:
        print(line, file=sys.stderr)
    streams.dump(explain.contract(found)) if given.output == "json" else _print_text(found)
    return FINE if all(explanation.decision.allowed for explanation in found) else NOT_FINE


def _print_policies(answer: Answer, output: str) -> int:
    """Of a file without pods: what the author of its policies is told when they are applied."""
    if output == "json":
        problems = [{"tenant": one.tenant or None, "message": one.message} for one in answer.problems]
        streams.dump({"warnings": answer.advice, "problems": problems})
    elif answer.advice or answer.usable:
        print(*(answer.advice or [f"{', '.join(answer.usable)}: fine"]), sep="\n")
    return FINE if answer.usable == answer.tried else NOT_FINE


def _time(text: str) -> float:
    try:
        return times.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _print_text(found: Sequence[Explanation]) -> None:
    from webhook.views import terminal
    from webhook.views.explanation import view

    colours = terminal.COLOURS if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    print("\n\n".join("\n".join(terminal.paint(view(explanation), colours)) for explanation in found))
