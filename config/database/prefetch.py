"""Reads the next rows on a thread and connection of its own, while the caller works on these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from django.db import connection, connections

Key = TypeVar("Key")
Rows = TypeVar("Rows")


class Ahead(Generic[Key, Rows]):
    """Calls `read(key)`, on its thread already at `begin`. What `read` raises, `take` raises."""

    def __init__(self, read: Callable[[Key], Rows], thread: ThreadPoolExecutor | None = None) -> None:
        self._read = read
        self._thread = thread
        self._coming: tuple[Key, Future[Rows]] | None = None

    def begin(self, key: Key) -> None:
        """This is wanted next."""
        if self._thread:
            self._coming = key, self._thread.submit(self._read, key)

    def take(self, key: Key) -> Rows:
        """The rows of `key`: what `begin` has asked for, or read now."""
        coming, self._coming = self._coming, None
        if coming is None:
            return self._read(key)
        begun, rows = coming[0], coming[1].result()
        return rows if begun == key else self._read(key)


@contextmanager
def reading_ahead(read: Callable[[Key], Rows]) -> Iterator[Ahead[Key, Rows]]:
    """An `Ahead` that has a thread until the block ends.

    It has none in a transaction of the caller, of which another connection sees nothing, and none on SQLite, which has
    no server that could read meanwhile.
    """
    if connection.in_atomic_block or connection.vendor == "sqlite":
        yield Ahead(read)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        try:
            yield Ahead(read, thread)
        finally:
            thread.submit(connections.close_all)  # of that thread
