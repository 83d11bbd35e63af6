"""Keys without the word `gpu` by which a rule is asked stand in the conditions; others need not."""

import re

from tests import builders
from webhook.core.registration import conditions, configurations


def _searched(condition: conditions.Condition) -> set[str]:
    """What keys of labels and annotations are compared with, or begin with."""
    expression = condition["expression"]
    listed = re.findall(r"key in \[(.*?)\]", expression, re.DOTALL)
    words = {word for names in listed for word in re.findall(r"'([^']*)'", names)}
    return words | set(re.findall(r"key\.startsWith\('([^']*)'\)", expression))


def test_what_the_shipped_rules_read_is_found_by_one_word_beside_what_they_protect() -> None:
    rulebook = builders.rulebook(builders.shipped_files())
    protected = {key for each in rulebook.protections for key in (*each.labels, *each.annotations)}

    [condition] = conditions.by_webhook(rulebook)["validate"]

    searched = _searched(condition)
    assert r".matches('(?i:gpu)|" in condition["expression"]
    assert all(any(key.startswith(word) for key in protected) for word in searched)


def test_an_annotation_for_claims_that_lacks_the_word_is_looked_for_by_itself() -> None:
    files = builders.shipped_files()
    source = files["elastic-gpu-claims.yaml"].replace(
        "- elasticgpu.io/egpuc-{container}", "- acme.example/claim-{container}"
    )

    [condition] = conditions.by_webhook(builders.rulebook(files | {"elastic-gpu-claims.yaml": source}))["validate"]

    assert "acme.example/claim-" in _searched(condition)


def test_an_annotation_that_asks_by_itself_and_lacks_the_word_is_looked_for_too() -> None:
    files = builders.shipped_files()
    theirs = {name: files[name].replace("gpu-fraction:", "acme.example/part:") for name in ("kai.yaml", "runai.yaml")}

    [condition] = conditions.by_webhook(builders.rulebook(files | theirs))["validate"]

    assert "acme.example/part" in _searched(condition)


def test_a_configuration_without_what_depends_on_rules_gets_all_of_it_and_keeps_the_rest() -> None:
    rulebook = builders.rulebook(builders.shipped_files())
    every = [configurations.inactive(made) for made in configurations.both(rulebook)]
    for made in every:
        own = {"metadata": {"name": "gpu-webhook", "labels": {"a": "b"}, "annotations": {"c": "d"}}}
        hooks = [{**hook, "timeoutSeconds": 7} for hook in made["webhooks"]]
        bare = [{key: value for key, value in hook.items() if key != "matchConditions"} for hook in hooks]

        filled = configurations.filled_in({**made, **own, "webhooks": bare}, rulebook)

        annotations = {"c": "d", **made["metadata"]["annotations"]}
        assert filled == {**made, "metadata": {**own["metadata"], "annotations": annotations}, "webhooks": hooks}
        assert configurations.filled_in(filled, rulebook) == filled
