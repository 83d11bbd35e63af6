"""`gpu-webhook survey` writes the Cluster document that fits a cluster, and says what each line was seen by."""

from pathlib import Path

import pytest

from tests import builders
from tests.surveys import surveyed


@pytest.mark.parametrize("folder", surveyed.FOLDERS, ids=lambda folder: folder.name)
def test_a_cluster_is_written_as_the_document_that_fits_it(folder: Path) -> None:
    assert surveyed.survey_of(folder) == (folder / "cluster.yaml").read_text()


@pytest.mark.parametrize("folder", surveyed.FOLDERS, ids=lambda folder: folder.name)
def test_what_a_survey_writes_loads(folder: Path) -> None:
    written = (folder / "cluster.yaml").read_text()

    loaded = builders.rulebook({**builders.shipped_files(), "cluster.yaml": written})

    assert loaded.cluster.name == "default"
