"""A message is found by its notification id within its lane, by every store and by reading page after page."""

import pytest

from tests.throttler.overflow.conftest import TODAY, lane, row
from throttler.overflow import store as interface
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
