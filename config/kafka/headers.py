"""Headers of a record as a row of a database keeps them: in their order, byte for byte, and readable.

A row is `[name, text]` where the text says all; `[name, null]` for a header without a value; otherwise
`[name, what can be shown, base64]`, and where the name itself cannot be stored, `[…, base64, base64 of the name]`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any

Header = tuple[str, bytes | None]
Row = list[str | None]
LONGEST_SHOWN = 1_000  # characters of a value that is no text


def rows_of(headers: Iterable[Header]) -> list[Row]:
    """What to store; databases take all of it."""
    return [_row(name, value) for name, value in headers]


def headers_of(rows: Iterable[Sequence[Any]]) -> list[Header]:
    """The headers again, as they were received."""
    return [_header(*row) for row in rows]


def shown(rows: Iterable[Sequence[Any]]) -> list[tuple[str, str]]:
    """Name and text of each, for people."""
    return [(row[0], row[1] or "") for row in rows]


def text_of(value: bytes) -> str | None:
    """The text that stands for exactly these bytes; None: they are no text that every database takes."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text  # PostgreSQL stores no NUL


def text_in(headers: Iterable[Header] | None, name: str) -> str:
    """The text of the last header of this name; empty without one."""
    return next((text_of(value) or "" for known, value in reversed(list(headers or ())) if known == name and value), "")


def printable(value: bytes | None) -> str:
    """The nearest text that can be stored."""
    return _without_nul((value or b"").decode("utf-8", "backslashreplace"))


def _row(name: str, value: bytes | None) -> Row:
    text = None if value is None else text_of(value)
    if "\x00" in name:
        exact = None if value is None else _base64(value)
        return [_without_nul(name), printable(value)[:LONGEST_SHOWN], exact, _base64(name.encode())]
    if value is None or text is not None:
        return [name, text]
    return [name, printable(value)[:LONGEST_SHOWN], _base64(value)]


def _header(name: str, text: str | None, *exact: str | None) -> Header:
    if not exact:
        return name, None if text is None else text.encode()
    value = None if exact[0] is None else b64decode(exact[0])
    return b64decode(exact[1] or "").decode() if len(exact) > 1 else name, value


def _base64(content: bytes) -> str:
    return b64encode(content).decode()


def _without_nul(text: str) -> str:
    return text.replace("\x00", "\ufffd")
