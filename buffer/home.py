"""What home draws of the aggregator and of the ledger, and what needs a person; the aggregator's numbers are those of /metrics, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db.models import Count, Max, Min, Q
from django.urls import reverse

from buffer.events.models import Batch, Bucket
from buffer.streams import streams
from config.admin import humanize
from config.causes import UNCUT, UNPUBLISHED, fact
from config.flows import Need, Stage
from outbox.bookkeeping.progress import LONG, reader_stage, topic_stage
from outbox.letters.topic_flow import TopicNumbers

OVERDUE = timedelta(seconds=60)
MOST_BATCHES = 1000


@dataclass
class BufferNumbers(TopicNumbers):
    """What home and /metrics say of orders that wait and of batches; `names` are the streams."""

    @cached_property
    def waiting(self) -> dict[str, Any]:
        """The buckets that hold something, in one query over (stream, due_at)."""
        rows = Bucket.objects.filter(stream__in=self.names).waiting().order_by()
        due = Count("pk", filter=Q(due_at__lte=self.now))
        return rows.aggregate(buckets=Count("pk"), oldest=Min("first_arrival"), due=due, due_since=Min("due_at"))

    @cached_property
    def held(self) -> dict[str, Any]:
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

    @property
    def open(self) -> int:
        return self.totals["open"]

    def open_trend(self) -> list[int]:
        """Backwards from what is open now."""
        trend = [self.open]
        for change in reversed(self.history("open")[2:]):
            trend.append(trend[-1] - change)
        return trend[::-1]


# -- Stages of the aggregator, then of the ledger ------------------------------------------------------------
def stages(numbers: BufferNumbers) -> Iterator[Stage]:
    yield topic_stage(_name_of({stream.topic for stream in streams().values()}), numbers, numbers.progress)
    yield reader_stage(
        "Ingest", numbers, numbers.progress, "accepted", ["redelivered", "superseded"], ["parked", "late"]
    )
    yield _buffer(numbers)
    yield _flush(numbers)
    yield _output(numbers)


def _name_of(topics: set[str]) -> str:
    return next(iter(topics)) if len(topics) == 1 else f"{len(topics)} topics"


def _buffer(numbers: BufferNumbers) -> Stage:
    full = numbers.open >= settings.BUFFER_HIGH_WATER
    age = f"oldest {humanize.length(numbers.oldest.total_seconds())}" if numbers.oldest else "nothing waits"
    return Stage(
        "Event buffer",
        f"{numbers.open:,}",
        "open",
        [age, humanize.plural(numbers.waiting["buckets"], "warehouse", "warehouses")],
        reverse("admin:buffer_bucket_changelist"),
        tone="warn" if full else "idle",
        word="Full" if full else "",
        trend=numbers.open_trend(),
    )


def _flush(numbers: BufferNumbers) -> Stage:
    stuck = numbers.overdue > OVERDUE or numbers.unsent_for > OVERDUE
    late = f"oldest due {humanize.length(numbers.overdue.total_seconds())}" if numbers.waiting["due"] else "none late"
    return Stage(
        "Flush",
        f"{numbers.waiting['due']:,}",
        "due",
        [late, f"{humanize.bounded(len(numbers.unsent), MOST_BATCHES)} waiting to publish"],
        reverse("admin:buffer_batch_changelist") + "?state=claimed",
        tone="bad" if numbers.refused else "warn" if stuck else "idle",
        word="Refused" if numbers.refused else "Stuck" if stuck else "",
        trend=numbers.history("events_sent")[:-1],
    )


def _output(numbers: BufferNumbers) -> Stage:
    trend = numbers.history("batches_sent")
    away = numbers.progress.away
    last = humanize.ago(numbers.last_sent, numbers.now) if numbers.last_sent else "none yet"
    return Stage(
        _name_of({stream.output for stream in streams().values()}),
        humanize.rate(60 * numbers.per_second(trend)),
        "/min",
        [f"last {last}" if numbers.last_sent else last],
        reverse("admin:buffer_batch_changelist"),
        tone="bad" if away else "idle",
        word="No answer" if away else "",
        trend=trend[:-1],
    )


def ledger_stages(numbers: TopicNumbers, topics: str) -> Iterator[Stage]:
    yield topic_stage(topics, numbers, numbers.progress)
    yield reader_stage("Track", numbers, numbers.progress, "applied", ["duplicate"], ["parked"])
    total = numbers.totals["movements"] + numbers.totals["restored"]
    yield Stage(
        "Ledger",
        f"{total:,}",
        "movements",
        [f"unknown stock: {settings.LEDGER_UNKNOWN_STOCK}", f"negative stock: {settings.LEDGER_NEGATIVE_STOCK}"],
        reverse("admin:buffer_inventorytracking_changelist"),
        trend=numbers.history("movements", "restored")[:-1],
    )


# -- Needs -------------------------------------------------------------------------------------------------
def needs(numbers: BufferNumbers) -> Iterator[Need]:
    if numbers.unsent_for > OVERDUE:
        yield _unsent(numbers)
    if numbers.overdue > OVERDUE:
        yield _overdue(numbers)
    if numbers.open >= settings.BUFFER_HIGH_WATER:
        yield _full(numbers)
    if numbers.held["buckets"]:
        yield _held(numbers)


def _unsent(numbers: BufferNumbers) -> Need:
    oldest = numbers.unsent[0]
    error = f"Kafka says: {oldest.error}." if oldest.error else "No flusher has taken them."
    return Need(
        "now" if numbers.unsent_for > LONG else "soon",
        "Batches are cut but not published",
        f"{error} They stay as they are and go out in order.",
        reverse("admin:buffer_batch_changelist") + "?state=claimed",
        "Open list",
        amount=len(numbers.unsent),
        unit=humanize.word(len(numbers.unsent), "batch waits", "batches wait"),
        since=oldest.claimed_at,
        rank=1,
        kind="stuck",
        key="batches",
        runbook="alerts.md#spillwaypublishfailing",
        fact=fact(UNPUBLISHED, "flush_buffer"),
    )


def _overdue(numbers: BufferNumbers) -> Need:
    return Need(
        "now" if numbers.overdue > LONG else "soon",
        "Warehouses are due and no batch is cut",
        "No flusher takes them: flush_buffer does not run or cannot reach Kafka. Nothing is lost.",
        reverse("admin:buffer_bucket_changelist"),
        "Open list",
        amount=numbers.waiting["due"],
        unit=humanize.word(numbers.waiting["due"], "warehouse due", "warehouses due"),
        since=numbers.waiting["due_since"],
        rank=1,
        kind="stuck",
        key="warehouses",
        runbook="alerts.md#spillwayoldestpending",
        fact=fact(UNCUT, "flush_buffer"),
    )


def _full(numbers: BufferNumbers) -> Need:
    return Need(
        "now",
        "The event buffer is full",
        f"Reading pauses above {settings.BUFFER_HIGH_WATER:,} open orders; all warehouses are flushed.",
        reverse("admin:buffer_bucket_changelist"),
        "Open list",
        amount=numbers.open,
        unit="orders open",
        rank=1,
        kind="stuck",
        key="event buffer",
        runbook="alerts.md#spillwaybufferfull",
    )


def _held(numbers: BufferNumbers) -> Need:
    number = numbers.held["buckets"]
    return Need(
        "watch",
        f"{humanize.plural(number, 'warehouse is', 'warehouses are')} held",
        "Orders pile up there and nothing leaves until somebody releases them.",
        reverse("admin:buffer_bucket_changelist") + "?state=held",
        "Open list",
        amount=number,
        unit="held",
        since=numbers.held["since"],
        rank=2,
        kind="on_hold",
        key="warehouses",
    )
