"""The state of a delivery is the strongest thing said of it, in any order, however often."""

from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notifications.mail.deliveries import STATUSES, Standing, stronger

ZERO = datetime(2026, 11, 20, tzinfo=UTC)
STANDINGS = st.builds(Standing, st.sampled_from(STATUSES), st.integers(0, 5).map(lambda n: ZERO + timedelta(seconds=n)))


def end(standings):
    return reduce(stronger, standings)


@settings(deadline=None)
@given(st.lists(STANDINGS, min_size=1, max_size=6), st.data())
def test_order_and_repetition_do_not_matter(standings, data):
    repeated = data.draw(st.lists(st.sampled_from(standings), max_size=4))
    assert end(data.draw(st.permutations([*standings, *repeated]))) == end(standings)


@settings(deadline=None)
@given(STANDINGS, STANDINGS, STANDINGS)
def test_it_is_a_semilattice(one, two, three):
    assert stronger(one, stronger(two, three)) == stronger(stronger(one, two), three)
    assert stronger(one, two) == stronger(two, one)
    assert stronger(one, one) == one


@pytest.mark.parametrize(
    ("said", "end_"),
    [
        ("accepted deferred", "deferred"), ("delivered deferred", "delivered"), ("bounced delivered", "delivered"),
        ("delivered bounced", "bounced"), ("rejected delivered", "delivered"), ("complained delivered", "complained"),
        ("bounced deferred accepted", "bounced"), ("delivered rejected", "rejected"),
    ],
)  # fmt: skip
def test_what_is_said_later_holds_where_time_decides(said, end_):
    standings = [Standing(kind, ZERO + timedelta(seconds=n)) for n, kind in enumerate(said.split())]
    assert end(standings).status == end_


@pytest.mark.parametrize("kind", ["accepted", "deferred", "complained"])
def test_what_is_said_twice_came_to_be_when_it_was_first_so(kind):
    first, later = Standing(kind, ZERO), Standing(kind, ZERO + timedelta(seconds=1))
    assert stronger(first, later) == stronger(later, first) == first


def test_at_the_same_moment_the_bounce_holds():
    assert end([Standing(kind, ZERO) for kind in ("bounced", "delivered", "rejected")]).status == "bounced"
