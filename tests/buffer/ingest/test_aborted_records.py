"""A topic that was written by transactions: what was aborted at its end, and the marks, count as read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from buffer.events.models import BufferedEvent
from buffer.flow import Aggregator
from buffer.streams import GROUP, Stream
from buffer.workers import ingest
from config.database.clock import database_now
from config.kafka import client, topic_name
from config.kafka.positions import LogEnd, Mark, Passed
from config.kafka.reader import committed_offsets
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from outbox.letters.models import DeadLetter
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.conftest import order

pytestmark = pytest.mark.django_db(transaction=True)


def transact(topic: str, *values: bytes, abort: bool = False) -> None:
    with closing(client.new_producer(transactional_id=f"{topic}-writer")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(topic, value=value, key=b"k", partition=0)
        producer.flush()
        producer.abort_transaction() if abort else producer.commit_transaction()


def read() -> None:
    ingest(["transfer-requests"], threading.Event(), until_idle=1.5)


def delete_below(topic: str, offset: int) -> None:
    with closing(client.new_admin()) as admin:
        admin.delete_records({client.TopicPartition(topic, 0): offset})


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_marks_and_aborted_records_at_the_end_are_passed(make_topic: Callable[..., str], stream: Stream) -> None:
    topic = make_topic(stream.topic)
    make_topic(stream.output)
    transact(topic, *[order(f"A{number}") for number in range(3)])
    transact(topic, *[order(f"X{number}") for number in range(5)], abort=True)
    read()
    mark = Watermark.objects.get(topic=topic)
    assert (mark.next_offset, mark.end_offset) == (10, 10), "three, a mark, five that were aborted, a mark"
    assert committed_offsets(topic_name(GROUP), topic)[topic, 0].next_offset == 10
    assert all(check.ok for check in Aggregator().verify_kafka())
    delete_below(topic, 10)
    transact(topic, order("A9"))
    read()
    assert not DeadLetter.objects.exists()
    assert set(BufferedEvent.objects.values_list("order_id", flat=True)) == {"A0", "A1", "A2", "A9"}


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_topic_whose_beginning_is_gone_has_no_gap_for_who_comes_new(make_topic: Any, stream: Stream) -> None:
    topic = make_topic(stream.topic)
    transact(topic, order("A1"))
    transact(topic, order("X1"), abort=True)
    delete_below(topic, 4)
    read()
    assert Watermark.objects.get(topic=topic).next_offset == 4
    transact(topic, order("X2"), abort=True)
    read()
    delete_below(topic, 6)
    read()
    assert Watermark.objects.get(topic=topic).next_offset == 6
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize(
    ("mark", "passed", "expected"),
    [
        (Mark("a", 10), Passed("a", 22, 10), Mark("a", 22)),
        (Mark("a", 10), Passed("b", 22, 10), Mark("a", 10)),  # made anew meanwhile
        (Mark("a", 30), Passed("a", 22, 10), Mark("a", 30)),
        (Mark("a", 5), Passed("a", 22, 10), Mark("a", 5)),  # restored meanwhile: 5 to 9 have to be read again
        (Mark("", 0), Passed("a", 22, 0), Mark("a", 22)),
        (None, Passed("a", 22, 0), Mark("a", 22)),
        (None, Passed("a", 22, 10), Mark("a", 0)),
    ],
)
def test_a_position_moves_forward_within_its_topic_and_over_no_gap(mark, passed, expected):
    marks, tp, now = Watermarks(), ("t", 0), database_now()
    if mark:
        marks.advance("g", {tp: mark}, now)
    marks.reach("g", {tp: LogEnd(22, now, passed)}, now)
    assert marks.load("g", ["t"])[tp] == expected
