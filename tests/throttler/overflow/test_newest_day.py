"""Pages and `verify` read the rows of a lane up to the day of its newest row, which its read model says."""

import pytest

from config.database.clock import database_now
from tests.throttler.overflow.conftest import DAY, TODAY, TOPIC, row
from throttler import verify
from throttler.admin import waiting_messages
from throttler.models import Lane
from throttler.overflow.store import OverflowRow, OverflowStore

AHEAD = TODAY + 5 * DAY  # by a database whose clock was ahead


@pytest.fixture
def lane(store: OverflowStore, monkeypatch: pytest.MonkeyPatch) -> Lane:
    """Three messages wait, of which the last two were stored under a day that nobody would look at."""
    monkeypatch.setattr(waiting_messages, "store_of_settings", lambda: store)
    newest = TODAY + DAY if store.in_database else AHEAD  # the table has no partition for a day so far ahead
    store.store([row(1, day=TODAY), row(2, day=newest), row(3, day=newest)])
    return Lane.objects.create(
        customer_id="c1", partition=0, topic_id=TOPIC, backlog=3, first=1, drained=0, seen=3, day=TODAY, newest=newest,
        updated_at=database_now(),
    )  # fmt: skip


def offsets(rows: list[OverflowRow]) -> list[int]:
    return [one.offset for one in rows]


def test_a_page_shows_them(lane: Lane) -> None:
    assert offsets(waiting_messages._rows([lane], lane, "", None)) == [1, 2, 3]
    assert offsets(waiting_messages._rows([lane], lane, "n-3", None)) == [3]
    assert offsets(waiting_messages._read(lane, 2, 3, 1)) == [3], "the page of one message"


def test_verify_counts_them(lane: Lane, store: OverflowStore) -> None:
    assert verify._the_store_has_what_waits(store).ok
    Lane.objects.update(newest=lane.day - DAY)
    assert not verify._lanes_fit_themselves().ok
