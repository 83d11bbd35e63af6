"""`gpu-webhook survey` writes the Cluster document that fits a cluster, and says what each line was seen by."""

from pathlib import Path

import pytest

from tests import builders
from tests.surveys import surveyed
from webhook.cli import snapshot
from webhook.cli.survey import survey


@pytest.mark.parametrize("folder", surveyed.FOLDERS, ids=lambda folder: folder.name)
def test_a_cluster_is_written_as_the_document_that_fits_it(folder: Path) -> None:
    assert surveyed.survey_of(folder) == (folder / "cluster.yaml").read_text()


def test_what_an_operator_may_not_list_is_said() -> None:
    """A kind that the API server refused is not there; one of which a cluster has nothing is empty."""
    systems = surveyed.systems()
    kinds = snapshot.surveyed(systems)
    listed: dict[str, list[snapshot.Object]] = {
        kind: [] for kind in kinds if kind not in {"ResourceSlice", "DeviceClass"}
    }

    document, _ = survey(snapshot.Snapshot(kinds, listed, whole=True), systems)

    assert document.endswith(
        "# Not decided:\n# - DeviceClass, ResourceSlice could not be read: run it as a user who may list them\n"
    )


@pytest.mark.parametrize("folder", surveyed.FOLDERS, ids=lambda folder: folder.name)
def test_what_a_survey_writes_loads(folder: Path) -> None:
    written = (folder / "cluster.yaml").read_text()

    loaded = builders.rulebook({**builders.shipped_files(), "cluster.yaml": written})

    assert loaded.cluster.name == "default"
