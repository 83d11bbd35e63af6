"""The commands that write objects for the API server: render webhooks, render policies."""

import argparse
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from webhook.cli import options


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
        print(yaml_text(made), end="")
        return options.FINE
    try:
        objects = configurations.both(rulebook, given.namespace)
    except configurations.NotExemptError as error:
        raise options.UsageError(str(error)) from error
    if given.ca_bundle is not None:
        try:
            bundle = given.ca_bundle.read_bytes()
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=bundle.decode("ascii"))
        except OSError as error:  # ssl.SSLError is one
            raise options.UsageError(f"--ca-bundle={given.ca_bundle}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise options.UsageError(f"--ca-bundle={given.ca_bundle} is not PEM") from error
        objects = [configurations.trusting(configuration, bundle) for configuration in objects]
    print("# Printed by `gpu-webhook render webhooks`.")
    if not given.active:
        print(f"# The certificate program copies the rules in {configurations.WANTED} when replicas answer.")
        objects = [configurations.inactive(configuration) for configuration in objects]
    print(yaml_text(objects), end="")
    return options.FINE


# Objects for the API server as YAML that people read: long text as a block, short lists on one line.


class _Dumper(yaml.SafeDumper):
    """Block style, with leaves such as `[a, b]` on one line; nothing is referred to by an anchor."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def write_list(self, data: Sequence[Any]) -> yaml.Node:
        flat = all(isinstance(element, str) for element in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat)

    def write_text(self, data: str) -> yaml.Node:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(list, _Dumper.write_list)
_Dumper.add_representer(str, _Dumper.write_text)


def yaml_text(objects: Iterable[Mapping[str, Any]]) -> str:
    """The objects as one YAML stream."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
