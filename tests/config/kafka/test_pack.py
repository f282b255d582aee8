"""Batches packed by us are the batches that kafka-python packs, byte by byte."""

from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from config.kafka.wire_format import HEADER, PackedRecords, packed

NOW = 1_790_000_000_000
CONTENT = st.none() | st.binary(max_size=300) | st.integers(8000, 20_000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=80), st.none() | st.binary(max_size=80)), max_size=3)


def by_us(records, state=None):
    body = bytearray(HEADER.size)
    for offset, record in enumerate(records):
        body += packed(offset, *record)
    found = PackedRecords(body, len(records), NOW)
    if state:
        found.set_producer_state(*state)
    found.close()
    return found


def by_the_client(records, state=None):
    builder = MemoryRecordsBuilder(2, 0, 10**8)
    for record in records:
        builder.append(NOW, *record)
    if state:
        builder.set_producer_state(*state)
    builder.close()
    return builder


@given(st.lists(st.tuples(CONTENT, CONTENT, HEADERS), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_the_bytes_are_those_of_the_client(records):
    ours, theirs = by_us(records, (7, 3, 41, True)), by_the_client(records, (7, 3, 41, True))
    assert ours.buffer() == theirs.buffer()
    assert ours.next_offset() == theirs.next_offset()
    assert ours.size_in_bytes() == theirs.size_in_bytes()
    assert (ours.producer_id, ours.producer_epoch, ours.base_sequence) == (7, 3, 41)


def test_a_batch_of_many_is_read_back_whole():
    records = [(b"k%d" % index, b"v", [("h", None)]) for index in range(9000)]
    batch = MemoryRecords(bytes(by_us(records).buffer())).next_batch()
    assert batch.validate_crc()
    assert [(found.offset, found.key) for found in batch] == [(index, b"k%d" % index) for index in range(9000)]


def test_a_batch_that_is_sent_again_stays_the_same():
    found = by_us([(b"k", b"v", [])], (7, 3, 41, True))
    before = bytes(found.buffer())
    found.set_producer_state(8, 0, 0, True)
    found.close()
    assert bytes(found.buffer()) == before
