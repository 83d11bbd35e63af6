"""Keys without the word `gpu` by which a rule is asked stand in the conditions; others need not."""

from tests import builders
from webhook.core.registration import conditions


def test_what_the_shipped_rules_read_is_found_by_one_word() -> None:
    [condition] = conditions.of_pods(builders.rulebook(builders.shipped_files()))

    assert condition["expression"].endswith(".exists(keys, keys.lowerAscii().contains('gpu'))))")


def test_an_annotation_for_claims_that_lacks_the_word_is_looked_for_by_itself() -> None:
    files = builders.shipped_files()
    source = files["elastic-gpu-claims.yaml"].replace(
        "- elasticgpu.io/egpuc-{container}", "- acme.example/claim-{container}"
    )

    [condition] = conditions.of_pods(builders.rulebook(files | {"elastic-gpu-claims.yaml": source}))

    searched = "keys.lowerAscii().contains('gpu') || keys.contains('acme.example/claim-')"
    assert " ".join(condition["expression"].split()).endswith(f".exists(keys, {searched})))")


def test_an_annotation_that_asks_by_itself_and_lacks_the_word_is_looked_for_too() -> None:
    files = builders.shipped_files()
    theirs = {name: files[name].replace("gpu-fraction:", "acme.example/part:") for name in ("kai.yaml", "runai.yaml")}

    [condition] = conditions.of_pods(builders.rulebook(files | theirs))

    assert "keys.contains('acme.example/part')" in condition["expression"]
