"""The progress of consumers, the needs it causes, and the stages that every flow shows alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from urllib.parse import urlencode

from django.conf import settings
from django.urls import reverse

from config.admin import humanize
from config.causes import BROKER, SILENT, STANDS, STOPPED, fact
from config.database.queries import Names, of_names
from config.flows import Kin, Need, Reading, Stage
from config.kafka.client import reachability
from config.letters import Tone
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import UNSEEN, Watermark, cause_of

# -- The progress of consumers, and the needs it causes ------------------------------------------------------
BEHIND = timedelta(seconds=60)
LONG = timedelta(minutes=5)
HEARD = timedelta(seconds=10)  # with Kafka gone a worker may still report for some seconds, each for others
MOST_STOPPED = 3  # lines of home
MORE_STOPPED = ("more topic has stopped partitions", "more topics have stopped partitions")
BEHIND_IN_WORDS = ("record behind", "records behind")


# -- The broker --------------------------------------------------------------------------------------------
def kafka_away(now: datetime) -> datetime | None:
    """Since when Kafka does not answer; None while it does, and where nothing was ever read from it.

    A worker that reports has spoken with it: only when all are silent it is asked, for the silence may be theirs. Before
    the first of them counts as silent, so that home and notices begin with the cause.
    """
    heard = max((row.updated_at for row in of_names(_positions, None)), default=None)
    return heard if heard and now - heard > HEARD and not reachability.ask() else None


def away_need(since: datetime, now: datetime) -> Need:
    """The same for every flow that stands: home shows it once."""
    return Need(
        urgency="now",
        title=f"Kafka does not answer since {humanize.clock(since, now).rpartition(':')[0]}",
        why="What it holds is read, and what waits for it is sent, when it answers again. Nothing is lost; lag is not known.",
        url=reverse("admin:outbox_watermark_changelist"),
        lever="Show positions",
        since=since,
        rank=1,
        kind="partition",
        key="kafka",
        runbook="failures.md#broker-down",
        fact=fact(BROKER),
    )


# -- Positions ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Progress:
    """How far the consumers of one group have come, over all partitions of some topics."""

    rows: Sequence[Watermark]
    now: datetime

    @classmethod
    def of(cls, group: str, topics: Sequence[str], now: datetime) -> Progress:
        return cls([row for row in of_names(_positions, [group]) if row.group == group and row.topic in topics], now)

    @property
    def lag(self) -> int:
        """Records known to wait; partitions whose lag is not known are left out."""
        return sum(lag_of(row, self.now) or 0 for row in self.rows)

    @property
    def lag_in_words(self) -> str:
        """`lag 42 records`, `lag over 42 records` while some partitions do not tell, `lag unknown` when none does."""
        unknown = not self.rows or any(lag_of(row, self.now) is None for row in self.rows)
        if unknown and not self.lag:
            return "lag unknown"
        return f"lag {'over ' if unknown else ''}{humanize.plural(self.lag, 'record', 'records')}"

    @property
    def behind(self) -> timedelta | None:
        """Since when something in the log has not been read; None: not measured."""
        times = [row.caught_up_at for row in self.rows if row.caught_up_at]
        return max(timedelta(0), self.now - min(times)) if times else None

    @property
    def seen(self) -> datetime | None:
        return max((row.updated_at for row in self.rows), default=None)

    @property
    def unseen(self) -> bool:
        return self.seen is not None and self.now - self.seen > UNSEEN

    @cached_property
    def away(self) -> datetime | None:
        """Since when Kafka does not answer."""
        return kafka_away(self.now) if self.unseen else None

    @property
    def url(self) -> str:
        """The positions of this group."""
        query = f"?{urlencode({'group': self.rows[0].group})}" if self.rows else ""
        return reverse("admin:outbox_watermark_changelist") + query

    @property
    def stopped(self) -> list[Watermark]:
        return [row for row in self.rows if row.alarm]


def _positions(groups: Names) -> list[Watermark]:
    rows = Watermark.objects.order_by("group", "topic", "partition")
    return list(rows if groups is None else rows.filter(group__in=list(groups)))


def lag_of(row: Watermark, now: datetime) -> int | None:
    """How many records are known to wait behind a position; None: not known.

    The end of the log is asked for by the worker that reads it. While that is silent, or the partition is stopped, records
    come that nobody counts: what was seen last still waits, but a 0 of then says nothing about now.
    """
    behind = max(0, row.end_offset - row.next_offset)
    never_measured = row.end_offset == 0 and row.caught_up_at is None
    outdated = bool(row.alarm) or now - row.updated_at > UNSEEN
    return None if behind == 0 and (never_measured or outdated) else behind


def position_needs(progress: Progress, worker: str, command: str, sources: Collection[str]) -> Iterator[Need]:
    """Stopped partitions, and a worker that does not report any more."""
    alike: dict[tuple[str, str], list[Watermark]] = defaultdict(list)
    for row in progress.stopped:
        alike[row.topic, cause_of(row)].append(row)
    for rows in alike.values():
        topic = rows[0].topic.removeprefix(settings.KAFKA_TOPIC_PREFIX)
        yield _stopped_need(rows, {command, *([topic] if topic in sources else sources)}, progress.now)
    if progress.away:
        yield away_need(progress.away, progress.now)
    if progress.unseen and progress.seen:
        silent = progress.now - progress.seen
        yield Need(
            urgency="now" if silent > LONG else "soon",
            title=f"{worker} does not report",
            why="What arrives waits in Kafka and is read when the worker runs again. Nothing is lost; how much waits is not known.",
            url=progress.url,
            lever="Show positions",
            since=progress.seen,
            rank=1,
            kind="partition",
            key=f"reader {worker}",
            runbook="alerts.md#spillwayingestlag",
            fact=fact(STANDS if len(progress.stopped) == len(progress.rows) else SILENT, command),
        )


def _stopped_need(rows: Sequence[Watermark], subjects: Collection[str], now: datetime) -> Need:
    """One cause: a topic that was created again stops all of its partitions."""
    first, several = rows[0], len(rows) > 1
    behind = [lag for row in rows if (lag := lag_of(row, now)) is not None]
    stopped = reverse("admin:outbox_watermark_changelist") + "?state=stopped"
    which = f"{len(rows)} partitions are stopped" if several else f"partition {first.partition} is stopped"
    return Need(
        urgency="now",
        title=f"{first.topic}, {which}",
        why=first.why,
        url=stopped if several else reverse("admin:outbox_watermark_change", args=[first.pk]),
        lever="Show them" if several else "Show why",
        amount=sum(behind) if behind else None,
        unit=humanize.word(sum(behind), *BEHIND_IN_WORDS) if len(behind) in (0, len(rows)) else "records or more",
        since=min(row.updated_at for row in rows),
        rank=0,
        runbook="alerts.md#spillwaypartitionstopped",
        kind="partition",
        key=f"{first.group} {first.topic}: {cause_of(first)}",
        kin=Kin(MOST_STOPPED, MORE_STOPPED, stopped),
        fact=fact(STOPPED, *subjects),
    )


# -- Gauges ------------------------------------------------------------------------------------------------
def gauges(progress: Progress) -> Iterator[Reading]:
    """The same numbers for /metrics."""
    for row in progress.rows:
        labels = {"group": row.group, "topic": row.topic, "partition": str(row.partition)}
        if (behind := lag_of(row, progress.now)) is not None:
            yield Reading(metrics.CONSUMER_LAG_RECORDS, behind, labels)
        yield Reading(metrics.PARTITION_STOPPED, bool(row.alarm), labels)
        if row.caught_up_at:
            seconds = max(0.0, (progress.now - row.caught_up_at).total_seconds())
            yield Reading(metrics.CONSUMER_LAG_SECONDS, seconds, labels)


# -- Stages that every flow shows alike: the topic and the worker that reads it, with their trends -----------
TREND = 24  # minutes


@dataclass
class Trends:
    """Counts per minute of some flows, as one."""

    now: datetime
    names: Sequence[str] = field(default_factory=tuple)

    def history(self, *kinds: str, minutes: int = TREND + 1) -> list[int]:
        """Counts per minute, at most of an hour. The last one is of an unfinished minute: leave it out of a line."""
        lines = [self.last_hour[kind][-minutes:] for kind in kinds if kind in self.last_hour]
        return [sum(counts) for counts in zip(*lines, strict=True)] if lines else [0] * minutes

    def in_last_hour(self, *kinds: str) -> int:
        return sum(self.history(*kinds, minutes=counters.MINUTES))

    @cached_property
    def last_hour(self) -> dict[str, list[int]]:
        return counters.of_last_hour(self.names, self.now)

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
        [progress.lag_in_words, behind],
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
    again = trends.in_last_hour(*repeats)
    first = f"{humanize.plural(again, *words)} in 1 h"
    if progress.seen is None:
        first = "not seen yet"
    elif progress.unseen:
        first = f"not seen for {humanize.length((trends.now - progress.seen).total_seconds(), coarse=True)}"
    return Stage(
        name,
        humanize.rate(trends.per_second(trend)),
        "/s",
        [first, f"{trends.in_last_hour(*parked):,} parked in 1 h"],
        progress.url,
        tone="bad" if progress.stopped or progress.away else "warn" if progress.unseen else "idle",
        word="Stopped" if progress.stopped else "Stands" if progress.away else "Not seen" if progress.unseen else "",
        trend=trend[:-1],
    )
