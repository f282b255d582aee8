"""Records become Kafka's record batches, with as little work for each as Python allows."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

Headers = Sequence[tuple[str, bytes | None]]
HEADER = DefaultRecordBatch.HEADER_STRUCT
NOTHING = b"\x01"  # the length of a key or value that is not there


def varint(number: int) -> bytes:
    """A length or an offset, which is never negative: doubled for the sign (zigzag), seven bits to a byte."""
    left, found = number << 1, bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    found.append(left)
    return bytes(found)


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
    sent: Any = None


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
