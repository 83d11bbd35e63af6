"""The commands that write objects for the API server: render webhooks, render policies."""

import argparse
import ssl
from dataclasses import replace
from pathlib import Path

from webhook.cli import options
from webhook.cli.table import Compact, yaml_text


def add_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook render` takes."""
    what = "webhooks: both webhook configurations; policies: what the API server refuses even without them"
    command.add_argument("what", choices=("webhooks", "policies"), help=what)
    options.rules_option(command)
    options.namespace_option(command)
    active = "activate the webhooks at once, without gpu-webhook-certs and before replicas answer"
    command.add_argument("--active", action="store_true", help=active)
    bundle = "CA certificates (PEM), if you issue the server's certificate"
    command.add_argument("--ca-bundle", type=Path, metavar="FILE", help=bundle)
    around = "policies: TenantPolicies and Exemptions beside those among the rules, as kubectl prints them"
    options.around_option(command, around)
    mutating = "policies: and one that writes into containers without a GPU that they have none (Kubernetes 1.36)"
    command.add_argument("--mutating", action="store_true", help=mutating)


def run(given: argparse.Namespace) -> int:
    """Print the objects."""
    from webhook.cli import snapshot
    from webhook.core.registration import configurations, policies
    from webhook.files import rule_files

    rulebook = rule_files.load(given.rules)
    if given.what == "policies":
        tenancy, problems = snapshot.read_files(snapshot.TENANTS, given.around).tenancy(rulebook)
        for problem in problems:
            raise options.UsageError(str(problem))
        if tenancy.observing:
            reason = "the webhook refuses nothing, so nor may this"
            raise options.UsageError(f"spec.observe of the Cluster document is true: {reason}")
        rulebook = replace(rulebook, tenancy=tenancy)
        count = f"{len(tenancy.policies)} TenantPolicies and {len(tenancy.exemptions)} Exemptions"
        print(f"# Printed by `gpu-webhook render policies`, of {count}. Changed ones have to be rendered again.")
        made = [*policies.render_validating(rulebook, given.namespace), *policies.render_resource_quotas(rulebook)]
        made += policies.render_mutating(rulebook) if given.mutating else ()
        for written in made:  # as in the manifests: what uninstalls finds all of it by this
            written["metadata"]["labels"] = {"app.kubernetes.io/part-of": configurations.NAME}
        print(yaml_text(made, Compact, width=100), end="")
        return options.FINE
    objects = configurations.both(rulebook, given.namespace)
    if given.ca_bundle is not None:
        try:
            bundle = given.ca_bundle.read_bytes()
            pem = bundle.decode("ascii", "ignore")
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
        except OSError as error:  # ssl.SSLError is one
            raise options.UsageError(f"--ca-bundle={given.ca_bundle}: {error.strerror or error}") from error
        objects = [configurations.trusting(configuration, bundle) for configuration in objects]
    print("# Printed by `gpu-webhook render webhooks`.")
    if not given.active:
        print(f"# The certificate program copies the rules in {configurations.WANTED} when replicas answer.")
        objects = [configurations.inactive(configuration) for configuration in objects]
    print(yaml_text(objects, Compact, width=100), end="")
    return options.FINE
