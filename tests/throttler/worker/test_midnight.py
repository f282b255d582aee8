"""The database's clock goes back over midnight, or was ahead: no row of a lane has a day below one before it."""

from contextlib import closing
from datetime import UTC, datetime, time, timedelta

import msgspec
import pytest
from structlog.testing import capture_logs

from config.database.clock import database_now
from config.kafka import client, topic_name
from outbox.letters.models import DeadLetter
from tests.throttler.overflow.conftest import DAY, TODAY
from tests.throttler.worker.conftest import ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.engine.output_transaction import INPUT, OUTPUT
from throttler.lanes.state import LaneState, lane_bytes, lane_of, lane_record_from
from throttler.models import Lane, OverflowMessage
from throttler.verify import checks
from throttler.worker import start

pytestmark = pytest.mark.django_db(transaction=True)
TWO_DAYS = 172_800


@pytest.fixture
def at(monkeypatch):
    """The next throttler begins with this time of the database; None: the true one."""

    def begin(moment):
        monkeypatch.setattr(start, "database_now", database_now if moment is None else lambda: moment)

    return begin


def midnight():
    return datetime.combine(datetime.now(UTC).date() + DAY, time(), UTC)


def test_who_takes_over_before_midnight_stores_under_the_day_after_it(send, run, customer, at):
    customer("held", "0/s", ttl_seconds=TWO_DAYS)
    values = [notification("held") for _ in range(9)]
    for some, moment in ((values[:3], -90), (values[3:6], 1), (values[6:], -90)):
        at(midnight() + timedelta(seconds=moment))
        send(*some)
        run()
    days = list(OverflowMessage.objects.order_by("offset").values_list("day", flat=True))
    assert days == [TODAY] * 3 + [TODAY + DAY] * 6
    assert all(check.ok for check in checks())
    Customer.objects.update(rates="1000/s")
    at(None)
    with capture_logs() as lines:
        run()
    assert ids_in(OUTPUT) == {"held": ids_of(values)}
    assert OverflowMessage.objects.count() == 9
    assert not DeadLetter.objects.exists()
    assert not [line for line in lines if line["event"] == "overflow_rows_lost"]


def test_a_lane_that_was_empty_begins_with_the_day_of_the_clock(send, run, customer, at):
    customer("held", "0/s", ttl_seconds=TWO_DAYS)
    values = [notification("held") for _ in range(2)]
    for value, moment in zip(values, (midnight(), None), strict=True):
        Customer.objects.update(rates="0/s")
        at(moment)
        send(value)
        run()
        Customer.objects.update(rates="1000/s")
        run()
    assert ids_in(OUTPUT) == {"held": ids_of(values)}
    assert list(OverflowMessage.objects.order_by("offset").values_list("day", flat=True)) == [TODAY + DAY, TODAY]


def test_rows_that_are_read_again_have_no_day_below_one_before_them(send, run, customer, at, broker):
    """The log has the end of a lane only; what lies before it keeps its days, and the lane goes on behind that."""
    customer("held", "0/s", ttl_seconds=TWO_DAYS)
    values = [notification("held") for _ in range(6)]
    for some, moment in ((values[:2], -90), (values[2:], 1)):
        at(midnight() + timedelta(seconds=moment))
        send(*some)
        run()
    place = topic_name(INPUT), Lane.objects.get().partition
    remove_before(broker, place, 4)
    OverflowMessage.objects.filter(offset__gte=4).delete()
    Customer.objects.update(rates="2/day", burst=2)
    run()
    assert (Lane.objects.get().day, Lane.objects.get().newest) == (TODAY + DAY, TODAY + DAY)
    remove_before(broker, place, 6)  # nothing can be read again any more
    Customer.objects.update(rates="1000/s")
    at(None)
    run()
    assert ids_in(OUTPUT) == {"held": ids_of(values)}
    assert not DeadLetter.objects.exists()
    assert all(check.ok for check in checks())


def remove_before(broker, place, offset):
    if broker is not None:
        broker.delete_records(*place, offset)
        return
    with closing(client.new_admin()) as admin:
        admin.delete_records({client.TopicPartition(*place): offset})


def test_a_row_that_the_store_has_moved_to_a_later_day_takes_those_behind_it_along():
    found = LaneState("a")
    for offset in range(2):
        found.buffer(offset, TODAY)
    found.reach(TODAY + DAY)
    again = lane_of("a", lane_record_from(lane_bytes(found, 1, "t")))
    assert (again.newest, again.buffer(2, TODAY)) == (TODAY + DAY, TODAY + DAY)


def test_a_lane_that_an_earlier_release_logged_begins_with_the_day_of_its_oldest_row():
    found = LaneState("a")
    found.buffer(0, TODAY)
    logged = msgspec.json.decode(lane_bytes(found, 1, "t"))
    del logged["newest"]
    again = lane_of("a", lane_record_from(msgspec.json.encode(logged)))
    assert (again.newest, again.buffer(1, TODAY - DAY)) == (TODAY, TODAY)
