"""When a bucket is due: pure rules over its times, the consumer's progress and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

RECHECK = timedelta(seconds=1)
STALE = timedelta(seconds=10)


class Waiting(Protocol):
    """A bucket, as far as these rules care."""

    @property
    def open_count(self) -> int: ...
    @property
    def urged(self) -> str: ...
    @property
    def idle_at(self) -> datetime | None: ...
    @property
    def cap_at(self) -> datetime | None: ...
    @property
    def source_partition(self) -> int | None: ...


@dataclass(frozen=True)
class DueDecision:
    """Either the rule that makes a bucket due, or when to look at it again."""

    reason: str = ""
    look_again: datetime | None = None


def decide(
    bucket: Waiting, now: datetime, caught_up: Mapping[int, datetime | None], max_batch: int, pressed: bool
) -> DueDecision:
    """Decide about one candidate.

    A bucket is idle only if the consumer has read everything of its partition since: `caught_up[partition]` is the
    last time that was so. While the consumer is behind or down, only the cap makes a quiet bucket due.
    """
    if bucket.urged:
        return DueDecision(bucket.urged)
    if bucket.open_count >= max_batch:
        return DueDecision("size")
    if bucket.cap_at is not None and bucket.cap_at <= now:
        return DueDecision("cap")
    if pressed:
        return DueDecision("pressure")
    read_at = caught_up.get(bucket.source_partition) if bucket.source_partition is not None else None
    if read_at is not None and bucket.idle_at is not None and bucket.idle_at <= read_at:
        return DueDecision("idle")
    # While the consumer lives it reports every second; while it is down nobody needs to look that often.
    pause = RECHECK if read_at is not None and now - read_at < STALE else STALE
    later = max(now + pause, bucket.idle_at or now)
    return DueDecision(look_again=min(later, bucket.cap_at) if bucket.cap_at else later)
