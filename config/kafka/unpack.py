"""Kafka's record batches become records, with as little work for each as Python allows."""

from __future__ import annotations

import msgspec

from config.digest import END_BYTES, Excerpt

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
    found = []
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
            later, pos = _varint(data, pos)
            later = min(later, FURTHEST)
        if (delta := data[pos]) < 128:
            pos += 1
        elif (more := data[pos + 1]) < 128:
            delta, pos = delta & 127 | more << 7, pos + 2
        else:
            delta, pos = _varint(data, pos)
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
        found.append(Received(topic, partition, base + (delta >> 1), at, key, value, headers))
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes follow the last record")
    return found


def unpack_newest(data: bytes, count: int) -> dict[bytes, bytes | None]:
    """The last value of each key among `count` records; ValueError or IndexError if `data` does not hold them.

    Half the time of `unpack`: nothing else of a record is looked at, and no object is made of it.
    """
    pos = 0
    found: dict[bytes, bytes | None] = {}
    for _ in range(count):
        if (more := data[pos + 1]) < 128 <= (size := data[pos]):
            size, pos = size & 127 | more << 7, pos + 2
        else:
            size, pos = _varint(data, pos)
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
            size, pos = _varint(data, pos)
        after = pos if size & 1 else pos + (size >> 1)
        if after >= end:
            raise ValueError("a value is longer than its record")
        found[key or b""] = None if size & 1 else data[pos:after]
        pos = end
    if pos != len(data):
        raise ValueError(f"{len(data) - pos} bytes follow the last record")
    return found


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
    found = unpack(data[:end], 0, count, place, first)
    offset = found[-1].offset + 1 if found else place[2]
    found.append(_beginning_of_record(data[end : end + 2 * END_BYTES], place, offset, first, last_offset))
    return found


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


def _varint(data: bytes, pos: int) -> tuple[int, int]:
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
    number, pos = _varint(data, pos)
    return (number >> 1) ^ -(number & 1), pos


def _bytes(data: bytes, pos: int) -> tuple[bytes | None, int]:
    """A length and so many bytes; a negative length is None."""
    if (size := data[pos]) < 128:
        pos += 1
    elif (more := data[pos + 1]) < 128:
        size, pos = size & 127 | more << 7, pos + 2
    else:
        size, pos = _varint(data, pos)
    return (None, pos) if size & 1 else (data[pos : (end := pos + (size >> 1))], end)


def _headers(data: bytes, pos: int) -> tuple[list[Header], int]:
    count, pos = _number(data, pos)
    if count < 0:
        raise ValueError(f"{count} headers")
    found: list[Header] = []
    for _ in range(count):
        name, pos = _bytes(data, pos)
        if name is None:
            raise ValueError("a header without a name")
        value, pos = _bytes(data, pos)
        found.append((name.decode(errors="backslashreplace"), value))  # no broker looks at names
    return found, pos
