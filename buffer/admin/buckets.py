"""Admin pages of the aggregator: batches, buckets with their levers, orders."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from django.conf import settings
from django.contrib import admin
from django.db import connection, models
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode

from buffer.events import levers
from buffer.events.models import Batch, Bucket, BucketQuerySet, BufferedEvent, EventQuerySet
from buffer.flush.batch_letters import CUT
from buffer.flush.claim import STALE, caught_up_of, decide
from buffer.partitioned import AHEAD, retained_months
from buffer.streams import Stream, streams
from config.admin import humanize
from config.admin.filters import ByNumber, ByTime, Segments
from config.admin.html import chip, moment
from config.admin.levers import Lever
from config.admin.lists import Keyset
from config.admin.pages import KeysetChangeList, ReadOnlyAdmin, age_column, number_column
from config.database.queries import is_mariadb
from config.database.tables import missing_apps
from config.fields import is_uuid
from config.flows import mask_of
from config.kafka import topic_name
from config.telemetry.redaction import masked
from config.telemetry.tracing import trace_id_in
from outbox.audit_log.reveal import Revealing
from outbox.bookkeeping import counters
from outbox.letters.models import DeadLetter

# -- In words: why a batch was cut, when the next one is, why a lever waits ----------------------------------
RULES = {
    "idle": "No order came for {idle}.",
    "cap": "Its oldest order had waited {cap}.",
    "size": "It held {max_batch:,} orders, the most a batch may have.",
    "pressure": "The event buffer was full, so every warehouse was flushed.",
    "manual": "Somebody asked for it.",
    "leftover": "The batch before it was full; what was left went at once.",
    "supplement": "A newer version of an order came after its batch was sent; this is the difference.",
}


def rule_of(batch: Batch) -> str:
    """The rule that made a batch due, with the limits as they are set now."""
    stream = streams().get(batch.stream)
    if not stream:
        return f"{batch.reason.capitalize()}. {unconfigured()}"
    return RULES.get(batch.reason, batch.reason).format(**_limits(stream))


def unconfigured() -> str:
    return f"Its stream is not configured. {missing_apps()}".rstrip()


def _limits(stream: Stream) -> dict[str, object]:
    return {
        "idle": humanize.length(stream.idle.total_seconds()),
        "cap": humanize.length(stream.cap.total_seconds()),
        "max_batch": stream.max_batch,
    }


def state_of(bucket: Bucket, now: datetime) -> str:
    """One word for a warehouse."""
    if bucket.held:
        return "held"
    if not bucket.open_count:
        return "empty"
    return "due" if bucket.due_at is not None and bucket.due_at <= now else "waiting"


def why(bucket: Bucket, now: datetime) -> tuple[str, str]:
    """Whether it is due, by the flusher's own rules: the answer, and what it follows from."""
    stream = streams().get(bucket.stream)
    if stream is None:
        return unconfigured(), "Nothing is read or flushed for it."
    if bucket.held:
        return "Held.", "Nothing is cut until somebody releases it. Orders go on arriving."
    if not bucket.open_count:
        return "Nothing waits here.", "The next order starts its clock."
    pressed = counters.totals(stream.name).get("open", 0) >= settings.BUFFER_HIGH_WATER
    caught_up = caught_up_of(stream)
    decision = decide(bucket, now, caught_up, stream.max_batch, pressed)
    if decision.reason:
        return "Due now.", RULES[decision.reason].format(**_limits(stream))
    read_at = caught_up.get(bucket.source_partition) if bucket.source_partition is not None else None
    return "Not due yet.", " ".join(_outlook(bucket, stream, read_at, now))


def _outlook(bucket: Bucket, stream: Stream, read_at: datetime | None, now: datetime) -> list[str]:
    limits = _limits(stream)
    partition = f"{topic_name(stream.topic)}/{bucket.source_partition}"
    sentences = []
    if read_at is None or now - read_at > STALE:
        state = (
            f"was last read to its end at {humanize.clock_in_zone(read_at, now)}"
            if read_at
            else "is stopped or was never read"
        )
        sentences.append(f"Partition {partition} {state}, so silence does not count.")
    elif bucket.idle_at:
        sentences.append(
            f"It is cut at {humanize.clock_in_zone(bucket.idle_at, now)} if no order comes ({limits['idle']}),"
        )
    if bucket.cap_at:
        start = "at" if read_at is not None and now - read_at <= STALE else "It is cut at"
        sentences.append(f"{start} {humanize.clock_in_zone(bucket.cap_at, now)} in any case ({limits['cap']}).")
    return sentences


def why_not_flush(bucket: Bucket) -> str:
    if bucket.held:
        return f"{bucket.location_id} is held: release it first."
    if not bucket.open_count:
        return f"Nothing waits at {bucket.location_id}."
    return f"A batch of {bucket.location_id} was asked for already."


def why_not_withdraw(event: BufferedEvent) -> str:
    if event.status == BufferedEvent.Status.CLAIMED:
        return f"Order {event.order_id} was put into a batch {humanize.ago(event.updated_at, timezone.now())}."
    if event.status == BufferedEvent.Status.SENT and (sent_at := _sent_at(event)):
        return f"Order {event.order_id} was sent {humanize.ago(sent_at, timezone.now())}."
    return f"Order {event.order_id} is {event.state} already."


def _sent_at(event: BufferedEvent) -> datetime | None:
    """When its batch was, as long as that is kept."""
    return Batch.objects.sent().filter(pk=event.batch_id).values_list("sent_at", flat=True).first()


def source_of(event: BufferedEvent) -> str:
    """`topic/partition/offset` of the message that is stored."""
    stream = streams().get(event.stream)
    topic = topic_name(stream.topic) if stream else event.stream
    return f"{topic}/{event.source_partition}/{event.source_offset}"


def months_kept() -> list[int]:
    """Partition keys of the months that are kept, newest first."""
    first, last = retained_months(timezone.now())
    months = []
    while last >= first:
        months.append(last)
        last -= 1 if last % 100 > 1 else 89
    return months


# -- Batches -----------------------------------------------------------------------------------------------
MOST_FOUND = 20
MONTHS_BEGUN = 4  # of orders whose ids are found by their beginning: the next month, this one and two before
MOST_EVENTS = 500  # on the page of a batch


class StateOfBatch(Segments):
    title = "state"
    parameter_name = "state"
    field = "status"
    words = {"claimed": "Waiting to publish", "sent": "Sent", "parked": "Dead letter", "discarded": "Discarded"}
    choices_in_words = [("all", "All"), *words.items()]


@admin.register(Batch)
class BatchAdmin(Revealing, ReadOnlyAdmin):
    place = 10
    keyset = Keyset("claimed_at", ties_opposed=True)
    list_display = ["batch", "state", "count_events", "rule", "cut", "went_to"]
    list_filter = [StateOfBatch]
    happened = ByTime("cut", "claimed_at")
    links = ["stream", "location_id", "batch_id"]
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste a batch id. Exact match, in every state."
    count_events = number_column("event_count", "Orders")
    cut = age_column("claimed_at", "Cut")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload", "headers", "event_ids")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """Each by its own index: (stream, location, sequence), (status, claimed_at), (-claimed_at)."""
        if "location_id" in changelist.params:
            return Keyset("sequence")
        return self.keyset if changelist.params.get("state", "all") == "all" else Keyset("claimed_at")

    @admin.display(description="Batch")
    def batch(self, row: Batch) -> str:
        line = '{}, no. {}<span class="sw-second sw-code">{}</span>'
        return format_html(line, row.location_id, f"{row.sequence:,}", row.batch_id)

    @admin.display(description="State")
    def state(self, row: Batch) -> str:
        return chip("publishing" if row.status == "claimed" else row.status)

    @admin.display(description="Rule")
    def rule(self, row: Batch) -> str:
        return row.reason.capitalize()

    @admin.display(description="Went to")
    def went_to(self, row: Batch) -> str:
        return went_to(row) or humanize.UNKNOWN

    def find(self, key: str) -> Iterable[Batch]:
        """By its id, which is also its trace, or by the trace of an order that it carries; a supplement by its letter's."""
        rows = Batch.objects.defer("payload", "headers", "event_ids")
        key = trace_id_in(key) or key
        if not is_uuid(key):
            return []
        carrying = BufferedEvent.objects.of_trace(key).values_list("batch_id", flat=True)[:MOST_FOUND]
        late = DeadLetter.objects.filter(trace_id=key, carrier__isnull=False).values_list("carrier", flat=True)
        return list(rows.filter(pk__in={key, *carrying, *late[:MOST_FOUND]}))

    def ranges(self) -> Iterable[tuple[models.QuerySet, str]]:
        """None on MariaDB, which orders ids of their kind (version 5) by the last digits: there it takes the whole id."""
        return () if is_mariadb(connection) else super().ranges()

    def detail(self, request: HttpRequest, row: Batch) -> dict[str, object]:
        sight, stream = self.sight(request, row), streams().get(row.stream)
        message = msgspec.json.decode(row.payload if sight.shown else masked(row.payload, *mask_of(row.stream)))
        # Of a stream that is gone nobody knows what it called them.
        items, orders = (message.get(stream.word(name) if stream else name, ()) for name in ("items", "order_ids"))
        rows = BufferedEvent.objects.in_months(row.months).filter(pk__in=row.event_ids[:MOST_EVENTS])
        buckets = Bucket.objects.filter(stream=row.stream, location_id=row.location_id)
        return {
            "title": f"Batch {row.sequence:,} for {row.location_id}",
            "state": "publishing" if row.status == "claimed" else row.status,
            "items": [[f"{value:,}" if isinstance(value, int) else value for value in item.values()] for item in items],
            "columns": list(items[0]) if items else [],
            "order_ids": orders if not row.event_ids else [],
            "events": list(rows.defer("payload").oldest_first()),
            "payload": sight.payload(row.payload, *mask_of(row.stream)),
            "size": len(row.payload.encode()),
            "sight": sight,
            "error": sight.error(row.error),
            "headers": [(name, sight.text(value)) for name, value in row.headers.items()],
            "went_to": went_to(row),
            "bucket": buckets.first(),
            "letters": list(DeadLetter.objects.filter(business_key=str(row.pk)).newest_first()[:MOST_FOUND]),
            "rule": rule_of(row),
        }


def went_to(row: Batch) -> str:
    """`topic/partition/offset`, empty until the broker acknowledged it."""
    if row.output_offset is None:
        return ""
    stream = streams().get(row.stream)
    return f"{topic_name(stream.output) if stream else row.stream}/{row.output_partition}/{row.output_offset}"


# -- Buckets -----------------------------------------------------------------------------------------------
NOUNS = ("warehouse", "warehouses")
FLUSH = Lever(
    name="flush", verb="Flush now", past="Asked for a batch of", icon="send",
    right="flush_bucket", keep="Not now",
    promise="Everything that waits there leaves with the next round of the flusher, seconds from now.",
    detail="An order that arrives later goes into the next batch; the warehouse gets one message more.",
    question="Flush", act=levers.flush_now,
    ready=BucketQuerySet.flushable,
    why_not=why_not_flush, nouns=NOUNS,
)  # fmt: skip
HOLD = Lever(
    name="hold", verb="Hold", past="Held", icon="pause", right="hold_bucket", keep="Let it run",
    promise="Nothing leaves until somebody releases it.",
    detail="Orders go on arriving and wait. A batch that is already cut is still published.",
    act=levers.hold, ready=BucketQuerySet.running,
    why_not=lambda row: f"{row.location_id} is held already.", nouns=NOUNS,
)  # fmt: skip
RELEASE = Lever(
    name="release", verb="Release", past="Released", icon="play", right="hold_bucket", keep="Keep holding",
    promise="What waits there is judged at once.",
    detail="Orders that waited longer than the cap leave with the next round of the flusher.",
    act=levers.release, ready=BucketQuerySet.held,
    why_not=lambda row: f"{row.location_id} is not held.", nouns=NOUNS,
)  # fmt: skip
RECENT_BATCHES = 10
OPEN_EVENTS = 50


class StateOfBucket(Segments):
    title = "show"
    parameter_name = "state"
    choices_in_words = [("waiting", "Waiting"), ("held", "Held"), ("all", "All")]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet) -> models.QuerySet:
        if self.chosen() == "waiting":
            return queryset.filter(due_at__isnull=False)
        return queryset.filter(held=True) if self.chosen() == "held" else queryset


@admin.register(Bucket)
class BucketAdmin(ReadOnlyAdmin):
    place = 20
    levers = (FLUSH, HOLD, RELEASE)
    list_display = ["location_id", "state", "count_open", "oldest", "newest", "next_look"]
    list_filter = [StateOfBucket]
    begins = ["location_id"]
    search_fields = ["pk"]
    search_help_text = "Paste a location id, capitals included. Exact match."
    empty = ("Nothing waits", "A warehouse appears here with its first order, and leaves when its batch is cut.")
    count_open = number_column("open_count", "Orders")
    oldest = age_column("first_arrival", "Oldest")
    newest = age_column("last_arrival", "Newest")

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        waiting = changelist.params.get("state", "waiting") == "waiting"
        return Keyset("due_at", descending=False, back="Sooner", on="Later") if waiting else Keyset()

    @admin.display(description="State")
    def state(self, row: Bucket) -> str:
        return chip(state_of(row, timezone.now()))

    @admin.display(description="Next look")
    def next_look(self, row: Bucket) -> str:
        now = timezone.now()
        if row.due_at is None or row.due_at > now:
            return moment(row.due_at, humanize.ago(row.due_at, now))
        return moment(row.due_at, "now")

    def find(self, key: str) -> Iterable[Bucket]:
        return list(Bucket.objects.filter(stream__in=list(streams()), location_id=key)[:MOST_FOUND])

    def ranges(self) -> Iterable[tuple[models.QuerySet, str]]:
        """One for each stream, which its index begins with."""
        return [(Bucket.objects.of_stream(stream), "location_id") for stream in streams()]

    def detail(self, request: HttpRequest, row: Bucket) -> dict[str, object]:
        now = timezone.now()
        batches = Batch.objects.filter(stream=row.stream, location_id=row.location_id).order_by("-sequence")
        events = BufferedEvent.objects.pending().at(row.stream, [row.location_id]).oldest_first()
        query = urlencode({"stream": row.stream, "location_id": row.location_id})
        return {
            "state": state_of(row, now),
            "why": why(row, now),
            "batches": list(batches.defer("payload", "headers", "event_ids")[:RECENT_BATCHES]),
            "batches_url": f"{reverse('admin:buffer_batch_changelist')}?{query}",
            "events": list(events.defer("payload")[:OPEN_EVENTS]),
            "events_url": f"{reverse('admin:buffer_bufferedevent_changelist')}?{query}&status=pending",
            "stream": streams().get(row.stream),
        }


# -- Orders ------------------------------------------------------------------------------------------------
WITHDRAW = Lever(
    name="withdraw", verb="Withdraw", past="Withdrew", icon="ban",
    right="withdraw_bufferedevent", keep="Leave it in",
    nouns=("order", "orders"),
    promise="It will not be in the next batch.",
    detail="A withdrawn order stays in search and is marked, not deleted. A batch that is cut in the meantime wins.",
    act=levers.withdraw, ready=EventQuerySet.pending,
    why_not=why_not_withdraw, harm=True, least=10,
)  # fmt: skip


@admin.register(BufferedEvent)
class BufferedEventAdmin(Revealing, ReadOnlyAdmin):
    place = 30
    levers = (WITHDRAW,)
    list_display = ["order_id", "state", "location_id", "version", "position", "arrived"]
    links = ["stream", "location_id", "status"]
    happened = ByNumber("arrived", "created_at")
    begins = ["order_id"]
    search_fields = ["pk"]
    search_help_text = (
        "Paste an order id, capitals included. Exact match, in all months that are kept; a beginning in the last 3."
    )
    arrived = age_column("created_at", "Arrived")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload")

    @admin.display(description="State")
    def state(self, row: BufferedEvent) -> str:
        return chip(row.state)

    @admin.display(description="Version")
    def version(self, row: BufferedEvent) -> str:
        return "first" if not row.revision else f"replaced {humanize.plural(row.revision, 'time', 'times')}"

    @admin.display(description="Source")
    def position(self, row: BufferedEvent) -> str:
        return format_html('<span class="sw-code">{}</span>', source_of(row))

    def find(self, key: str) -> Iterable[BufferedEvent]:
        # The whole unique key but its last column: without months and streams this would be a scan.
        rows = BufferedEvent.objects.in_months(months_kept()).filter(stream__in=list(streams()), order_id=key)
        traced = BufferedEvent.objects.of_trace(key).defer("payload")[:MOST_FOUND]
        return [*rows.defer("payload")[:MOST_FOUND], *traced]

    def ranges(self) -> Iterable[tuple[models.QuerySet, str]]:
        """One for each stream and each of the newest months: the index begins with both."""
        months = months_kept()[AHEAD - 1 :][:MONTHS_BEGUN]
        rows = BufferedEvent.objects.all()
        return [(rows.in_months([month]).of_stream(name), "order_id") for month in months for name in streams()]

    def detail(self, request: HttpRequest, row: BufferedEvent) -> dict[str, object]:
        batches = Batch.objects.defer("payload", "headers", "event_ids")
        batch, sight = batches.filter(pk=row.batch_id).first(), self.sight(request, row)
        letters = list(DeadLetter.objects.filter(business_key=row.order_id).newest_first()[:MOST_FOUND])
        return {
            "title": f"Order {row.order_id}",
            "batch": batch,
            "source": source_of(row),
            "bucket": Bucket.objects.filter(stream=row.stream, location_id=row.location_id).first(),
            "letters": letters,
            "set_aside": next((letter for letter in letters if _is_set_aside(row, letter)), None),
            "payload": sight.payload(row.payload, *mask_of(row.stream)),
            "size": len(row.payload.encode()),
            "sight": sight,
            "retention_months": settings.BUFFER_RETENTION_MONTHS,
        }


def _is_set_aside(row: BufferedEvent, letter: DeadLetter) -> bool:
    """Whether this letter, and not a person, took the order out."""
    place = (letter.topic_id, letter.partition, letter.offset)
    here = place == (row.topic_id, row.source_partition, row.source_offset)
    return row.state == "withdrawn" and letter.step == CUT and here and letter.status in ("open", "discarded")
