"""Rows as the literals of a VALUES list, for servers that parse them faster than they take JSON apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

WHOLE = frozenset({int, bool})
KNOWN = frozenset({str, int, bool, float, type(None)})


def rows_of_literals(rows: Sequence[Sequence[Any]], row: str = "") -> bytes:
    """`(1, 'a'), (2, 'b')`, each with the word `row` before it; right under every sql_mode. TypeError for other types."""
    columns = [_column(values) for values in zip(*rows, strict=True)]
    return f"{row}({f'), {row}('.join(map(', '.join, zip(*columns, strict=True)))})".encode()


def _column(values: Sequence[Any]) -> Sequence[str]:
    kinds = set(map(type, values))
    if kinds <= WHOLE:
        return list(map(int.__repr__, values))
    if kinds == {str}:
        return list(map(_writer_of(values), values))
    if not kinds <= KNOWN:
        raise TypeError(f"no literals for {kinds - KNOWN}")
    write = _writer_of([value for value in values if isinstance(value, str)])
    return ["NULL" if value is None else write(value) if isinstance(value, str) else repr(+value) for value in values]


def _writer_of(texts: Sequence[str]) -> Callable[[str], str]:
    """One form for a whole column: two kinds of literals have two collations, and these do not mix."""
    together = "".join(texts)
    if "\\" in together:  # whether it escapes depends on the sql_mode
        return _hexadecimal
    return _quoted if "'" in together else "'{}'".format


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _hexadecimal(text: str) -> str:
    return f"_utf8mb4 x'{text.encode().hex()}'"
