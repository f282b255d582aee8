"""Ingestion: a polled batch becomes open events, refreshed buckets, counters and dead letters, or nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import transaction

from buffer.absorb import EVENTS, SEEN, STORED, buckets
from buffer.judge import REASONS, Judge
from buffer.models import BufferedEvent
from buffer.prepared import Absorbed, Changed, Key, Prepared, Row, position
from buffer.recount import recount_buckets
from buffer.sent import SentOrders, mark_sent, read_sent, unknown_batches
from buffer.streams import Stream
from buffer.window import window
from config import gate, metrics
from config.clock import database_now
from config.kafka import Batch, Record, Tally, topic_name
from config.logs import log
from config.partitions import ensure_partitions
from config.upsert import Packed, timestamp_text
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
            if month < first and batch.from_log:
                prepared.outside[record.partition] += 1
                continue
            if not first <= month <= last:
                prepared.letters.append(self._outside(batch, record, message, first, last))
                continue
            key = (month, message.order_id, message.location_id)
            row = (
                *key,
                digest(value),
                record.partition,
                record.offset,
                record.timestamp,
                value.decode() if value else "",
            )
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

    def keys_of(self, batch: Batch) -> Iterable[Hashable]:
        """The orders of a prepared batch: what becomes of a record depends on nothing else."""
        return batch.prepared.records

    def _refused(self, batch: Batch, record: Record, refusal: gate.Refused) -> Letter:
        return self._letter(batch, record, "decode", refusal.reason, str(refusal))

    def _outside(self, batch: Batch, record: Record, message: Any, first: int, last: int) -> Letter:
        text = f"ordered_at is outside the window {first} … {last} that the buffer keeps"
        return self._letter(batch, record, "window", "outside_window", text, message.order_id)

    def _letter(
        self, batch: Batch, record: Record, step: str, reason: str, text: str, order_id: str = "", **more: Any
    ) -> Letter:
        return Letter(
            self.name, step, reason, text, record, batch.topic_ids.get(record.topic, ""),
            batch.letter_revision, business_key=order_id, **more,
        )  # fmt: skip

    # -- on the writer's thread, inside its transaction ------------------------------------------------

    def write(self, batch: Batch, now: datetime) -> None:
        """Store a prepared batch; while a lost gap is read again, in two steps around what was already sent.

        Events first. Then, once for both steps, the rows that workers share: buckets in sorted order, letters
        and their groups, counters. Two workers never wait for each other in a ring.
        """
        absorbed = Absorbed()
        if (sent := self.sent) is None:
            self._absorb(batch, absorbed, now)
        else:
            before, after = self._split(batch, sent)
            changed = self._absorb(before, absorbed, now)
            absorbed.settled = self._acknowledge(changed, sent, now)
            self._absorb(after, absorbed, now)
            # Not before the commit: a batch that is run again must find what was sent once more.
            transaction.on_commit(partial(self._close_gaps, batch))
        self._share(absorbed, batch.revision, now)
        batch.tally = absorbed.tally(batch) if batch.from_log else batch.tally

    def _close_gaps(self, batch: Batch) -> None:
        for tp in [tp for tp, end in list(self.gaps.items()) if batch.ends.get(tp, 0) >= end]:
            self.gaps.pop(tp, None)  # in place: another writer may close one meanwhile
        if not self.gaps:
            self.sent = None  # from here on the database knows everything itself

    def _split(self, batch: Batch, sent: SentOrders) -> tuple[Batch, Batch]:
        """Records up to the version that was sent, and records after it: those are late."""
        late = sent.late(row for rows in batch.prepared.records.values() for row, _record in rows)
        before, after = (
            Batch([r for r in batch.records if ((r.partition, r.offset) in late) is wanted], batch.topic_ids,
                  revision=batch.revision)
            for wanted in (False, True)
        )  # fmt: skip
        before.prepared, after.prepared = self.prepare(before), self.prepare(after)
        return before, after

    def _acknowledge(self, changed: Iterable[Key], sent: SentOrders, now: datetime) -> set[str]:
        """Of these orders, those whose very version stands in the output topic are sent; returns their locations.

        Only orders that this batch has just changed: their buckets are locked by their arrivals, in order.
        """
        keys = [key for key in changed if sent.find(key[1], key[2])]
        return {key[2] for key in keys} if mark_sent(self.stream, keys, sent, now) else set()

    def _absorb(self, batch: Batch, absorbed: Absorbed, now: datetime) -> Iterable[Key]:
        """Bring the events up to date; returns the keys of the rows that changed.

        1. One guarded upsert; what it returns was inserted or updated.
        2. Whatever it left alone is read back and classified: redelivered, late, or a conflict.
        """
        prepared: Prepared = batch.prepared
        topic_id = next(iter(batch.topic_ids.values()), "")
        rows = prepared.ordered
        changed = self._settle_changed(prepared, self._upsert(rows, topic_id, now), absorbed)
        absorbed.letters += prepared.letters
        if len(changed) < len(rows):
            known = set(changed)
            left = [row for row in rows if row[:3] not in known]
            absorbed.letters += self._classify(batch, left, topic_id, absorbed)
        for letter in prepared.letters:
            absorbed.outcomes[letter.record.partition, "parked"] += 1
        absorbed.read += prepared.read
        absorbed.outside += prepared.outside.total()
        absorbed.touched += changed
        return changed

    def _share(self, absorbed: Absorbed, revision: int, now: datetime) -> None:
        """Buckets that really changed get their arrivals (a redelivery resets no timer), then letters, then counters."""
        self.arrive(absorbed.arrivals, now)
        recounted = recount_buckets(self.stream, absorbed.settled, now)
        absorbed.parked = bury(absorbed.letters, topic_name(self.group), now)
        self._count(absorbed, revision, now, recounted)

    def _upsert(self, rows: Packed, topic_id: str, now: datetime) -> list[Changed]:
        return EVENTS.run(
            rows,
            {
                "stream": self.name, "status": BufferedEvent.Status.PENDING.value, "topic_id": topic_id,
                "revision": 0, "seen_topic_id": "", "seen_hash": "", "created_at": now, "updated_at": now,
            },
        )  # fmt: skip

    def _settle_changed(self, prepared: Prepared, found: list[Changed], absorbed: Absorbed) -> list[Key]:
        """Count inserted and updated rows, and the new events of each location; returns the keys."""
        outcomes, arrivals = absorbed.outcomes, absorbed.arrivals
        changed: list[Key] = [row[:3] for row in found]
        new = [row for row in found if row[3] == 0]
        accepted = Counter([row[4] for row in new])
        for partition, number in Counter([row[4] for row in found]).items():
            outcomes[partition, "accepted"] += accepted[partition]
            outcomes[partition, "superseded"] += number - accepted[partition]
        for key in prepared.repeated.intersection(changed):
            for row, _record in prepared.records[key]:
                outcomes[row[4], "superseded"] += 1
            outcomes[prepared.rows[key][4], "superseded"] -= 1
        numbers = Counter([row[2] for row in new])
        for location, partition in {row[2]: row[4] for row in found}.items():
            arrivals[location] = (arrivals.get(location, (0, 0))[0] + numbers[location], partition)
        return changed

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

    def _classify(self, batch: Batch, rows: list[Row], topic_id: str, absorbed: Absorbed) -> list[Letter]:
        """Letters for what the upsert left alone; every record of such an order is judged, oldest first."""
        letters: list[Letter] = []
        seen: list[tuple[Any, ...]] = []
        for stored in EVENTS.read(EVENTS.keys_of(rows), STORED, {"stream": self.name}):
            judge = Judge(*stored[3:])
            for row, record in batch.prepared.records[stored[:3]]:
                verdict = judge.verdict(position(row, topic_id), row[3])
                absorbed.outcomes[row[4], "redelivered" if verdict == "redelivered" else "late"] += 1
                if verdict != "redelivered":
                    letters.append(self._letter(batch, record, "late", verdict, REASONS[verdict], row[1]))
            if judge.changed:
                seen.append((*stored[:3], *judge.seen, judge.seen_hash))
                absorbed.touched.append(stored[:3])
        SEEN.run(seen, {"stream": self.name}, prune=sorted({row[0] for row in seen}))
        return letters

    def _count(self, absorbed: Absorbed, revision: int, now: datetime, recounted: int = 0) -> None:
        outcomes = absorbed.outcomes
        counts = {(self.name, str(partition), name): number for (partition, name), number in outcomes.items()}
        for partition, number in absorbed.read.items():
            counts[self.name, str(partition), "replayed" if revision else "read"] = number
            if accepted := outcomes[partition, "accepted"]:
                counts[self.name, str(partition), "open"] = accepted
        counts[self.name, "recounted", "open"] = recounted
        counters.add(counts, now)
        for (_partition, name), number in outcomes.items():
            metrics.INGESTED.labels(self.name, name).inc(number)

    def park(self, batch: Batch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        """Bury the one record that the database refused although the gate let it through."""
        letter = self._letter(
            batch, record, "store", "database_refused", str(error), error_class=type(error).__name__, traceback=trace
        )  # fmt: skip
        batch.tally = Tally(parked=bury([letter], topic_name(self.group), now))
        parked = Absorbed(Counter({record.partition: 1}), Counter({(record.partition, "parked"): 1}))
        self._count(parked, batch.revision, now)

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
                recounted = recount_buckets(self.stream, {key[2] for key in keys}, now)
                counters.add({(self.name, "recounted", "open"): recounted}, now)

    def pressure(self) -> bool:
        """True above the high-water mark, until the buffer is down to the low one."""
        opened = counters.totals(self.name).get("open", 0)
        limit = settings.BUFFER_HIGH_WATER * (LOW_WATER if self._pressed else 1)
        self._pressed = opened >= limit
        return self._pressed

    def repair(self) -> None:
        ensure_partitions()
