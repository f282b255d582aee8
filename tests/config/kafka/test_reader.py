"""Reading a topic from its beginning to its end, whoever else writes into it."""

from __future__ import annotations

import threading
import uuid

import pytest

from config.kafka import client
from config.kafka.reader import Reader, record_at


def values_of(reader: Reader) -> list[bytes]:
    return [record.value for records in reader.batches() for record in records]


def test_a_topic_is_read_to_its_end(make_topic):
    topic = make_topic("read")
    producer = client.new_producer()
    for number in range(3):
        producer.send(topic, value=b"%d" % number)
    producer.close()
    with Reader(topic) as reader:
        assert values_of(reader) == [b"0", b"1", b"2"]


def test_the_record_at_a_position(make_topic):
    topic = make_topic("read")
    producer = client.new_producer()
    for number in range(3):
        producer.send(topic, value=b"%d" % number, headers=[("n", b"%d" % number)])
    producer.close()
    found = record_at(topic, 0, 1)
    assert (found.value, found.headers, found.offset) == (b"1", [("n", b"1")], 1)
    assert [record_at(*place) for place in ((topic, 0, 3), (topic, 7, 0), (f"{topic}.none", 0, 0))] == [None] * 3


def test_what_is_committed_behind_an_open_transaction_is_read(make_topic, broker):
    """A restore stopped before somebody else's open transaction, and missed the batches behind it."""
    if broker is not None:
        pytest.skip("needs transactions, which only the real broker has")
    topic = make_topic("transactions")
    stranger = client.new_producer(transactional_id=f"t{uuid.uuid4()}")
    stranger.init_transactions()
    stranger.begin_transaction()
    stranger.send(topic, value=b"open").get(10)
    ours = client.new_producer()
    ours.send(topic, value=b"behind").get(10)
    ours.close()
    with Reader(topic) as reader:
        timer = threading.Timer(1.0, stranger.abort_transaction)
        timer.start()
        assert values_of(reader) == [b"behind"]
        timer.join()
    stranger.close()
