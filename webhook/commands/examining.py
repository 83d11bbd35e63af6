"""The command that examines an installation: doctor."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from webhook.commands import options, streams
from webhook.commands.options import FAILED, FINE, NOT_FINE, UsageError


def doctor_options(command: argparse.ArgumentParser) -> None:
    """What `gpu-webhook doctor` takes."""
    from webhook.core.rules import cluster

    command.add_argument(
        "--rules",
        type=Path,
        metavar="DIR",
        help="the rules that should be in force; default: the ConfigMaps that the admission server mounts",
    )
    command.add_argument(
        "--namespace",
        default=cluster.OWN,
        metavar="NAME",
        help="where the server runs (default: %(default)s)",
    )
    command.add_argument(
        "--try-in", default="default", metavar="NAME", help="namespace for dry runs of pods (default: %(default)s)"
    )
    command.add_argument(
        "--endpoint",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="address of a replica, for example of a kubectl port-forward; default: the endpoints of the Service",
    )
    options.output(command)
    command.set_defaults(command=_doctor)


def _doctor(given: argparse.Namespace) -> int:
    from webhook.cluster import client, examination, session
    from webhook.core.registration.configurations import NotExemptError
    from webhook.views import checkup

    asked = examination.Asked(
        rules=given.rules,
        namespace=given.namespace,
        try_in=given.try_in,
        endpoints=[options.address(each, "--endpoint") for each in given.endpoint],
    )
    try:
        checks = session.ask(partial(examination.examine, asked))
    except (client.ApiError, NotExemptError) as error:
        raise UsageError(str(error)) from None
    streams.dump(checkup.contract(checks)) if given.output == "json" else print("\n".join(checkup.lines(checks)))
    if not all(check.examined for check in checks):
        return FAILED
    return NOT_FINE if any(check.result == "fail" for check in checks) else FINE
