"""Stages that every flow shows alike: the topic and the worker that reads it, with their trends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from config.admin import humanize
from config.flows import Stage, Tone
from outbox.bookkeeping import counters
from outbox.bookkeeping.progress import BEHIND, Progress

TREND = 24  # minutes


@dataclass
class Trends:
    """Counts per minute of some flows, as one."""

    now: datetime
    names: Sequence[str] = field(default_factory=tuple)

    def history(self, *kinds: str, minutes: int = TREND + 1) -> list[int]:
        """Counts per minute. The last one is of an unfinished minute: leave it out of a line."""
        return counters.history_of_all(self.names, kinds, self.now, minutes) if self.names else []

    def per_second(self, trend: Sequence[int]) -> float:
        """Over the current minute and the one before, so that a minute that has just begun does not show 0."""
        return sum(trend[-2:]) / (60 + self.now.timestamp() % 60)


def topic_stage(name: str, trends: Trends, progress: Progress) -> Stage:
    """What arrives in Kafka, and how far behind its reader is."""
    if progress.unseen and progress.seen:
        known = f"last known {humanize.ago(progress.seen, trends.now)}"
        tone: Tone = "bad" if progress.away else "idle"
        word = "No answer" if progress.away else ""
        return Stage(name, humanize.UNKNOWN, "", ["lag unknown", known], progress.url, tone=tone, word=word)
    trend = trends.history("read")
    late = progress.lag > 0 and (progress.behind or timedelta(0)) > BEHIND
    behind = (
        f"{humanize.length(progress.behind.total_seconds())} behind"
        if progress.behind is not None
        else "not measured yet"
    )
    return Stage(
        name,
        humanize.rate(trends.per_second(trend)),
        "/s",
        [f"lag {humanize.plural(progress.lag, 'record', 'records')}", behind],
        progress.url,
        tone="warn" if late else "idle",
        word="Behind" if late else "",
        trend=trend[:-1],
    )


def reader_stage(
    name: str,
    trends: Trends,
    progress: Progress,
    done: str,
    repeats: Sequence[str],
    parked: Sequence[str],
    words: tuple[str, str] = ("repeat", "repeats"),
) -> Stage:
    """The worker that reads a topic: what it took in (`done`), what came again, what it could not handle.

    `words` say what `repeats` are, where they are something else.
    """
    trend = trends.history(done)
    again = sum(trends.history(*repeats, minutes=60))
    first = f"{humanize.plural(again, *words)} in 1 h"
    if progress.seen is None:
        first = "not seen yet"
    elif progress.unseen:
        first = f"not seen for {humanize.length((trends.now - progress.seen).total_seconds(), coarse=True)}"
    return Stage(
        name,
        humanize.rate(trends.per_second(trend)),
        "/s",
        [first, f"{sum(trends.history(*parked, minutes=60)):,} parked in 1 h"],
        progress.url,
        tone="bad" if progress.stopped or progress.away else "warn" if progress.unseen else "idle",
        word="Stopped" if progress.stopped else "Stands" if progress.away else "Not seen" if progress.unseen else "",
        trend=trend[:-1],
    )
