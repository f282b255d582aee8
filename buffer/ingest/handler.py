"""Ingestion: a polled batch becomes open events, refreshed buckets, counters and dead letters."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from django.conf import settings
from django.db import transaction

from buffer.events.arrivals import NEWER, OrderKey, arrive, recount_buckets
from buffer.events.models import BufferedEvent
from buffer.ingest.after_restore import Regain, mark_sent, read_sent, unknown_batches
from buffer.ingest.batch import REASONS, Changed, OrderClassifier, Prepared, Row, StoredBatch, StoredOrder, position
from buffer.partitioned import retained_months
from buffer.streams import GROUP, Stream
from config.database.clock import database_now
from config.database.retry import Stale
from config.database.upsert import Packed, Rewrite, Upsert, new
from config.gate import InvalidRecord, texts_in
from config.kafka import Record, RecordBatch, topic_name
from config.kafka.consumer.writer import Replayable
from config.kafka.records import header_text
from config.payload import digest
from config.telemetry import metrics, tracing
from config.telemetry.logs import MOST_IDS, RowIds, log, log_committed
from outbox.bookkeeping import counters
from outbox.letters.burial import Letter, LetterHandler, bury

EVENTS = Upsert(
    BufferedEvent,
    columns=(
        "partition_key order_id location_id payload_hash source_partition source_offset source_timestamp traceparent payload"
    ),
    constants="stream status topic_id revision seen_topic_id seen_hash created_at updated_at",
    key="partition_key stream order_id location_id",
    update={
        "revision": "old.revision + 1",
        **new("payload payload_hash topic_id source_partition source_offset source_timestamp traceparent updated_at"),
    },
    # A redelivered v1 must not overwrite v2, and nothing overwrites what a batch has claimed.
    guard=f"old.status = 'pending' AND {NEWER}",
    token="token",
    returning="partition_key order_id location_id revision source_partition",
    prune="partition_key",
)
NEW_EVENT = {"status": BufferedEvent.Status.PENDING.value, "revision": 0, "seen_topic_id": "", "seen_hash": ""}
# Both places, under the payload that the row was classified by.
SEEN = Rewrite(
    BufferedEvent,
    key="partition_key order_id location_id",
    changes=(
        "payload_hash topic_id source_partition source_offset source_timestamp "
        "seen_topic_id seen_partition seen_offset seen_timestamp seen_hash"
    ),
    fixed="stream",
    guard="old.payload_hash = new.payload_hash",
    prune="partition_key",
)
LOW_WATER = 0.8  # of BUFFER_HIGH_WATER


class Ingest(LetterHandler, Replayable):
    """The consumer's handler for one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = self.source = stream.name
        self.group = GROUP
        self.topics = [stream.topic]
        self._pressed = False
        self.regaining: Regain | None = None  # only while records are read again after a restore

    # -- on the polling thread ------------------------------------------------------------------------

    def prepare(self, batch: RecordBatch) -> Prepared:
        """Decode, and keep the newest record of each order."""
        prepared = Prepared()
        gate, month_of = self.stream.gate, self.stream.month_of
        first, last = retained_months(datetime.fromtimestamp(time.time(), UTC))
        rows, records = prepared.rows, prepared.records
        for record in batch.records:
            try:
                value = gate.opened(record.value)
                message = gate.judge(value)
            except InvalidRecord as refusal:
                prepared.letters.append(self.letter(batch, record, "decode", refusal.reason, str(refusal)))
                continue
            month = month_of(message)
            if month < first and batch.from_log:
                prepared.outside[record.partition] += 1
                continue
            if not first <= month <= last:
                text = f"ordered_at is outside the window {first} … {last} that the buffer keeps"
                prepared.letters.append(self.letter(batch, record, "window", "outside_window", text, message.order_id))
                continue
            key = (month, message.order_id, message.location_id)
            text = value.decode() if value else ""
            place = (record.partition, record.offset, record.timestamp)
            row = (*key, digest(value), *place, tracing.traceparent_in(record.headers) or None, text)
            known = rows.get(key)
            if known is None:
                rows[key] = row
                records[key] = [(row, record)]
            else:
                records[key].append((row, record))
                prepared.repeated.add(key)
                if position(row, "").newer_than(position(known, "")):
                    rows[key] = row
        prepared.ordered = Packed(sorted(rows.values()))  # by their keys: no two are the same
        prepared.read.update([record.partition for record in batch.records])
        prepared.read.subtract(prepared.outside)
        return prepared

    def keys_of(self, batch: RecordBatch) -> Iterable[Hashable]:
        """The orders of a prepared batch."""
        return batch.prepared.records

    def key_in(self, record: Record) -> str:
        return next(iter(texts_in(self.stream.gate.readable(record.value), self.stream.locked[:1])), "")

    # -- on the writer's thread, inside its transaction ------------------------------------------------

    def write(self, batch: RecordBatch, now: datetime) -> None:
        outcome = self.apply(batch, now)
        batch.tally = outcome.tally(batch) if batch.from_log else batch.tally

    def apply(self, batch: RecordBatch, now: datetime) -> StoredBatch:
        """Store a prepared batch: events first; says what became of its records.

        Then the rows that workers share: buckets in sorted order, letters and their groups, counters. Two
        workers therefore never deadlock.
        """
        outcome = StoredBatch()
        regaining = self.regaining
        if regaining is None or not regaining.is_about(_topic_id(batch)):
            self._store(batch, outcome, now)
        else:
            self._store_again(batch, regaining, outcome, now)
        arrive(self.stream, outcome.arrivals, now)  # a redelivery resets no timer
        recounted = recount_buckets(self.stream, outcome.settled, now)
        outcome.settle_letters(bury(outcome.letters, topic_name(self.group), now))
        self._count(outcome, batch.revision, now, recounted)
        self._log(batch, outcome)
        return outcome

    def _log(self, batch: RecordBatch, outcome: StoredBatch) -> None:
        """One line of the transaction: what became of its records, and which orders are new or have a newer version."""
        results: Counter[str] = Counter()
        for (_partition, result), number in outcome.outcomes.items():
            results[result] += number
        rows, records = batch.prepared.rows, batch.prepared.records
        newest = [dict(records[key])[rows[key]].headers for key in outcome.touched[:MOST_IDS]]
        traces = [(header_text(headers, "correlation_id"), tracing.traceparent_in(headers)) for headers in newest]
        ids = RowIds(traces, correlation_id=0, trace_id=1) | RowIds(outcome.touched, order_id=1, location_id=2)
        about = {"stream": self.name, "records": len(batch.records), "outcomes": dict(results)}
        log_committed("orders_stored", **about, orders=len(outcome.touched), ids=ids)

    def _store_again(self, batch: RecordBatch, regaining: Regain, outcome: StoredBatch, now: datetime) -> None:
        """After a restore, in two steps: up to the version that was sent, then what came after it."""
        before, after = regaining.split(batch)
        before.prepared, after.prepared = self.prepare(before), self.prepare(after)
        # Only orders that this batch has just changed: their buckets are locked by their arrivals, in order.
        changed = self._store(before, outcome, now)
        outcome.settled = mark_sent(self.stream, changed, regaining.sent, now)
        self._store(after, outcome, now)
        # Not before the commit: a batch that is run again must find what was sent once more.
        transaction.on_commit(partial(self._close_gaps, regaining, batch))

    def _close_gaps(self, regaining: Regain, batch: RecordBatch) -> None:
        if regaining.close(batch.ends):
            self.regaining = None

    def _store(self, batch: RecordBatch, outcome: StoredBatch, now: datetime) -> Iterable[OrderKey]:
        """Bring the events up to date; returns the keys of the rows that changed.

        1. One guarded upsert; what it returns was inserted or updated.
        2. Whatever it left alone is read back and classified: redelivered, late, or a conflict.
        """
        prepared: Prepared = batch.prepared
        topic_id = _topic_id(batch)
        rows = prepared.ordered
        constants = {"stream": self.name, "topic_id": topic_id, "created_at": now, "updated_at": now}
        changed = self._settle_changed(prepared, EVENTS.run(rows, {**NEW_EVENT, **constants}), outcome)
        outcome.letters += prepared.letters
        if len(changed) < len(rows):
            known = set(changed)
            left = [row for row in rows if row[:3] not in known]
            outcome.letters += self._classify(batch, left, topic_id, outcome)
        for letter in prepared.letters:
            outcome.outcomes[letter.record.partition, "parked"] += 1
        outcome.read += prepared.read
        outcome.outside += prepared.outside.total()
        outcome.touched += changed
        return changed

    def _settle_changed(self, prepared: Prepared, rows: list[Changed], outcome: StoredBatch) -> list[OrderKey]:
        """Count inserted and updated rows, and the new events of each location; returns the keys."""
        outcomes, arrivals = outcome.outcomes, outcome.arrivals
        changed: list[OrderKey] = [row[:3] for row in rows]
        new = [row for row in rows if row[3] == 0]
        accepted = Counter([row[4] for row in new])
        for partition, number in Counter([row[4] for row in rows]).items():
            outcomes[partition, "accepted"] += accepted[partition]
            outcomes[partition, "superseded"] += number - accepted[partition]
        for key in prepared.repeated.intersection(changed):
            for row, _record in prepared.records[key]:
                outcomes[row[4], "superseded"] += 1
            outcomes[prepared.rows[key][4], "superseded"] -= 1
        numbers = Counter([row[2] for row in new])
        for location, partition in {row[2]: row[4] for row in rows}.items():
            arrivals[location] = (arrivals.get(location, (0, 0))[0] + numbers[location], partition)
        return changed

    def _classify(self, batch: RecordBatch, rows: list[Row], topic_id: str, outcome: StoredBatch) -> list[Letter]:
        """Classify every record of the orders that the upsert left alone, oldest first; returns their letters."""
        letters: list[Letter] = []
        seen: list[Sequence[object]] = []
        for stored in EVENTS.read(EVENTS.keys_of(rows), StoredOrder._fields, {"stream": self.name}):
            order, key = OrderClassifier(StoredOrder._make(stored)), stored[:3]
            for row, record in batch.prepared.records[key]:
                verdict = order.verdict(position(row, topic_id), row[3])
                outcome.outcomes[row[4], "redelivered" if verdict == "redelivered" else "late"] += 1
                if verdict != "redelivered":
                    letters.append(self.letter(batch, record, "late", verdict, REASONS[verdict], row[1]))
            if order.changed:
                seen.append((*key, order.stored.payload_hash, *order.source, *order.seen, order.seen_hash))
                outcome.touched.append(key)
        if SEEN.run(seen, {"stream": self.name}, prune=sorted({row[0] for row in seen})) != len(seen):
            raise Stale("an order has changed since it was classified")
        return letters

    def _count(self, outcome: StoredBatch, revision: int, now: datetime, recounted: int = 0) -> None:
        outcomes = outcome.outcomes
        counts = {(self.name, str(partition), name): number for (partition, name), number in outcomes.items()}
        for partition, number in outcome.read.items():
            counts[self.name, str(partition), "replayed" if revision else "read"] = number
            if accepted := outcomes[partition, "accepted"]:
                counts[self.name, str(partition), "open"] = accepted
        counts[self.name, "recounted", "open"] = recounted
        counters.add(counts, now)
        for (_partition, name), number in outcomes.items():
            metrics.INGESTED.labels(self.name, name).inc(number)

    def count_parked(self, batch: RecordBatch, record: Record, now: datetime, *, new: bool) -> None:
        at = record.partition
        outcome = "parked" if new else "redelivered"
        self._count(StoredBatch(Counter([at]), Counter([(at, outcome)])), batch.revision, now)

    # -- around it --------------------------------------------------------------------------------------

    def regain(self, topic_ids: Mapping[str, str], gaps: Mapping[tuple[str, int], int]) -> None:
        """The database is older than the group's offsets: read in the output topic what has been sent.

        Records below `gaps` are compared with it, and orders that were pending in the backup are marked at once.
        """
        topic_id = topic_ids.get(topic_name(self.stream.topic), "")
        sent = read_sent(self.stream, topic_id)
        known = self.regaining.gaps if self.regaining and self.regaining.is_about(topic_id) else {}
        known.update(gaps)  # in place: a batch under way may close one
        self.regaining = Regain(sent, known, topic_id)
        log.warning("database_restored", stream=self.name, batches_sent_since=len(unknown_batches(sent)))
        with transaction.atomic():
            now = database_now()
            pending = BufferedEvent.objects.pending().of_stream(self.name).of_topic(topic_id)
            keys = list(pending.values_list("partition_key", "order_id", "location_id"))
            recounted = recount_buckets(self.stream, mark_sent(self.stream, keys, sent, now), now)
            counters.add({(self.name, "recounted", "open"): recounted}, now)

    def pressure(self) -> bool:
        """True above the high-water mark, until the buffer is down to the low one."""
        opened = counters.totals(self.name).get("open", 0)
        limit = settings.BUFFER_HIGH_WATER * (LOW_WATER if self._pressed else 1)
        self._pressed = opened >= limit
        return self._pressed


def _topic_id(batch: RecordBatch) -> str:
    """Of the one topic that a stream reads."""
    return next(iter(batch.topic_ids.values()), "")
