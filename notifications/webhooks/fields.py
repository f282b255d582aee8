"""Fields of a provider's JSON: one that is null, absent or of another type counts as absent, and is no error.

Providers add fields, leave them out and change their types without a word; the event is signed, and must not be lost.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

Record = dict[str, Any]
T = TypeVar("T")

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
NOT_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)


class Malformed(ValueError):
    """The body is not what this provider sends; the text says what is wrong with it."""


# -- a whole body ------------------------------------------------------------------------------------------
def read(body: bytes, shape: type[T]) -> T:
    """JSON as `shape`. Malformed says why not."""
    try:
        return msgspec.json.decode(body, type=shape)
    except NOT_JSON as error:
        raise Malformed(f"the body is not what was expected: {error}"[:200]) from error


def parsed(body: bytes) -> Any:
    """JSON of any shape. Malformed if it is none.

    What a mail server said is cut to a length, sometimes within a character, and may be no UTF-8: such a text loses
    the character, not the event.
    """
    try:
        return msgspec.json.decode(body)
    except NOT_JSON:
        pass
    try:
        value = json.loads(text_of(body), strict=False)
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the body is no JSON: {error}"[:200]) from error


def parsed_record(body: bytes) -> Record:
    """A JSON object. Malformed if the body is something else."""
    value = parsed(body)
    if not isinstance(value, dict):
        raise Malformed("the body is no object")
    return value


def parts_of(body: bytes) -> list[bytes]:
    """The bytes of each element of a JSON list, untouched; what is no list is a list of one."""
    if body.lstrip()[:1] != b"[":
        return [body]
    try:
        return [bytes(part) for part in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except NOT_JSON:
        return [msgspec.json.encode(part) for part in parsed(body)]


def text_of(body: bytes) -> str:
    """The body as the database can store it: as it came, if it is UTF-8 without NUL."""
    return body.decode("utf-8", "replace").replace("\x00", "\ufffd")


# -- a value -----------------------------------------------------------------------------------------------
def record(value: object) -> Record:
    return value if isinstance(value, dict) else {}


def records(value: object) -> list[Record]:
    """The objects in a list; its other elements are left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """A text, or a whole number as one."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value)


def texts(value: object) -> list[str]:
    """The texts in a list, or a lone one."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, str) and item]


def number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def moment(value: Any) -> datetime | None:
    """The time in a field: ISO text, also with a blank before the time, or seconds since 1970."""
    try:
        when = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        seconds = number(value)
        if seconds is None:
            return None
        try:
            when = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    try:
        return max(EARLIEST, (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC))
    except (ValueError, OverflowError):  # the first and the last day there is, in another zone
        return None


def ours(value: object) -> uuid.UUID | None:
    """Our message's id from a field that the provider returns; None if it is missing or not ours."""
    try:
        return uuid.UUID(str(value)) if value else None
    except ValueError:
        return None


def from_metadata(value: Any) -> uuid.UUID | None:
    """Our id in a header that holds JSON."""
    try:
        return ours(record(msgspec.json.decode(value)).get("message_id")) if value else None
    except (*NOT_JSON, TypeError):
        return None
