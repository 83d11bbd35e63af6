"""The surveys of the clusters beside this file, by the shipped rules."""

from functools import cache
from pathlib import Path

from tests.builders import RULES
from webhook.cli import snapshot
from webhook.cli.survey import survey
from webhook.core.rules.rulebook import Rulebook
from webhook.files import rule_files

FOLDERS = sorted(folder.parent for folder in Path(__file__).parent.glob("*/seen.yaml"))


@cache
def systems() -> Rulebook:
    return rule_files.load_systems(RULES)


def survey_of(folder: Path) -> str:
    file = folder / "seen.yaml"
    objects = snapshot.Snapshot(snapshot.surveyed(systems()))
    objects.parse(file.read_bytes(), file.name)
    document, _ = survey(objects, systems())
    return document
