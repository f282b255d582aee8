"""Ingestion: a polled batch becomes open events, refreshed buckets, counters and dead letters, or nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import transaction

from buffer.absorb import EVENTS, SEEN, STORED, buckets
from buffer.judge import REASONS, Judge
from buffer.models import BufferedEvent
from buffer.prepared import Key, Prepared, Row, position
from buffer.recount import recount_buckets
from buffer.sent import SentOrders, mark_sent, read_sent, unknown_batches
from buffer.streams import Stream
from buffer.window import window
from config import gate, metrics
from config.clock import database_now
from config.kafka import Batch, Record, topic_name
from config.logs import log
from config.partitions import ensure_partitions
from config.upsert import timestamp_text
from outbox import counters
from outbox.burial import Letter, bury, digest

GROUP = "buffer-ingest"
LOW_WATER = 0.8


class Ingest:
    """The consumer's handler for one stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name = stream.name
        self.group = GROUP
        self.topics = [stream.topic]
        self._pressed = False
        # Only while records are read again that an earlier life of the database had read.
        self.sent: SentOrders | None = None
        self.gaps: dict[tuple[str, int], int] = {}

    # -- on the polling thread ------------------------------------------------------------------------

    def prepare(self, batch: Batch) -> Prepared:
        """Decode and coalesce: within a batch the newest position of an order wins."""
        prepared = Prepared()
        decode, month_of = self.stream.gate.decode, self.stream.month_of
        first, last = window(datetime.fromtimestamp(time.time(), UTC))
        rows, records = prepared.rows, prepared.records
        for record in batch.records:
            value = record.value
            try:
                message = decode(value)
            except gate.Refused as refusal:
                prepared.letters.append(self._refused(batch, record, refusal))
                continue
            month = month_of(message)
            if not first <= month <= last:
                prepared.letters.append(self._outside(batch, record, message, first, last))
                continue
            key = (month, message.order_id, message.location_id)
            row = (
                *key,
                value.decode() if value else "",
                digest(value),
                record.partition,
                record.offset,
                record.timestamp,
            )
            known = rows.get(key)
            if known is None:
                rows[key] = row
                records[key] = [(row, record)]
            else:
                records[key].append((row, record))
                if position(row, "").newer_than(position(known, "")):
                    rows[key] = row
        prepared.read.update(record.partition for record in batch.records)
        return prepared

    def _refused(self, batch: Batch, record: Record, refusal: gate.Refused) -> Letter:
        return self._letter(batch, record, "decode", refusal.reason, str(refusal))

    def _outside(self, batch: Batch, record: Record, message: Any, first: int, last: int) -> Letter:
        text = f"ordered_at is outside the window {first} … {last} that the buffer keeps"
        return self._letter(batch, record, "window", "outside_window", text, message.order_id)

    def _letter(
        self, batch: Batch, record: Record, step: str, reason: str, text: str, order_id: str = "", **more: Any
    ) -> Letter:
        return Letter(
            self.name, step, reason, text, record, batch.topic_ids.get(record.topic, ""), batch.revision,
            business_key=order_id, **more,
        )  # fmt: skip

    # -- on the writer's thread, inside its transaction ------------------------------------------------

    def write(self, batch: Batch, now: datetime) -> None:
        """Store a prepared batch; while a lost gap is read again, in two steps around what was already sent."""
        if self.sent is None:
            self._store(batch, now)
            return
        before, after = self._split(batch, self.sent)
        self._store(before, now)
        self._acknowledge(before, self.sent, now)
        self._store(after, now)
        self.gaps = {tp: end for tp, end in self.gaps.items() if batch.ends.get(tp, 0) < end}
        if not self.gaps:
            self.sent = None  # from here on the database knows everything itself

    def _split(self, batch: Batch, sent: SentOrders) -> tuple[Batch, Batch]:
        """Records up to the version that was sent, and records after it: those are late."""
        late = {
            (row[5], row[6])
            for rows in batch.prepared.records.values()
            for row, _record in rows
            if sent.comes_after(row[1], row[2], row[5], row[6])
        }
        parts = []
        for wanted in (False, True):
            records = [r for r in batch.records if ((r.partition, r.offset) in late) is wanted]
            part = Batch(records, batch.topic_ids, revision=batch.revision)
            part.prepared = self.prepare(part)
            parts.append(part)
        return parts[0], parts[1]

    def _acknowledge(self, batch: Batch, sent: SentOrders, now: datetime) -> None:
        """Rows whose very version stands in the output topic are sent, whatever this database knew."""
        keys = [key for key in batch.prepared.rows if sent.find(key[1], key[2])]
        if mark_sent(self.stream, keys, sent, now):
            recount_buckets(self.stream, {key[2] for key in keys}, now)

    def _store(self, batch: Batch, now: datetime) -> None:
        """Absorb a prepared batch.

        1. One guarded upsert; what it returns was inserted or updated.
        2. Whatever it left alone is read back and classified: redelivered, late, or a conflict.
        3. Buckets that really changed get their arrivals, in sorted order; a redelivery resets no timer.
        4. Letters, then counters: rows that workers share come last.
        """
        prepared: Prepared = batch.prepared
        topic_id = next(iter(batch.topic_ids.values()), "")
        rows = sorted(prepared.rows.values(), key=lambda row: row[:3])
        changed = self._absorb(rows, topic_id, now)
        outcomes: Counter[tuple[int, str]] = Counter()
        arrivals = self._settle_changed(prepared, changed, outcomes)
        letters = list(prepared.letters)
        if len(changed) < len(rows):
            letters += self._classify(
                batch, [row for row in rows if row[:3] not in changed], topic_id, outcomes
            )
        self.arrive(arrivals, now)
        for letter in prepared.letters:
            outcomes[letter.record.partition, "parked"] += 1
        bury(letters, topic_name(self.group), now)
        self._count(prepared.read, outcomes, batch.revision, now)

    def _absorb(self, rows: list[Row], topic_id: str, now: datetime) -> dict[Key, int]:
        found = EVENTS.run(
            rows,
            {
                "stream": self.name, "status": BufferedEvent.Status.PENDING.value, "topic_id": topic_id,
                "revision": 0, "seen_topic_id": "", "seen_hash": "", "created_at": now, "updated_at": now,
            },
        )  # fmt: skip
        return {(month, order_id, location_id): revision for month, order_id, location_id, revision in found}

    def _settle_changed(
        self, prepared: Prepared, changed: dict[Key, int], outcomes: Counter[tuple[int, str]]
    ) -> dict[str, tuple[int, int]]:
        """Count inserted and updated rows; returns `{location: (new events, source partition)}`."""
        arrivals: dict[str, tuple[int, int]] = {}
        records = prepared.records
        for key, revision in changed.items():
            partition = prepared.rows[key][5]
            location = key[2]
            arrivals[location] = (arrivals.get(location, (0, 0))[0] + (revision == 0), partition)
            outcomes[partition, "accepted" if revision == 0 else "superseded"] += 1
            others = records[key]
            if len(others) > 1:
                for row, _record in others:
                    outcomes[row[5], "superseded"] += 1
                outcomes[partition, "superseded"] -= 1
        return arrivals

    def arrive(self, arrivals: dict[str, tuple[int, int]], now: datetime) -> None:
        """Add `{location: (new events, source partition)}` to the buckets and restart their idle timers."""
        if not arrivals:
            return
        stream = self.stream
        soon, at_once = timestamp_text(now + stream.idle), timestamp_text(now)
        rows = [
            (location, number, partition, at_once if number >= stream.max_batch else soon)
            for location, (number, partition) in sorted(arrivals.items())
        ]
        buckets(stream.max_batch).run(
            rows,
            {
                "stream": stream.name, "topic": topic_name(stream.topic), "sequence": 0, "first_arrival": now,
                "last_arrival": now, "idle_at": now + stream.idle, "cap_at": now + stream.cap, "urged": "",
                "held": False,
            },
        )  # fmt: skip

    def _classify(
        self, batch: Batch, rows: list[Row], topic_id: str, outcomes: Counter[tuple[int, str]]
    ) -> list[Letter]:
        """Letters for what the upsert left alone; every record of such an order is judged, oldest first."""
        letters: list[Letter] = []
        seen: list[tuple[Any, ...]] = []
        for stored in EVENTS.read(EVENTS.keys_of(rows), STORED, {"stream": self.name}):
            judge = Judge(*stored[3:])
            for row, record in batch.prepared.records[stored[:3]]:
                verdict = judge.verdict(position(row, topic_id), row[4])
                outcomes[row[5], "redelivered" if verdict == "redelivered" else "late"] += 1
                if verdict != "redelivered":
                    letters.append(self._letter(batch, record, "late", verdict, REASONS[verdict], row[1]))
            if judge.changed:
                seen.append((*stored[:3], *judge.seen, judge.seen_hash))
        SEEN.run(seen, {"stream": self.name}, prune=sorted({row[0] for row in seen}))
        return letters

    def _count(
        self, read: Counter[int], outcomes: Counter[tuple[int, str]], revision: int, now: datetime
    ) -> None:
        counts = {(self.name, str(partition), name): number for (partition, name), number in outcomes.items()}
        for partition, number in read.items():
            counts[self.name, str(partition), "replayed" if revision else "read"] = number
            accepted = outcomes[partition, "accepted"]
            if accepted:
                counts[self.name, str(partition), "open"] = accepted
        counters.add(counts, now)
        for (_partition, name), number in outcomes.items():
            metrics.INGESTED.labels(self.name, name).inc(number)

    def park(self, batch: Batch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        """Bury the one record that the database refused although the gate let it through."""
        letter = self._letter(
            batch,
            record,
            "store",
            "database_refused",
            str(error),
            error_class=type(error).__name__,
            traceback=trace,
        )
        bury([letter], topic_name(self.group), now)
        outcomes = Counter({(record.partition, "parked"): 1})
        self._count(Counter({record.partition: 1}), outcomes, batch.revision, now)

    # -- around it --------------------------------------------------------------------------------------

    def regain(self, topic_ids: Mapping[str, str], gaps: Mapping[tuple[str, int], int]) -> None:
        """The database is older than the group's offsets: learn from the output topic what has been sent.

        Everything read below `gaps` is compared with it, and rows that were pending when the backup was made
        are settled at once.
        """
        self.sent = read_sent(self.stream, topic_ids.get(topic_name(self.stream.topic), ""))
        self.gaps.update(gaps)
        missing = unknown_batches(self.sent)
        log.warning("database_restored", stream=self.name, batches_sent_since=len(missing))
        with transaction.atomic():
            now = database_now()
            pending = BufferedEvent.objects.pending().of_stream(self.name)
            keys = list(pending.values_list("partition_key", "order_id", "location_id"))
            if mark_sent(self.stream, keys, self.sent, now):
                recount_buckets(self.stream, {key[2] for key in keys}, now)

    def pressure(self) -> bool:
        """True above the high-water mark, until the buffer is down to the low one."""
        opened = counters.totals(self.name).get("open", 0)
        limit = settings.BUFFER_HIGH_WATER * (LOW_WATER if self._pressed else 1)
        self._pressed = opened >= limit
        return self._pressed

    def repair(self) -> None:
        ensure_partitions()
