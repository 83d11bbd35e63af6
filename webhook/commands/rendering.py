"""The commands that write objects for the API server: render webhooks, render policies."""

from __future__ import annotations

import argparse
import ssl
from dataclasses import replace
from pathlib import Path

from webhook.commands import options, streams
from webhook.commands.options import FINE, UsageError


def render_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook render` takes."""
    from webhook.core.rules import cluster

    command.add_argument(
        "what",
        choices=("webhooks", "policies"),
        help="webhooks: both webhook configurations; policies: what the API server refuses even without them",
    )
    options.rules(command)
    command.add_argument(
        "--namespace",
        default=cluster.OWN,
        metavar="NAME",
        help="where the server runs (default: %(default)s)",
    )
    command.add_argument(
        "--active",
        action="store_true",
        help="activate the webhooks at once, without gpu-webhook-certs and before replicas answer",
    )
    command.add_argument(
        "--ca-bundle",
        type=Path,
        metavar="FILE",
        help="CA certificates (PEM), if you issue the server's certificate",
    )
    options.around(
        command, "policies: TenantPolicies and Exemptions beside those among the rules, as kubectl prints them"
    )
    command.add_argument(
        "--mutating",
        action="store_true",
        help="policies: and one that writes into containers without a GPU that they have none (Kubernetes 1.36)",
    )
    command.set_defaults(command=_render)


def _render(given: argparse.Namespace) -> int:
    return _webhooks(given) if given.what == "webhooks" else _policies(given)


def _policies(given: argparse.Namespace) -> int:
    from webhook.core.registration.policies import mutating, resource_quotas, validating
    from webhook.files import rule_files, tenant_objects
    from webhook.views import manifest

    rulebook, tenants = rule_files.load(given.rules), tenant_objects.Objects()
    for file in given.around:
        tenants.parse(*streams.content(file))
    tenancy, problems = tenants.tenancy(rulebook)
    for problem in problems:
        raise UsageError(f"{problem.tenant}: {problem.message}")
    if tenancy.observing:
        raise UsageError("spec.observe of the Cluster document is true: the webhook refuses nothing, so nor may this")
    rulebook = replace(rulebook, tenancy=tenancy)
    count = f"{len(tenancy.policies)} TenantPolicies and {len(tenancy.exemptions)} Exemptions"
    print(f"# Printed by `gpu-webhook render policies`, of {count}. Changed ones have to be rendered again.")
    made = [*validating.render(rulebook, given.namespace), *resource_quotas.render(rulebook)]
    print(manifest.text([*made, *(mutating.render(rulebook) if given.mutating else ())]), end="")
    return FINE


def _webhooks(given: argparse.Namespace) -> int:
    from webhook.core.registration import configurations
    from webhook.files import rule_files
    from webhook.views import manifest

    try:
        objects = configurations.both(rule_files.load(given.rules), given.namespace)
    except configurations.NotExemptError as error:
        raise UsageError(str(error)) from error
    if given.ca_bundle is not None:
        bundle = _bundle(given.ca_bundle)
        objects = [configurations.trusting(each, bundle) for each in objects]
    print("# Printed by `gpu-webhook render webhooks`.")
    if not given.active:
        print(f"# The certificate program copies the rules in {configurations.WANTED} when replicas answer.")
        objects = [configurations.inactive(each) for each in objects]
    print(manifest.text(objects), end="")
    return FINE


def _bundle(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=content.decode("ascii"))
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(f"--ca-bundle={file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--ca-bundle={file} is not PEM") from error
    return content
