"""A topic that was made again: a reset that somebody accepts lasts, whether there is anything to read or not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from buffer.streams import GROUP, Stream
from buffer.workers import ingest
from config.database.clock import database_now
from config.kafka import topic_name
from config.kafka.consumer.ports import ConsumerStopped
from config.kafka.positions import Mark
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.watermarks import Watermarks
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic

pytestmark = pytest.mark.django_db(transaction=True)


def read(**options: Any) -> None:
    ingest(["transfer-requests"], threading.Event(), once=True, **options)


def test_an_accepted_reset_lasts_when_there_is_nothing_to_read(make_topic: Callable[..., str], stream: Stream) -> None:
    topic = make_topic(stream.topic)
    make_topic(stream.output)
    Watermarks().advance(topic_name(GROUP), {(topic, 0): Mark("", 7)}, database_now())
    with pytest.raises(ConsumerStopped, match="the log ends at 0"):
        read()
    read(accept_reset=True)
    read()
    assert Watermark.objects.values_list("next_offset", "alarm").get(topic=topic) == (0, "")


def test_a_reset_of_a_partition_that_was_always_empty_is_stored_too():
    """It takes the topic's old id from the other partitions, which another member may hold, who accepts nothing."""
    marks = Watermarks()
    marks.advance("g", {("t", 0): Mark("old", 7)}, database_now())
    marks.reset("g", {("t", 1): Mark("new", 0)}, database_now())
    assert marks.load("g", ["t"]) == {("t", 0): Mark("old", 7), ("t", 1): Mark("new", 0)}
