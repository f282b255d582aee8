"""A message is found by its notification id within its lane, by every store and by reading page after page."""

import pytest
from django.db import connection

from tests.outbox.delivery.test_plans import explained
from tests.throttler.overflow.conftest import DAY, TODAY, lane, row
from throttler.models import OverflowMessage
from throttler.overflow import store as interface
from throttler.overflow.django import DjangoStore, hash_of
from throttler.overflow.store import OverflowStore


@pytest.mark.parametrize("find", ["its own", "page by page"])
def test_a_message_is_found_in_its_lane_and_nowhere_else(store, find):
    def found(notification_id, **more):
        asked = lane(limit=4, **more)
        one = (
            store.find(asked, notification_id)
            if find == "its own"
            else OverflowStore.find(store, asked, notification_id)
        )
        return one and one.offset

    store.store([row(offset) for offset in range(20)] + [row(5, "c2", notification_id="other")])
    assert [found(f"n-{offset}") for offset in (0, 3, 4, 19, 20)] == [0, 3, 4, 19, None]
    assert found("other") is None
    assert found("other", customer="c2") == 5
    assert found("n-7", drained=7) is None
    assert found("n-7", upto=6) is None
    assert found("N-7") is None


def test_of_two_with_one_id_the_first_is_found(store):
    store.store([row(3, notification_id="twice"), row(2, notification_id="twice"), row(3, day=TODAY)])
    assert store.find(lane(), "twice") == row(2, notification_id="twice")


def test_a_search_page_by_page_ends(store, monkeypatch):
    monkeypatch.setattr(interface, "PAGES", 3)
    store.store([row(offset) for offset in range(20)])
    assert OverflowStore.find(store, lane(limit=4), "n-11").offset == 11
    assert OverflowStore.find(store, lane(limit=4), "n-12") is None


@pytest.fixture
def table(transactional_db):
    """A lane of 3,000 in the relational table, a third of it from yesterday."""
    table = DjangoStore()
    table.store([row(offset, day=TODAY if offset % 3 else TODAY - DAY) for offset in range(3000)])
    if connection.vendor == "postgresql":
        connection.cursor().execute("ANALYZE throttler_overflowmessage")
    return table


def test_a_search_goes_by_the_hash_and_not_through_the_lane(table):
    found = table._rows_with(lane(), "n-2999").filter(notification_hash=hash_of("n-2999")).order_by("offset", "day")
    plan = explained(*found.query.sql_with_params())
    assert "overflow_notification" in plan or "_notification_hash_offset_" in plan
    assert table.find(lane(), "n-2999").offset == 2999


def test_two_ids_with_one_hash_are_told_apart(table):
    others = [f"x-{number}" for number in range(100_000) if hash_of(f"x-{number}") == hash_of("n-7")]
    assert table.find(lane(), others[0]) is None
    table.store([row(3000, notification_id=others[0])])
    assert table.find(lane(), others[0]).offset == 3000


def test_a_row_of_a_worker_of_the_last_release_is_found(table):
    OverflowMessage.objects.filter(offset=5).update(notification_hash=None)
    assert table.find(lane(), "n-5").offset == 5
    assert table.find(lane(), "n-x") is None
