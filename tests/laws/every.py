"""Laws of every back end: each is tried on pods of each one alone, so that none hides behind the others."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws import clusters, tried
from tests.laws.asking import FORMS, Asking, askings

Law = Callable[..., object]
"""A law of a pod; what it returns is true if the pod was one that the law says something of."""


def backend(
    pods: int,
    *,
    least: int,
    forms: Sequence[str] = FORMS,
    backends: Sequence[str] | None = None,
    named: bool = False,
    also: Sequence[st.SearchStrategy[Any]] = (),
) -> Callable[[Law], Callable[[str], None]]:
    """Try a law on so many pods of every back end, of which it has to say something of at least so many."""

    def decorate(law: Law) -> Callable[[str], None]:
        @pytest.mark.large
        @pytest.mark.parametrize("backend", clusters.names() if backends is None else backends)
        def test(backend: str) -> None:
            met = 0

            @tried(pods)
            @given(askings(backend, forms, named=named), st.tuples(*also))
            def holds(asked: Asking, more: tuple[Any, ...]) -> None:
                nonlocal met
                met += bool(law(asked, *more))

            holds()
            assert met >= least, f"the law was met {met} times only"

        test.__doc__ = law.__doc__
        return test

    return decorate
