"""An image in the values of the chart."""

from pathlib import Path

import yaml

from tests import tables
from tests.release import chart, dist

DIGEST = "sha256:" + "0" * 64


@tables.rows
def test_a_registry_with_a_port_a_tag_and_a_digest_are_told_apart(
    image: str, expected: dict[str, str], tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text((chart.BY_HAND / "values.yaml").read_text())

    dist._name(values, image)  # noqa: SLF001 - the rest of a release takes seconds

    assert yaml.safe_load(values.read_text())["image"] == expected
