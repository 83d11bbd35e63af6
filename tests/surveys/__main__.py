"""`python -m tests.surveys`: make what the surveys say now the expectation; git shows what is different."""

from tests.surveys import surveyed

for folder in surveyed.FOLDERS:
    (folder / "cluster.yaml").write_text(surveyed.survey_of(folder))
