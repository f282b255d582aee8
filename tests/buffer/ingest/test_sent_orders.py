"""Orders that were sent since the backup: the very version that was sent, while it waits, and no other."""

import uuid
from contextlib import closing, nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from buffer.events.models import BufferedEvent
from buffer.flow import Aggregator
from buffer.flush.freeze import headers_of
from buffer.ingest import after_restore
from buffer.ingest.after_restore import SentOrders, Version, mark_sent, read_sent, versions_in
from buffer.ingest.handler import Ingest
from buffer.ingest.rebuild import rebuild
from buffer.verify import Published
from config.database.clock import database_now
from config.kafka import client, topic_name
from config.payload import UnreadableBatch
from tests.config.conftest import broker as broker
from tests.config.conftest import make_topic as make_topic
from tests.conftest import order

BATCH = uuid.UUID("01a1ff7b-599a-56e9-8da3-f3c85801b1ff")
VALUE = msgspec.json.encode({"batch_id": str(BATCH), "location_id": "WH-1", "order_ids": ["A1"], "items": []})
HEADERS = [(name, text.encode()) for name, text in headers_of(BATCH, [[0, 3]], "t").items()]


def changed(name, value):
    return [(known, value if known == name else content) for known, content in HEADERS]


FOREIGN = {
    "no headers": (VALUE, []),
    "no value": (None, HEADERS),
    "an empty value": (b"", HEADERS),
    "no JSON": (b"\xff\xfe", HEADERS),
    "a list": (b"[]", HEADERS),
    "a number": (b"7", HEADERS),
    "another object": (b"{}", HEADERS),
    "an id that is none": (VALUE.replace(str(BATCH).encode(), b"x"), HEADERS),
    "orders that are numbers": (VALUE.replace(b'"A1"', b"1"), HEADERS),
    "two orders": (VALUE.replace(b'"A1"', b'"A1","A2"'), HEADERS),
    "positions of null": (VALUE, changed("positions", None)),
    "positions that are no JSON": (VALUE, changed("positions", b"\x80\x81")),
    "positions of another shape": (VALUE, changed("positions", b'{"0": 3}')),
    "positions of three": (VALUE, changed("positions", b"[[0, 3, 4]]")),
    "positions no column takes": (VALUE, changed("positions", b"[[0, 18446744073709551616]]")),
    "positions below 0": (VALUE, changed("positions", b"[[0, -1]]")),
    "another id in the header": (VALUE, changed("batch_id", str(uuid.uuid4()).encode())),
    "an id of null": (VALUE, changed("batch_id", None)),
    "a topic id that is no text": (VALUE, changed("topic_id", b"\xfe\xff")),
    "a batch that nobody can unpack": (UnreadableBatch.of(b"junk", "why"), []),
}
ODD = [("trace", b"\xde\xad"), ("x-null", None), ("positions-of-mine", b"")]


@pytest.mark.parametrize("case", FOREIGN)
def test_a_record_that_is_no_batch_of_ours_is_foreign(case, stream):
    value, headers = FOREIGN[case]
    assert versions_in(stream, SimpleNamespace(value=value, headers=headers), "t") is None


def test_a_batch_of_ours_is_known_whatever_headers_somebody_adds(stream):
    record = SimpleNamespace(value=VALUE, headers=[*ODD, *HEADERS])
    assert versions_in(stream, record, "t") == [(("A1", "WH-1"), Version(BATCH, 0, 3))]
    assert versions_in(stream, record, "another") == ()


def test_of_an_order_in_two_batches_the_newer_version_is_what_was_sent(stream, monkeypatch):
    """A supplement says a later one; where copies of both stand in the topic, whichever comes last."""
    places = ("[[0,3]]", "[[0,7]]", "[[0,3]]")
    found = [SimpleNamespace(value=VALUE, headers=changed("positions", place.encode())) for place in places]
    reader = nullcontext(SimpleNamespace(batches=lambda: [found]))
    monkeypatch.setattr(after_restore, "Reader", lambda _topic: reader)
    assert read_sent(stream, "t").versions == {("A1", "WH-1"): Version(BATCH, 0, 7)}


@pytest.mark.parametrize("timestamp", [-1, -(2**62), 2**62])
def test_no_time_that_a_foreign_record_says_stops_verify(timestamp):
    published = Published({}, {})
    found = {"topic": "t", "partition": 0, "offset": 1, "timestamp": timestamp, "value": None}
    published.add(
        [SimpleNamespace(**found, headers=[*ODD, ("batch_id", b"x")]), SimpleNamespace(**found, headers=None)]
    )
    assert published.oldest is None


@pytest.mark.django_db(transaction=True)
def test_foreign_records_are_skipped_and_counted_by_every_reader(make_topic, stream):
    make_topic(stream.topic)
    topic = make_topic(stream.output)
    records = [(VALUE, [*ODD, *HEADERS]), *(found for name, found in FOREIGN.items() if "unpack" not in name)]
    producer = client.new_producer()
    for value, headers in records:
        # kafka-python encodes no null header: it refuses them, other clients do not.
        kept = [(name, content or b"") for name, content in headers]
        producer.send(topic, value=value, key=b"k", headers=kept, partition=0)
    producer.flush()
    producer.close()
    sent = read_sent(stream, "t")
    assert (sent.versions.keys(), sent.foreign) == ({("A1", "WH-1")}, len(records) - 1)
    lines = []
    rebuild(lines.append)
    assert f"{stream.name}: {len(records) - 1} records of {topic} are no batches of ours: skipped" in lines
    assert len(Published.of(topic).digests[topic, 0]) == len(records)
    assert all(check.ok for check in Aggregator().verify_kafka())
    (about,) = [about for name, about in Aggregator().searched().items() if name == topic_name(stream.output)]
    assert about(SimpleNamespace(headers=[("batch_id", None)])) == []


@pytest.mark.django_db
def test_only_the_version_that_was_sent_is_marked_and_only_while_it_waits(ingest, records, stream):
    found = records(order("A1"), order("A2"), order("A3"))
    ingest(found)
    BufferedEvent.objects.filter(order_id="A2").update(status="discarded")
    offsets = {"A1": found[0].offset, "A2": found[1].offset, "A3": found[2].offset + 1}
    sent = SentOrders({(name, "WH-1"): Version(uuid.uuid4(), 0, offset) for name, offset in offsets.items()})
    keys = list(BufferedEvent.objects.values_list("partition_key", "order_id", "location_id"))
    assert mark_sent(stream, keys, sent, database_now()) == {"WH-1"}
    statuses = dict(BufferedEvent.objects.values_list("order_id", "status"))
    assert statuses == {"A1": "sent", "A2": "discarded", "A3": "pending"}


@pytest.mark.django_db
@pytest.mark.parametrize(("topic_id", "status"), [("t", "sent"), ("", "sent"), ("the topic of before", "pending")])
def test_an_order_that_waits_at_a_place_of_another_topic_was_not_sent(
    ingest, records, stream, make_topic, topic_id, status
):
    make_topic(stream.topic)
    with closing(client.new_producer()) as producer:
        producer.send(make_topic(stream.output), value=VALUE, key=b"k", headers=HEADERS, partition=0)
    ingest(records(order("A1"), start=3), topic_id=topic_id)
    Ingest(stream).regain({topic_name(stream.topic): "t"}, {})
    assert BufferedEvent.objects.get().status == status


def test_what_comes_after_is_known_within_a_partition_only():
    sent = SentOrders({("A1", "WH-1"): Version(uuid.uuid4(), 0, 5)})
    places = [(0, 4), (0, 5), (0, 6), (1, 6)]
    assert [sent.comes_after("A1", "WH-1", *place) for place in places] == [False, False, True, False]
