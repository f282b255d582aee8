"""From Kafka into the stock ledger: the real process, bare record-and-adjust, one row at a time; and look-ups."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction
from django.db.models import F

from buffer.ledger.handler import GROUP, Track
from buffer.ledger.statements import ADJUST, RECORD, Group, read_known
from buffer.models import InventoryStock, InventoryTracking
from config.database.clock import database_now
from config.database.upsert import Packed
from config.kafka import RecordBatch, topic_name
from tests.bench import databases, worker
from tests.bench.aggregator import movements
from tests.bench.events import forget, polled
from tests.bench.rows import DIGITS, NUMBER, analyse, moment

TABLE = "buffer_inventorytracking"
OLD = "OLD"  # the reference type of what was in the ledger before
PIECE = 1_000_000
ROWS = f"""INSERT INTO {TABLE} (reference_type, reference_id, stock_id, delta, topic, topic_id, payload_hash, token,
 created_at) {DIGITS}, numbers(n) AS (SELECT %s + {NUMBER} FROM d a, d b, d c, d d4, d e, d f WHERE {NUMBER} < %s)
SELECT '{OLD}', CONCAT('OLD-', LPAD(CONCAT(n, ''), 8, '0')), CONCAT('ST-', LPAD(CONCAT(MOD(n, {movements.STOCKS}), ''), 4, '0')),
 1, '', '', 0, 1, %s FROM numbers"""


# -- what was there before ---------------------------------------------------------------------------
def fill(number: int, begin: int = 0) -> None:
    """Rows `begin` to `number` of the ledger, made by the database itself, and the stocks."""
    now = moment(database_now())
    if not begin:
        for table in (TABLE, "buffer_inventorystock"):
            databases.execute(f"TRUNCATE TABLE {table}")
        InventoryStock.objects.bulk_create(InventoryStock(id=movements.stock(n)) for n in range(movements.STOCKS))
    for start in range(begin, number, PIECE):
        databases.execute(ROWS, [start, min(PIECE, number - start), now])
    for table in (TABLE, "buffer_inventorystock"):
        analyse(table)


def reset() -> None:
    """As before a run: without the movements that came from Kafka."""
    databases.execute(f"DELETE FROM {TABLE} WHERE reference_type <> %s", [OLD])
    for table in ("outbox_watermark", "outbox_flowcounter", "outbox_flowminute"):
        databases.execute(f"TRUNCATE TABLE {table}")
    databases.execute("UPDATE buffer_inventorystock SET quantity = 0")
    if connection.vendor == "postgresql":
        for table in (TABLE, "buffer_inventorystock"):
            analyse(table)


# -- the worker --------------------------------------------------------------------------------------
def process(servers: str, records: int, size: int) -> tuple[float, worker.Usage]:
    """`track_inventory --once` on all of the topics; `(records/s, what the process used)`.

    Counted by the database's own clock: from the start of the first batch's transaction to the start of the
    last one, and the share of the movements recorded between the two.
    """
    reset()
    forget(servers, [topic_name(GROUP)])
    usage = worker.run("track_inventory", "--once", KAFKA_POLL_RECORDS=str(size))
    fresh = f"FROM {TABLE} WHERE reference_type <> '{OLD}'"
    ((first, last, total),) = databases.rows(f"SELECT MIN(created_at), MAX(created_at), COUNT(*) {fresh}")
    ((in_last,),) = databases.rows(f"SELECT COUNT(*) {fresh} AND created_at = %s", [last])
    ((read,),) = databases.rows("SELECT SUM(value) FROM outbox_flowcounter WHERE flow = 'ledger' AND name = 'read'")
    if read != records:
        raise RuntimeError(f"{read} of {records} records were read")
    return records * (total - in_last) / total / (last - first).total_seconds(), usage


def whole_topics(size: int) -> Iterator[RecordBatch]:
    return polled([topic_name(name) for name in (movements.PAID, movements.MOVED)], size)


# -- the bare statements -----------------------------------------------------------------------------
@dataclass
class Ready:
    """One batch, its parameters built: what to record of each topic, and the deltas by key."""

    groups: list[tuple[Packed, dict[str, Any], dict[tuple[str, str], int]]]
    records: int


def ready(size: int) -> list[Ready]:
    connection.ensure_connection()
    handler = Track()
    found = []
    for batch in whole_topics(size):
        prepared = handler.prepare(batch)
        groups = [
            (Packed(rows.values()), constants(batch, group), {key: row[2] for key, row in rows.items()})
            for group, rows in prepared.rows.items()
        ]
        found.append(Ready(groups, len(batch.records)))
    return found


def constants(batch: RecordBatch, group: Group) -> dict[str, Any]:
    topic, reference_type = group
    return {"reference_type": reference_type, "topic": topic, "topic_id": batch.topic_ids.get(topic, "")}


def ceiling(batches: list[Ready]) -> float:
    """Records per second when nothing happens but: record, adjust by what went in, commit."""
    reset()
    started = time.perf_counter()
    for batch in batches:
        with transaction.atomic():
            now = database_now()
            sums: dict[str, int] = {}
            for rows, fixed, deltas in batch.groups:
                for reference, stock in RECORD.run(rows, {**fixed, "created_at": now}):
                    sums[stock] = sums.get(stock, 0) + deltas[reference, stock]
            ADJUST.run(sorted(sums.items()), {"created_at": now, "updated_at": now})
    return sum(batch.records for batch in batches) / (time.perf_counter() - started)


# -- one by one --------------------------------------------------------------------------------------
def one_by_one(number: int) -> float:
    """The same records row by row through the ORM, 500 to a transaction, as the seed of this design had it."""
    reset()
    handler = Track()
    done, started = 0, time.perf_counter()
    for batch in whole_topics(500):
        with transaction.atomic():
            for tracked in handler.prepare(batch).tracked:
                for stock, delta in tracked.movements.deltas.items():
                    store(tracked.movements.reference_type, tracked.movements.reference_id, stock, delta)
        done += len(batch.records)
        if done >= number:
            break
    return done / (time.perf_counter() - started)


def store(reference_type: str, reference: str, stock: str, delta: int) -> None:
    now = database_now()
    _, created = InventoryTracking.objects.get_or_create(
        reference_type=reference_type, reference_id=reference, stock_id=stock,
        defaults={"delta": delta, "created_at": now},
    )  # fmt: skip
    if created:
        InventoryStock.objects.filter(pk=stock).update(quantity=F("quantity") + delta, updated_at=now)


# -- look-ups ----------------------------------------------------------------------------------------
def look_ups(number: int, size: int = 500, repeat: int = 60) -> tuple[list[float], list[float]]:
    """`(ms to find a batch of known keys, ms to try to record it)`, each time, among `number` rows; any age, any order."""
    rng = random.Random(number)
    found, refused = [], []
    for _ in range(repeat):
        keys = sorted((f"OLD-{n:08d}", movements.stock(n % movements.STOCKS)) for n in rng.sample(range(number), size))
        started = time.perf_counter()
        known = read_known(OLD, keys)
        found.append(1000 * (time.perf_counter() - started))
        rows = [(*key, 1, None, None, None, 0) for key in keys]
        started = time.perf_counter()
        fresh = RECORD.run(rows, {"reference_type": OLD, "topic": "", "topic_id": "", "created_at": database_now()})
        refused.append(1000 * (time.perf_counter() - started))
        if len(known) != size or fresh:
            raise RuntimeError(f"{len(known)} of {size} keys were found, {len(fresh)} recorded again")
    return found, refused
