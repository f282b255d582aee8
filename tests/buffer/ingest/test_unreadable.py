"""Batches that cannot be unpacked: a letter each, or the end of that partition, while the others are read on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest
from kafka.codec import gzip_encode

from buffer.events.models import BufferedEvent
from buffer.ingest.handler import Ingest
from buffer.ledger.handler import Track
from buffer.ledger.topics import sources
from buffer.streams import Stream
from config.kafka import topic_name
from config.kafka.consumer import Handler, consumer_of
from config.kafka.consumer.ports import ConsumerStopped
from outbox.bookkeeping.models import Watermark
from outbox.letters.burial import AlarmedWatermarks
from outbox.letters.models import DeadLetter
from outbox.workers.listen import Listen
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.config.kafka.test_unpack import batch_of
from tests.conftest import order
from tests.raw_batches import HEADER, RawProducer, compressed, folded_back

pytestmark = pytest.mark.django_db(transaction=True)


def batch(*values: bytes) -> bytes:
    return bytes(batch_of([(1_700_000_000_000, b"k", value, []) for value in values]))


def spoiled(*values: bytes) -> bytes:
    found = bytearray(batch(*values))
    found[-1] ^= 1
    return bytes(found)


def members(*values: bytes) -> bytes:
    """One gzip batch whose content is two members; RFC 1952 lets any number follow each other."""
    content = batch(*values)[HEADER:]
    parts = gzip_encode(content[:50]) + gzip_encode(content[50:])
    return compressed(batch(*values), 1, parts)


@pytest.fixture
def send(make_topic: Callable[..., str]) -> Iterator[Callable[..., None]]:
    """send(topic, partition, *batches) to a topic of two partitions."""
    made: dict[str, str] = {}
    with closing(RawProducer()) as producer:

        def put(topic: str, partition: int, *batches: bytes) -> None:
            name = made.get(topic) or made.setdefault(topic, make_topic(topic, 2))
            for one in batches:
                assert producer.send(name, partition, one) == 0

        yield put


def read(handler: Handler, **options: Any) -> None:
    stop = threading.Event()
    consumer_of(handler, AlarmedWatermarks(handler.source), stop, **options).run(until_idle=1.0)  # type: ignore[attr-defined]


def orders() -> set[str]:
    return set(BufferedEvent.objects.values_list("order_id", flat=True))


def letters() -> list[tuple[str, int, int]]:
    return list(DeadLetter.objects.order_by("pk").values_list("reason", "partition", "offset"))


def test_a_batch_that_nobody_can_read_is_one_letter_and_what_can_be_read_is_read(send: Any, stream: Stream) -> None:
    bad = folded_back(batch(order("X1"), order("X2")))
    send(stream.topic, 0, batch(order("A1")), bad, members(order("A2"), order("A3")), batch(order("A4")))
    send(stream.topic, 1, batch(order("A5", "WH-2")))
    for _ in range(2):
        read(Ingest(stream))
        assert orders() == {"A1", "A2", "A3", "A4", "A5"}
        assert letters() == [("unreadable_batch", 0, 1)]
    letter = DeadLetter.objects.get()
    assert "the batch of offsets 1 to 2 cannot be read by anybody" in letter.error
    assert b"X1" in bytes(letter.payload)
    assert letter.is_excerpt, "nobody sends it again"
    assert Watermark.objects.get(topic=topic_name(stream.topic), partition=0).next_offset == 6


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)  # the real one refuses to take it
def test_a_damaged_batch_stops_its_partition_and_no_other(send: Any, stream: Stream) -> None:
    send(stream.topic, 0, batch(order("A1")), spoiled(order("X1")), batch(order("A2")))
    send(stream.topic, 1, batch(order("A3", "WH-2")))
    for _ in range(2):
        with pytest.raises(ConsumerStopped, match=r"from offset 1 on is damaged: wrong checksum: start with --accept-"):
            read(Ingest(stream))
        assert orders() == {"A1", "A3"}
        assert letters() == [("partition_stopped", 0, 1)]
        assert "wrong checksum" in Watermark.objects.get(topic=topic_name(stream.topic), partition=0).alarm
    read(Ingest(stream), accept_reset=True)
    assert orders() == {"A1", "A2", "A3"}
    assert letters() == [("partition_stopped", 0, 1), ("unreadable_batch", 0, 1)]
    read(Ingest(stream))
    assert not Watermark.objects.exclude(alarm="").exists()


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    "bad", [spoiled(b"{}"), compressed(batch(b"{}"), 4, b"junk"), batch(b"{}")[:-1]], ids=["spoiled", "junk", "cut"]
)
def test_who_is_told_to_stop_stops_at_once(send: Any, stream: Stream, bad: bytes) -> None:
    send(stream.topic, 0, batch(order("A1")))
    send(stream.topic, 1, bad)
    stop = threading.Event()
    consumer = consumer_of(Ingest(stream), AlarmedWatermarks(stream.name), stop)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    for _ in range(600):
        if DeadLetter.objects.exists() and orders():
            break
        stop.wait(0.05)
    stop.set()
    thread.join(8)
    assert not thread.is_alive()
    assert orders() == {"A1"}


@pytest.mark.parametrize("flow", ["stock", "outbox"])
def test_every_consumer_passes_it(send: Any, make_topic: Any, flow: str, settings: Any) -> None:
    sources.cache_clear()  # they have this test's prefix
    handler = Track() if flow == "stock" else Listen(threading.Event())
    first, *others = handler.topics
    for topic in others:
        make_topic(topic, 2)
    good = {"stock": b"{}", "outbox": b'{"id": 1}'}[flow]  # a letter of its own: it was looked at
    send(first, 0, folded_back(batch(b"{}", b"{}")), members(good, good))
    read(handler)
    assert [row[0] for row in letters()][:1] == ["unreadable_batch"]
    assert [row[1:] for row in letters()] == [(0, 0), (0, 2), (0, 3)]
    if isinstance(handler, Listen):
        handler.close()
    sources.cache_clear()


def test_a_rebuild_and_a_replay_pass_it(send: Any, make_topic: Any, stream: Stream) -> None:
    from buffer.ingest.rebuild import rebuild

    make_topic(stream.output, 2)
    send(stream.topic, 0, folded_back(batch(order("X1"), order("X2"))), members(order("A1"), order("A2")))
    (result,) = rebuild(lambda _line: None)
    assert (result.records, result.pending) == (3, 2)
    assert letters() == [("unreadable_batch", 0, 0)]
    assert msgspec.json.decode(BufferedEvent.objects.first().payload)  # type: ignore[union-attr]
