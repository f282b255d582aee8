"""Conservation of the buffer: every record read is accounted for, every batch is whole, Kafka agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, F, Q, Sum

from buffer.events.models import Batch, BatchQuerySet, Bucket, BufferedEvent
from buffer.flush.batch_letters import PUBLISH
from buffer.flush.freeze import content_hash
from buffer.ingest.rebuild import is_under_way
from buffer.partitioned import BATCHES_SWEPT, EVENTS
from buffer.streams import GROUP, Stream
from buffer.streams import streams as all_streams
from config.database.clock import database_now
from config.database.isolation import consistent_snapshot
from config.database.queries import by_key
from config.flows import Check
from config.kafka import Record, topic_name
from config.kafka.positions import TopicPartition
from config.kafka.reader import Reader
from config.payload import digest
from outbox.bookkeeping import counters
from outbox.bookkeeping.counters import dropped_rows
from outbox.bookkeeping.verify import (
    OFFENDERS,
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
    positions_fit_the_log,
)
from outbox.letters.models import BurialKey, DeadLetter
from outbox.letters.verify import letters_counted

CHUNK = 500
OUTCOMES = ("accepted", "redelivered", "superseded", "late", "parked")


def checks(streams: list[str]) -> Iterator[Check]:
    """All invariants, in one snapshot."""
    with consistent_snapshot():
        # The events are read first: a month that is being dropped is then waited for. PostgreSQL would
        # otherwise show an older snapshot the counters from before the drop and an empty month.
        rows = {stream: _rows_by_status(stream) for stream in streams}
        for stream in streams:
            yield from _of_stream(stream, rows[stream])
            yield from batch_checks(stream)
        yield letters_counted(streams)


def payload_checks() -> Iterator[Check]:
    """Each payload against the digest beside it: a row for itself, so no snapshot is needed."""
    yield _every_order_is_as_it_came()
    yield every_batch_is_as_it_was_frozen()


def kafka_checks(streams: Iterable[Stream]) -> Iterator[Check]:
    for stream in streams:
        yield positions_fit_the_log(stream.name, topic_name(GROUP), [topic_name(stream.topic)])
        yield _sent_batches_are_in_the_topic(stream)


# -- Orders ------------------------------------------------------------------------------------------------
def _rows_by_status(stream: str) -> dict[str, int]:
    """`{status: rows}` with one look at the unsent batches instead of one for each order."""
    events = BufferedEvent.objects.of_stream(stream)
    unsent = events.in_batches(Batch.objects.unsent()).count()
    rows = Counter({status: number for (_, status), number in events.counted().items()})
    return rows + Counter(claimed=unsent) - Counter(sent=unsent)


def _of_stream(stream: str, rows: dict[str, int]) -> Iterator[Check]:
    yield every_record_has_an_outcome(stream, OUTCOMES)
    totals = counters.totals(stream)
    accepted = f"{stream}: accepted = pending + claimed + sent + discarded + dropped"
    yield Check(accepted, totals.get("accepted", 0), sum(rows.values()) + dropped_rows(stream, EVENTS))
    yield Check(f"{stream}: open counter = pending rows", totals.get("open", 0), rows.get("pending", 0))
    unsent = Batch.objects.unsent().of_streams([stream]).filter(supplement_of=None)
    in_batches = unsent.aggregate(total=Sum("event_count"))["total"]
    yield Check(f"{stream}: claimed rows = orders of unsent batches", in_batches or 0, rows.get("claimed", 0))
    yield _every_order_has_its_batch(stream)
    yield _buckets_match(stream)
    yield _every_full_bucket_is_looked_at(stream)
    yield _one_row_per_order(stream)
    yield every_position_is_kept(stream, topic_name(GROUP), partial(_place_of, stream))
    yield no_partition_is_stopped(stream, topic_name(GROUP), [topic_name(all_streams()[stream].topic)])


def _place_of(stream: str, scope: str) -> TopicPartition | None:
    return (topic_name(all_streams()[stream].topic), int(scope)) if scope.isdigit() else None


def _every_order_has_its_batch(stream: str) -> Check:
    """An order whose batch was deleted reads as sent, so a batch must be kept as long as its newest month."""
    oldest = EVENTS.oldest(database_now().date())
    orphaned = BufferedEvent.objects.of_stream(stream).orphaned(
        Batch.objects.all(), EVENTS.value(oldest) if oldest else 0
    )
    orders = orphaned.values("order_id", "location_id", "batch_id")[:OFFENDERS]
    return Check(f"{stream}: every claimed or sent order has its batch", rows=list(orders))


def _buckets_match(stream: str) -> Check:
    pending = BufferedEvent.objects.pending().of_stream(stream).per_location()
    counted = dict(Bucket.objects.of_stream(stream).filled().values_list("location_id", "open_count"))
    offenders = [
        {"location": location, "bucket": counted.get(location, 0), "rows": pending.get(location, 0)}
        for location in sorted(pending.keys() | counted.keys())
        if counted.get(location, 0) != pending.get(location, 0)
    ]
    name = f"{stream}: every bucket counts its pending rows"
    return Check(name, sum(counted.values()), sum(pending.values()), offenders[:OFFENDERS])


GRACE = timedelta(minutes=1)


def _every_full_bucket_is_looked_at(stream: str) -> Check:
    """Nobody looks at a bucket without a time, and not soon enough at one whose time lies behind its cap."""
    filled = Bucket.objects.of_stream(stream).filled().running()
    latest = database_now() + all_streams()[stream].idle + GRACE
    late = filled.filter(due_at__gt=F("cap_at")).filter(due_at__gt=latest)
    lost = filled.filter(due_at=None) | late
    rows = lost.order_by("pk").values("location_id", "open_count", "due_at")[:OFFENDERS]
    return Check(f"{stream}: every filled bucket is held or due", rows=[] if is_under_way(stream) else list(rows))


def _one_row_per_order(stream: str) -> Check:
    orders = BufferedEvent.objects.of_stream(stream).values("order_id", "location_id")
    twice = orders.annotate(number=Count("id")).filter(number__gt=1).order_by()
    return Check(f"{stream}: no order in two months", rows=list(twice[:OFFENDERS]))


def _every_order_is_as_it_came() -> Check:
    orders = BufferedEvent.objects.values_list("pk", "payload_hash", "payload", "order_id", "location_id")
    changed = [
        {"order": order, "location": location}
        for chunk in by_key(orders, CHUNK)
        for _, known, payload, order, location in chunk
        if digest(payload.encode()) != known
    ]
    return Check("buffer: every order has the payload that was taken", rows=changed[:OFFENDERS])


# -- Batches -----------------------------------------------------------------------------------------------
def batch_checks(stream: str) -> Iterator[Check]:
    """Those of one stream; in the caller's snapshot."""
    batches = Batch.objects.of_streams([stream])
    yield _status_fits(stream, batches)
    yield _sent_was_counted(stream, batches)
    yield _refused_has_a_letter(stream, batches)
    yield _open_letters_are_parked(stream, batches)
    yield _discarded_with_its_orders(stream, batches)


def _status_fits(stream: str, batches: BatchQuerySet) -> Check:
    """Place and time exactly when it was sent; a lease only while it is to be sent."""
    nowhere = Q(output_partition=None) | Q(output_offset=None) | Q(sent_at=None)
    somewhere = Q(output_partition__isnull=False) | Q(output_offset__isnull=False) | Q(sent_at__isnull=False)
    wrong = batches.filter(
        Q(nowhere, status="sent")
        | Q(somewhere, status__in=["claimed", "parked", "discarded"])
        | Q(lease_token__isnull=False, status__in=["sent", "parked", "discarded"])
    )
    rows = wrong.order_by("pk").values("batch_id", "status", "output_offset", "sent_at")[:OFFENDERS]
    return Check(f"{stream}: every sent batch, and no other, knows where it went", rows=list(rows))


def _sent_was_counted(stream: str, batches: BatchQuerySet) -> Check:
    """As many as flushers have marked; which one was changed by hand, the other checks may tell."""
    totals = counters.totals(stream)
    there = batches.sent().count() + totals.get(BATCHES_SWEPT, 0)
    return Check(f"{stream}: batches sent = sent batches + swept by retention", totals.get("batches_sent", 0), there)


def _refused_has_a_letter(stream: str, batches: BatchQuerySet) -> Check:
    """A batch is parked or discarded only after the broker refused it; burial keys are kept for ever."""
    refused = batches.filter(status__in=["parked", "discarded"]).values_list("pk", "status")
    lost: list[dict[str, str]] = []
    for chunk in by_key(refused, CHUNK):
        letters = BurialKey.objects.filter(group="", topic_id__in=[str(pk) for pk, _ in chunk])
        known = set(letters.values_list("topic_id", flat=True))
        lost += [{"batch": str(pk), "status": status} for pk, status in chunk if str(pk) not in known]
    return Check(f"{stream}: no batch is refused or discarded without a letter", rows=lost[:OFFENDERS])


def _open_letters_are_parked(stream: str, batches: BatchQuerySet) -> Check:
    """A refused batch is published again only after its letter was taken back."""
    early: list[str] = []
    for chunk in by_key(batches.claimed().values_list("pk"), CHUNK):
        letters = DeadLetter.objects.open().filter(step=PUBLISH, business_key__in=[str(pk) for (pk,) in chunk])
        early += letters.values_list("business_key", flat=True)
    return Check(f"{stream}: no batch waits whose letter is open", rows=sorted(early)[:OFFENDERS])


def _discarded_with_its_orders(stream: str, batches: BatchQuerySet) -> Check:
    """An order whose batch is discarded would read as sent."""
    discarded = batches.filter(status="discarded")
    orders = BufferedEvent.objects.of_stream(stream).in_batches(discarded) if discarded.exists() else None
    rows = [] if orders is None else list(orders.values("order_id", "location_id", "batch_id")[:OFFENDERS])
    return Check(f"{stream}: a batch is discarded with its orders", rows=rows)


BATCHES_AT_ONCE = 100  # a batch has up to a megabyte


def every_batch_is_as_it_was_frozen() -> Check:
    """Those cut before there was a digest are left out."""
    frozen = Batch.objects.exclude(content_hash="").values_list("pk", "content_hash", "payload", "headers")
    changed = [
        {"batch": str(pk)}
        for chunk in by_key(frozen, BATCHES_AT_ONCE)
        for pk, known, payload, headers in chunk
        if content_hash(payload, headers) != known
    ]
    return Check("buffer: every batch has the bytes that were frozen", rows=changed[:OFFENDERS])


# -- Batches in Kafka --------------------------------------------------------------------------------------
# A producer's clock, and the time between sending and settling.
TOLERANCE = timedelta(minutes=5)
LATEST_MS = 253_402_300_800_000  # the year 10000: a foreign record may say any time


@dataclass
class Published:
    """What the output topic holds: a digest for each place, about 150 bytes a batch."""

    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    digests: dict[TopicPartition, dict[int, str]] = field(default_factory=dict)
    oldest: datetime | None = None

    @classmethod
    def of(cls, topic: str) -> Published:
        with Reader(topic) as reader:
            published = cls(reader.begins, reader.ends)
            for records in reader.batches():
                published.add(records)
        return published

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.digests.setdefault((record.topic, record.partition), {})[record.offset] = _digest_of(record)
            if dict(record.headers or ()).get("batch_id") and 0 <= record.timestamp < LATEST_MS:
                written = datetime.fromtimestamp(record.timestamp / 1000, UTC)
                self.oldest = min(self.oldest or written, written)

    def is_gone(self, place: TopicPartition, offset: int, sent_at: datetime) -> bool:
        """Whether nobody can tell any more: the log begins later, or the topic was made later."""
        older = self.oldest is not None and sent_at < self.oldest - TOLERANCE
        return older or offset < self.begins.get(place, 0)


class BatchInTopic(NamedTuple):
    """A sent batch, as far as this asks: the fields are its columns."""

    pk: UUID
    output_partition: int
    output_offset: int
    sent_at: datetime | None
    content_hash: str


def _digest_of(record: Record) -> str:
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers or ()}
    return content_hash((record.value or b"").decode("utf-8", "replace"), headers)


def _sent_batches_are_in_the_topic(stream: Stream) -> Check:
    """Each stands where its row says, with the frozen bytes; those older than the topic's log are left out."""
    topic = topic_name(stream.output)
    published = Published.of(topic)
    looked_for = 0
    missing: list[BatchInTopic] = []
    for batch in _sent(stream):
        place = (topic, batch.output_partition)
        if batch.sent_at and published.is_gone(place, batch.output_offset, batch.sent_at):
            continue
        looked_for += 1
        if published.digests.get(place, {}).get(batch.output_offset) != (batch.content_hash or _computed(batch.pk)):
            missing.append(batch)
    later = _sent_since(topic, published, missing)
    rows = [
        {"batch": str(batch.pk), "topic": topic, "partition": batch.output_partition, "offset": batch.output_offset}
        for batch in missing
        if batch not in later
    ]
    name = f"{stream.name}: every sent batch stands in {topic} where its row says"
    return Check(name, looked_for - len(later), looked_for - len(missing), rows[:OFFENDERS])


def _sent_since(topic: str, published: Published, missing: list[BatchInTopic]) -> list[BatchInTopic]:
    """Those that came after the topic was read, and are in the log by now."""
    if not missing:
        return []
    with Reader(topic) as reader:
        ends = reader.ends
    return [
        batch
        for batch in missing
        for place in [(topic, batch.output_partition)]
        if published.ends.get(place, 0) <= batch.output_offset < ends.get(place, 0)
    ]


def _sent(stream: Stream) -> Iterator[BatchInTopic]:
    rows = Batch.objects.sent().of_streams([stream.name]).exclude(output_offset=None).values_list(*BatchInTopic._fields)
    for chunk in by_key(rows, CHUNK):
        yield from map(BatchInTopic._make, chunk)


def _computed(batch_id: UUID) -> str:
    """Of a batch that was frozen before its digest was kept."""
    row = Batch.objects.filter(pk=batch_id).values_list("payload", "headers").first()
    return content_hash(*row) if row else ""
