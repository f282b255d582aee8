"""From the buffer into Kafka: the real process, and the bare claim of the same rows."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from django.db import connection, transaction

from buffer.streams import chosen
from tests.bench import databases, worker
from tests.bench.rows import fill

SELECT = (
    "SELECT id, order_id, payload FROM buffer_bufferedevent "
    "WHERE stream = %s AND status = 'pending'{} AND location_id IN ({}) FOR UPDATE SKIP LOCKED"
)
BY_FLAG = {"mysql": " AND is_pending = 1"}  # no partial index there
UPDATE = "UPDATE buffer_bufferedevent SET {} WHERE partition_key = %s AND id IN ({})"


@dataclass(frozen=True)
class Load:
    """How many buckets, how full, and how many the flusher takes in one round."""

    name: str
    buckets: int
    events_each: int
    a_round: int

    @property
    def events(self) -> int:
        return self.buckets * self.events_each


def loads(quick: bool) -> list[Load]:
    part = 5 if quick else 1
    return [Load("full", 200 // part, 500, 8), Load("small", 10_000 // part, 5, 400)]


def process(load: Load) -> tuple[float, float, worker.Usage]:
    """`flush_buffer --once` on a filled buffer; `(events/s, batches/s, what the process used)`.

    By the database's clock: from the first claim to the last one, and what was claimed, acknowledged by
    Kafka and marked between the two.
    """
    fill(chosen(None)[0], load.buckets, load.events_each, due=load.buckets)
    usage = worker.run("flush_buffer", "--once")
    ((batches, events, sent),) = databases.rows("SELECT COUNT(*), SUM(event_count), COUNT(sent_at) FROM buffer_batch")
    if (events, sent) != (load.events, batches):
        raise RuntimeError(f"{events} of {load.events} events are in batches, {sent} of {batches} were sent")
    ((first, last),) = databases.rows("SELECT MIN(claimed_at), MAX(claimed_at) FROM buffer_batch")
    ((late_batches, late_events),) = databases.rows(
        "SELECT COUNT(*), SUM(event_count) FROM buffer_batch WHERE claimed_at = %s", [last]
    )
    seconds = (last - first).total_seconds()
    return float(events - late_events) / seconds, (batches - late_batches) / seconds, usage


def ceiling(load: Load) -> float:
    """Events per second of the claim alone, all that a flush writes of them: read and lock, claim, commit."""
    stream = chosen(None)[0]
    fill(stream, load.buckets, load.events_each, due=load.buckets)
    ((month,),) = databases.rows("SELECT MIN(partition_key) FROM buffer_bufferedevent")
    locations = [row[0] for row in databases.rows("SELECT location_id FROM buffer_bucket ORDER BY id")]
    started = time.perf_counter()
    for start in range(0, load.buckets, load.a_round):
        bare_claim(stream.name, month, locations[start : start + load.a_round])
    return load.events / (time.perf_counter() - started)


def bare_claim(stream: str, month: int, locations: list[str]) -> None:
    with transaction.atomic():
        select = SELECT.format(BY_FLAG.get(connection.vendor, ""), ", ".join(["%s"] * len(locations)))
        found = databases.rows(select, [stream, *locations])
        ids = ", ".join(str(row[0]) for row in found)
        databases.execute(UPDATE.format("status = 'claimed', batch_id = %s", ids), [uuid.uuid4().hex, month])
