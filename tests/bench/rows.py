"""Pending events and buckets in any number, made by the database itself."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from django.db import connection

from buffer.streams import Stream
from config.database.clock import database_now
from outbox.bookkeeping import counters
from tests.bench import databases

DIGITS = "WITH d(n) AS (" + " UNION ALL ".join(f"SELECT {digit}" for digit in range(10)) + ")"
NUMBER = "a.n + 10 * b.n + 100 * c.n + 1000 * d4.n + 10000 * e.n + 100000 * f.n"
NUMBERS = (
    f"{DIGITS}, numbers(n) AS (SELECT {NUMBER} FROM d a, d b, d c, d d4, d e, d f WHERE {NUMBER} < %s), "
    "named(n, wh) AS (SELECT n, CONCAT('WH-', LPAD(CONCAT(MOD(n, %s), ''), 6, '0')) FROM numbers)"
)
PAYLOAD = "REPLACE(REPLACE(REPLACE(%s, '#n', CONCAT(n, '')), '#wh', wh), '#s', CONCAT(MOD(n, 300), ''))"
EVENTS = f"""INSERT INTO buffer_bufferedevent
(partition_key, stream, location_id, order_id, payload, payload_hash, status, revision, token, topic_id,
 source_partition, source_offset, source_timestamp, seen_topic_id, seen_hash, created_at, updated_at)
{NUMBERS}
SELECT %s, %s, wh, CONCAT('A', n), {PAYLOAD}, LPAD(CONCAT(n, ''), 32, '0'), 'pending', 0, 1, '',
 MOD(n, 12), n, 0, '', '', %s, %s
FROM named"""
BUCKETS = f"""INSERT INTO buffer_bucket
(stream, location_id, open_count, sequence, first_arrival, last_arrival, idle_at, cap_at, due_at, topic,
 source_partition, held, urged)
{NUMBERS}
SELECT %s, wh, %s, 0, %s, %s, %s, CASE WHEN n < %s THEN %s ELSE %s END, CASE WHEN n < %s THEN %s ELSE %s END,
 '', MOD(n, 12), %s, '' FROM named"""


def fill(stream: Stream, buckets: int, events_each: int, due: int) -> None:
    """An emptied buffer with that many open buckets; the first `due` of them are due by their cap."""
    databases.empty()
    now = database_now()
    month = now.year * 100 + now.month
    long_ago, just_now, later = (moment(now + timedelta(seconds=s)) for s in (-3600, -60, 900))
    number = buckets * events_each
    databases.execute(EVENTS, [number, buckets, month, stream.name, payload(now), just_now, just_now])
    cap = due_at = [due, long_ago, later]
    times = [just_now, just_now, later, *cap, *due_at, False]
    databases.execute(BUCKETS, [buckets, buckets, stream.name, events_each, *times])
    counters.add({(stream.name, "0", "open"): number}, now)
    for table in ("buffer_bufferedevent", "buffer_bucket"):
        analyse(table)


def payload(now: datetime) -> str:
    """A message of about 300 bytes; the database fills in #n, #wh and #s."""
    items = [{"sku": sku, "quantity": 3} for sku in ("SKU-#s", "SKU-0001")]
    message = {"order_id": "A#n", "location_id": "#wh", "ordered_at": now, "items": items}
    return msgspec.json.encode({**message, "details": "d" * 140}).decode()


def moment(at: datetime) -> object:
    return connection.ops.adapt_datetimefield_value(at)


def analyse(table: str) -> None:
    """What a server does by itself a little later: statistics, and on PostgreSQL the visibility map."""
    if connection.vendor == "postgresql":
        databases.execute(f"VACUUM ANALYZE {table}")
    else:
        databases.rows(f"ANALYZE TABLE {table}")
