"""What a reset is for, and what is left after it: what waited is counted as lost, its rows are sent by nobody, and go with their day."""

from contextlib import closing
from datetime import timedelta

import pytest

from config.database.clock import database_now
from config.kafka import client, topic_name
from config.kafka.consumer.ports import ConsumerStopped
from config.kafka.wire_format import partition_of
from outbox.bookkeeping import counters
from outbox.models import DeadLetter
from tests.crash.wire import wait_for
from tests.throttler.worker.conftest import PARTITIONS, ids_in, ids_of, notification
from throttler.customers.models import Customer
from throttler.engine.output_transaction import INPUT, OUTPUT
from throttler.lanes.state import CHANGELOG
from throttler.models import Lane, LaneOwner, LanePartition, OverflowMessage
from throttler.partitioned import OVERFLOW, keep_what_waits
from throttler.verify import checks, kafka_checks

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.parametrize("broker", ["kafka"], indirect=True),  # the embedded one takes no offsets from outside
]
PATIENT = 3.0  # seconds
COMPACT = {"cleanup.policy": "compact"}


def set_offset(partition, offset):
    """As somebody who resets the group by hand, once it has no members: one that has left may still be known."""
    place, group = client.TopicPartition(topic_name(INPUT), partition), topic_name("throttler")
    with closing(client.new_admin()) as admin:
        wait_for(lambda: not admin.describe_groups([group])[group]["members"], 60, "the group to be empty")
    with closing(client.new_consumer(group)) as consumer:
        consumer.assign([place])
        consumer.commit({place: client.OffsetAndMetadata(offset, "", -1)})


def make_again(make_topic, name, **config):
    """As somebody who deletes a topic and makes it once more."""
    with closing(client.new_admin()) as admin:
        admin.delete_topics([topic_name(name)])
        wait_for(lambda: topic_name(name) not in admin.list_topics(), 30, "the topic to be gone")
    make_topic(name, PARTITIONS, **config)


def faults():
    return [
        (check.name, check.rows, check.expected, check.actual) for check in (*checks(), *kafka_checks()) if not check.ok
    ]


def totals():
    return counters.totals("throttler")


@pytest.mark.parametrize(("topic", "said"), [(INPUT, "created again"), (CHANGELOG, "the changelog says nothing")])
def test_a_topic_that_was_created_again_is_not_read_until_a_reset_which_lasts(make_topic, send, run, topic, said):
    """Nothing waited, so that no lane has to be forgotten: only the position says that somebody has accepted it."""
    send(*(notification(f"c{number}") for number in range(4)))
    run(until_idle=PATIENT)
    make_again(make_topic, topic, **COMPACT if topic == CHANGELOG else {})
    with pytest.raises(ConsumerStopped, match=said):
        run(once=True)
    run(accept_reset=True, once=True)
    assert faults() == []
    run(once=True)
    send(after := notification("after"))
    run(once=True)
    assert ids_in(OUTPUT)["after"] == ids_of([after])
    assert (totals()["read"], totals()["live"], faults()) == (5, 5, [])


@pytest.mark.parametrize("topic", [INPUT, CHANGELOG])
def test_what_waited_is_lost_and_what_comes_after_is_counted_on(make_topic, send, run, customer, topic):
    customer("held", "0/s")
    send(*(notification("held") for _ in range(7)), *(notification(f"c{number}") for number in range(3)))
    run(until_idle=PATIENT)
    make_again(make_topic, topic, **COMPACT if topic == CHANGELOG else {})
    with pytest.raises(ConsumerStopped):
        run(once=True)
    run(accept_reset=True, once=True)
    assert (totals()["lost"], faults()) == (7, [])
    send(notification("held"), notification("new"))
    run(until_idle=PATIENT)
    assert (totals()["read"], totals()["lost"], totals()["buffered"], totals()["live"]) == (12, 7, 8, 4)
    assert (Lane.objects.get(customer_id="held").backlog, faults()) == (1, [])


def test_a_reset_that_goes_back_counts_and_buries_what_it_reads_again(send, run):
    """Its letters are there already: what is read again adds none, and none is missing."""
    send(b"{bad", b"{worse", partition=0)
    send(*(notification(home) for home in homes(0, 3)))
    run(until_idle=PATIENT)
    set_offset(0, 1)
    with pytest.raises(ConsumerStopped, match="committed offset 1"):
        run(once=True)
    run(accept_reset=True, once=True)
    assert (totals()["parked"], DeadLetter.objects.filter(step="decode").count()) == (3, 2)
    assert faults() == []
    run(once=True)
    assert faults() == []


def test_a_reset_of_one_partition_leaves_the_others_alone(send, run, customer):
    customer("held", "0/s")
    before = [notification("held") for _ in range(5)]
    send(*before)
    run(until_idle=PATIENT)
    here = Lane.objects.get().partition
    send(*(notification(home) for home in homes(1 - here, 2)))
    run(until_idle=PATIENT)
    set_offset(1 - here, 1)
    with pytest.raises(ConsumerStopped):
        run(once=True)
    run(accept_reset=True, once=True)
    assert (Lane.objects.get(customer_id="held").backlog, totals().get("lost", 0), faults()) == (5, 0, [])


def homes(number, count):
    """Customers of a partition."""
    names = (f"h{n}" for n in range(1000))
    return [name for name in names if partition_of(name.encode(), PARTITIONS) == number][:count]


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
