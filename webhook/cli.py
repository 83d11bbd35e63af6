"""The command line, `gpu-webhook`.

Exit codes: 0 fine, 1 findings or a denial, 2 wrong usage or an error of the program or its surroundings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from webhook import manifests, rulefiles, settings, summary
from webhook.core import convert, explain, indexes, losses, sources
from webhook.core.document import nearest
from webhook.core.explain import Explanation, Setting
from webhook.core.losses import Loss
from webhook.core.rulebook import Rulebook
from webhook.core.schema.rulebooks import KINDS
from webhook.core.tenancy.ledger import Ledger

FINE: Final = 0
FINDINGS: Final = 1
FAILED: Final = 2

MAX_PORT: Final = 65535


class UsageError(Exception):
    """What was asked cannot be done; the message is for the person who typed it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    grammar = parser()
    options = grammar.parse_args(arguments)
    if "command" not in options:
        grammar.print_help(sys.stderr)
        return FAILED
    try:
        return int(options.command(options))
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        if "GPU_WEBHOOK_TRACE" in os.environ:
            raise
        return _fail(_said(error))


def _said(error: Exception) -> str:
    match error:
        case UsageError() | manifests.ManifestError():
            return str(error)
        case rulefiles.RuleFilesError():
            return f"the rules cannot be used:\n{error}"
        case OSError():
            return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return f"an error of the program, not of yours: {error!r}; GPU_WEBHOOK_TRACE=1 shows where"


def _fail(message: str) -> int:
    print(f"gpu-webhook: {message}", file=sys.stderr)
    return FAILED


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    whole = argparse.ArgumentParser(
        prog="gpu-webhook",
        description='Kubernetes admission for clusters that share GPUs: gpu: "0.3" in, a vendor\'s request out.',
        epilog="exit codes: 0 fine, 1 findings or a denial, 2 usage or internal error",
    )
    whole.add_argument("--version", action="version", version=f"gpu-webhook {metadata.version('gpu-webhook')}")
    commands = whole.add_subparsers(metavar="COMMAND")
    _serve_parser(commands.add_parser("serve", help="answer admission reviews over HTTPS"))
    _console_parser(commands.add_parser("console", help="the page for people: what is loaded, and try a pod"))
    _explain_parser(commands.add_parser("explain", help="show what would become of a pod, and why"))
    _check_parser(commands.add_parser("check", help="check rule files and run their examples"))
    _schema_parser(commands.add_parser("schema", help="print the JSON Schema of rules, for editors"))
    _inventory_parser(commands.add_parser("inventory", help="show what nodes have and what pods ask, in one unit"))
    _tenants_parser(commands.add_parser("tenants", help="show what tenants have used of what they may"))
    _settle_parser(commands.add_parser("settle", help="count what tenants use, for serve --cluster"))
    _watch_parser(commands.add_parser("watch", help="keep a file of what the cluster has, for serve --surroundings"))
    return whole


def _rules_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--rules",
        type=Path,
        default=settings.default_rules(),
        metavar="DIR",
        help="rule files (default: %(default)s)",
    )


def _output_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def _surroundings_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--surroundings", type=Path, metavar="FILE", help="what gpu-webhook watch writes, if it does"
    )


def _serve_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument("--bind", default="127.0.0.1:8443", metavar="HOST:PORT", help="default: %(default)s")
    command.add_argument("--tls-cert", type=Path, metavar="FILE", help="default: a self-signed pair, made once")
    command.add_argument("--tls-key", type=Path, metavar="FILE")
    _rules_option(command)
    _surroundings_option(command)
    command.add_argument(
        "--cluster", action="store_true", help="policies and quota of the current cluster; gpu-webhook settle counts"
    )
    command.set_defaults(command=_serve)


def _console_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument("--bind", default="127.0.0.1:8080", metavar="HOST:PORT", help="default: %(default)s")
    _rules_option(command)
    _surroundings_option(command)
    seen = command.add_mutually_exclusive_group()
    seen.add_argument("--inventory", type=Path, metavar="FILE", help="nodes and pods, for the global view")
    seen.add_argument("--cluster", action="store_true", help="the global view from the current cluster")
    command.add_argument("--tenants", type=Path, metavar="FILE", help="tenants and what they use, if not --cluster")
    command.set_defaults(command=_console)


def _explain_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE|-", help="pods, workloads, lists or reviews, as YAML or JSON")
    command.add_argument(
        "--with",
        dest="around",
        action="append",
        default=[],
        metavar="FILE",
        help="claims that the pods name, their classes, and policies, where they are not in the same file",
    )
    command.add_argument("-n", "--namespace", metavar="NAME", help="as if created there; default: what a pod says")
    command.add_argument("--user", metavar="NAME", help="as if created by them, where an exemption is for some users")
    command.add_argument(
        "--usage",
        action="append",
        metavar="FILE",
        help="what tenants use (kubectl get tenantusages,tenantpolicies,namespaces -o yaml); default: nothing",
    )
    command.add_argument("--backend", metavar="NAME", help="as if the cluster had only this back end")
    command.add_argument("--to", metavar="NAME", help="rewrite pods of another system for this back end")
    command.add_argument("--from", dest="source", metavar="NAME", help="with --to: the back end they are for now")
    _rules_option(command)
    _output_option(command)
    command.set_defaults(command=_explain)


def _check_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=settings.default_rules(),
        metavar="DIR",
        help="default: %(default)s",
    )
    _output_option(command)
    command.set_defaults(command=_check)


def _schema_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND", help=f"{', '.join(KINDS)}; default: any")
    command.set_defaults(command=_schema)


def _inventory_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|-",
        help="nodes and pods as YAML or JSON (kubectl get nodes,pods -A -o json); default: the current cluster's",
    )
    _rules_option(command)
    _output_option(command)
    command.set_defaults(command=_inventory)


def _tenants_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        nargs="*",
        metavar="FILE|-",
        help="what kubectl get tenantpolicies,tenantusages,exemptions,namespaces -o json prints, or YAML; "
        "default: the current cluster's",
    )
    _rules_option(command)
    _output_option(command)
    command.set_defaults(command=_tenants)


def _settle_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bind", default="127.0.0.1:8082", metavar="HOST:PORT", help="/metrics (default: %(default)s)"
    )
    command.add_argument(
        "--grace",
        type=float,
        default=45.0,
        metavar="SECONDS",
        help="longer than any create takes in the API server (default: %(default)g)",
    )
    _rules_option(command)
    command.set_defaults(command=_settle)


def _watch_parser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--write", type=Path, required=True, metavar="FILE", help="replaced whenever something changes"
    )
    _rules_option(command)
    command.set_defaults(command=_watch)


def _serve(options: argparse.Namespace) -> int:
    # Imported here so that `explain` starts without the server, and the server without what `explain` needs.
    from webhook import server

    _address(options.bind)
    attach = None
    if options.cluster:
        from webhook import quotas

        attach = quotas.Quotas
    return server.serve(
        settings.Settings(
            bind=options.bind,
            rules=options.rules,
            surroundings=options.surroundings,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
        ),
        attach,
    )


def _console(options: argparse.Namespace) -> int:
    from webhook import console

    seen = console.Source(options.inventory, options.surroundings, live=options.cluster)
    standings = console.Standings(options.tenants, live=options.cluster and options.tenants is None)
    return console.serve(*_address(options.bind), options.rules, seen, standings)


def _address(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise UsageError(f"--bind {bind}: write HOST:PORT, as 127.0.0.1:8443")
    return host.strip("[]"), int(port)


def _explain(options: argparse.Namespace) -> int:
    rulebook = rulefiles.load(options.rules)
    if options.source and not options.to:
        raise UsageError("--from says whose pods --to rewrites; give both")
    for name in (options.backend, options.to, options.source):
        _check_known(name, rulebook)
    tenancy = rulebook.tenancy
    if options.backend is not None:
        rulebook = indexes.only(options.backend, rulebook)
    documents = manifests.parse(*_read(options.file))
    around = [document for file in options.around for document in manifests.parse(*_read(file))]
    rulebook = sources.given([*documents, *around], replace(rulebook, tenancy=tenancy))
    rulebook, ledgers = _tenants_around([*documents, *around], options.usage, rulebook)
    setting = Setting(namespace=options.namespace or "", user=options.user or "", at=time.time())
    explained = (
        explanation
        for document in documents
        for explanation in (
            convert.convert(document, options.to, rulebook, options.source, setting)
            if options.to
            else explain.explain(document, rulebook, setting)
        )
    )
    found = list(explain.foreseen(explained, rulebook.tenancy, ledgers))
    if not found:
        raise UsageError(f"{options.file} holds no pod and nothing that makes pods")
    _print_json(found) if options.output == "json" else _print_text(found)
    return FINE if all(explanation.decision.allowed for explanation in found) else FINDINGS


def _tenants_around(
    documents: Iterable[Mapping[str, Any]], files: Sequence[str] | None, rulebook: Rulebook
) -> tuple[Rulebook, Mapping[str, Ledger] | None]:
    """The rulebook with the policies among documents and files, and the ledgers there; None: nothing is used."""
    from webhook import tenants

    objects = tenants.Objects()
    try:
        for document in documents:
            objects.add(document)
        for file in files or ():
            objects.parse(*_whole(file))
    except tenants.UnreadableError as error:
        raise UsageError(str(error)) from None
    tenancy, broken = objects.tenancy(rulebook)
    ledgers, unread = objects.ledgers()
    if broken or unread:
        raise UsageError("; ".join(f"{one.tenant}: {one.message}" for one in [*broken, *unread]))
    return replace(rulebook, tenancy=tenancy), ledgers if files or objects.usages else None


def _check_known(name: str | None, rulebook: Rulebook) -> None:
    if name is not None and name not in rulebook.backends:
        hint = nearest(name, rulebook.backends)
        raise UsageError(f'no back end is called "{name}"{hint}; there are {", ".join(sorted(rulebook.backends))}')


def _read(file: str) -> tuple[bytes, str]:
    if file == "-":
        return sys.stdin.buffer.read(manifests.MAX_BYTES + 1), "standard input"
    return Path(file).read_bytes(), file


def _print_json(found: Sequence[Explanation]) -> None:
    contracts = [explanation.contract() for explanation in found]
    _dump(contracts[0] if len(contracts) == 1 else contracts)


def _dump(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def _print_text(found: Sequence[Explanation]) -> None:
    from webhook import trace

    colours = trace.TERMINAL if sys.stdout.isatty() and "NO_COLOR" not in os.environ else {}
    print("\n\n".join("\n".join(trace.paint(trace.trace(explanation), colours)) for explanation in found))


def _told(one_way: Sequence[Loss]) -> Iterator[str]:
    """What cannot be read back, with what that means."""
    if one_way:
        yield "written one way only (a pod in the system's own words counts as the whole device there):"
        yield from (f"  {loss}" for loss in one_way)


def _check(options: argparse.Namespace) -> int:
    if not options.directory.is_dir():
        raise UsageError(f"{options.directory} is not a directory")
    try:
        rulebook = rulefiles.load(options.directory)
    except rulefiles.RuleFilesError as error:
        if options.output == "json":
            _dump({"fine": False, "problems": [summary.located(problem) for problem in error.problems]})
        else:
            print(error)
        return FINDINGS
    one_way = [
        loss
        for name, backend in rulebook.backends.items()
        for loss in losses.losses(backend, indexes.only(name, rulebook))
    ]
    if options.output == "json":
        _dump({"fine": True, "problems": [], "oneWay": [*map(str, one_way)], **summary.counts(rulebook)})
    else:
        print(f"{options.directory}: {summary.describe(rulebook)}: all fine")
        print(*_told(one_way), sep="\n", end="\n" if one_way else "")
    return FINE


def _schema(options: argparse.Namespace) -> int:
    from webhook.core.editor import documents

    print(documents.text(documents.schema(options.kind)))
    return FINE


def _inventory(options: argparse.Namespace) -> int:
    from webhook import inventory

    rulebook = rulefiles.load(options.rules)
    objects = inventory.Objects()
    try:
        for file in options.file:
            inventory.parse(*_whole(file), objects)
        if not options.file:
            objects = _live()
    except inventory.UnreadableError as error:
        raise UsageError(str(error)) from None
    view = objects.view(rulebook)
    _dump(view.contract()) if options.output == "json" else print("\n".join(inventory.lines(view)))
    return FINE


def _whole(file: str) -> tuple[bytes, str]:
    """A file of any size, and its name; a cluster has many objects."""
    return (sys.stdin.buffer.read(), "standard input") if file == "-" else (Path(file).read_bytes(), file)


def _live() -> Any:
    """The nodes and pods of the current cluster."""
    from webhook import cluster, inventory

    try:
        return inventory.Objects(*cluster.Cluster().nodes_and_pods())
    except cluster.ClusterError as error:
        raise UsageError(f"{error}; or give files, from: kubectl get nodes,pods -A -o json") from None


def _tenants(options: argparse.Namespace) -> int:
    from webhook import tenants

    rulebook = rulefiles.load(options.rules)
    objects = tenants.Objects()
    try:
        for file in options.file:
            objects.parse(*_whole(file))
        if not options.file:
            objects = tenants.live()
    except tenants.UnreadableError as error:
        raise UsageError(str(error)) from None
    view = objects.view(rulebook, time.time(), live=not options.file)
    _dump(tenants.contract(view)) if options.output == "json" else print("\n".join(tenants.lines(view)))
    return FINE


def _settle(options: argparse.Namespace) -> int:
    from webhook import api, settler

    try:
        return settler.settle(options.rules, _address(options.bind), options.grace)
    except api.ApiError as error:
        raise UsageError(str(error)) from None


def _watch(options: argparse.Namespace) -> int:
    from webhook import cluster, watcher

    if not options.write.parent.is_dir():
        raise UsageError(f"{options.write.parent} is not a directory")
    try:
        return watcher.watch(options.rules, options.write)
    except cluster.ClusterError as error:
        raise UsageError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
