"""A store that lost rows: they are read again from the input and sent once, in order; what is gone is one letter."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import pytest

from config.database.clock import database_now
from outbox.letters.models import DeadLetter
from tests.throttler.worker.conftest import ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.engine.output_transaction import OUTPUT
from throttler.engine.repair import RefusedRow, Rereader, Suspect
from throttler.models import Lane, LanePartition, OverflowMessage
from throttler.overflow import store_of_settings
from throttler.overflow.store import LaneRange, OverflowRow
from throttler.verify import checks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def values(send, run, customer):
    """Ten messages of a held customer, all of them in the store."""
    customer("held", "0/s")
    found = [notification("held") for _ in range(10)]
    send(*found)
    run()
    assert OverflowMessage.objects.count() == Lane.objects.get().backlog == 10
    return found


def released():
    Customer.objects.update(rates="1000/s")


def test_lost_rows_are_read_again_and_sent_in_order(values, run):
    OverflowMessage.objects.filter(offset__gte=3).delete()
    assert [check.ok for check in checks()].count(False) == 1
    released()
    run()
    assert ids_in(OUTPUT) == {"held": ids_of(values)}
    assert not DeadLetter.objects.exists()
    assert all(check.ok for check in checks())


def test_an_owner_of_the_past_buries_nothing_and_holds_nobody_up():
    """It slept while it read the range again: what it misses may have left long ago."""
    now = database_now()
    for number, epoch in ((0, 6), (1, 5)):
        LanePartition.objects.create(
            number=number, epoch=epoch, process="x", position=9, decided=9, read=9, updated_at=now
        )
    store = SimpleNamespace(counts=lambda ranges: [0] * len(ranges), store=lambda rows: None)
    with closing(Rereader(store, "me")) as rereader:
        rereader._store_again = lambda suspects: Counter()
        lanes = [LaneRange(number, "held", "t", 2, 8, now.date(), 6) for number in (0, 1)]
        rereader._repair([Suspect(lane, 6, False, epoch=5) for lane in lanes])
        row = OverflowRow(0, "held", "t", 4, now.date(), b"{}", b"", 0, 0, "n")
        rereader._bury_rows([RefusedRow(row, "too large", 5)])
        assert rereader.found.qsize() == 3
    assert [(letter.reason, letter.partition) for letter in DeadLetter.objects.all()] == [("messages_lost", 1)]


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_what_the_log_no_longer_has_becomes_one_letter(values, run, broker):
    from config.kafka import client, topic_name

    admin = client.new_admin()
    place = client.TopicPartition(topic_name("notifications-in"), Lane.objects.get().partition)
    admin.delete_records({place: 5})
    admin.close()
    OverflowMessage.objects.filter(offset__lt=7).delete()
    released()
    run()
    assert ids_in(OUTPUT) == {"held": ids_of(values[5:])}
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.business_key) == ("messages_lost", "held")
    assert letter.error.startswith("5 messages of held between offsets 0 and 9 are")
    assert all(check.ok for check in checks())


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_rows_are_not_read_again_from_another_topic(values, send, broker):
    lane = Lane.objects.get()
    OverflowMessage.objects.all().delete()
    of_lane = LaneRange(lane.partition, "held", str(uuid4()), lane.drained, lane.seen, lane.day, lane.backlog)
    with closing(Rereader(store_of_settings(), "me")) as rereader:
        assert rereader._done([Suspect(of_lane, lane.backlog, False)]), "it is not tried for ever"
        assert rereader.found.empty()
        assert (OverflowMessage.objects.count(), DeadLetter.objects.count()) == (0, 0)
        assert rereader._done([Suspect(replace(of_lane, topic_id=lane.topic_id), lane.backlog, False)])
    assert OverflowMessage.objects.count() == 10
