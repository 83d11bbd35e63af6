"""Modes that load and may not mean what their author meant: each doubt by itself, and none without a reason."""

from tests import builders, tables
from tests.core import acme
from webhook.cli import check
from webhook.core.rules.rulebook import Rulebook


def _said(rulebook: Rulebook) -> list[str]:
    return [*check.doubts(rulebook, rulebook.enabled)]


def test_the_shipped_rules_raise_none() -> None:
    assert _said(builders.rulebook(builders.shipped_files())) == []


def test_a_mode_behind_one_that_takes_its_requests_is_told() -> None:
    said = _said(
        acme.rulebook("""
        modes:
        - name: all
          limits: {acme.example/card: count}
        - name: parts
          when: {devices: part}
          limits: {acme.example/share: {share: {unit: percent}}}
        """)
    )

    taken = 'as "all" (acme.yaml:13) takes them all; it only reads what pods bring along'
    assert said == [
        'acme.yaml:13:5: spec.modes: no example shows "all"',
        f'acme.yaml:15:5: spec.modes: no request becomes "parts", {taken}',
    ]


@tables.rows
def test_one_condition_takes_all_that_another_does(general: str, special: str, *, covered: bool) -> None:
    said = _said(
        acme.rulebook(f"""
        modes:
        - {{name: general, when: {general}, limits: {{acme.example/card: count}}}}
        - {{name: special, when: {special}, limits: {{acme.example/other: count}}}}
        """)
    )

    assert (
        any(text.startswith('acme.yaml:14:5: spec.modes: no request becomes "special"') for text in said) == covered
    )


def test_a_way_of_sharing_that_the_back_end_does_not_offer_is_told() -> None:
    said = _said(
        acme.rulebook("""
        modes:
        - {name: by time, when: {sharing: time-sliced}, limits: {acme.example/card: count}}
        """)
    )

    assert said[1:] == [
        'acme.yaml:13:5: spec.modes: nobody can ask for "by time", as sharing does not list time-sliced'
    ]
