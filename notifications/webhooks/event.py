"""Our form of a provider's event, what every reader needs, and the reader of our own format."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from config.digest import digest
from notifications.mail import delivery_status

OTHER = "other"  # opened, clicked, and whatever providers add: stored, without effect
LONGEST_ID = 200
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


class Malformed(ValueError):
    """The body is not what this provider sends; the text says what is wrong with it."""


@dataclass(frozen=True)
class Event:
    """One thing that happened to one mail, as a provider tells it."""

    kind: str  # one of delivery_status.STATUSES, or OTHER
    dedup_id: str
    raw: str
    message_id: uuid.UUID | None = None  # our message's id, if the provider returns it
    provider_message_id: str = ""
    recipient: str = ""
    occurred_at: datetime | None = None
    detail: str = ""


def read(body: bytes, shape: Any) -> Any:
    """JSON as `shape`. Malformed says why not."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Malformed(f"the body is not what was expected: {error}"[:200]) from error


def text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Malformed("the body is not UTF-8") from error


def parts_of(body: bytes) -> list[bytes]:
    """The bytes of each element of a JSON list, untouched; a lone object is a list of one."""
    if body.lstrip()[:1] != b"[":
        return [body]
    return [bytes(part) for part in read(body, list[msgspec.Raw])]


def ours(value: Any) -> uuid.UUID | None:
    """Our message's id from a field that the provider returns; None if it is missing or not ours."""
    try:
        return uuid.UUID(str(value)) if value else None
    except ValueError:
        return None


def from_metadata(text: Any) -> uuid.UUID | None:
    """Our id in a header that holds JSON."""
    try:
        found = msgspec.json.decode(text) if text else None
    except (msgspec.MsgspecError, TypeError, RecursionError):
        return None
    return ours(found.get("message_id")) if isinstance(found, dict) else None


def moment(value: datetime | float | str | None) -> datetime | None:
    """The time in a provider's field: ISO text, or seconds since 1970."""
    try:
        if isinstance(value, str):
            value = msgspec.convert(value, datetime) if "T" in value else datetime.fromisoformat(value)
        if isinstance(value, int | float):
            value = datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise Malformed("a time in it is none") from error
    if value is None:
        return None
    return max(EARLIEST, value if value.tzinfo else value.replace(tzinfo=UTC))


def identity(*parts: Any) -> str:
    """A dedup id from the parts that identify an event, for providers whose own id changes or is missing."""
    return digest("\x1f".join(map(str, parts)).encode())


def known(value: str, meanings: dict[str, str]) -> str:
    return meanings.get(value, OTHER)


class Generic(msgspec.Struct):
    id: str
    event: str
    message_id: str = ""
    provider_message_id: str = ""
    recipient: str = ""
    occurred_at: datetime | float | None = None
    detail: str = ""


def generic(body: bytes) -> list[Event]:
    return [_generic(part, read(part, Generic)) for part in parts_of(body)]


def _generic(raw: bytes, item: Generic) -> Event:
    if not 0 < len(item.id) <= LONGEST_ID:
        raise Malformed(f"an event needs an id of 1 to {LONGEST_ID} characters")
    kind = item.event if item.event in delivery_status.STATUSES else OTHER
    return Event(
        kind, item.id, text_of(raw), ours(item.message_id), item.provider_message_id, item.recipient,
        moment(item.occurred_at), item.detail,
    )  # fmt: skip
