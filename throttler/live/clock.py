"""The owner's time: the monotonic clock plus an offset measured against the database; it never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from throttler.moments import microseconds

LARGEST_STEP = 50_000  # of one correction: a clock that is an hour off is neither believed at once nor a fresh burst


class SteadyClock:
    """Microseconds since 1970. A step of the host's clock changes nothing; one of the database's grants no burst.

    Corrections are small: backwards the time stands still for a moment, forwards it gains that little.
    """

    def __init__(self, monotonic: Callable[[], int] = time.monotonic_ns, start: datetime | None = None) -> None:
        self._monotonic = monotonic
        self._offset = (microseconds(start) if start else time.time_ns() // 1000) - monotonic() // 1000
        self._last = 0

    def now(self) -> int:
        self._last = max(self._last, self._monotonic() // 1000 + self._offset)
        return self._last

    def measured(self, database: datetime) -> int:
        """Take up the database's time; returns by how many microseconds it was off. Only small corrections count."""
        off = microseconds(database) - (self._monotonic() // 1000 + self._offset)
        self._offset += max(-LARGEST_STEP, min(LARGEST_STEP, off))
        return off
