"""From Kafka into the event buffer: the real process, the bare statement, and one row at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from buffer.events.models import BufferedEvent
from buffer.ingest.batch import Row, StoredBatch
from buffer.ingest.handler import Ingest
from buffer.streams import GROUP, chosen
from config.database.clock import database_now
from config.database.dialects.vendors import dialect_for
from config.kafka import RecordBatch, topic_name
from tests.bench import databases, worker
from tests.bench.events import forget, polled


@dataclass
class Statement:
    """One batch's upsert as ingestion would send it, ready to go."""

    sql: str
    params: Sequence[Any]
    records: int


class Caught(Exception):
    """Carries a statement that was about to be executed."""


def process(
    servers: str, records: int, size: int, prefix: str = settings.KAFKA_TOPIC_PREFIX, **environment: str
) -> tuple[float, worker.Usage]:
    """`ingest_events --once` on the whole topic; `(events/s, what the process used)`.

    Counted by the database's own clock: from the start of the first batch's transaction to the start of
    the last one, and the records stored between the two. Starting Python, joining the group and leaving
    it are outside.
    """
    databases.empty()
    forget(servers, [f"{prefix}{GROUP}"])
    told = {**environment, "KAFKA_TOPIC_PREFIX": prefix, "KAFKA_POLL_RECORDS": str(size)}
    usage = worker.run("ingest_events", "--once", **told)
    ((first, last),) = databases.rows("SELECT MIN(created_at), MAX(updated_at) FROM buffer_bufferedevent")
    ((in_last,),) = databases.rows("SELECT COUNT(*) FROM buffer_bufferedevent WHERE updated_at = %s", [last])
    ((read,),) = databases.rows("SELECT SUM(value) FROM outbox_flowcounter WHERE name = 'read'")
    if read != records:
        raise RuntimeError(f"{read} of {records} records were ingested")
    return (records - in_last) / (last - first).total_seconds(), usage


def whole_topic(size: int) -> Iterator[RecordBatch]:
    return polled([topic_name(chosen(None)[0].topic)], size)


def statements(size: int) -> list[Statement]:
    """The upserts of the whole topic, taken from the code that would run them."""
    handler = Ingest(chosen(None)[0])
    return [caught(handler, batch) for batch in whole_topic(size)]


def caught(handler: Ingest, batch: RecordBatch) -> Statement:
    batch.prepared = handler.prepare(batch)
    now = database_now()

    def catch(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise Caught(sql, params)

    try:
        with connection.execute_wrapper(catch):
            handler._store(batch, StoredBatch(), now)
    except Caught as statement:
        return Statement(*statement.args, len(batch.records))
    raise RuntimeError("nothing was executed")


def ceiling(statements: Sequence[Statement]) -> float:
    """Events per second when the database does nothing but these statements, each committed by itself."""
    databases.empty()
    dialect = dialect_for(connection)
    started = time.perf_counter()
    for statement in statements:
        with dialect.cursor(connection) as cursor:
            cursor.execute(statement.sql, statement.params)
            if cursor.description:
                cursor.fetchall()
    return sum(statement.records for statement in statements) / (time.perf_counter() - started)


def one_by_one(number: int) -> float:
    """The same events row by row through the ORM, 500 to a transaction, as the seed of this design had it."""
    databases.empty()
    handler = Ingest(chosen(None)[0])
    done, started = 0, time.perf_counter()
    for batch in whole_topic(500):
        with transaction.atomic():
            for row in handler.prepare(batch).rows.values():
                store(handler.name, row)
        done += len(batch.records)
        if done >= number:
            break
    return done / (time.perf_counter() - started)


def store(stream: str, row: Row) -> None:
    month, order, location, digest, partition, offset, timestamp, traceparent, payload = row
    now = database_now()
    event, created = BufferedEvent.objects.get_or_create(
        partition_key=month, stream=stream, order_id=order, location_id=location,
        defaults={
            "payload": payload, "payload_hash": digest, "source_partition": partition,
            "source_offset": offset, "source_timestamp": timestamp, "traceparent": traceparent, "created_at": now,
            "updated_at": now,
        },
    )  # fmt: skip
    if not created:
        BufferedEvent.objects.pending().filter(pk=event.pk).update(payload=payload, updated_at=now)
