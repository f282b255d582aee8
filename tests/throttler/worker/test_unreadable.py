"""Batches of notifications that cannot be unpacked: a letter, or the end of that partition; what waits leaves."""

import time
from contextlib import closing
from itertools import chain

import pytest

from config.kafka import client, topic_name
from config.kafka.consumer.ports import ConsumerStopped
from config.kafka.reader import committed_offsets
from outbox.letters.models import DeadLetter
from tests.config.kafka.test_unpack import batch_of
from tests.raw_batches import RawProducer, folded_back
from tests.throttler.worker.conftest import home_of, ids_in, ids_of, notification
from throttler.engine.output_transaction import INPUT, OUTPUT
from throttler.engine.row_writer import GROUP
from throttler.verify import checks

pytestmark = pytest.mark.django_db(transaction=True)


def batch(*values):
    now = int(time.time() * 1000)
    return bytes(batch_of([(now, b"k", value, []) for value in values]))


@pytest.fixture
def put(topics):
    with closing(RawProducer()) as producer:

        def send(partition, *batches):
            for one in batches:
                assert producer.send(topic_name(INPUT), partition, one) == 0

        yield send


def letters():
    return list(DeadLetter.objects.order_by("pk").values_list("reason", "partition", "offset"))


def test_a_batch_that_nobody_can_read_is_one_letter(put, run, db):
    before, after = (notification("acme") for _ in range(2))
    home = home_of(before)
    put(home, batch(before), folded_back(batch(b"{}", b"{}")), batch(after))
    run()
    assert letters() == [("unreadable_batch", home, 1)]
    assert ids_in(OUTPUT) == {"acme": ids_of([before, after])}
    assert not [check for check in checks() if not check.ok]


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)  # the real one refuses to take it
def test_a_damaged_batch_stops_its_partition_and_no_other(put, run, send, customer):
    damaged = bytearray(batch(b"{}"))
    damaged[-1] ^= 1
    values = [notification(f"c{number}") for number in range(10)]
    send(*values)
    put(0, bytes(damaged))
    later = notification("late")
    put(0, batch(later))
    for ending in ({"until_idle": 0.1}, {"once": True}):
        with pytest.raises(ConsumerStopped, match="is damaged: wrong checksum"):
            run(**ending)
    assert {reason for reason, *_ in letters()} == {"partition_stopped"}
    assert sorted(chain(*ids_in(OUTPUT).values())) == sorted(ids_of(values))
    run(until_idle=0.5, accept_reset=True)
    assert sorted(chain(*ids_in(OUTPUT).values())) == sorted(ids_of([*values, later]))


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_what_a_producer_aborted_is_passed_and_leaves_no_gap(put, run, send, db):
    """Records that nobody reads, and the marks of transactions, move the committed offset as records do."""
    topic, message = topic_name(INPUT), notification("acme")
    home = home_of(message)
    send(message)
    with closing(client.new_producer(transactional_id=f"{topic}-writer")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(5):
            producer.send(topic, value=b"{}", partition=home)
        producer.flush()
        producer.abort_transaction()
    run(until_idle=2.0)
    assert committed_offsets(topic_name(GROUP), topic)[topic, home].next_offset == 7
    with closing(client.new_admin()) as admin:
        admin.delete_records({client.TopicPartition(topic, home): 7})
    last = notification("acme")
    send(last)
    run(until_idle=2.0)
    assert ids_in(OUTPUT) == {"acme": ids_of([message, last])}
    assert letters() == []
    assert not [check for check in checks() if not check.ok]
