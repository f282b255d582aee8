"""One notification: what must be true of a record, what is made of it, the bytes that leave, its moments."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from django.conf import settings

from config.fields import CONTROL, IDENTIFIER_LENGTH, storable
from config.formats import Opener, opener_for
from config.gate import Gate, InvalidRecord, texts_in

# -- Moments: whole microseconds since 1970 ------------------------------------------------------------------
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def moment_of(us: int) -> datetime:
    return EPOCH + us * MICROSECOND


def day_of(us: int) -> date:
    return moment_of(us).date()


# -- One notification: its gate, and the bytes that leave ----------------------------------------------------
INPUT = "notifications-in"
FORWARDED, REPLAY_OF, SOURCE = "forwarded", "replay_of", "source"
SECOND = 1_000_000

# What may be read of a notification without a reveal, and which names.
READABLE = ("notification_id", "customer_id", "created_at", "ttl_seconds")
NAMED = ("recipient", "message")
# What says whose it is, and which: an edited copy says the same.
LOCKED = ("notification_id", "customer_id")

Headers = Iterable[tuple[str, bytes | None]]


class Notification(msgspec.Struct):
    """The value of a record of notifications-in. Fields that are not named here stay in the bytes."""

    notification_id: str
    customer_id: str
    recipient: str
    message: dict[str, Any]
    created_at: str
    ttl_seconds: int | None = None


class NotificationGate:
    """Decodes and checks one record. `most_ttl` in seconds is the longest life that a message may ask for.

    In a topic of another format JSON is taken, too: requeued notifications are, those of the HTTP API, and those that
    belong into another partition.
    """

    def __init__(self, max_bytes: int, most_ttl: int, opener: Opener | None = None) -> None:
        self.json = Gate.of(Notification, max_bytes, opener and partial(_json_or, opener))
        self._most_ttl = most_ttl

    def decode(self, value: bytes | None) -> Notification:
        """The notification; raises InvalidRecord with a stable reason. `value` is never changed."""
        return self.judge(self.json.opened(value))

    def judge(self, value: bytes | None) -> Notification:
        """The notification in the JSON of a record; raises InvalidRecord."""
        message = self.json.judge(value)
        check_customer(message.customer_id)
        # Live it would leave, over the rate no column would take it.
        if len(message.notification_id) > IDENTIFIER_LENGTH:
            raise InvalidRecord("long_id", f"notification_id has more than {IDENTIFIER_LENGTH} characters")
        moment_us(message.created_at)
        if message.ttl_seconds is not None:
            self._check_ttl(message.ttl_seconds)
        return message

    def _check_ttl(self, seconds: int) -> None:
        if seconds < 0:
            raise InvalidRecord("negative_ttl", f"ttl_seconds is {seconds}")
        if seconds > self._most_ttl:
            raise InvalidRecord("long_ttl", f"ttl_seconds is {seconds}, at most {self._most_ttl} are possible")


def _json_or(opener: Opener, value: bytes) -> bytes:
    return value if value.startswith(b"{") else opener(value)


def id_in(value: bytes | None) -> str:
    """The id in a record that is no message, so that whoever looks for it finds its letter; empty where there is none to read."""
    return storable(texts_in(value, LOCKED[:1])[0])


def check_customer(customer_id: str) -> None:
    """Raises InvalidRecord for what cannot be the id of a customer."""
    if not customer_id.strip():
        raise InvalidRecord("no_customer", "customer_id is empty")
    if len(customer_id) > IDENTIFIER_LENGTH:
        raise InvalidRecord("long_customer", f"customer_id has more than {IDENTIFIER_LENGTH} characters")
    if not customer_id.isprintable() and CONTROL.search(customer_id):
        raise InvalidRecord("control_character", "customer_id holds a control character")


def gate() -> NotificationGate:
    """The gate of notifications-in as it is set: no life longer than the default, or than the buffer keeps."""
    most = min(settings.THROTTLER_TTL_SECONDS, (settings.THROTTLER_BUFFER_DAYS - 1) * 86_400)
    return NotificationGate(settings.THROTTLER_MAX_MESSAGE_BYTES, most, opener_for(INPUT))


def moment_us(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 time with its zone; raises InvalidRecord."""
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is None:
            raise InvalidRecord("bad_created_at", "created_at has no time zone")
        return microseconds(moment)
    except (msgspec.ValidationError, OverflowError, ValueError):
        raise InvalidRecord("bad_created_at", "created_at is no ISO 8601 time") from None


def created_us(message: Notification, record_timestamp_ms: int) -> int:
    """When its life began: `created_at`, or the record's own time when that is earlier; -1: the record has none."""
    created = moment_us(message.created_at)
    return created if record_timestamp_ms < 0 else min(created, record_timestamp_ms * 1000)


def expires_us(message: Notification, created: int) -> int:
    """When its life ends; 0 when it names none and takes its customer's at the moment it is judged."""
    return 0 if message.ttl_seconds is None else max(1, created + message.ttl_seconds * SECOND)


def output(value: bytes, throttled: bool) -> bytes:
    """The record that leaves: the same JSON and `throttled`, whether it went through the buffer."""
    return _with_field(value, b"throttled", throttled)


def expired(value: bytes, reason: str) -> bytes:
    """The record of a message that is given up: the same JSON and `reason` (`ttl`, `purged`)."""
    return _with_field(value, b"reason", reason)


def _with_field(value: bytes, name: bytes, content: bool | str) -> bytes:
    # A key that may be there already, plain or escaped, must not be there twice: readers differ in which one counts.
    if b'"' + name + b'"' in value or b"\\u" in value:
        fields = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        fields[name.decode()] = msgspec.Raw(msgspec.json.encode(content))
        return msgspec.json.encode(fields)
    end = value.rindex(b"}")
    return b'%b,"%b":%b}' % (value[:end], name, msgspec.json.encode(content))


def output_headers(headers: Headers, topic: str, partition: int, offset: int) -> list[tuple[str, bytes | None]]:
    """The headers of what leaves: `source` is where it came from, those of the sender stay, ours do not."""
    kept = [(name, content) for name, content in headers if name not in (FORWARDED, SOURCE)]
    return [*kept, (SOURCE, f"{topic}/{partition}/{offset}".encode())]
