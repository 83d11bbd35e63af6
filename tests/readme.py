"""The reference of rules and the READMEs' tables, made from what they are about.

`python -m tests.readme` writes them.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from tests import conversions, reference, ruletable
from tests.cli.program import run
from webhook.cli.__main__ import COMMANDS
from webhook.cli.schema import SHARED
from webhook.cli.test import SUITE
from webhook.core.rules.backend import BACKEND
from webhook.core.rules.catalog import DEVICE_CATALOG
from webhook.core.rules.claims import CLAIM_SOURCE
from webhook.core.rules.cluster import CLUSTER, PROTECTION
from webhook.core.rules.objects import FACTOR_KEYS, WORKLOAD
from webhook.core.rules.tenant_policy import EXEMPTION, TENANT_POLICY
from webhook.core.violations import CODES
from webhook.files import rule_files

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
OPERATING = ROOT / "manifests" / "README.md"
RULES = ROOT / "rules"
POLICIES = RULES / "README.md"
BACKENDS = RULES / "BACKENDS.md"
REFERENCE = RULES / "REFERENCE.md"


def codes() -> str:
    """Every code a message can begin with."""
    rows = (f"| {code} | {meaning} |" for code, meaning in CODES.items())
    return "\n".join(["| code | meaning |", "| --- | --- |", *rows])


FINDINGS: Mapping[str, str] = {
    "explain": "a pod is refused, or a policy cannot be used",
    "check": "the rules cannot be used, or `--coverage` or `--fail-under` miss something",
    "diff": "something changes for a pod",
    "test": "a case fails",
    "doctor": "a check fails",
    "inventory": "an object may make pods and no rule says how",
    "survey": "no back end is seen",
}
"""Of the commands that find something wrong by exit code 1, what that is."""


def outputs(command: str) -> Sequence[str]:
    """What `-o` of a command takes; nothing of one without it."""
    told = run(command, "--help").out
    choices = re.search(r"-o \{([a-z,]+)\}", told)
    return choices[1].split(",") if choices else ()


def commands() -> str:
    """Every command, with what scripts rely on."""
    rows = (
        f"| `{name}` | {purpose} | {', '.join(outputs(name)) or '-'} | {FINDINGS.get(name, '-')} |"
        for name, (purpose, *_) in COMMANDS.items()
    )
    return "\n".join(["| command | purpose | `-o` | exit code 1 |", "| --- | --- | --- | --- |", *rows])


def back_ends() -> str:
    """Every shipped back end, by the vendor that policies name."""
    rulebook = rule_files.load(RULES)
    by_vendor: dict[str, list[str]] = {}
    for name, backend in sorted(rulebook.backends.items()):
        vendor = ", ".join(sorted(backend.vendors)) or "any"
        by_vendor.setdefault(vendor, []).append(f"[{name}]({backend.at.file})")
    rows = (f"| {vendor} | {', '.join(links)} |" for vendor, links in sorted(by_vendor.items()))
    return "\n".join(["| vendor | back ends |", "| --- | --- |", *rows])


def support() -> str:
    """What is supported, from what declares it, and what the tests run on."""
    chart = yaml.safe_load((ROOT / "manifests" / "chart" / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [job] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())["jobs"].values()
    [python] = (step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", ""))
    modules = (ROOT / "tests" / "cluster" / "controlplane" / "go.mod").read_text()
    kubernetes = re.search(r"k8s\.io/kubernetes v(\d+\.\d+\.\d+)", modules)
    [oldest] = re.findall(r">=(\d+\.\d+)", chart["kubeVersion"])
    [lowest] = re.findall(r">=(\d+\.\d+)", project["requires-python"])
    assert kubernetes
    rows = (
        f"| Kubernetes | {oldest} or newer | {kubernetes[1]} |",
        f"| Python | {lowest} or newer | {python}; in the image Debian's |",
        f"| platform | Linux; others for the command line, untested | {job['runs-on']} on x86-64 |",
    )
    return "\n".join(["| | supported | tested on |", "| --- | --- | --- |", *rows])


SHIPPED = """\
The webhook loads all of them; those that `cluster.yaml` lists are enabled. Where a system takes sizes, a share needs
a known card, by `gpu-model`, the `Cluster` document, or the labels of nodes that are all alike. The webhook refuses
what a system cannot express, with the reason, and warns of what it only counts, such as compute that nothing limits.

By vendor, as policies name them:"""
CONVERTED = """\
`gpu-webhook explain pod.yaml --to NAME` [rewrites](BACKENDS.md#pods-of-other-systems) a pod. The table has a row for
each back end that a pod of the same vendor is rewritten for, and a column for what the pod asks for. `=` is exact,
`~` comes with a warning, `-` is refused. Several signs: it depends on the pod's back end. Empty: no other back end
is asked so. Cards of another vendor always come with a warning."""

SECTIONS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "## TenantPolicy": ("", partial(reference.keys, TENANT_POLICY.schema)),
    "## Exemption": ("", partial(reference.keys, EXEMPTION.schema)),
    "## Suite": ("", partial(reference.keys, SUITE.schema)),
    "## Cluster": ("", partial(reference.keys, CLUSTER.schema)),
    "## Backend": ("", partial(reference.keys, BACKEND.schema)),
    "### Modes": ("", partial(reference.keys, SHARED["mode"], BACKEND.schema)),
    "### Examples": ("", partial(reference.keys, SHARED["example"])),
    "### Verbs": ("", reference.verbs),
    "### Options of verbs": ("", reference.options),
    "## DeviceCatalog": ("", partial(reference.keys, DEVICE_CATALOG.schema)),
    "## ClaimSource": ("", partial(reference.keys, CLAIM_SOURCE.schema, BACKEND.schema)),
    "## Workload": ("", partial(reference.keys, WORKLOAD.schema)),
    "### Numbers of pods": (
        "A number under `times` is a path, or has these keys:",
        partial(reference.keys, FACTOR_KEYS.schema),
    ),
    "## Protection": ("", partial(reference.keys, PROTECTION.schema)),
    "## Shipped back ends": (SHIPPED, back_ends),
    "### What each makes of a request": ("", lambda: ruletable.table(rule_files.load(RULES))),
    "## Pods of other systems": (CONVERTED, lambda: conversions.table(rule_files.load(RULES))),
}
"""The reference: what stands under each heading before a table, and what makes the table."""

SLOW = ("### What each makes of a request", "## Pods of other systems")
"""Sections whose tables take seconds to make."""

TABLES: Mapping[str, tuple[Path, Callable[[], str]]] = {
    "codes": (OPERATING, codes),
    "support": (README, support),
    "commands": (OPERATING, commands),
}
"""Every table of another page by its marker: the file it stands in, and what makes it."""


def section(heading: str) -> str:
    """A section of the reference."""
    introduction, table = SECTIONS[heading]
    return "\n\n".join(filter(None, (heading, introduction, table())))


def the_reference() -> str:
    """The whole page."""
    start = """# Reference

Every key of every kind of document, and every shipped back end. `python -m tests.readme` writes this page.
[README.md](README.md) tells how policies are written, [BACKENDS.md](BACKENDS.md) how rules are."""
    return "\n\n".join([start, *map(section, SECTIONS)]) + "\n"


def marked(name: str, text: str) -> str:
    """What stands between a marker and the next blank line after a block or table."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n(?:\n|\Z)", text, re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no <!-- {name} -->")
    return match[1]


def block(name: str, text: str) -> str:
    """The content of the code block after a marker."""
    match = re.search(rf"<!-- {name} -->\n```[a-z]+\n(.*?)```\n", text, re.DOTALL)
    if match is None:
        raise LookupError(f"the README has no code block <!-- {name} -->")
    return match[1]


def anchors(text: str) -> set[str]:
    """What a link to a heading of the page ends in."""
    return {
        re.sub(r"[^a-z0-9-]", "", line.lower().replace(" ", "-"))
        for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def main() -> None:
    """Write the reference, and the tables of other pages."""
    REFERENCE.write_text(the_reference())
    for name, (file, render) in TABLES.items():
        text = file.read_text()
        marker = f"<!-- {name} -->\n"
        file.write_text(text.replace(f"{marker}{marked(name, text)}\n", f"{marker}{render()}\n"))


if __name__ == "__main__":
    main()
