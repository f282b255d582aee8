"""A guard: what it keeps, the text that takes it out, and the tests that know of it."""

from __future__ import annotations

from typing import NamedTuple


class Guard(NamedTuple):
    """`old` stands once in `file`; with `new` in its place one of `tests` fails. On SQLite, too, unless it needs a server."""

    keeps: str  # what it keeps, as a sentence that is a name
    file: str
    old: str
    new: str
    tests: str  # of pytest, a space between them
    server: bool = False  # PostgreSQL alone can show it


def of(
    file: str, tests: str, *guards: tuple[str, str, str] | tuple[str, str, str, str], server: bool = False
) -> list[Guard]:
    """Those of one file: (what it keeps, old, new) or with tests of their own behind it."""
    return [Guard(keeps, file, old, new, *(more or [tests]), server) for keeps, old, new, *more in guards]
