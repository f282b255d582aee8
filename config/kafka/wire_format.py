"""Kafka's record batches: decompressed within a limit, unpacked, packed; and the partition of a key."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import cramjam
import lz4.frame
import msgspec
import zstandard
from kafka.partitioner.default import murmur2
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

from config.payload import END_BYTES, Excerpt

# -- Decompress ----------------------------------------------------------------------------------------------
XERIAL = b"\x82SNAPPY\x00"  # of Java's clients: 16 bytes of header, then blocks, each after its length
XERIAL_HEADER = 16
GZIP, LZ4 = b"\x1f\x8b", b"\x04\x22\x4d\x18"  # with which a member or a frame begins
STEP = 16_384  # bytes that gzip and lz4 are fed at once: what follows a member is copied, and there may be very many


def decompress(codec: int, data: bytes, limit: int) -> tuple[bytes, bool]:
    """At most `limit` bytes of what `data` holds, and whether that is all of it; ValueError if it is damaged.

    `codec` is the number in the record batch's attributes: 1 gzip, 2 snappy, 3 lz4, 4 zstd.
    """
    try:
        content = CODECS[codec](data, limit + 1)
    except KeyError:
        raise ValueError(f"compressed with codec {codec}, which is unknown") from None
    except (
        ValueError,
        zlib.error,
        zstandard.ZstdError,
        RuntimeError,
        struct.error,
        cramjam.DecompressionError,
    ) as error:
        raise ValueError(f"cannot be decompressed: {error}") from error
    return content[:limit], len(content) <= limit


def _gzip(data: bytes, most: int) -> bytes:
    """Member by member; what follows the last one and is none is ignored, as Java's clients do."""
    content, at = bytearray(), 0
    while at < len(data) and len(content) < most and (at == 0 or data.startswith(GZIP, at)):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof and len(content) < most:
            if not (piece := data[at : at + STEP]):
                raise ValueError("it is cut off")
            content += member.decompress(piece, most - len(content))
            at += len(piece) - len(member.unused_data)
    return bytes(content)


def _snappy(data: bytes, most: int) -> bytes:
    """Block by block; one that would go beyond `most` is filled with zeros, because it cannot be read in part."""
    content = io.BytesIO()
    for block in _snappy_blocks(data):
        if content.tell() + cramjam.snappy.decompress_raw_len(block) >= most:
            return content.getvalue().ljust(most, b"\0")
        content.write(bytes(cramjam.snappy.decompress_raw(block)))
    return content.getvalue()


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    if not data.startswith(XERIAL):
        yield data
        return
    at = 0
    while at < len(data):
        if data.startswith(XERIAL, at):  # another stream may follow
            at += XERIAL_HEADER
            continue
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : (at := at + 4 + length)]
    if at > len(data):
        raise ValueError("the last block is cut off")


def _lz4(data: bytes, most: int) -> bytes:
    """Frame by frame; what follows the last one and is none is ignored."""
    content, at = bytearray(), 0
    while at == 0 or (data.startswith(LZ4, at) and len(content) < most):
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof and len(content) < most:
            if not (piece := data[at : at + STEP]):
                raise ValueError("it is cut off")
            content += frame.decompress(piece, max_length=most - len(content))
            at += len(piece) - len(frame.unused_data or b"")
    return bytes(content)


def _zstd(data: bytes, most: int) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read(most)


CODECS: dict[int, Callable[[bytes, int], bytes]] = {1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}


# -- Unpack --------------------------------------------------------------------------------------------------
Header = tuple[str, bytes | None]
FURTHEST = 2**62  # milliseconds; a producer may write any, and two of them must fit into 64 bits


class Received(msgspec.Struct, gc=False):
    """A record as it was read; not tracked by the garbage collector, because bytes and numbers form no cycle."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def unpack(data: bytes, pos: int, count: int, place: tuple[str, int, int], first: int) -> list[Received]:
    """`count` records, from `pos` to the end of `data`; ValueError or IndexError if it does not hold them.

    The client calls a function for each number, makes two objects for each record and asks both for every
    field: nearly four times the time. Numbers have one or two bytes as a rule; the commonest are read in place.
    """
    topic, partition, base = place
    first = max(-FURTHEST, min(first, FURTHEST))
    records = []
    before = -1
    for _ in range(count):
        size, pos = _number(data, pos)
        end = pos + size
        pos += 1  # attributes: none has a meaning yet
        if (later := data[pos]) < 128:
            pos += 1
        elif (more := data[pos + 1]) < 128:
            later, pos = later & 127 | more << 7, pos + 2
        else:
            later, pos = _read_varint(data, pos)
            later = min(later, FURTHEST)
        if (delta := data[pos]) < 128:
            pos += 1
        elif (more := data[pos + 1]) < 128:
            delta, pos = delta & 127 | more << 7, pos + 2
        else:
            delta, pos = _read_varint(data, pos)
        key, pos = _bytes(data, pos)
        value, pos = _bytes(data, pos)
        if data[pos]:
            headers, pos = _headers(data, pos)
        else:
            headers, pos = [], pos + 1
        if pos != end:
            raise ValueError(f"a record of {size} bytes takes {pos - end + size}")
        # The lowest bit is the sign (zigzag): times may go back within a batch, offsets cannot.
        if delta <= before or delta & 1:
            raise ValueError("the offsets of its records do not rise")
        before = delta
        at = first + ((later >> 1) ^ -(later & 1))
        records.append(Received(topic, partition, base + (delta >> 1), at, key, value, headers))
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes follow the last record")
    return records


def unpack_newest(data: bytes, count: int) -> dict[bytes, bytes | None]:
    """The last value of each key among `count` records; ValueError or IndexError if `data` does not hold them.

    Half the time of `unpack`: nothing else of a record is looked at, and no object is made of it.
    """
    pos = 0
    newest: dict[bytes, bytes | None] = {}
    for _ in range(count):
        if (more := data[pos + 1]) < 128 <= (size := data[pos]):
            size, pos = size & 127 | more << 7, pos + 2
        else:
            size, pos = _read_varint(data, pos)
        end = pos + (size >> 1)
        pos += 1  # attributes
        while data[pos] > 127:  # when it was written
            pos += 1
        pos += 1
        while data[pos] > 127:  # its offset
            pos += 1
        key, pos = _bytes(data, pos + 1)
        if (more := data[pos + 1]) < 128 <= (size := data[pos]):
            size, pos = size & 127 | more << 7, pos + 2
        else:
            size, pos = _read_varint(data, pos)
        after = pos if size & 1 else pos + (size >> 1)
        if after >= end:
            raise ValueError("a value is longer than its record")
        newest[key or b""] = None if size & 1 else data[pos:after]
        pos = end
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes follow the last record")
    return newest


def unpack_beginning(data: bytes, place: tuple[str, int, int], first: int, last_offset: int) -> list[Received]:
    """The records that `data`, the beginning of a batch that is too large, holds wholly; then what begins after them.

    The last one stands for all that was not read: its value is an Excerpt, which says so.
    """
    count = end = 0
    try:
        size, pos = _number(data, 0)
        while 0 < size <= len(data) - pos:
            count, end = count + 1, pos + size
            size, pos = _number(data, end)
    except IndexError:
        pass  # not even the length of the next one is there
    records = unpack(data[:end], 0, count, place, first)
    offset = records[-1].offset + 1 if records else place[2]
    records.append(_beginning_of_record(data[end : end + 2 * END_BYTES], place, offset, first, last_offset))
    return records


def _beginning_of_record(
    data: bytes, place: tuple[str, int, int], offset: int, first: int, last_offset: int
) -> Received:
    topic, partition, base = place
    first = max(-FURTHEST, min(first, FURTHEST))
    at, key, value, size = first, None, b"", 0
    try:
        size, pos = _number(data, 0)
        delta, pos = _number(data, pos + 1)
        at = first + max(-FURTHEST // 2, min(delta, FURTHEST // 2))
        delta, pos = _number(data, pos)
        offset = max(offset, min(base + delta, last_offset))
        key, pos = _bytes(data, pos)
        size, pos = _number(data, pos)
        value = data[pos : pos + END_BYTES]
    except IndexError:
        pass  # what was found so far must do
    lost = (
        f"its batch is larger than KAFKA_MAX_BATCH_BYTES allows: of offsets {offset} to {last_offset} nothing is read"
    )
    return Received(topic, partition, offset, at, key, Excerpt.from_ends(value, size, lost=lost), [])


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """An unsigned number of any length, seven bits to a byte, and where it ends."""
    result = shift = 0
    while (byte := data[pos]) > 127:
        result |= (byte & 127) << shift
        shift += 7
        pos += 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return result | byte << shift, pos + 1


def _number(data: bytes, pos: int) -> tuple[int, int]:
    number, pos = _read_varint(data, pos)
    return (number >> 1) ^ -(number & 1), pos


def _bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """A length and so many bytes; a negative length is None."""
    if (size := data[pos]) < 128:
        pos += 1
    elif (more := data[pos + 1]) < 128:
        size, pos = size & 127 | more << 7, pos + 2
    else:
        size, pos = _read_varint(data, pos)
    return (None, pos) if size & 1 else (data[pos : (end := pos + (size >> 1))], end)


def _headers(data: bytes, pos: int) -> tuple[list[Header], int]:
    count, pos = _number(data, pos)
    if count < 0:
        raise ValueError(f"{count} headers")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _bytes(data, pos)
        if name is None:
            raise ValueError("a header without a name")
        value, pos = _bytes(data, pos)
        headers.append((name.decode(errors="backslashreplace"), value))  # no broker looks at names
    return headers, pos


# -- The partition of a key ----------------------------------------------------------------------------------
def partition_of(key: bytes, partitions: int) -> int:
    """Where a producer that is told no partition sends a record with this key, of so many partitions."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


# -- Pack ----------------------------------------------------------------------------------------------------
Headers = Sequence[tuple[str, bytes | None]]
HEADER = DefaultRecordBatch.HEADER_STRUCT
NOTHING = b"\x01"  # the length of a key or value that is not there


def varint(number: int) -> bytes:
    """A length or an offset, which is never negative: doubled for the sign (zigzag), seven bits to a byte."""
    left, content = number << 1, bytearray()
    while left > 127:
        content.append(left & 127 | 128)
        left >>= 7
    content.append(left)
    return bytes(content)


VARINTS = [varint(number) for number in range(8192)]


def packed(offset: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """The record at this offset of its batch, as old as the batch itself.

    The client calls a function for each number and makes three objects for each record: ten times the time.
    """
    body = b"\x00\x00%b%b%b%b" % (_varint(offset), _sized(key), _sized(value), _varint(len(headers)))
    for name, content in headers:
        body += _sized(name.encode()) + _sized(content)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    return VARINTS[number] if number < 8192 else varint(number)


def _sized(content: bytes | None) -> bytes:
    return NOTHING if content is None else _varint(len(content)) + content


@dataclass
class PackedBatch:
    """Records of one partition that leave together. `sends`: the number of each among all sends, and its bytes."""

    topic: str
    partition: int
    body: bytearray = field(default_factory=lambda: bytearray(HEADER.size))
    sends: list[tuple[int, int]] = field(default_factory=list)
    sent: ProducerBatch | None = None


class PackedRecords:
    """A batch of packed records, in place of the client's own builder: of it, what a producer asks.

    `body` is kept and written into: HEADER.size bytes that are free, then the records.
    """

    producer_id = producer_epoch = base_sequence = -1

    def __init__(self, body: bytearray, count: int, timestamp_ms: int) -> None:
        self.body, self.count, self.timestamp_ms = body, count, timestamp_ms
        self.transactional = self.closed = False

    def append(self, *_record: object) -> None:
        """There is no room."""

    def next_offset(self) -> int:
        return self.count

    def set_producer_state(self, producer_id: int, epoch: int, base_sequence: int, transactional: bool) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        self.transactional = transactional

    def close(self) -> None:
        """Write the header; a batch that is sent again is the same one."""
        if self.closed:
            return
        self.closed = True
        attributes = DefaultRecordBatch.TRANSACTIONAL_MASK if self.transactional else 0
        HEADER.pack_into(
            self.body, 0, 0, len(self.body) - DefaultRecordBatch.AFTER_LEN_OFFSET, 0, 2, 0, attributes, self.count - 1,
            self.timestamp_ms, self.timestamp_ms, self.producer_id, self.producer_epoch, self.base_sequence, self.count,
        )  # fmt: skip
        checked = memoryview(self.body)[DefaultRecordBatch.ATTRIBUTES_OFFSET :]
        struct.pack_into(">I", self.body, DefaultRecordBatch.CRC_OFFSET, calc_crc32c(checked))

    def is_full(self) -> bool:
        return True

    def size_in_bytes(self) -> int:
        return len(self.body)

    def buffer(self) -> bytearray:
        return self.body
