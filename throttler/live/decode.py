"""From bytes to a message with its times, or to a dead letter: on the polling thread, before anything is decided."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import date

import msgspec

from config.gate import InvalidRecord
from config.kafka import Record, Replayed
from config.kafka.client import MAX_REQUEST_BYTES
from outbox.letters.burial import Letter
from throttler.live.decide import Decoded
from throttler.messages import NotificationGate, created_us, expires_us
from throttler.overflow.store import OverflowRow

SOURCE = "throttler"
OVERHEAD = 1_024  # of what is added on the way out: `throttled` or `reason`, `source`, the batch around it
Headers = Sequence[tuple[str, bytes | None]]


def decode(record: Record, gate: NotificationGate, topic_id: str) -> Decoded:
    """The message and its times, or the letter that says why it is none. Never raises for bad input."""
    try:
        message = gate.decode(record.value)
        _check_size(record)
    except InvalidRecord as refusal:
        return Decoded(record, letter=Letter(SOURCE, "decode", refusal.reason, str(refusal), record, topic_id))
    created = created_us(message, record.timestamp)
    return Decoded(record, message, created, expires_us(message, created))


def _check_size(record: Record) -> None:
    """What leaves is a little larger than what came: it must still be taken by the broker."""
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers or ())
    size = len(record.value or b"") + len(record.key or b"") + headers + OVERHEAD
    if size > MAX_REQUEST_BYTES:
        raise InvalidRecord("too_large", f"{size} bytes with headers, the broker takes {MAX_REQUEST_BYTES}")


def refusal(record: Record, step: str, reason: str, topic_id: str) -> Letter:
    """The letter of a record that the broker never takes on its way out: of "send" at once, of "drain" later."""
    return Letter(SOURCE, step, "broker_refused", reason, record, topic_id)


def record_of(row: OverflowRow, topic: str) -> Record:
    """The record that a row was made of; its key as it leaves, its time that of the message."""
    return Replayed(
        topic, row.partition, row.offset, row.created_us // 1000, row.customer_id.encode(), row.payload,
        unpacked(row.headers),
    )  # fmt: skip


def row_of(decoded: Decoded, topic_id: str, day: date) -> OverflowRow:
    """The row of a message that waits."""
    record, message = decoded.record, decoded.message
    assert message is not None and record.value is not None  # noqa: S101, PT018 (only messages wait)
    return OverflowRow(
        record.partition, message.customer_id, topic_id, record.offset, day, bytes(record.value),
        packed(record.headers), decoded.created_us, decoded.expires_us, message.notification_id,
    )  # fmt: skip


def packed(headers: Headers | None) -> bytes:
    """Headers as a row keeps them: JSON of [[name, base64 or null], …], or empty."""
    if not headers:
        return b""
    return msgspec.json.encode(
        [[name, None if value is None else b64encode(value).decode()] for name, value in headers]
    )


def unpacked(headers: bytes) -> list[tuple[str, bytes | None]]:
    """The headers of a row."""
    if not headers:
        return []
    found = msgspec.json.decode(headers, type=list[tuple[str, str | None]])
    return [(name, None if value is None else b64decode(value)) for name, value in found]
