"""Many rows a chunk at a time: no transaction grows long, and no statement has too many parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from django.db.models import QuerySet

from config.database.queries import Row

CHUNK = 2000
T = TypeVar("T")


def batched(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """`values` in pieces of at most `size`."""
    return (values[start : start + size] for start in range(0, len(values), size))


def in_chunks(rows: QuerySet) -> Iterator[QuerySet]:
    """Queries for some of `rows` each, by their keys, until none is left: whoever asks deletes them."""
    while ids := list(rows.values_list("pk", flat=True)[:CHUNK]):
        yield rows.filter(pk__in=ids)


def by_key(rows: QuerySet, size: int) -> Iterator[list[Row]]:
    """The rows of a `values_list()` whose first column is the primary key, by rising key: a short query for each chunk."""
    chunk = list(rows.order_by("pk")[:size])
    while chunk:
        yield chunk
        chunk = list(rows.filter(pk__gt=chunk[-1][0]).order_by("pk")[:size])


def delete_in_chunks(rows: QuerySet) -> int:
    """Delete `rows`; returns how many."""
    return sum(chunk.delete()[0] for chunk in in_chunks(rows))
