"""Who gives way when a total is used up."""

from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from webhook.server.connections import Connection, Shares


@dataclass(frozen=True)
class Holder:
    """As much of a connection as is looked at here."""

    address: str
    number: int


def holder(address: str, number: int = 0) -> Connection:
    return cast("Connection", Holder(address, number))


def holders(address: str, count: int) -> list[Connection]:
    return [holder(address, number) for number in range(count)]


def filled(total: int, *given: Connection, amount: int = 1) -> Shares:
    shares = Shares(total)
    for each in given:
        shares.hold(each, amount)
    return shares


def test_an_address_that_is_alone_may_use_everything() -> None:
    assert filled(5, *holders("proxy", 5)).giving_way() is None


def test_the_oldest_of_the_address_that_has_most_gives_way() -> None:
    flood = holders("flood", 4)

    assert filled(5, holder("api"), *flood, holder("probe")).giving_way() == flood[0]


def test_a_known_address_may_hold_a_hundred_times_as_much_as_another() -> None:
    shares = Shares(104, {"proxy"})
    for each in (*holders("proxy", 99), *holders("a", 2), *holders("b", 4)):
        shares.hold(each, 1)
    assert shares.giving_way() == holder("b", 0)
    shares.release(holder("b", 0))
    for each in holders("proxy", 301)[99:]:
        shares.hold(each, 1)

    assert shares.giving_way() == holder("proxy", 0)


def test_of_one_address_the_largest_gives_way() -> None:
    shares = filled(10, *holders("a", 3))
    shares.hold(holder("a", 1), 9)

    assert shares.giving_way() == holder("a", 1)


def test_who_grows_is_counted_once() -> None:
    shares = filled(10, holder("a"))
    for amount in (3, 7, 10):
        shares.hold(holder("a"), amount)

    assert (shares.used, shares.giving_way()) == (10, None)


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
