"""Batches that cannot be unpacked: one record stands for each, and what the client's own codecs read is read."""

import io
import struct

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.codec import (
    gzip_decode,
    gzip_encode,
    lz4_decode,
    lz4_encode,
    snappy_decode,
    snappy_encode,
    zstd_decode,
    zstd_encode,
)
from kafka.consumer.fetcher import Fetcher
from kafka.record.memory_records import MemoryRecords

from config.gate import Gate, InvalidRecord
from config.kafka.internals import DamagedBatch, LeanRecords, NewestRecords, SalvagedRecords
from config.kafka.wire_format import decompress
from config.payload import UnreadableBatch
from tests import raw_batches
from tests.config.kafka.test_unpack import PLACE, batch_of, fix, read
from tests.raw_batches import HEADER

ENCODE = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
DECODE = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
FOUR = [(5, b"k", b"%d" % n * 50, [("h", b"v")]) for n in range(4)]


def content(count=4):
    return bytes(batch_of(FOUR[:count])[HEADER:])


def compressed(codec, content, at=0):
    """A batch of four records from offset `at`, whose content is these bytes in the place of one compressed member."""
    return raw_batches.compressed(bytes(batch_of(FOUR, at)), codec, content)


def halves():
    whole = content()
    return whole[:90], whole[90:]


def members(codec, shape):
    """The shapes in which the content of four records may come."""
    encode, (one, two) = ENCODE[codec], halves()
    whole = encode(one + two)
    return {
        "one": whole,
        "two": encode(one) + encode(two),
        "an empty one first": encode(b"") + whole,
        "an empty one last": whole + encode(b""),
        "empty": encode(b""),
        "nothing": b"",
        "cut by one byte": whole[:-1],
        "cut by five": whole[:-5],
        "cut in the middle": whole[: len(whole) // 2],
        "wrong at the end": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        "wrong in the middle": whole[: len(whole) // 2] + b"\xff\xff" + whole[len(whole) // 2 + 2 :],
        "zeros behind": whole + bytes(20),
        "junk behind": whole + b"junk of 12 b",
    }[shape]


SHAPES = [
    "one", "two", "an empty one first", "an empty one last", "empty", "nothing", "cut by one byte", "cut by five",
    "cut in the middle", "wrong at the end", "wrong in the middle", "zeros behind", "junk behind",
]  # fmt: skip


def theirs(data):
    """Values as the client reads them; None where it does not, or gives offsets that are not the batch's."""
    try:
        found = [record for step in read(Fetcher.PartitionRecords, data) for record in step[0]]
    except Exception:
        return None
    return [record[5] for record in found] if [record[2] for record in found] == [7, 8, 9, 10] else None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codec", ENCODE)
def test_every_shape_of_every_codec_is_read_as_the_client_reads_it_or_is_one_record(codec, shape):
    data = compressed(codec, members(codec, shape), at=7)
    ((taken, position, *_),) = read(LeanRecords, data)
    assert position == 11
    if theirs(data) is not None or len(taken) == 4:
        assert [record[5] for record in taken] == [record[2] for record in FOUR]
        return
    (record,) = taken
    assert record[2] == 7
    assert isinstance(record[5], UnreadableBatch)
    assert record[5] == bytes(data), "as it came, for whoever has to look"
    assert "the batch of offsets 7 to 10 cannot be read by anybody" in record[5].lost


def test_two_members_and_two_streams_are_read():
    for codec in ENCODE:
        ((taken, *_),) = read(LeanRecords, compressed(codec, members(codec, "two")))
        assert [record[5] for record in taken] == [record[2] for record in FOUR], codec


@settings(deadline=None)
@given(st.sampled_from([1, 2, 3, 4]), st.lists(st.binary(max_size=50), min_size=1, max_size=4), st.data())
def test_what_the_clients_codec_reads_is_read(codec, parts, data):
    found = b"".join(map(ENCODE[codec], parts))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(found)))
        found = data.draw(st.sampled_from([found[:at], found[:at] + b"\1" + found[at + 1 :], found + bytes(at)]))
    try:
        expected = DECODE[codec](found)
        if codec == 3:  # of which the client reads one frame
            expected = lz4.frame.open(io.BytesIO(found)).read()
    except Exception:
        return
    assert decompress(codec, found, 10**6) == (expected, True)


def test_many_empty_members_do_not_take_for_ever():
    assert decompress(1, gzip_encode(b"") * 50_000 + gzip_encode(b"last"), 1000) == (b"last", True)


def test_what_lies_behind_an_unreadable_batch_is_read():
    data = compressed(1, b"junk", at=0) + batch_of(FOUR, 4) + compressed(7, b"?", at=8) + batch_of(FOUR[:1], 12)
    ((taken, position, *_),) = read(LeanRecords, data)
    assert [record[2] for record in taken] == [0, 4, 5, 6, 7, 8, 12]
    assert position == 13
    assert "codec 7, which is unknown" in taken[5][5].lost


def test_reading_on_from_within_an_unreadable_batch_gives_nothing_and_goes_on():
    steps = read(LeanRecords, compressed(1, b"junk", at=4) + batch_of(FOUR, 8), start=5)
    assert [record[2] for record in steps[0][0]] == [8, 9, 10, 11]
    assert steps[-1][1] == 12


CHANGES = {
    "an offset beyond the batch": lambda data: fix(data, _6=1),
    "more records than there are": lambda data: fix(data, _12=5),
    "fewer records than there are": lambda data: fix(data, _12=3),
    "no records, but bytes": lambda data: fix(data, _12=0),
    "a negative number of them": lambda data: fix(data, _12=-7),
    "endless numbers": lambda data: fix(data[:HEADER] + b"\xff" * (len(data) - HEADER)),
    "zeros": lambda data: fix(data[:HEADER] + bytes(len(data) - HEADER)),
    "an offset that goes back": lambda data: fix(data[:HEADER] + content(2) + content(2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_header_that_does_not_fit_its_records_is_one_record(change):
    data = CHANGES[change](batch_of(FOUR)) + batch_of(FOUR[:1], 4)
    taken = [record for step in read(LeanRecords, data) for record in step[0]]
    assert isinstance(taken[0][5], UnreadableBatch)
    assert [record[2] for record in taken] == [0, 4]


def legacy(*records, magic=1, codec=0, inner=None):
    data = bytes(batch_of(records, magic=magic))
    if not codec:
        return data
    value = ENCODE[codec](data if inner is None else inner)
    wrapper = bytearray(batch_of([(5, None, value)], magic=magic))
    wrapper[17] |= codec
    struct.pack_into(">q", wrapper, 0, len(records) - 1)
    from kafka.record.util import calc_crc32

    struct.pack_into(">I", wrapper, 12, calc_crc32(bytes(wrapper[16:])))
    return bytes(wrapper)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2])
def test_compressed_sets_from_before_kafka_0_11_are_read_or_are_one_record(codec, magic, settings):
    three = [(n, b"k", b"%d" % n * 30) for n in range(3)]
    ((taken, position, *_),) = read(LeanRecords, legacy(*three, magic=magic, codec=codec))
    assert ([record[5] for record in taken], position) == ([record[2] for record in three], 3)
    endless = struct.pack(">qi", 2, -12) + bytes(30)
    for inner in (b"", b"junk", endless):
        ((taken, position, *_),) = read(LeanRecords, legacy(*three, magic=magic, codec=codec, inner=inner))
        assert [type(record[5]) for record in taken] == [UnreadableBatch]
        assert position == 3
    settings.KAFKA_MAX_BATCH_BYTES = 50
    ((taken, *_),) = read(LeanRecords, legacy(*three, magic=magic, codec=codec))
    assert "KAFKA_MAX_BATCH_BYTES" in taken[0][5].lost


def spoiled(at=0):
    data = batch_of(FOUR, at)
    data[-1] ^= 1
    return bytes(data)


DAMAGE = {
    "a wrong checksum": spoiled(),
    "a length that is too small": struct.pack(">qi", 0, 3) + bytes(80),
    "a negative length": struct.pack(">qi", 0, -12) + bytes(80),
    "a format of tomorrow": bytes(batch_of(FOUR)[:16]) + b"\3" + bytes(batch_of(FOUR)[17:]),
    "a header that is cut": bytes(batch_of(FOUR)[:8]) + struct.pack(">i", 20) + bytes(batch_of(FOUR)[12:32]),
    "an end before its beginning": bytes(fix(batch_of(FOUR), _6=-3)),
}


@pytest.mark.parametrize("kind", [LeanRecords, SalvagedRecords, NewestRecords])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_batch_ends_the_answer_of_the_broker(kind, damage):
    """The client asks until it is told that there is no more: it would never come back from poll()."""
    part = kind(0, PLACE, MemoryRecords(DAMAGE[damage]))
    try:
        taken = part.take()
    except DamagedBatch as error:
        assert (error.place, error.offset) == (("orders", 3), 0)
        assert str(error).startswith("what lies in orders/3 from offset 0 on is damaged: ")
    else:
        assert damage == "a wrong checksum"
        assert kind is not LeanRecords
        assert len(taken) == 1
    assert not part


def test_what_lies_before_a_damaged_batch_is_given_first():
    part = LeanRecords(0, PLACE, MemoryRecords(bytes(batch_of(FOUR)) + spoiled(4)))
    assert len(part.take()) == 4
    assert (part.next_fetch_offset, bool(part)) == (4, False)


def test_a_damaged_batch_is_passed_by_who_accepts_it_if_its_offsets_fit_its_neighbours():
    ((taken, position, *_),) = read(SalvagedRecords, spoiled() + batch_of(FOUR, 4))
    assert [record[2] for record in taken] == [0, 4, 5, 6, 7]
    assert (taken[0][5].lost, position) == (
        "the batch of offsets 0 to 3 cannot be read by anybody: wrong checksum", 8,
    )  # fmt: skip
    elsewhere = bytearray(spoiled())
    struct.pack_into(">q", elsewhere, 0, 2**50)
    with pytest.raises(DamagedBatch, match="fit nothing"):
        read(SalvagedRecords, elsewhere)
    longer = bytearray(spoiled())
    struct.pack_into(">i", longer, 23, 2**30)
    ((taken, *_),) = read(SalvagedRecords, bytes(longer) + bytes(batch_of(FOUR, 4)))
    assert [record[2] for record in taken] == [0, 4, 5, 6, 7], "the next batch says where it ends"


def test_the_gate_says_that_nobody_can_read_it():
    ((taken, *_),) = read(LeanRecords, compressed(1, b"junk", at=7))
    with pytest.raises(InvalidRecord, match="offsets 7 to 10") as refusal:
        Gate.of(dict, 10**6).decode(taken[0][5])
    assert refusal.value.reason == "unreadable_batch"


@pytest.mark.parametrize("codec", [1, 3])
def test_a_stream_without_its_end_is_not_whole(codec):
    with pytest.raises(ValueError, match="cut off"):
        decompress(codec, ENCODE[codec](b"all of it is there" * 10)[:-1], 10**6)
