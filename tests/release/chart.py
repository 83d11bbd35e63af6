"""The Helm chart, made of what kustomize makes: each object of the base, with the lines that components change.

What a component adds, drops or changes is found by comparing lines of YAML, and becomes a condition on
`.Values.components`. What values set replaces text or values of the base (`_filled`). By hand are only Chart.yaml,
values.yaml with its schema, the named templates and the notes, in manifests/chart. The README is made of the comments
in values.yaml.
"""

import itertools
import json
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests import builders
from tests.cluster.binaries import ROOT
from tests.release import kustomized
from tests.release.kustomized import COMPONENTS, Object
from webhook.cli import schema
from webhook.core.review import TIMEOUT_SECONDS

BY_HAND = kustomized.MANIFESTS / "chart"
CLUSTER = ROOT / "rules" / "cluster.yaml"
NAMESPACE = "gpu-webhook-system"
RULES = "gpu-webhook-rules"
API_SERVER = [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]
MOST_SHOWN = 90
"""Letters of a default in the table of values."""
OF_PODS = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity")
OF_CONTAINERS = {"env": "extraEnv", "resources": "resources"}
OWN_CA = {("Certificate", "gpu-webhook-ca"), ("Issuer", "gpu-webhook-ca"), ("Issuer", "gpu-webhook-self-signed")}
"""What signs the serving certificate, where the value issuerRef names nobody else."""

REGISTERS = """\
{{- if .Values.rules }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
  resourceNames: [gpu-webhook]
  verbs: [get, update]
{{- end }}"""
"""With rules of the site the settler writes what of the webhook configurations depends on rules: `_by_rules`."""

_OPTIONAL = re.compile(r" *\w+: \{\{ toJson (\.Values\.[\w.]+) \}\}")


class Template(str):
    """A value of an object that values set: an expression of Go's templates."""

    __slots__ = ()


class Edit(NamedTuple):
    """Lines of the base, from `start` to `end`, that are others with a component."""

    start: int
    end: int
    lines: tuple[str, ...]
    condition: str


def write(kubectl: Path, folder: Path) -> None:
    """Write the chart into a folder that is not there yet."""
    shutil.copytree(BY_HAND, folder)
    described = (folder / "Chart.yaml").read_text()
    (folder / "Chart.yaml").write_text(described.replace("0.0.0", version()))
    spec = CLUSTER.read_text().partition("\nspec:\n")[2]
    values = f"{(BY_HAND / 'values.yaml').read_text()}cluster:\n{spec}"
    (folder / "values.yaml").write_text(values)
    (folder / "README.md").write_text(_readme(values))
    values = json.loads((BY_HAND / "values.schema.json").read_text())
    described = schema.schema("Cluster")["properties"]["spec"]
    values["properties"]["cluster"] = {**described, "allOf": [values["properties"]["cluster"]]}
    (folder / "values.schema.json").write_text(json.dumps(values))
    shipped = builders.documents("\n---\n".join(builders.shipped_files().values()))
    backends = sorted(document["metadata"]["name"] for document in shipped if document["kind"] == "Backend")
    (folder / "files").mkdir()
    (folder / "files" / "backends.yaml").write_text(yaml.safe_dump({"names": backends}))
    base = _by_name(kustomized.objects(kubectl))
    with_component = {each: _by_name(kustomized.objects(kubectl, [each])) for each in COMPONENTS}
    names = dict.fromkeys([*base, *(name for objects in with_component.values() for name in objects)])
    for name in names:
        variants = {each: objects.get(name) for each, objects in with_component.items()}
        _write(folder, base.get(name), variants)


def version() -> str:
    """That of the program, which is the chart's as well."""
    made: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return made


def value(component: str) -> str:
    """The switch of a component: certManager of cert-manager."""
    first, *rest = component.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _readme(values: str) -> str:
    """The values as a table: each with the comment above it, or else above what it is part of."""
    meant: dict[str, str] = {}
    comments: list[str] = []
    outer = ""
    for line in values.splitlines():
        key = re.match(r"( {2})?(\w+):", line)
        if line.lstrip().startswith("# "):
            comments.append(line.lstrip()[2:])
        elif key:
            outer = outer if key[1] else key[2]
            path = f"{outer}.{key[2]}" if key[1] else outer
            meant[path] = " ".join(comments) or meant.get(outer, "")
            comments = []
        elif not line:
            comments = []
    _, _, table = (kustomized.MANIFESTS / "README.md").read_text().partition("| component | what it does |\n")
    told = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table.partition("\n\n")[0], re.MULTILINE))
    meant |= {f"components.{value(each)}": re.sub(r" \(\[.*\)\)", "", told[each]) for each in COMPONENTS}
    defaults: dict[str, Any] = {}
    for name, default in yaml.safe_load(values).items():
        parts = default if isinstance(default, dict) and name != "cluster" else {}
        defaults |= {f"{name}.{part}": inner for part, inner in parts.items()} or {name: default}
    rows = []
    for path, default in defaults.items():
        written = json.dumps(default)
        shown = f"`{written}`" if len(written) < MOST_SHOWN else "see values.yaml"
        rows.append(f"| `{path}` | {shown} | {meant[path].replace('|', '&#124;')} |")
    return "\n".join(["# gpu-webhook", "", "| value | default | meaning |", "| --- | --- | --- |", *rows, ""])


def _by_name(objects: Sequence[Object]) -> dict[tuple[str, str, str], Object]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
        if each["kind"] != "Namespace"  # Helm's user makes it: a release is stored in it
    }


def _write(folder: Path, base: Object | None, variants: Mapping[str, Object | None]) -> None:
    """Write the template of one object, which some components have and others have not."""
    some = base or next(each for each in variants.values() if each)
    kind, name = some["kind"], some["metadata"]["name"]
    data = some.pop("data") if kind == "ConfigMap" else None
    text = "\n".join(_by_rules(_without_empty(_edited(_lines(some), _edits(some, variants)))))
    if data is not None:
        (folder / "files" / name).mkdir(parents=True)
        for key, content in data.items():
            if key != CLUSTER.name:
                (folder / "files" / name / key).write_text(content)
        text = f"{text}\n{_data(name)}"
    having = [f".Values.components.{value(each)}" for each, variant in variants.items() if variant]
    lacking = [f".Values.components.{value(each)}" for each, variant in variants.items() if not variant]
    if kind == "CustomResourceDefinition":
        text = _under(".Values.crds", text)
    if (kind, name) == ("ClusterRole", "gpu-webhook-settler"):
        text = f"{text}\n{REGISTERS}"
    if (kind, name) in OWN_CA:
        text = _under("not .Values.issuerRef", text)
    if base is None:
        text = _under(f"or {' '.join(having)} false", text)
    elif lacking:
        text = _under(f"not (or {' '.join(lacking)} false)", text)
    elsewhere = some["metadata"].get("namespace", NAMESPACE).removeprefix(NAMESPACE)
    path = folder / "templates" / f"{'-'.join(filter(None, [kind.lower(), name, elsewhere]))}.yaml"
    assert not path.exists(), f"two objects for {path.name}"
    path.write_text(text + "\n")


def _under(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}\n{{{{- end }}}}"


def _edits(base: Object, variants: Mapping[str, Object | None]) -> list[Edit]:
    """What components change, in the order of lines; two may change the same ones only in the same way."""
    conditions: dict[tuple[int, int, tuple[str, ...]], list[str]] = {}
    for each, variant in variants.items():
        if variant and variant["kind"] != "ConfigMap":
            for edit in _changes(_lines(base), _lines(variant)):
                also = [".Values.hostNetwork"] if each == "eks" else []
                conditions.setdefault(edit, []).extend([f".Values.components.{value(each)}", *also])
    edits = sorted(Edit(*edit, _any(found)) for edit, found in conditions.items())
    for one, other in itertools.pairwise(edits):
        assert one.end <= other.start, f"{one} and {other} change the same lines"
    return edits


def _any(conditions: Sequence[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"or {' '.join(conditions)}"


def _changes(before: list[str], after: list[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    for tag, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield start, end, tuple(after[first:last])


def _edited(body: Sequence[str], edits: Sequence[Edit]) -> Iterator[str]:
    at = 0
    for edit in edits:
        yield from body[at : edit.start]
        yield f"{{{{- if {edit.condition} }}}}"
        yield from edit.lines
        if edit.end > edit.start:
            yield "{{- else }}"
            yield from body[edit.start : edit.end]
        yield "{{- end }}"
        at = edit.end
    yield from body[at:]


# An object as lines of a template


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(
    Template, lambda dumper, data: dumper.represent_scalar("tag:yaml.org,2002:str", f"@{data}@", style="'")
)


def _lines(given: Object) -> list[str]:
    """The object as lines; where values set something there is a template, which escapes keep apart from text."""
    text = yaml.dump(_filled(given, ()), Dumper=_Dumper, width=10**6)
    text = text.replace("{{", '{{ "{{" }}').replace(NAMESPACE, "{{ .Release.Namespace }}")
    return re.sub("'@(.*)@'", lambda found: "{{ " + found[1].replace("''", "'") + " }}", text).splitlines()


def _template(node: Any, path: tuple[str, ...]) -> Template | None:
    """What stands in place of a value that values set."""
    match path:
        case (*_, "namespaceSelector", "matchExpressions"):
            return Template('include "gpu-webhook.namespaces" .')
        case ("webhooks", "timeoutSeconds") if node == TIMEOUT_SECONDS:
            return Template(".Values.timeoutSeconds")
        case ("spec", "maxUnavailable"):
            return Template(".Values.podDisruptionBudget.maxUnavailable")
        case (*_, "topologySpreadConstraints"):
            return Template("toJson .Values.topologySpreadConstraints")
        case (*_, "secretName") if node == "gpu-webhook-tls":
            return Template(".Values.tlsSecretName")
        case (*_, "issuerRef") if node["name"] == "gpu-webhook-ca":
            return Template(f"toJson (.Values.issuerRef | default (fromJson `{json.dumps(node)}`))")
        case (*_, "containers", "image"):
            return Template('include "gpu-webhook.image" .')
        case (*_, "egress", "ports") if node == API_SERVER:
            return Template('include "gpu-webhook.apiServer" .')
        case (*_, "from", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"):
            return Template(".Values.prometheusNamespace")
        case (*_, "priorityClassName"):
            return Template(".Values.priorityClassName")
    return None


def _filled(node: Any, path: tuple[str, ...]) -> Any:
    """The object with templates for what values set; `path` is without the positions in lists."""
    if template := _template(node, path):
        return template
    if not path or path == ("spec", "template"):
        node = {**node, "metadata": _labelled(node)}
    if path == ("spec", "template", "spec"):
        node = {**node, **{key: Template(f"toJson .Values.{key}") for key in OF_PODS}}
    if isinstance(node, list):
        return [_filled(child, path) for child in node]
    if not isinstance(node, dict):
        return node
    if path[-1:] == ("containers",):
        name = node["name"]
        own = json.dumps(node["args"]).replace(NAMESPACE, "%namespace%")
        set_here = {key: Template(f"toJson .Values.{value}.{name}") for key, value in OF_CONTAINERS.items()}
        node = {**node, "args": Template(f'include "gpu-webhook.args" (list . "{name}" `{own}`)'), **set_here}
    if path == ("webhooks",) and node["failurePolicy"] == "Fail" and "matchConditions" in node:
        node = {**node, "failurePolicy": Template(".Values.failurePolicy")}
    if "replicas" in node and node["replicas"] > 1:
        node = {**node, "replicas": Template(".Values.replicas")}
    return {
        key: child if isinstance(child, Template) else _filled(child, (*path, key)) for key, child in node.items()
    }


def _labelled(node: Object) -> Object:
    """The metadata with the labels that values set; of an object, not of a pod's template, with the standard ones."""
    metadata, kind = node["metadata"], node.get("kind")
    own = f"fromJson `{json.dumps(metadata.get('labels', {}))}`"
    if kind is None:
        labels, annotations = f"merge ({own}) .Values.podLabels", ".Values.podAnnotations"
    else:
        of_monitors = ".Values.monitorLabels " if kind in {"ServiceMonitor", "PrometheusRule"} else ""
        labels = f'merge ({own}) (include "gpu-webhook.labels" . | fromJson) {of_monitors}.Values.commonLabels'
        annotations = ".Values.serviceAccountAnnotations" if kind == "ServiceAccount" else ""
    more = {"annotations": Template(f"toJson {annotations}")} if annotations else {}
    return {**metadata, "labels": Template(f"{labels} | toJson"), **more}


def _without_empty(lines: Iterable[str]) -> Iterator[str]:
    """What is empty by default is left out, as in the base."""
    for line in lines:
        if value := _OPTIONAL.fullmatch(line):
            yield f"{{{{- if {value[1]} }}}}"
            yield line
            yield "{{- end }}"
        else:
            yield line


def _by_rules(lines: Iterable[str]) -> Iterator[str]:
    """What of a webhook configuration depends on rules is left out where there are others than the shipped ones."""
    inside: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if inside is not None and indent <= inside and not line.startswith(" " * inside + "- "):
            yield "{{- end }}"
            inside = None
        if line.lstrip() in {"matchConditions:", "gpu-webhook.io/rules: |-"}:
            yield "{{- if not .Values.rules }}"
            inside = indent
        yield line


def _data(name: str) -> str:
    """The data of a ConfigMap: files of the chart, and among the rules what values say."""
    data = f'data:\n{{{{ (.Files.Glob "files/{name}/*").AsConfig | indent 2 }}}}'
    if name != RULES:
        return data
    cluster = f'  {CLUSTER.name}: |\n{{{{ include "gpu-webhook.cluster" . | indent 4 }}}}'
    return f"{data}\n{cluster}\n{{{{- with .Values.rules }}}}\n{{{{ toYaml . | indent 2 }}}}\n{{{{- end }}}}"
