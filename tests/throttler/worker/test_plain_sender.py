"""Sending without transactions: offsets follow what was acknowledged, and a refused record is named, not tried for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from config.kafka import client
from config.kafka.reader import Reader
from config.kafka.transactional_producer import Committed, RefusedRecord, Unknown
from tests.config.conftest import broker, make_topic
from throttler.worker import consumer_backend
from throttler.worker.consumer_backend import PlainCommitter, PlainSender

__all__ = ["broker", "make_topic"]


@pytest.fixture
def sender(broker: None) -> Iterator[PlainSender]:
    with closing(PlainSender()) as found:
        found.rebuild()
        yield found


def values_of(topic: str) -> list[bytes]:
    with Reader(topic) as reader:
        return [record.value for records in reader.batches() for record in records]


def test_offsets_wait_for_what_was_acknowledged(make_topic: Callable[..., str], sender: PlainSender) -> None:
    topic = make_topic("plain", 2)
    sender.begin()
    sender.send(topic, 0, b"k", b"one", [("h", None)])
    assert sender.offsets.empty()
    assert sender.commit({(topic, 0): 7}, None) == Committed()
    assert (sender.offsets.get_nowait(), values_of(topic)) == ({(topic, 0): 7}, [b"one"])


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
@pytest.mark.parametrize("size", [400_000, 2_000_000], ids=["by the broker", "by the client"])
def test_a_record_that_is_never_taken_is_named(make_topic: Callable[..., str], sender: PlainSender, size: int) -> None:
    topic = make_topic("small", 2, **{"max.message.bytes": "300000"})
    sender.begin()
    for partition, value in ((0, b"small"), (1, b"x" * size), (0, b"small")):
        sender.send(topic, partition, None, value, [])
    verdict = sender.commit({(topic, 0): 7}, None)
    assert isinstance(verdict, RefusedRecord)
    assert (verdict.index, verdict.topic, verdict.partition) == (1, topic, 1)
    assert sender.offsets.empty()
    sender.rebuild()
    sender.begin()
    sender.send(topic, 1, None, b"next", [])
    assert sender.commit({}, None) == Committed()


@pytest.mark.parametrize("broker", ["kafka"], indirect=True)
def test_a_broker_that_does_not_know_the_topic_leaves_the_outcome_open(sender: PlainSender) -> None:
    sender.limit = 1.0
    sender.rebuild()
    sender.begin()
    sender.send("nowhere", 0, None, b"x", [])
    assert isinstance(sender.commit({}, None), Unknown)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(client.RECORD_REFUSED[0]("too large"), RefusedRecord), (client.KafkaTimeoutError(), Unknown)],
)
def test_no_offset_follows_what_was_not_acknowledged(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: type[object]
) -> None:
    def get(timeout: float) -> None:
        raise error

    monkeypatch.setattr(consumer_backend.producer_internals, "send_record", lambda *_: SimpleNamespace(get=get))
    sender = PlainSender()
    sender.begin()
    sender.send("plain", 0, None, b"one", [])
    assert isinstance(sender.commit({("plain", 0): 7}, None), verdict)
    assert sender.offsets.empty()


def test_no_offset_of_a_partition_that_is_no_longer_ours_is_committed() -> None:
    sender, committed = PlainSender(), list[client.Offsets]()
    mine = client.TopicPartition("plain", 0)
    consumer = SimpleNamespace(assignment=lambda: {mine}, commit_async=committed.append)
    for partition in (0, 1):
        sender.offsets.put({("plain", partition): 7})
    assert PlainCommitter(consumer, None, sender).commit_soon()
    assert committed == [{mine: client.OffsetAndMetadata(7, "", -1)}]
