"""The owner's time: the monotonic clock plus an offset measured against the database; it never goes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from throttler.messages import microseconds

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

    def of(self, monotonic: float) -> int:
        """When that was, in the seconds of `time.monotonic()`; any thread may ask."""
        return int(monotonic * 1e6) + self._offset

    def reading(self) -> int:
        """The time for other threads than the owner's: it may go back by one correction."""
        return self._monotonic() // 1000 + self._offset

    def ticks(self) -> int:
        """The monotonic clock, in nanoseconds."""
        return self._monotonic()

    def measured(self, database: datetime, asked: int, answered: int) -> int:
        """Take up the database's time, read between two ticks; returns the microseconds it was off.

        Only small corrections count, and none that the time it took to ask explains: under load that is a second.
        """
        off = microseconds(database) - ((asked + answered) // 2000 + self._offset)
        doubt = (answered - asked) // 2000
        sure = max(0, off - doubt) + min(0, off + doubt)
        self._offset += max(-LARGEST_STEP, min(LARGEST_STEP, sure))
        return off
