"""What a reset is for, and what is left after it: what waited is counted as lost, its rows are sent by nobody, and go with their day."""

from contextlib import closing
from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka import client, topic_name
from config.kafka.runtime.ports import ConsumerStopped
from tests.crash.wire import wait_for
from tests.throttler.owner.conftest import PARTITIONS, ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.live.sending import INPUT, OUTPUT
from throttler.models import Lane, LaneOwner, LanePartition, OverflowMessage
from throttler.partitioned import OVERFLOW
from throttler.retention import keep_what_waits
from throttler.verify import checks

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("broker", ["kafka"], indirect=True),  # the embedded one takes no offsets from outside
]
PATIENT = 3.0  # seconds


def set_offset(partition, offset):
    """As somebody who resets the group by hand."""
    place = client.TopicPartition(topic_name(INPUT), partition)
    with closing(client.new_consumer(topic_name("throttler"))) as consumer:
        consumer.assign([place])
        consumer.commit({place: client.OffsetAndMetadata(offset, "", -1)})


def test_an_input_that_was_created_again_is_not_read_until_a_reset(make_topic, send, run):
    send(notification("before"))
    run(until_idle=PATIENT)
    with closing(client.new_admin()) as admin:
        admin.delete_topics([topic_name(INPUT)])
        wait_for(lambda: topic_name(INPUT) not in admin.list_topics(), 30, "the topic to be gone")
    make_topic(INPUT, PARTITIONS)
    send(after := notification("after"))
    with pytest.raises(ConsumerStopped, match="created again"):
        run(until_idle=PATIENT)
    assert ids_in(OUTPUT).keys() == {"before"}
    run(accept_reset=True, until_idle=PATIENT)
    assert ids_in(OUTPUT)["after"] == ids_of([after])


def test_rows_from_before_a_reset_are_shown_and_sent_by_nobody(send, run, customer):
    customer("held", "0/s")
    before = [notification("held") for _ in range(10)]
    send(*before)
    run(until_idle=PATIENT)
    partition = Lane.objects.get().partition
    set_offset(partition, 8)
    with pytest.raises(ConsumerStopped):
        run(until_idle=PATIENT)
    after = notification("held")
    send(after)
    run(accept_reset=True, until_idle=PATIENT)
    lane = Lane.objects.get()
    assert (lane.backlog, lane.first) == (3, 8)  # those behind the offset came again
    assert OverflowMessage.objects.count() == 11
    Customer.objects.update(rates="1000/s")
    run(until_idle=PATIENT)
    assert ids_in(OUTPUT) == {"held": ids_of([*before[8:], after])}
    assert [check for check in checks() if not check.ok] == []
    later = database_now() + timedelta(days=3)
    LanePartition.objects.update(updated_at=later), LaneOwner.objects.update(updated_at=later)
    for day in OverflowMessage.objects.values_list("day", flat=True):
        keep_what_waits("default", OVERFLOW, OVERFLOW.partition(day))  # nothing waits: nothing keeps the rows
