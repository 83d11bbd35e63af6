"""Who gives way when a total is used up."""

from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tests import tables
from webhook.server.connections import Connection, Shares


@dataclass(frozen=True)
class Holder:
    """As much of a connection as is looked at here."""

    address: str
    number: int


def holder(address: str, number: int) -> Connection:
    return cast("Connection", Holder(address, number))


@tables.rows
def test_once_these_hold_so_much_there_gives_way(
    total: int, held: list[tuple[str, int, int]], used: int, gives_way: tuple[str, int] | None
) -> None:
    """Each holder has an address and a number there, and holds an amount from now on."""
    shares = Shares(total)
    for address, number, amount in held:
        shares.hold(holder(address, number), amount)

    assert (shares.used, shares.giving_way()) == (used, holder(*gives_way) if gives_way else None)


def test_a_known_address_may_hold_a_hundred_times_as_much_as_another() -> None:
    shares = Shares(104, {"proxy"})
    for address, count in (("proxy", 99), ("a", 2), ("b", 4)):
        for number in range(count):
            shares.hold(holder(address, number), 1)
    assert shares.giving_way() == holder("b", 0)
    shares.release(holder("b", 0))
    for number in range(99, 301):
        shares.hold(holder("proxy", number), 1)

    assert shares.giving_way() == holder("proxy", 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 9), st.booleans())))
def test_what_is_used_is_the_sum_of_what_is_held(steps: list[tuple[str, int, int, bool]]) -> None:
    shares, expected = Shares(20), dict[Connection, int]()
    for address, number, amount, releases in steps:
        connection = holder(address, number)
        if releases:
            shares.release(connection)
            expected.pop(connection, None)
        else:
            shares.hold(connection, amount)
            expected[connection] = amount
        while (late := shares.giving_way()) is not None:
            assert expected.pop(late) > 0
            shares.release(late)
        assert shares.used == sum(expected.values()) <= 20
