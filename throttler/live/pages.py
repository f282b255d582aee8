"""Reads pages of lanes from the store on a thread of its own: the owner never waits for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import close_old_connections, connection

from config.telemetry.logs import log
from throttler.overflow.store import LaneRange, LaneRows, OverflowRow, OverflowStore

LANES = 100  # of one query


@dataclass(frozen=True)
class Page:
    """What was asked, and what the store has of it; None: it did not answer."""

    asked: LaneRange
    rows: Sequence[OverflowRow] | None


class PageReader:
    """Takes ranges, gives pages in the order asked, one query at a time."""

    def __init__(self, store: OverflowStore) -> None:
        self.store = store
        self.pages: queue.SimpleQueue[Page] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[Sequence[LaneRange] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="throttler-pages", daemon=True)
        self._thread.start()

    def ask(self, ranges: Sequence[LaneRange]) -> None:
        """Each range of a lane once: answers are told apart by partition and customer."""
        for start in range(0, len(ranges), LANES):
            self._asked.put(ranges[start : start + LANES])

    def close(self) -> None:
        """End the thread after what it reads now; what was asked and not read stays unread."""
        while not self._asked.empty():
            self._asked.get()
        self._asked.put(None)
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while (ranges := self._asked.get()) is not None:
            found = self._read(ranges)
            for asked in ranges:
                key = (asked.partition, asked.customer_id)
                self.pages.put(Page(asked, None if found is None else found.get(key, [])))
        connection.close()

    def _read(self, ranges: Sequence[LaneRange]) -> LaneRows | None:
        try:
            close_old_connections()
            return self.store.read(ranges)
        except Exception as error:  # noqa: BLE001 (whatever the store says: its lanes ask again)
            log.warning("overflow_store_unavailable", error=str(error).strip()[:300])
            connection.close()
            return None
