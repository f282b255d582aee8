"""Deliveries move from the status in which they were locked, and from no other."""

from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.database.clock import database_now
from notifications.mail import deliveries
from notifications.mail.deliveries import STATUSES, News, Standing, move, stronger
from notifications.models import Delivery
from tests.notifications.post import go, paid
from tests.row_locks import locks_asked_for


def test_a_delivery_that_changed_although_it_is_locked_is_not_overwritten(email, monkeypatch):
    message = paid()
    go(email)
    hear = deliveries._take_in

    def meanwhile(*given):
        Delivery.objects.update(status="bounced")
        return hear(*given)

    monkeypatch.setattr(deliveries, "_take_in", meanwhile)
    now = database_now()
    with locks_asked_for() as locks, pytest.raises(RuntimeError, match="moved 0 of 1"):
        move({message.pk: [News(Standing("delivered", now))]}, now)
    assert locks == ["notifications_delivery"]
    assert Delivery.objects.get().status == "bounced"


def test_a_second_acceptance_takes_back_nothing_that_a_provider_has_reported(email):
    """The message was given up as uncertain, proven to have arrived, and requeued: it has another id now."""
    message = paid()
    go(email)
    now = database_now()
    move({message.pk: [News(Standing("bounced", now))]}, now)
    deliveries.write([deliveries.accepted(message, "another id")], "memory", now)
    row = Delivery.objects.get()
    assert (row.status, row.provider_message_id) == ("bounced", "another id")


def test_of_what_happened_twice_the_first_time_is_kept(email):
    message = paid()
    go(email)
    now = database_now()
    for seconds in (-5, -9, -7):
        at = now + timedelta(seconds=seconds)
        move({message.pk: [News(Standing(kind, at)) for kind in ("delivered", "bounced", "complained")]}, now)
    row, first = Delivery.objects.get(), now - timedelta(seconds=9)
    assert (row.delivered_at, row.bounced_at, row.complained_at) == (first, first, first)


# -- the strongest status that was ever reported holds, in any order, however often -------------------
ZERO = datetime(2026, 11, 20, tzinfo=UTC)
STANDINGS = st.builds(Standing, st.sampled_from(STATUSES), st.integers(0, 5).map(lambda n: ZERO + timedelta(seconds=n)))


def end(standings):
    return reduce(stronger, standings)


@settings(deadline=None)
@given(st.lists(STANDINGS, min_size=1, max_size=6), st.data())
def test_order_and_repetition_do_not_matter(standings, data):
    repeated = data.draw(st.lists(st.sampled_from(standings), max_size=4))
    assert end(data.draw(st.permutations([*standings, *repeated]))) == end(standings)


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
