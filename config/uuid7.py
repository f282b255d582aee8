"""UUIDs that rise with time (RFC 9562, version 7)."""

from __future__ import annotations

import os
import time
import uuid


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


_last = 0


def uuid7() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): 48 bits of milliseconds, 12 of sub-millisecond order, 62 random.

    Strictly rising within a process, so rows sort by creation and range partitions by time are possible.
    """
    global _last
    ticks = time.time_ns() * 4096 // 1_000_000
    _last = ticks = max(ticks, _last + 1)
    millis, fraction = divmod(ticks, 4096)
    tail = int.from_bytes(os.urandom(8)) & (2**62 - 1)
    return uuid.UUID(int=millis << 80 | 7 << 76 | fraction << 64 | 2 << 62 | tail)


def uuid7_after(previous: uuid.UUID | None) -> uuid.UUID:
    """A version-7 UUID above `previous`, even where this host's clock is behind the one that made it."""
    fresh = uuid7()
    if previous is None or fresh > previous:
        return fresh
    millis, fraction = divmod((previous.int >> 80 << 12 | previous.int >> 64 & 0xFFF) + 1, 4096)
    return uuid.UUID(int=millis << 80 | 7 << 76 | fraction << 64 | fresh.int & (2**64 - 1))


def uuid7_milliseconds(value: uuid.UUID) -> int:
    """The Unix time in a version-7 UUID."""
    return value.int >> 80


def smallest_uuid7(milliseconds: int) -> uuid.UUID:
    """The smallest version-7 UUID of that Unix time: the lower bound of a partition or a scan."""
    return uuid.UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62)
