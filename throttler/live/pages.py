"""Reads pages of lanes from the store on a thread of its own: the owner never waits for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from django.db import close_old_connections, connection

from config.telemetry.logs import log
from throttler.live.drain import COUNT
from throttler.overflow.store import LaneRange, OverflowRow, OverflowStore

LANES = 100  # of one query
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Page:
    """What was asked, and what the store has of it: rows, or their number; neither: it did not answer."""

    asked: LaneRange
    rows: Sequence[OverflowRow] | None = None
    count: int | None = None  # of a range that was to be counted


class PageReader:
    """Takes ranges, gives pages in the order asked, one query at a time."""

    def __init__(self, store: OverflowStore) -> None:
        self.store, self._away = store, False
        self.pages: queue.SimpleQueue[Page] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Sequence[LaneRange] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="throttler-pages", daemon=True)
        self._thread.start()

    def ask(self, ranges: Sequence[LaneRange]) -> None:
        """Each range of a lane once: answers are told apart by partition and customer."""
        for start in range(0, len(ranges), LANES):
            self._asked.put(ranges[start : start + LANES])

    def close(self) -> None:
        """End the thread after what it reads now, or a second; what was asked and not read stays unread."""
        while not self._asked.empty():
            self._asked.get()
        self._asked.put(None)
        self._thread.join(timeout=1.0)

    def _work(self) -> None:
        while (ranges := self._asked.get()) is not None:
            for page in self._answered(ranges):
                self.pages.put(page)
        connection.close()

    def _answered(self, ranges: Sequence[LaneRange]) -> Iterator[Page]:
        counted = [asked for asked in ranges if asked.limit == COUNT]
        read = [asked for asked in ranges if asked.limit != COUNT]
        numbers = self._ask(self.store.counts, counted) if counted else []
        for index, asked in enumerate(counted):
            yield Page(asked, count=None if numbers is None else numbers[index])
        rows = self._ask(self.store.read, read) if read else {}
        for asked in read:
            yield Page(asked, None if rows is None else rows.get((asked.partition, asked.customer_id), []))

    def _ask(self, question: Callable[[Sequence[LaneRange]], Answer], ranges: Sequence[LaneRange]) -> Answer | None:
        try:
            close_old_connections()
            found = question(ranges)
        except Exception as error:  # noqa: BLE001 (whatever the store says: its lanes ask again)
            if not self._away:
                log.warning("overflow_store_unavailable", error=str(error).strip()[:300])
            self._away = True
            connection.close()
            return None
        self._away = False
        return found
