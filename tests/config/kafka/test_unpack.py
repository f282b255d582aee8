"""Records unpacked by us are the records that kafka-python unpacks, and the position after them is the same."""

import hashlib
import struct
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher, IsolationLevel
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from kafka.record.util import calc_crc32c

from config.kafka import client
from config.kafka.internals import DamagedBatch, LeanRecords
from config.kafka.wire_format import Received
from config.payload import END_BYTES, WHOLE_BYTES

TIMES = st.integers(0, 2**41)
CONTENT = st.none() | st.binary(max_size=300) | st.integers(8000, 20_000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=3)
APPENDED, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT = struct.pack(">hh", 0, 0)
PLACE = TopicPartition("orders", 3)


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def batch_of(records, at=0, *, magic=2, compression=0, flags=0, producer=-1, lost=0):
    """The bytes of a batch from offset `at`; the last `lost` offsets of it were compacted away."""
    builder = MemoryRecordsBuilder(magic, compression, 10**8)
    for record in records:
        builder.append(*record)
    builder.close()
    data = bytearray(builder.buffer())
    if magic < 2:
        return data
    fields = DefaultRecordBatch.HEADER_STRUCT.unpack_from(data)
    # Offset, epoch of the leader, producer, attributes, last offset.
    return fix(data, _0=at, _2=7, _9=producer, _5=fields[5] | flags, _6=fields[6] + lost)


def read(kind, data, step=10**9, start=0, aborted=()):
    """`(what was taken, position, leader epoch)` after every step."""
    part = kind(
        start, PLACE, MemoryRecords(bytes(data)), isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )  # fmt: skip
    steps = []
    while part:
        taken = [(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers) for r in part.take(step)]
        steps.append((taken, part.next_fetch_offset, part.leader_epoch, part.bytes_read > 0))
    return steps


def same(data, **how):
    ours = read(LeanRecords, data, **how)
    assert ours == read(Fetcher.PartitionRecords, data, **how)
    return [record for taken, *_ in ours for record in taken]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(TIMES, CONTENT, CONTENT, HEADERS), min_size=1, max_size=80), min_size=1, max_size=3),
    st.integers(1, 100),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.sampled_from([0, APPENDED]),
    st.integers(0, 9000),
)  # fmt: skip
def test_every_record_is_the_same(batches, step, compression, flags, lost):
    data, at = b"", 0
    for records in batches:
        data += batch_of(records, at, compression=compression, flags=flags, lost=lost)
        at += len(records) + lost
    assert len(same(data, step=step)) == sum(map(len, batches))


def test_offsets_and_lengths_of_every_size():
    records = [(n**4, b"k", b"v" * n, []) for n in range(1, 9000, 61)]
    assert len(same(batch_of(records, 2**40))) == len(records)


def test_reading_starts_within_a_batch():
    data = batch_of([(n, None, b"%d" % n, []) for n in range(10)])
    assert [record[5] for record in same(data, start=7)] == [b"7", b"8", b"9"]


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_from_before_kafka_0_11(magic):
    builder = MemoryRecordsBuilder(magic, 0, 10**6)
    for n in range(5):
        builder.append(1000 + n, b"k", b"%d" % n)
    builder.close()
    data = bytes(builder.buffer())
    (ours, *_), (theirs, *_) = (read(kind, data)[0] for kind in (LeanRecords, Fetcher.PartitionRecords))
    assert ours == [(*record[:3], -1 if record[3] is None else record[3], *record[4:]) for record in theirs]
    assert len(ours) == 5


def test_aborted_transactions_and_their_marks_stay_out():
    def part(at, value, producer, flags=TRANSACTIONAL, key=b"k"):
        return batch_of([(1, key, value, [])], at, producer=producer, flags=flags)

    data = (
        part(0, b"aborted", 1) + part(1, b"kept", 2) + part(2, b"\0" * 6, 1, TRANSACTIONAL | CONTROL, ABORT)
        + part(3, b"kept too", 1)
    )  # fmt: skip
    found = same(data, aborted=[Aborted(producer_id=1, first_offset=0)])
    assert [record[5] for record in found] == [b"kept", b"kept too"]


def test_a_mark_at_the_end_moves_the_position():
    data = batch_of([(1, None, b"v", [])]) + batch_of([(1, ABORT, b"\0" * 6, [])], 1, flags=CONTROL)
    ((_, position, *_),) = read(LeanRecords, data)
    assert position == 2
    same(data)


@pytest.mark.parametrize("place", [DefaultRecordBatch.CRC_OFFSET, 70, -1])
def test_a_changed_byte_is_noticed(place):
    data = batch_of([(1, b"key", b"value", [("h", b"v")])])
    data[place] ^= 1
    with pytest.raises(DamagedBatch, match="orders/3 from offset 0 on is damaged: wrong checksum"):
        read(LeanRecords, data)


@pytest.mark.parametrize("change", ["shorter", "longer", "more records", "length"])
def test_a_batch_that_does_not_hold_what_it_says_is_refused(change):
    """With a checksum that is right: whoever wrote it was wrong."""
    data = batch_of([(1, b"key", b"value", [("h", b"v")])] * 2)
    size = DefaultRecordBatch.HEADER_STRUCT.size
    data = {"shorter": data[:-1], "longer": data + b"\0", "more records": data, "length": data}[change]
    if change == "length":
        data[size] += 2
    count = 3 if change == "more records" else 2
    data = fix(data, _1=len(data) - DefaultRecordBatch.AFTER_LEN_OFFSET, _12=count)
    ((taken, position, *_),) = read(LeanRecords, data)
    assert [record[5].lost.partition(":")[0] for record in taken] == [
        "the batch of offsets 0 to 1 cannot be read by anybody"
    ]
    assert position == 2


def fix(data, **fields):
    """The batch with other header fields, by number, and a checksum that is right."""
    header = list(DefaultRecordBatch.HEADER_STRUCT.unpack_from(data))
    for name, value in fields.items():
        header[int(name[1:])] = value
    DefaultRecordBatch.HEADER_STRUCT.pack_into(data, 0, *header)
    crc = calc_crc32c(memoryview(data)[DefaultRecordBatch.ATTRIBUTES_OFFSET :])
    struct.pack_into(">I", data, DefaultRecordBatch.CRC_OFFSET, crc)
    return data


def test_a_header_with_a_name_that_is_no_text_stops_nobody():
    """Whoever writes it decides alone: no broker looks at the names."""
    data = batch_of([(1, b"k", b"v", [("name", b"x")])])
    data[:] = data.replace(b"name", b"n\xffme")
    ((taken, position, *_),) = read(LeanRecords, fix(data))
    assert taken[0][6] == [("n\\xffme", b"x")]
    assert position == 1


@pytest.mark.parametrize("later", [0, 1000, 2**63 - 1])
@pytest.mark.parametrize("first", [-(2**63), -1, 0, 2**62, 2**63 - 1])
def test_every_time_fits_into_a_column(first, later):
    """The client adds a batch's first time and a record's delta; both are the producer's to choose."""
    data = fix(batch_of([(0, None, b"v", []), (later, None, b"v", [])]), _7=first)
    ((taken, *_),) = read(LeanRecords, data)
    assert all(-(2**63) <= record[3] < 2**63 for record in taken)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_becomes_too_large_is_read_up_to_there(codec, settings):
    settings.KAFKA_MAX_BATCH_BYTES = 2_000_000
    small = [(5, b"k", b"%d" % n, []) for n in range(3)]
    data = batch_of([*small, (7, b"huge", b"7" * 5_000_000, []), (9, b"k", b"after", [])], 40, compression=codec)
    ((taken, position, *_),) = read(LeanRecords, data)
    assert [record[5] for record in taken[:3]] == [b"0", b"1", b"2"]
    (record,) = taken[3:]
    assert (record[2], position) == (43, 45), "the next batch is read after it"
    assert record[3:5] == (7, b"huge")
    assert record[5] == b"7" * END_BYTES
    assert record[5].size == 5_000_000
    assert record[5].lost.endswith("of offsets 43 to 44 nothing is read")


def test_a_large_value_is_not_kept_whole(settings):
    value = b"a" * WHOLE_BYTES + b"z"
    ((taken, *_),) = read(LeanRecords, batch_of([(1, None, value, []), (1, None, value[1:], [])], compression=1))
    excerpt, whole = (record[5] for record in taken)
    assert whole == value[1:]
    assert type(whole) is bytes
    assert excerpt == b"a" * END_BYTES + value[-END_BYTES:]
    assert (excerpt.size, excerpt.sha256) == (len(value), hashlib.sha256(value).hexdigest())


def test_a_consumer_hands_out_our_records(make_topic):
    topic = make_topic("orders")
    producer = client.new_producer()
    producer.send(topic, b"value", key=b"key", headers=[("h", b"1")], timestamp_ms=5).get(20)
    producer.close()
    consumer = client.new_consumer(None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found = [record for part in consumer.poll(timeout_ms=20_000).values() for record in part]
    consumer.close()
    assert found == [Received(topic, 0, 0, 5, b"key", b"value", [("h", b"1")])]
