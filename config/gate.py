"""The decode gate: bytes become a validated message or a reason, with the same verdict on every database.

Everything that only fails later on *some* database (NUL in PostgreSQL, lone surrogates in UTF-8, integers
beyond a column) is refused here, before any transaction starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
from django.db import OperationalError

from config.payload import EditedCopy, Excerpt

T = TypeVar("T")

MAX_DEPTH = 32
NUL_ESCAPE = b"\\u0000"


class InvalidRecord(Exception):
    """Why a record is not a message: `reason` is a stable code, the text is for people."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Gate(Generic[T]):
    """Decodes one message type. `max_bytes` bounds the value as it arrived."""

    decoder: msgspec.json.Decoder[T]
    max_bytes: int
    opener: Callable[[bytes], bytes] | None = None  # of records that are not JSON (config/formats)

    @classmethod
    def of(cls, kind: type[T], max_bytes: int, opener: Callable[[bytes], bytes] | None = None) -> Gate[T]:
        """A gate for a msgspec struct; unknown fields are allowed, missing and mistyped ones are not."""
        return cls(msgspec.json.Decoder(kind), max_bytes, opener)

    def opened(self, value: bytes | None) -> bytes | None:
        """The JSON of a record; raises InvalidRecord, and what its format raises while it has to wait."""
        if self.opener is None or not value or isinstance(value, Excerpt | EditedCopy) or len(value) > self.max_bytes:
            return value
        return self.opener(value)

    def readable(self, value: bytes | None) -> bytes | None:
        """The JSON of a record if it can be opened now, else its bytes."""
        try:
            return self.opened(value)
        except (InvalidRecord, OperationalError):
            return value

    def decode(self, value: bytes | None) -> T:
        """The message; raises InvalidRecord. `value` is never changed."""
        return self.judge(self.opened(value))

    def judge(self, value: bytes | None) -> T:
        """The message in the JSON of a record; raises InvalidRecord."""
        if isinstance(value, Excerpt):
            text = value.lost or f"{value.size} bytes, at most {self.max_bytes} are accepted"
            raise InvalidRecord(value.reason, text)
        if not value:
            raise InvalidRecord("empty", "the record has no value")
        if len(value) > self.max_bytes:
            raise InvalidRecord("too_large", f"{len(value)} bytes, at most {self.max_bytes} are accepted")
        try:
            message = self.decoder.decode(value)
        except msgspec.ValidationError as error:
            raise InvalidRecord("wrong_field", str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise InvalidRecord("invalid_json", _one_line(error)) from None
        # Brackets bound the depth from above and are counted in C; only a suspicious value is measured.
        if value.count(b"{") + value.count(b"[") > MAX_DEPTH and depth_of(value) > MAX_DEPTH:
            raise InvalidRecord("too_deep", f"nested deeper than {MAX_DEPTH} levels")
        # One byte is searched for ten times as fast as six, and most messages escape nothing.
        if b"\\" in value and NUL_ESCAPE in value and _has_nul(value):
            raise InvalidRecord("nul_character", "a text holds the character U+0000, which PostgreSQL cannot store")
        try:
            value.decode()
        except UnicodeDecodeError as error:
            raise InvalidRecord("invalid_utf8", f"cannot be read from byte {error.start} on: {error.reason}") from None
        return message


def texts_in(value: bytes | None, names: Iterable[str]) -> list[str]:
    """What a record says in these fields, also one that no gate takes; "" where there is no text or whole number to read."""
    try:
        fields = msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        fields = {}
    texts = [fields.get(name) if isinstance(fields, dict) else None for name in names]
    return [str(text) if type(text) in (str, int) else "" for text in texts]


def depth_of(value: bytes) -> int:
    """The nesting depth of a valid JSON text, without building it."""
    deepest = depth = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', value):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in (b"]", b"}"):
            depth -= 1
    return deepest


def _has_nul(value: bytes) -> bool:
    r"""Whether an escape really is U+0000: `\\u0000` (an escaped backslash) is not."""
    return re.search(rb"(?<!\\)(?:\\\\)*\\u0000", value) is not None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__
