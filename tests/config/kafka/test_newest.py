"""The last value of each key is what the records of the same batches say."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import IsolationLevel
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from config.kafka.internals import UNREADABLE, LeanRecords, NewestRecords
from config.kafka.wire_format import unpack_newest
from tests.config.kafka.test_unpack import CONTENT, HEADERS, PLACE, TIMES, batch_of

KEYS = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=70) | st.just(b"k" * 9000)


def part_of(kind, data, aborted=()):
    return kind(
        0, PLACE, MemoryRecords(bytes(data)), isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=aborted,
    )  # fmt: skip


def newest(data, aborted=()):
    """What the batches hold and the position after them."""
    part, found = part_of(NewestRecords, data, aborted), {}
    for batch in part.take():
        found |= batch.values
    return found, part.next_fetch_offset


def same(data, aborted=()):
    part = part_of(LeanRecords, data, aborted)
    expected = {record.key or b"": record.value for record in part.take()}, part.next_fetch_offset
    assert newest(data, aborted) == expected
    return expected[0]


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(TIMES, KEYS, CONTENT, HEADERS), min_size=1, max_size=60), min_size=1, max_size=3),
    st.sampled_from([0, 1, 4]),
    st.integers(0, 9000),
)
def test_every_key_has_the_value_of_its_last_record(batches, compression, lost):
    data, at = b"", 0
    for records in batches:
        data += batch_of(records, at, compression=compression, lost=lost)
        at += len(records) + lost
    assert same(data)


def test_offsets_and_lengths_of_every_size():
    records = [(n**4, b"%d" % n, b"v" * n, []) for n in range(1, 9000, 61)]
    assert len(same(batch_of(records, 2**40))) == len(records)
    assert len(same(batch_of([(n, b"%d" % n, b"", []) for n in range(20_000)]))) == 20_000


def test_a_batch_tells_the_offset_of_its_last_record_also_when_that_was_compacted_away():
    (batch,) = part_of(NewestRecords, batch_of([(1, b"k", b"v", [])] * 3, 10, lost=4)).take()
    assert batch.offset == 16


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_from_before_kafka_0_11(magic):
    builder = MemoryRecordsBuilder(magic, 0, 10**6)
    for n in range(5):
        builder.append(1000 + n, b"k", b"%d" % n)
    builder.close()
    assert same(builder.buffer()) == {b"k": b"4"}


def test_a_batch_that_unpacks_to_too_much_is_refused(settings):
    settings.KAFKA_MAX_BATCH_BYTES = 1000
    found, _position = newest(batch_of([(1, b"k", b"v" * 5000, [])], compression=1))
    assert b"KAFKA_MAX_BATCH_BYTES" in found[UNREADABLE + b"offsets 0 to 0"]


def content(*records):
    return bytes(batch_of(records)[DefaultRecordBatch.HEADER_STRUCT.size :])


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 5))
@example(content((1, b"k", b"v" * 100, []))[:-1], 1)
@example(content((1, b"k", b"v", [])) + b"\0", 1)
@example(content((1, b"k", b"v", [])), 2)
@example(b"\x01" * 10, 1)
def test_what_holds_no_records_is_said(data, count):
    try:
        found = unpack_newest(data, count)
    except (ValueError, IndexError):
        return
    assert len(found) <= count


def test_a_value_that_would_end_behind_its_record_is_refused():
    data = bytearray(content((1, b"k", b"vvvv", []), (1, b"k", b"wwww", [])))
    at = data.index(b"vvvv") - 1
    data[at] += 4
    with pytest.raises(ValueError, match="longer than its record"):
        unpack_newest(bytes(data), 2)
