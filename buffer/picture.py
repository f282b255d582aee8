"""The aggregator as home draws it: five stages with live numbers, and what about them needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from django.conf import settings
from django.db.models import Count, Max, Min, Q
from django.urls import reverse

from buffer.ingest import GROUP
from buffer.models import Batch, Bucket
from buffer.streams import streams
from config import metrics, words
from config.flows import Need, Picture, Reading, Stage
from config.kafka import topic_name
from outbox import counters
from outbox.picture import (
    BEHIND,
    LONG,
    Reach,
    gauges as shared_gauges,
    letter_needs,
    letters_last_hour,
    open_letters,
    position_needs,
)

TREND = 24
MOST_BATCHES = 1000
OVERDUE = timedelta(seconds=60)


def picture(now: datetime) -> Picture:
    """Home's row of the aggregator."""
    numbers = Numbers(now)
    return Picture(
        name="Aggregator",
        purpose="One batch per warehouse",
        stages=list(_stages(numbers)),
        needs=list(_needs(numbers)),
        letters_open=sum(open_letters(numbers.names).values()),
        letters_last_hour=letters_last_hour(numbers.names, now),
        url=reverse("admin:buffer_bucket_changelist"),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the buffer."""
    numbers = Numbers(now)
    for name in numbers.names:
        yield Reading(metrics.PENDING_EVENTS, counters.totals(name).get("open", 0), {"stream": name})
    yield Reading(metrics.OLDEST_PENDING, numbers.oldest.total_seconds() if numbers.oldest else 0)
    yield from shared_gauges(numbers.names, numbers.reach)


@dataclass
class Numbers:
    """Counters and indexed look-ups, each asked once."""

    now: datetime
    names: Sequence[str] = field(default_factory=lambda: list(streams()))

    @cached_property
    def reach(self) -> Reach:
        topics = [topic_name(stream.topic) for stream in streams().values()]
        return Reach.of(topic_name(GROUP), topics, self.now)

    @cached_property
    def waiting(self) -> dict:
        """The buckets that hold something, in one query over (stream, due_at)."""
        return Bucket.objects.filter(stream__in=self.names).waiting().order_by().aggregate(
            buckets=Count("pk"),
            oldest=Min("first_arrival"),
            due=Count("pk", filter=Q(due_at__lte=self.now)),
            due_since=Min("due_at"),
        )  # fmt: skip

    @cached_property
    def held(self) -> dict:
        return Bucket.objects.filter(stream__in=self.names, held=True).aggregate(
            buckets=Count("pk"), since=Min("first_arrival")
        )

    @cached_property
    def unsent(self) -> list[Batch]:
        """Cut but not published, the oldest first."""
        fields = ("claimed_at", "attempts", "error")
        return list(Batch.objects.claimed().of_streams(self.names).oldest_first().only(*fields)[: MOST_BATCHES + 1])

    @cached_property
    def refused(self) -> int:
        return Batch.objects.parked().of_streams(self.names)[: MOST_BATCHES + 1].count()

    @cached_property
    def last_sent(self) -> datetime | None:
        newest = Batch.objects.sent().of_streams(self.names).order_by("-claimed_at")[:20]
        return newest.aggregate(last=Max("sent_at"))["last"]

    @property
    def oldest(self) -> timedelta | None:
        return self.now - self.waiting["oldest"] if self.waiting["oldest"] else None

    @property
    def overdue(self) -> timedelta:
        since = self.waiting["due_since"]
        return max(timedelta(0), self.now - since) if since else timedelta(0)

    @property
    def unsent_for(self) -> timedelta:
        return self.now - self.unsent[0].claimed_at if self.unsent else timedelta(0)

    @cached_property
    def open(self) -> int:
        return sum(counters.totals(name).get("open", 0) for name in self.names)

    def history(self, *kinds: str, minutes: int = TREND + 1) -> list[int]:
        """Counts per minute; the last one is the minute under way, which no line should draw as a fall."""
        rows = [counters.history(name, kind, self.now, minutes) for name in self.names for kind in kinds]
        return [sum(column) for column in zip(*rows, strict=True)]

    def per_second(self, trend: Sequence[int]) -> float:
        """Over the minute under way and the one before, so that a full minute's start does not read 0."""
        return sum(trend[-2:]) / (60 + self.now.timestamp() % 60)

    def open_trend(self) -> list[int]:
        """Backwards from what is open now."""
        trend = [self.open]
        for change in reversed(self.history("open")[2:]):
            trend.append(trend[-1] - change)
        return trend[::-1]


# -- Stages ------------------------------------------------------------------------------------------------
def _stages(numbers: Numbers) -> Iterator[Stage]:
    yield _topic(numbers)
    yield _ingest(numbers)
    yield _buffer(numbers)
    yield _flush(numbers)
    yield _output(numbers)


def _name_of(topics: set[str]) -> str:
    return next(iter(topics)) if len(topics) == 1 else f"{len(topics)} topics"


def _topic(numbers: Numbers) -> Stage:
    trend, reach = numbers.history("read"), numbers.reach
    late = reach.lag > 0 and (reach.behind or timedelta(0)) > BEHIND
    behind = f"{words.length(reach.behind.total_seconds())} behind" if reach.behind is not None else "not measured yet"
    return Stage(
        _name_of({stream.topic for stream in streams().values()}),
        words.rate(numbers.per_second(trend)),
        "/s",
        [f"lag {words.plural(reach.lag, 'record', 'records')}", behind],
        reverse("admin:outbox_watermark_changelist"),
        tone="warn" if late else "idle",
        word="Behind" if late else "",
        trend=trend[:-1],
    )


def _ingest(numbers: Numbers) -> Stage:
    trend, reach = numbers.history("accepted"), numbers.reach
    again = sum(numbers.history("redelivered", "superseded", minutes=60))
    repeats = words.plural(again, "repeat", "repeats")
    parked = sum(numbers.history("parked", "late", minutes=60))
    first = f"{repeats} in 1 h"
    if reach.seen is None:
        first = "not seen yet"
    elif reach.unseen:
        first = f"not seen for {words.length((numbers.now - reach.seen).total_seconds(), coarse=True)}"
    return Stage(
        "Ingest",
        words.rate(numbers.per_second(trend)),
        "/s",
        [first, f"{parked:,} parked in 1 h"],
        reverse("admin:outbox_watermark_changelist"),
        tone="bad" if reach.stopped else "warn" if reach.unseen else "idle",
        word="Stopped" if reach.stopped else "Not seen" if reach.unseen else "",
        trend=trend[:-1],
    )


def _buffer(numbers: Numbers) -> Stage:
    full = numbers.open >= settings.BUFFER_HIGH_WATER
    age = f"oldest {words.length(numbers.oldest.total_seconds())}" if numbers.oldest else "nothing waits"
    return Stage(
        "Event buffer",
        f"{numbers.open:,}",
        "open",
        [age, words.plural(numbers.waiting["buckets"], "warehouse", "warehouses")],
        reverse("admin:buffer_bucket_changelist"),
        tone="warn" if full else "idle",
        word="Full" if full else "",
        trend=numbers.open_trend(),
    )


def _flush(numbers: Numbers) -> Stage:
    stuck = numbers.overdue > OVERDUE or numbers.unsent_for > OVERDUE
    late = f"oldest due {words.length(numbers.overdue.total_seconds())}" if numbers.waiting["due"] else "none late"
    return Stage(
        "Flush",
        f"{numbers.waiting['due']:,}",
        "due",
        [late, f"{words.bounded(len(numbers.unsent), MOST_BATCHES)} waiting to publish"],
        reverse("admin:buffer_batch_changelist") + "?state=claimed",
        tone="bad" if numbers.refused else "warn" if stuck else "idle",
        word="Refused" if numbers.refused else "Stuck" if stuck else "",
        trend=numbers.history("events_sent")[:-1],
    )


def _output(numbers: Numbers) -> Stage:
    trend = numbers.history("batches_sent")
    last = words.ago(numbers.last_sent, numbers.now) if numbers.last_sent else "none yet"
    return Stage(
        _name_of({stream.output for stream in streams().values()}),
        words.rate(60 * numbers.per_second(trend)),
        "/min",
        [f"last {last}" if numbers.last_sent else last],
        reverse("admin:buffer_batch_changelist"),
        trend=trend[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def _needs(numbers: Numbers) -> Iterator[Need]:
    yield from position_needs(numbers.reach, "Ingest")
    yield from letter_needs(numbers.names, urgent=["publish"])
    if numbers.unsent_for > OVERDUE:
        yield _unsent(numbers)
    elif numbers.overdue > OVERDUE:
        yield _overdue(numbers)
    if numbers.open >= settings.BUFFER_HIGH_WATER:
        yield _full(numbers)
    if numbers.held["buckets"]:
        yield _held(numbers)


def _unsent(numbers: Numbers) -> Need:
    oldest = numbers.unsent[0]
    error = f"Kafka says: {oldest.error}." if oldest.error else "No flusher has taken them."
    return Need(
        "now" if numbers.unsent_for > LONG else "soon",
        "Batches are cut but not published",
        f"{error} They stay as they are and go out in order.",
        reverse("admin:buffer_batch_changelist") + "?state=claimed",
        "Open list",
        amount=len(numbers.unsent),
        unit="batches wait",
        since=oldest.claimed_at,
        rank=1,
    )


def _overdue(numbers: Numbers) -> Need:
    return Need(
        "now" if numbers.overdue > LONG else "soon",
        "Warehouses are due and no batch is cut",
        "No flusher takes them: flush_buffer does not run, or cannot reach Kafka. Orders wait, nothing is lost.",
        reverse("admin:buffer_bucket_changelist"),
        "Open list",
        amount=numbers.waiting["due"],
        unit="warehouses due",
        since=numbers.waiting["due_since"],
        rank=1,
    )


def _full(numbers: Numbers) -> Need:
    return Need(
        "soon",
        "The event buffer is full",
        f"Reading pauses above {settings.BUFFER_HIGH_WATER:,} open orders; every warehouse is flushed at once.",
        reverse("admin:buffer_bucket_changelist"),
        "Open list",
        amount=numbers.open,
        unit="orders open",
        rank=1,
    )


def _held(numbers: Numbers) -> Need:
    number = numbers.held["buckets"]
    return Need(
        "watch",
        f"{words.plural(number, 'warehouse is', 'warehouses are')} held",
        "Orders pile up there and nothing leaves until somebody releases them.",
        reverse("admin:buffer_bucket_changelist") + "?state=held",
        "Open list",
        amount=number,
        unit="held",
        since=numbers.held["since"],
        rank=2,
    )
