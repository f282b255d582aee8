"""Rebuild an empty buffer from Kafka; no order is sent twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.db import transaction

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.ingest.after_restore import Regain, read_sent
from buffer.ingest.handler import Ingest
from buffer.partitioned import BATCHES_SWEPT
from buffer.streams import GROUP, Stream, streams
from config.database.clock import database_now
from config.database.queries import delete_in_chunks
from config.database.tables import require_tables
from config.kafka import Mark, topic_name
from config.kafka import RecordBatch as Records
from config.kafka.reader import Reader
from config.letters import Refusal
from outbox.bookkeeping.models import FlowCounter
from outbox.bookkeeping.watermarks import Watermarks

UNDER_WAY = "rebuild"
Say = Callable[[str], None]


@dataclass
class Rebuilt:
    """What a rebuild found: records read, orders that had been sent, orders that wait again."""

    stream: str
    records: int = 0
    sent: int = 0
    pending: int = 0


def rebuild(say: Say, *, dry_run: bool = False) -> list[Rebuilt]:
    """Rebuild every stream; raises Refusal when its buffer holds anything but an interrupted rebuild."""
    require_tables()
    return [_rebuild(stream, say, dry_run) for stream in streams().values()]


def _rebuild(stream: Stream, say: Say, dry_run: bool) -> Rebuilt:
    result = Rebuilt(stream.name)
    with Reader(topic_name(stream.topic)) as reader:
        say(f"{stream.name}: reading {topic_name(stream.output)} for what was sent")
        sent = read_sent(stream, reader.topic_id)
        result.sent = len(sent.versions)
        if sent.foreign:
            say(f"{stream.name}: {sent.foreign} records of {topic_name(stream.output)} are no batches of ours: skipped")
        if dry_run:
            result.records = reader.total
            say(f"{stream.name}: {reader.total} records to read, {result.sent} orders already sent; nothing changed")
            return result
        _start_over(stream)
        handler = Ingest(stream)
        handler.regaining = Regain(sent, dict(reader.ends))
        for records in reader.batches():
            _store(handler, Records(records, {reader.topic: reader.topic_id}))
            result.records += len(records)
            say(f"{stream.name}: {result.records} of {reader.total} records")
        _finish(stream, reader)
    result.pending = BufferedEvent.objects.of_stream(stream.name).pending().count()
    return result


def _store(handler: Ingest, batch: Records) -> None:
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        now = database_now()
        handler.write(batch, now)
        # Nothing is due before all is read: a flusher that runs meanwhile must find nothing.
        Bucket.objects.of_stream(handler.name).update(due_at=None)
        Watermarks().advance(topic_name(GROUP), batch.marks, now)


def is_under_way(stream: str) -> bool:
    """Whether a rebuild has begun and not ended: until then no bucket is due."""
    return FlowCounter.objects.filter(flow=stream, scope=UNDER_WAY).exists()


def _start_over(stream: Stream) -> None:
    """Begin with nothing: refuse a buffer in use, clear what an interrupted rebuild left."""
    marker = FlowCounter.objects.filter(flow=stream.name, scope=UNDER_WAY)
    events = BufferedEvent.objects.of_stream(stream.name)
    if events.exists() and not marker.exists():
        raise Refusal(
            f"{stream.name}: the buffer is not empty; a rebuild starts from an empty one (stop the workers, "
            "empty buffer_bufferedevent, buffer_bucket and buffer_batch, then run it again)"
        )
    delete_in_chunks(events)
    with transaction.atomic():
        Bucket.objects.of_stream(stream.name).empty()
        Batch.objects.of_streams([stream.name]).claimed().delete()
        FlowCounter.objects.filter(flow=stream.name).delete()
        FlowCounter.objects.create(flow=stream.name, scope=UNDER_WAY, name=UNDER_WAY, value=1)
        sent = Batch.objects.sent().of_streams([stream.name]).count()
        # The counters begin with nothing; batches that stand there were counted by those that are gone.
        FlowCounter.objects.create(flow=stream.name, scope="flush", name=BATCHES_SWEPT, value=-sent)


def _finish(stream: Stream, reader: Reader) -> None:
    """Make the buckets due, and store that everything below the ends has been read."""
    with transaction.atomic():
        now = database_now()
        marks = {tp: Mark(reader.topic_id, end) for tp, end in reader.ends.items()}
        Watermarks().reset(topic_name(GROUP), marks, now)  # whatever topic of that name was read before
        Bucket.objects.of_stream(stream.name).filled().running().update(due_at=now + stream.idle)
        FlowCounter.objects.filter(flow=stream.name, scope=UNDER_WAY).delete()
